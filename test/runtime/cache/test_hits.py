"""Compiling through the cache: what is found, what is made again, and what nobody may notice."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import knobs
from rlx.errors import FaultError, RlxError
from rlx.ir.graph import Graph
from rlx.lowering.report import MissReason
from rlx.ops.pointwise.unary import Unary
from rlx.runtime import _native, sized
from rlx.runtime.cache import artifacts, objects, shared
from rlx.runtime.cache.store import Store, load
from rlx.tools.cli import main

ROOT = Path(__file__).resolve().parents[3]


def chain(rows: Any = 3, scale: float = 0.5) -> Graph:
    g = Graph("chain")
    x = g.input("x", [rows, 24])
    g.set_outputs(g.rms_norm((x * scale).exp(), g.param("w", [24], value=np.ones(24, np.float32))))
    return g


def looked(graph: Graph, **options: Any) -> str:
    """What the cache said as the graph was compiled."""
    compiled = rlx.Session("cpu").compile(graph, **options)
    (report,) = compiled.reports
    return report.cache.split(" (")[0]


def the_store() -> Store:
    found = shared.store()
    assert found is not None
    return found


def forget() -> None:
    """As in a new process: nothing is in memory."""
    artifacts.in_memory.clear()
    objects.in_memory.clear()


def kept() -> list[Path]:
    return [f.path for f in the_store().entries() if f.kind == "artifact"]


def test_a_graph_is_compiled_once() -> None:
    forget()
    x = np.linspace(-1, 1, 72, dtype=np.float32).reshape(3, 24)
    session = rlx.Session("cpu")
    first = session.compile(chain())
    again = session.compile(chain())
    forget()
    third = session.compile(chain())
    reports = [f.reports[0] for f in (first, again, third)]
    assert [r.cache.split(";")[0] for r in reports] == [
        "miss (there is no such entry)", "hit (in memory", "hit (on disk",
    ]  # fmt: skip
    expected = first.run({"x": x})[0]
    for f in (again, third):
        np.testing.assert_array_equal(f.run({"x": x})[0], expected)
    assert [r.kernels_made for r in reports] == [len(kept()), 0, 0]
    assert {str(r.compilation.dispatch) for r in reports} == {str(reports[0].compilation.dispatch)}
    assert {str(r.compilation.fusion) for r in reports} == {str(reports[0].compilation.fusion)}
    assert "compile cache: hit (on disk" in str(reports[2])
    assert bytes(first._fast.artifact) == bytes(third._fast.artifact)  # type: ignore[union-attr]


def test_a_hit_says_what_is_decoded() -> None:
    g = rlx.Graph("decoded")
    w = g.param("w", [4, 17], "u8")
    g.set_outputs(g.input("x", [2, 32]).dequant_matmul(w, scheme="mxfp4"))
    for cache in ("miss", "hit"):
        (report,) = rlx.Session("cpu").compile(g).reports
        assert report.cache.startswith(cache)
        assert report.compilation.dispatch.decoded == {"mxfp4": 4 * 32 * 4}


@pytest.mark.parametrize(
    "change",
    [{"graph": chain(scale=0.25)}, {"graph": chain(rows=4)}, {"fuse": False},
     {"dispatch": "common"}],
    ids=["scale", "rows", "fuse", "dispatch"],
)  # fmt: skip
def test_another_graph_or_option_is_another_entry(change: dict[str, Any]) -> None:
    assert looked(chain()) == "miss"
    assert looked(**{"graph": chain(), **change}) == "miss"
    assert looked(chain()) == "hit"
    assert len(kept()) == 2


def test_other_features_are_another_entry() -> None:
    if _native.machine() != "x86_64":
        pytest.skip("the names are those of x86-64")
    assert looked(chain()) == "miss"
    with knobs.cpu.scoped("x86-64-v3"):
        assert looked(chain()) == "miss"
        f = rlx.Session("cpu").compile(chain())
    assert f.reports[0].cache.startswith("hit")
    assert f._fast is not None and f._fast.variant.features == "x86-64-v3"


def test_each_variant_of_sizes_is_an_entry() -> None:
    def numbered(cache: str, *sizes: int) -> list[tuple[str, ...]]:
        f = rlx.Session("cpu").compile(chain("n"))
        for n in sizes:
            f.run({"x": np.zeros((n, 24), np.float32)})
        assert {r.cache.split(" (")[0] for r in f.reports} == {cache}
        return [tuple(f.variants)]

    first = numbered("miss", 2, 3, 1)
    forget()
    assert numbered("hit", 1, 5, 2) == first and len(first[0]) == 2


def test_a_variant_that_another_process_has_made_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sized, "later", lambda _: False)
    f, other = (rlx.Session("cpu").compile(chain("n")) for _ in range(2))
    for compiled, sizes in ((f, (2,)), (other, (1, 7)), (f, (1,))):
        for n in sizes:
            compiled.run({"x": np.zeros((n, 24), np.float32)})
    assert f.variants == other.variants
    assert [r.cache.split(" (")[0] for r in (*f.reports, *other.reports)] == [
        "miss", "hit", "hit", "miss",
    ]  # fmt: skip


def test_each_binding_of_symbols_is_an_entry() -> None:
    with knobs.sizes.scoped("bound"):
        f = rlx.Session("cpu").compile(chain("n"))
    for n in (2, 3, 2):
        f.run({"x": np.zeros((n, 24), np.float32)})
    assert [r.cache.split(" (")[0] for r in f.reports] == ["miss", "miss"]
    assert looked(chain("n"), dims={"n": 3}) == "hit"


def test_equal_kernels_come_from_other_graphs_of_other_processes() -> None:
    forget()
    first = rlx.Session("cpu").compile(chain(3)).reports[0]
    forget()
    other = rlx.Session("cpu").compile(chain(50)).reports[0]
    assert first.kernels_made > 0
    assert (other.cache.split(" (")[0], other.kernels_made) == ("miss", 0)


# -- a hit needs no compiler -------------------------------------------------------------------

PROCESS = """
import sys
import time
import numpy as np, rlx
g = rlx.Graph("g")
x = g.input("x", ["n", 8])
g.set_outputs((x @ g.param("w", [8, 4], value=np.ones((8, 4), np.float32))).relu())
f = rlx.Session("cpu").compile(g)
print(f.run({"x": np.ones((2, 8), np.float32)})[0].sum())
print(f.reports[0].cache.split(" (")[0])
unwanted = ("torch_mlir", "llvmlite", "rlx.compiler.driver", "rlx.kernels")
print([m for m in unwanted if m in sys.modules])
from rlx.runtime.background import waited
waited()  # for the variant of all sizes, which the next process finds too
"""


def process(code: str = PROCESS, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT,
        env={**os.environ, **environment},
    )  # fmt: skip
    return done.stdout.splitlines()


def test_a_hit_imports_no_compiler() -> None:
    assert process()[:2] == ["64.0", "miss"]
    assert process() == ["64.0", "hit", "[]"]
    assert process(PROCESS.replace("(2, 8)", "(3, 8)")) == ["96.0", "hit", "[]"]
    assert process(PROCESS.replace("(2, 8)", "(1, 8)")) == ["32.0", "hit", "[]"]
    other = process(PROCESS.replace("relu", "exp"))
    assert other[1] == "miss"
    assert process(RLX_CACHE="off")[:2] == ["64.0", "off"]


def test_what_is_logged(capfd: pytest.CaptureFixture[str]) -> None:
    with knobs.log.scoped(frozenset(["cache"])):
        looked(chain())
        looked(chain())
        looked(chain(scale=0.25))
    first, second, third = capfd.readouterr().err.splitlines()
    assert first.endswith("miss (there is no such entry)")
    assert "hit (in memory; compiling took" in second
    assert "the nearest entry is" in third and "graph differs in line" in third


# -- the user's lines --------------------------------------------------------------------------


def gather(*, apart: bool) -> tuple[Graph, int]:
    """A graph that faults, and the line of the op that does."""
    g = Graph("gather")
    i, t = g.input("i", [2], "i64"), g.param("t", [3, 4], value=np.ones((3, 4), np.float32))
    if apart:
        out = t.gather(i)
        g.set_outputs(out * 2.0)
    else:
        g.set_outputs(t.gather(i) * 2.0)
    op = next(n for n in g.nodes() if n.short == "gather")
    return g, op.location[1]


def test_a_fault_names_the_line_of_the_graph_at_hand() -> None:
    lines: list[tuple[str, int]] = []
    for apart in (True, False):
        g, line = gather(apart=apart)
        f = rlx.Session("cpu").compile(g)
        with pytest.raises(FaultError) as e:
            f.run({"i": np.array([0, 7])})
        assert e.value.location == (__file__, line)
        lines.append((f.reports[0].cache.split(" (")[0], line))
    assert [what for what, _ in lines] == ["miss", "hit"]
    assert lines[0][1] != lines[1][1]


def test_a_fault_in_a_body_names_its_line() -> None:
    def graph(one: bool) -> Graph:
        g = Graph("bodies")
        i, t = g.input("i", [2], "i64"), g.param("t", [3, 4], value=np.ones((3, 4), np.float32))

        def then() -> Any:
            return t.gather(i)

        def otherwise() -> Any:
            return t.gather(i)

        flag = g.input("flag", [], "bool")
        g.set_outputs(rlx.cond(flag, then, then if one else otherwise))
        return g

    for one, what in ((False, "miss"), (True, "hit"), (False, "hit")):
        g = graph(one)
        lines = {place for op, place in g.places() if "Gather" in type(op).__name__}
        assert len(lines) == 2 - one
        f = rlx.Session("cpu").compile(g)
        assert f.reports[0].cache.startswith(what)
        for flag in (True, False):
            with pytest.raises(FaultError) as e:
                f.run({"i": np.array([0, 7]), "flag": np.array(flag)})
            assert e.value.location in lines


def test_no_line_of_a_user_is_kept() -> None:
    looked(gather(apart=True)[0])
    (path,) = kept()
    entry = load(path)
    assert b"<graph>" in entry.payload
    assert b"test_hits" not in entry.payload
    assert "test_hits" not in str(entry.manifest)


def test_a_report_names_the_lines_of_the_graph_at_hand() -> None:
    def graph() -> Graph:
        g = Graph("two uses")
        x = g.input("x", [4, 24])
        n = g.rms_norm(x + 1.0, g.param("w", [24], value=np.ones(24, np.float32)))
        g.set_outputs([n.exp(), n.sum(axes=0)])
        return g

    for what in ("miss", "hit"):
        (report,) = rlx.Session("cpu").compile(graph()).reports
        assert report.cache.startswith(what)
        missed = report.compilation.fusion.missed
        assert missed and {m.location[0] for m in missed} == {__file__}
        assert {m.kind for m in missed} == {MissReason.SEVERAL_USES}


def test_an_error_of_a_compile_names_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from rlx.lowering.select.table import SELECTORS

    def refuse(region: Any, lowering: Any) -> None:
        raise RlxError(
            f"not today (see {region.location[0]}:{region.location[1]})", region.location
        )

    monkeypatch.setattr(SELECTORS["elementwise"], "lower", refuse)
    g = Graph()
    y = g.input("x", [4]).exp()
    g.set_outputs(y)
    assert y.op is not None
    with pytest.raises(RlxError, match="not today") as e:
        rlx.Session("cpu").compile(g)
    file, line = y.op.location
    assert e.value.location == (file, line)
    assert f"(see {file}:{line})" in e.value.message
    assert kept() == []


# -- what is not kept --------------------------------------------------------------------------


def test_an_op_from_elsewhere_is_compiled_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    from rlx.ir import op as base

    monkeypatch.setattr(base, "registry", dict(base.registry))

    class Twice(Unary, name="users.exp_of_another"):  # type: ignore[call-arg]
        """``exp``, as a user may declare it."""

        def expand(self) -> Any:
            return self.x.exp()

    Twice.__module__ = "users.code"
    g = Graph()
    g.set_outputs(Twice(g.input("x", [4])).out)
    said = artifacts.key_of_graph(g, "cpu", "x86-64-v3", artifacts.Options(), the_store())
    assert isinstance(said, str) and "users.exp_of_another is no op of RLX" in said


def test_files_that_changed_since_they_were_loaded_are_not_trusted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rlx, "LOADED_NS", 0)
    assert looked(chain()) == "not used: RLX's own files have changed since it was loaded"
    assert kept() == []


def test_files_that_change_during_a_compile_are_not_trusted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    objects.in_memory.clear()
    answers = iter([True])  # when the key is made
    monkeypatch.setattr(shared, "unchanged", lambda: next(answers, False))
    monkeypatch.setattr(objects, "unchanged", lambda: False)
    assert looked(chain()) == "miss"
    assert {f.kind for f in the_store().entries()} <= {"sources"}


def test_a_module_whose_file_changed_or_went_away_is_not_trusted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    late = ModuleType("rlx.late")
    late.__file__ = str(tmp_path / "late.py")
    assert shared.unchanged()
    monkeypatch.setitem(sys.modules, "rlx.late", late)
    assert not shared.unchanged()
    Path(late.__file__).write_text("")
    assert not shared.unchanged()
    assert looked(chain()) == "not used: RLX's own files have changed since it was loaded"


def test_a_module_is_looked_at_once_and_again_when_it_is_loaded_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "late.py"
    file.write_text("")
    monkeypatch.setattr(rlx, "LOADED_NS", file.stat().st_ctime_ns + 2 * shared.TICK_NS)
    spec = spec_from_file_location("rlx.late", file)
    assert spec is not None
    late = module_from_spec(spec)
    monkeypatch.setattr(shared, "_changes", {})
    monkeypatch.setitem(sys.modules, "rlx.late", late)
    assert shared.unchanged()
    time.sleep(5 * shared.TICK_NS / 1e9)
    file.write_text("x = 1")
    assert shared.unchanged(), "what runs is what was loaded"
    late.__spec__ = spec_from_file_location("rlx.late", file)  # as importlib.reload does
    assert not shared.unchanged()


def test_the_cache_can_be_turned_off() -> None:
    with knobs.cache.scoped(False):
        assert [looked(chain()), looked(chain())] == ["off", "off"]
    assert kept() == []


def test_a_directory_that_fails_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        knobs.cache_dir.scoped(str(tmp_path / "file")),
        pytest.warns(RuntimeWarning, match="compile cache is not used") as found,
    ):
        assert [looked(chain()), looked(chain(4)), looked(chain())] == ["miss", "miss", "hit"]
    assert len(found) == 1


# -- damage ------------------------------------------------------------------------------------


def places(size: int) -> Sequence[int]:
    """Some of every region of a file."""
    return [*range(0, 120, 13), *range(120, size, max(size // 12, 1)), size - 1]


@pytest.mark.parametrize("how", ["cut", "flip"])
def test_a_damaged_artifact_is_made_again(how: str) -> None:
    x = np.linspace(-1, 1, 72, dtype=np.float32).reshape(3, 24)
    expected = rlx.Session("cpu").compile(chain()).run({"x": x})[0]
    (path,) = kept()
    good = path.read_bytes()
    for at in places(len(good)):
        bad = good[:at] if how == "cut" else good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :]
        path.write_bytes(bad)
        artifacts.in_memory.clear()
        f = rlx.Session("cpu").compile(chain())
        assert f.reports[0].cache.startswith("miss (the entry is damaged"), at
        np.testing.assert_array_equal(f.run({"x": x})[0], expected)
        artifacts.in_memory.clear()
        assert looked(chain()) == "hit"


def test_an_artifact_that_does_not_load_is_made_again() -> None:
    from rlx.runtime.cache.entry import Entry, key_of

    assert looked(chain()) == "miss"
    (path,) = kept()
    key = key_of(load(path).manifest)
    the_store().write((key, Entry.of(key, b"no artifact")))
    artifacts.in_memory.clear()
    f = rlx.Session("cpu").compile(chain())
    told = f.reports[0].cache
    assert "the entry is damaged: " in told and "header: found a file of 11 bytes" in told
    artifacts.in_memory.clear()
    assert looked(chain()) == "hit"


@pytest.mark.parametrize("note", [None, {}, {"missed": [], "fused": {}, "dispatch": [1]}])
def test_an_entry_whose_note_is_none_is_made_again(note: Any) -> None:
    from rlx.runtime.cache.entry import Entry, key_of

    looked(chain())
    (path,) = kept()
    entry = load(path)
    key = key_of(entry.manifest)
    the_store().write((key, Entry.of(key, entry.payload, note)))
    artifacts.in_memory.clear()
    f = rlx.Session("cpu").compile(chain())
    assert "the entry is damaged: its note is malformed" in f.reports[0].cache
    artifacts.in_memory.clear()
    assert looked(chain()) == "hit"


def test_a_damaged_kernel_is_made_again() -> None:
    forget()
    made = rlx.Session("cpu").compile(chain()).reports[0].kernels_made
    for found in the_store().entries():
        if found.kind == "kernel":
            found.path.write_bytes(found.path.read_bytes()[:-1])
    forget()
    report = rlx.Session("cpu").compile(chain(50)).reports[0]
    assert report.kernels_made == made > 0


# -- the command -------------------------------------------------------------------------------


def test_the_command_lists_verifies_explains_and_clears(capsys: pytest.CaptureFixture[str]) -> None:
    def said(*words: str, code: int = 0) -> str:
        assert main(["cache", *words]) == code
        return capsys.readouterr().out

    forget()
    assert said("list").startswith("0 entries")
    assert said("explain") == "nothing has been missed\n"
    looked(chain("n"), dims={"n": 2})
    assert "there is no other artifact" in said("explain")
    looked(chain("n"), dims={"n": 3})
    explained = said("explain")
    assert "dims is 'n=3' here, and 'n=2' there" in explained
    listed = said("list")
    assert '"x": [n, 24] f32, dims n=3' in listed
    assert "kernel" in listed and "of 512.0 MiB" in listed
    newest = kept()[0]
    shown = said("explain", newest.name[:10])
    assert newest.name in shown and "mir.exp(" in shown and "torch-mlir" in shown
    assert ", 0 damaged" in said("verify")
    newest.write_bytes(newest.read_bytes()[:-3])
    verified = said("verify", code=1)
    assert str(newest) in verified and ", 1 damaged" in verified
    assert main(["cache", "explain", newest.name]) == 1
    assert f"{newest}: the entry is damaged" in capsys.readouterr().err
    said("clear")
    assert said("list").startswith("0 entries")
    with knobs.cache.scoped(False):
        assert "off" in said("list")


def test_the_command_lists_entries_of_other_versions(capsys: pytest.CaptureFixture[str]) -> None:
    from rlx.runtime.cache.entry import Entry
    from rlx.runtime.cache.key import Key, Part

    keys = [Key(kind, parts) for kind in ("artifact", "kernel") for parts in ((), (Part("a", ""),))]
    the_store().write(*((key, Entry.of(key, b"")) for key in keys))
    assert main(["cache", "list"]) == 0
    assert capsys.readouterr().out.count("0 nodes, inputs none, dims ?, for ?") == 2


def test_the_command_says_what_it_cannot_remove(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked(chain())
    count = len(the_store().entries())

    def refuse(path: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "unlink", refuse)
    assert main(["cache", "clear"]) == 1
    said = capsys.readouterr().out
    assert said.startswith("0 files") and f"; {count} entries are left" in said


def test_the_command_explains_a_graph(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(*words: str, code: int = 0) -> str:
        assert main(["cache", "explain", path, *words]) == code
        return "".join(capsys.readouterr())

    path = str(tmp_path / "chain.mlir")
    rlx.save(chain("n"), path)
    assert "there is no other artifact to compare it with" in said("--dim", "n=2")
    looked(chain("n"), dims={"n": 2})
    assert "it is there: artifact" in said("--dim", "n=2")
    missing = said("--dim", "n=3")
    assert "it is not there: there is no such entry" in missing
    assert "dims is 'n=3' here, and 'n=2' there" in missing
    assert "has dims without a size: n; give --dim n=SIZE" in said(code=1)
    monkeypatch.setattr(rlx, "LOADED_NS", 0)
    assert "never kept: RLX's own files have changed" in said("--dim", "n=2")


def test_the_command_refuses_a_key_that_names_no_entry(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "explain", "zz"]) == 1
    assert "there is no file 'zz', and no entry has a key that begins so" in capsys.readouterr().err
