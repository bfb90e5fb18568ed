"""General variants: calls wait for two compiles, and what is faster is made in the background."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import knobs
from rlx.errors import NameError, ShapeError, UnsupportedError
from rlx.runtime import background, sized
from rlx.runtime.background import later, waited

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


def test_a_general_variant_answers_until_a_better_one_takes_over(
    capsys: pytest.CaptureFixture[str],
) -> None:
    f = rlx.Session("cpu").compile(_layers())
    with knobs.log.scoped(frozenset({"compile"})):
        f.run(_x(3, 9))
        assert len(f.variants) == 1, "the first is for the sizes of the first call"
        found = f.run(_x(1, 8))
        waited()
    first, second, third = capsys.readouterr().err.splitlines()
    assert "no variant of 0 serves it; one for batch >= 2" in first
    assert "at batch=1, tokens=8: no variant of 1 serves it; a general one for" in second
    assert "at batch=1, tokens=8: in the background; one for batch <= 1" in third
    general = [v.general for v in f._variants.found]  # type: ignore[union-attr]
    assert general == [False, False, True]
    assert _bits(found) == _bits(f.run(_x(1, 8))) == _own(1, 8)
    taken = f._executable({"batch": 1, "tokens": 8})
    assert taken.report is f._variants.found[1].report  # type: ignore[union-attr]


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
                if v.executable is None:
                    v.load((batch, tokens), f._weights(), ())
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
    made = sized.Variants._made

    def refused(self: Any, sizes: Any, general: bool, where: str = "") -> Any:
        if general:
            return made(self, sizes, general, where)
        raise UnsupportedError("not today")

    monkeypatch.setattr(sized.Variants, "_made", refused)
    with knobs.log.scoped(frozenset({"compile"})):
        f.run(_x(1, 8))
        waited()
        assert _bits(f.run(_x(1, 8))) == _own(1, 8)
    assert "a general variant goes on serving it: not today" in capsys.readouterr().err


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
    monkeypatch.setattr(sized, "later", kept.append)
    f = rlx.Session("cpu").compile(_layers())
    f.run(_x(3, 9))
    f.run(_x(1, 8))
    del f
    (work,) = kept
    work()


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
