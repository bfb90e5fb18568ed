"""General variants: calls wait for two compiles, and what is faster is made in the background."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import knobs
from rlx.base.giving_way import compiles
from rlx.errors import NameError, PassError, ShapeError, UnsupportedError
from rlx.lowering.report import MissedFusion
from rlx.runtime import background, sized
from rlx.runtime.background import later, waited
from rlx.runtime.cache import variants
from rlx.runtime.cache.variants import VariantSource

Array = np.ndarray[Any, Any]
W = np.linspace(-1, 1, 32 * 48, dtype=np.float32).reshape(32, 48)


def _layers() -> rlx.Graph:
    g = rlx.Graph("layers")
    x = g.input("x", [rlx.Dim("batch", 1, 64), rlx.Dim("tokens", 1, 256), 32])
    y = (x @ g.param("w", [32, 48], value=W)).gelu().softmax(-1)
    g.set_outputs([y, y.sum(axes=2), y.transpose((1, 0, 2)).max(axes=0)])
    return g


def _x(batch: int, tokens: int) -> dict[str, Array]:
    draw = np.random.default_rng(0)
    return {"x": draw.standard_normal((batch, tokens, 32)).astype(np.float32)}


def _bits(found: list[Array]) -> list[bytes]:
    return [a.tobytes() for a in found]


def _own(batch: int, tokens: int) -> list[bytes]:
    f = rlx.Session("cpu").compile(_layers(), dims={"batch": batch, "tokens": tokens})
    return _bits(f.run(_x(batch, tokens)))


def _general(f: Any) -> list[bool]:
    return [v.general for v in f._variants.found]


def test_a_general_variant_follows_at_once_and_better_ones_take_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    f = rlx.Session("cpu").compile(_layers())
    with knobs.log.scoped(frozenset({"compile"})):
        f.run(_x(3, 9))
        waited()
        assert _general(f) == [False, True]
        with monkeypatch.context() as m:
            m.setattr(VariantSource, "compile", lambda *_: pytest.fail("it waits for nothing"))
            m.setattr(sized, "later", lambda _: False)
            found = f.run(_x(1, 8))
        f.run(_x(1, 7))
        waited()
    first, second, third = capsys.readouterr().err.splitlines()
    assert "at batch=3, tokens=9: no variant of 0 serves it; one for batch >= 2" in first
    assert "at batch=3, tokens=9: in the background; a general one for" in second
    assert "at batch=1, tokens=7: in the background; one for batch <= 1" in third
    assert _general(f) == [False, False, True]
    assert _bits(found) == _bits(f.run(_x(1, 8))) == _own(1, 8)
    taken = f._executable({"batch": 1, "tokens": 7})
    assert taken.report is f._variants.found[1].report  # type: ignore[union-attr]


def test_a_call_that_comes_before_the_general_variant_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sized, "later", lambda _: False)
    f = rlx.Session("cpu").compile(_layers())
    f.run(_x(3, 9))
    assert _general(f) == [False], "the first is for the sizes of the first call"
    assert _bits(f.run(_x(1, 8))) == _own(1, 8)
    assert _general(f) == [False, True]


def test_a_compile_in_the_background_gives_way(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """To a compile that somebody waits for: it stops at its next stage, and is begun anew."""
    begun, go, compiled = threading.Event(), threading.Event(), VariantSource.compile
    tries: list[bool] = []

    def slow(self: Any, sizes: Any, general: bool = False, hasty: bool = False) -> Any:
        if threading.current_thread().name == "rlx-variants":
            tries.append(general)
            with compiles:
                begun.set()
                assert go.wait(60)
                return compiled(self, sizes, general, hasty)
        return compiled(self, sizes, general, hasty)

    monkeypatch.setattr(VariantSource, "compile", slow)
    f, g = (rlx.Session("cpu").compile(_layers()) for _ in range(2))
    with knobs.cache.scoped(False):
        f.run(_x(3, 9))
        assert begun.wait(60)
        other = threading.Thread(target=lambda: g.run(_x(3, 9)))
        other.start()
        while not compiles.wanted:
            other.join(0.001)
        go.set()
        other.join()
        waited()
    assert _general(f) == _general(g) == [False, True]
    assert len(tries) == 3


def test_the_bits_are_those_of_any_variant_that_serves() -> None:
    f = rlx.Session("cpu").compile(_layers())
    for size in ((3, 9), (1, 8), (8, 16), (40, 200), (1, 1)):
        f.run(_x(*size))
        waited()
    variants = f._variants.found  # type: ignore[union-attr]
    for batch, tokens in ((1, 1), (2, 8), (1, 31), (64, 7), (5, 256), (16, 16)):
        wanted, served = _own(batch, tokens), 0
        for v in variants:
            if v.serves((batch, tokens)):
                if v.code is None:
                    v.load(f._weights(), ())
                    f.set_param("w", W)
                bound = v.bound((batch, tokens))
                assert bound is not None
                bound.weights.set_param("w", W)
                assert _bits(list(bound.run_slots(*_x(batch, tokens).values()))) == wanted
                served += 1
        assert served > 0


def test_what_is_prepared_compiles_no_more(capsys: pytest.CaptureFixture[str]) -> None:
    f = rlx.Session("cpu").compile(_layers())
    f.prepare(dims={"batch": (1, 4), "tokens": 16})
    count = len(f.variants)
    assert count > 1
    capsys.readouterr()
    with knobs.log.scoped(frozenset({"compile"})):
        for batch in (1, 2, 3, 4):
            assert _bits(f.run(_x(batch, 16))) == _own(batch, 16)
        waited()
    assert len(f.variants) == count and "layers" not in capsys.readouterr().err


def test_what_cannot_be_prepared() -> None:
    f = rlx.Session("cpu").compile(_layers())
    with pytest.raises(NameError, match="'bath'"):
        f.prepare(dims={"bath": 3})
    with pytest.raises(ShapeError, match="is from 1 to 64, found 65"):
        f.prepare(dims={"batch": (1, 65)})
    with pytest.raises(ShapeError, match=r"'batch' is a size, or \(least, most\), found 'all'"):
        f.prepare(dims={"batch": "all"})  # type: ignore[dict-item]
    with pytest.raises(UnsupportedError, match="compiles every size of its own"):
        rlx.Session("interpret").compile(_layers()).prepare(dims={"batch": 3})
    fixed = rlx.Session("cpu").compile(_layers(), dims={"batch": 2, "tokens": 3})
    fixed.prepare(dims={})


def test_where_no_better_variant_can_be_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    f = rlx.Session("cpu").compile(_layers())
    f.run(_x(3, 9))
    waited()
    compiled = VariantSource.compile

    def refused(self: Any, sizes: Any, general: bool = False, hasty: bool = False) -> Any:
        if general:
            return compiled(self, sizes, general, hasty)
        raise UnsupportedError("not today")

    monkeypatch.setattr(VariantSource, "compile", refused)
    with knobs.log.scoped(frozenset({"compile"})):
        f.run(_x(1, 8))
        waited()
        assert _bits(f.run(_x(1, 8))) == _own(1, 8)
    assert "what there is goes on serving it: not today" in capsys.readouterr().err
    # What no variant serves has another general one all the same.
    variants = f._variants
    assert variants is not None
    variants.found = variants.found[:1]
    with knobs.log.scoped(frozenset({"compile"})):
        assert _bits(f.run(_x(1, 7))) == _own(1, 7)
    assert "a general one for" in capsys.readouterr().err


def test_a_defect_in_the_background_is_seen_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", seen.append)
    done = threading.Event()

    def broken() -> None:
        raise AssertionError("broken")

    later(broken)
    later(done.set)
    waited()
    assert done.is_set() and [str(a.exc_value) for a in seen] == ["broken"]


def test_a_graph_that_is_gone_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []
    monkeypatch.setattr(sized, "later", lambda work: kept.append(work) or True)
    f = rlx.Session("cpu").compile(_layers())
    f.run(_x(3, 9))
    f.run(_x(1, 8))
    del f
    (work,) = kept
    work()


def test_where_the_system_starts_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call is answered, and the next new sizes ask again."""
    f = rlx.Session("cpu").compile(_layers())
    f.run(_x(3, 9))
    start = threading.Thread.start

    def refused(self: threading.Thread) -> None:
        if self.name == "rlx-variants":
            raise RuntimeError("can't start new thread")
        start(self)

    waited()
    with monkeypatch.context() as m:
        m.setattr(threading.Thread, "start", refused)
        assert _bits(f.run(_x(1, 8))) == _own(1, 8)
        waited()
        assert _general(f) == [False, True]
    f.run(_x(1, 7))
    waited()
    assert _general(f) == [False, False, True]


@pytest.mark.parametrize("kind", [RuntimeError, RecursionError, UnsupportedError])
def test_a_defect_as_the_process_ends(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a thread that cannot be started raises is dropped, and nothing else."""
    seen: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", seen.append)
    worker = background._Worker()
    monkeypatch.setattr(worker, "_ending", lambda: True)

    def broken() -> None:
        raise kind("broken")

    assert worker.add(broken)
    worker.wait()
    assert [type(a.exc_value) for a in seen] == [kind] * (kind is not RuntimeError)


def test_a_call_does_not_wait_for_the_compile_of_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sized, "later", lambda _: False)
    f = rlx.Session("cpu").compile(_layers())
    f.run(_x(3, 9))
    begun, go, compiled = threading.Event(), threading.Event(), VariantSource.compile

    def slow(self: Any, sizes: Any, general: bool = False, hasty: bool = False) -> Any:
        begun.set()
        assert go.wait(60)
        return compiled(self, sizes, general, hasty)

    monkeypatch.setattr(VariantSource, "compile", slow)
    found: list[Any] = []
    other = threading.Thread(target=lambda: found.append(f.run(_x(1, 8))))
    other.start()
    assert begun.wait(60)
    assert f.run(_x(3, 9)) and f.run(_x(5, 11))  # one that is bound, and one that is not
    go.set()
    other.join()
    assert _bits(found[0]) == _own(1, 8)


def test_a_general_variant_may_miss_fusions(monkeypatch: pytest.MonkeyPatch) -> None:
    """It fuses less, and is there for what no other one serves: that is no failure to fuse."""
    refused: list[bool] = []
    compiled = VariantSource.compile

    def missing(self: Any, sizes: Any, general: bool = False, hasty: bool = False) -> Any:
        artifact, report = compiled(self, sizes, general, hasty)
        if general in refused:
            missed = MissedFusion("rowwise", "softmax", ("", 0), "it is long")
            report.compilation.fusion.missed.append(missed)
        return artifact, report

    monkeypatch.setattr(VariantSource, "compile", missing)
    f = rlx.Session("cpu").compile(_layers(), assert_fusion_clean=True)
    refused.append(True)
    f.run(_x(3, 9))
    waited()
    assert _general(f) == [False, True]
    assert _bits(f.run(_x(1, 8))) == _own(1, 8)
    g = rlx.Session("cpu").compile(_layers(), assert_fusion_clean=True)
    refused.append(False)
    with knobs.cache.scoped(False):
        for _ in range(2):  # it is an error of each call, and not of the first one
            with pytest.raises(PassError, match="1 fusions were missed"):
                g.run(_x(3, 9))
    assert _general(g) == [False]


SCRIPT = """
import os, sys
import numpy as np
import rlx
g = rlx.Graph("exit")
x = g.input("x", [rlx.Dim("n", 1, 64), 32])
g.set_outputs((x @ g.param("w", [32, 48], value=np.ones((32, 48), np.float32))).gelu().sum(axes=0))
f = rlx.Session("cpu").compile(g)
for n in (9, 1, 8):
    y = f.run({"x": np.ones((n, 32), np.float32)})[0]
"""
ENDS = {
    "at the end": "",
    "by an error": "raise SystemExit(0)",
    "in a child": (
        "pid = os.fork()\n"
        "y = f.run({'x': np.ones((16, 32), np.float32)})[0]\n"
        "if pid: assert os.waitpid(pid, 0)[1] == 0\n"
    ),
    "in a child that compiles on": (
        "from rlx.runtime import background, sized\n"
        "background.waited()\n"
        "sized.later = lambda work: True\n"
        "f.prepare(dims={'n': 33})\n"
        "f._variants.found = [v for v in f._variants.found if v.general]\n"
        "f.run({'x': np.ones((31, 32), np.float32)})\n"
        "assert f._variants._asked == os.getpid(), 'the parent has asked'\n"
        "sized.later = background.later\n"
        "pid = os.fork()\n"
        "f.run({'x': np.ones((30, 32), np.float32)})\n"
        "background.waited()\n"
        "assert pid or len(f.variants) == 2, f.variants\n"
        "if pid: assert os.waitpid(pid, 0)[1] == 0\n"
    ),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_the_end_of_a_process_in_a_compile(end: str) -> None:
    env = {**os.environ, "RLX_CACHE": "off"}
    command = [sys.executable, "-X", "faulthandler", "-c", SCRIPT + end]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_nothing_is_begun_when_the_process_ends() -> None:
    worker = background._Worker()
    worker._end()
    worker.add(lambda: pytest.fail("it has ended"))
    worker.wait()


def _spectra() -> rlx.Graph:
    g = rlx.Graph("spectra")
    g.set_outputs(g.input("x", [8, "n"], "c64").fft())
    return g


def test_a_graph_that_needs_a_variant_for_each_size(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One compile a size, of which those used last are kept, after a general one in vain."""
    f = rlx.Session("cpu").compile(_spectra())

    def runs(n: int) -> None:
        x = np.random.default_rng(n).standard_normal((8, n)).astype(np.complex64)
        np.testing.assert_allclose(f.run({"x": x})[0], np.fft.fft(x), atol=1e-4)
        waited()

    with knobs.log.scoped(frozenset({"compile"})):
        for n in (3, 4, 5, 6):
            runs(n)
    compiled = [line for line in capsys.readouterr().err.splitlines() if "'spectra'" in line]
    assert len(compiled) == len(f.variants) == 5
    assert sum("a general one" in line for line in compiled) == 1
    variants = f._variants
    assert variants is not None
    variants.found.pop()
    monkeypatch.setattr(sized, "LIMIT", sized._bytes_of(variants.found[:3]))
    runs(3)
    f._bound.clear()
    runs(3)
    runs(7)
    kept = [v for n in (3, 4, 5, 6, 7) for v in variants.found if v.serves((n,))]
    assert len(kept) == len(f.variants) < 5
    assert kept[0].serves((3,)) and kept[-1].serves((7,)) and {*f._bound} == {(7,)}
    runs(4)


def test_the_cache_keeps_no_variant_for_each_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(variants, "MOST", 2)
    with knobs.cache.scoped(True), knobs.cache_dir.scoped(str(tmp_path)):
        f = rlx.Session("cpu").compile(_spectra())
        for n in (3, 4, 5, 6):
            f.run({"x": np.ones((8, n), np.complex64)})
        said = [r.cache for r in f.reports]
    # How many of them calls waited for depends on what the background has made by then.
    refused = said.count("not used: 2 variants are kept")
    assert refused and len(said) - refused == sum(c.startswith("miss") for c in said) <= 2


def test_what_is_better_for_one_size_alone_is_not_made() -> None:
    """A convolution's kernels are chosen by the sizes of images; one variant serves all others."""
    g = rlx.Graph("images")
    x = g.input("x", [rlx.Dim("n", 1, 8), 3, "height", "width"])
    w = np.linspace(-1, 1, 108, dtype=np.float32).reshape(4, 3, 3, 3)
    g.set_outputs(x.conv(g.param("w", [4, 3, 3, 3], value=w), padding=[(1, 1), (1, 1)]).relu())
    f = rlx.Session("cpu").compile(g)
    for n, height, width in ((2, 17, 33), (1, 3, 9), (5, 40, 12), (2, 64, 64)):
        images = np.random.default_rng(n).standard_normal((n, 3, height, width)).astype(np.float32)
        dims = {"n": n, "height": height, "width": width}
        assert _bits(f.run({"x": images})) == _bits(
            rlx.Session("cpu").compile(g, dims=dims).run({"x": images})
        )
        waited()
    variants = f._variants
    assert variants is not None
    assert [(v.general, v.pinned) for v in variants.found] == [(False, True), (True, False)]
    f.prepare(dims={"n": 1, "height": 32, "width": 32})
    assert _general(f) == [False, False, True], "for sizes alone there is a better one"
    artifact = rlx.compile_artifact(g)
    assert len(artifact.variants) <= 5
    h = rlx.Session("cpu").load(artifact)
    images = np.ones((3, 3, 51, 77), np.float32)
    assert _bits(h.run({"x": images})) == _bits(f.run({"x": images}))


def test_loops_of_many_sizes_are_one_kernel() -> None:
    """Running folds, sorts, selections, searches and images in another size."""
    g = rlx.Graph("loops")
    n = rlx.Dim("n", 1, 400)
    x, images = g.input("x", [3, n]), g.input("images", [1, 2, n, 5])
    values, places = x.sort(), x.argsort()
    g.set_outputs(
        [
            x.cumsum(axis=1), x.transpose((1, 0)).cumsum(axis=0), values, places,
            x.flip(1), values.searchsorted(x), images.resize((2 * n, 9), mode="linear"),
            images.resize((3 * n, 5)), images.sort(axis=2), x.topk(1)[0],
        ]
    )  # fmt: skip
    f = rlx.Session("cpu").compile(g)
    f.prepare(dims={"n": (1, 400)})
    variants = f._variants
    assert variants is not None
    general = [v for v in variants.found if v.general]
    assert len(general) <= 6 and not any(v.pinned for v in general)
    for size in (1, 2, 3, 33, 400):
        draw = np.random.default_rng(size)
        given = {
            "x": draw.integers(-9, 9, (3, size)).astype(np.float32),
            "images": draw.standard_normal((1, 2, size, 5)).astype(np.float32),
        }
        own = rlx.Session("cpu").compile(g, dims={"n": size}).run(given)
        found = f.run(given)
        assert _bits(found) == _bits(own), size
        np.testing.assert_array_equal(found[2], np.sort(given["x"]))
        np.testing.assert_array_equal(found[4], given["x"][:, ::-1])
    assert len(f.variants) == len(variants.found)


def test_the_background_begins_a_while_after_it_was_asked() -> None:
    """What takes less, as the run of the call that asked, is not disturbed."""
    worker, done = background._Worker(), list[float]()
    asked = time.monotonic()
    assert worker.add(lambda: done.append(time.monotonic() - asked))
    while not done:
        time.sleep(0.01)
    assert done[0] >= background.PAUSE
    worker.wait()
    asked = time.monotonic()
    assert worker.add(lambda: done.append(time.monotonic()))
    worker.wait()  # by who needs it now
    assert len(done) == 2
