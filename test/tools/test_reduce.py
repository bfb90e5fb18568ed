"""rlx reduce: planted faults are shrunk to the op that is wrong, and come out as lit tests."""

from __future__ import annotations

import shlex
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import rlx
from rlx.errors import GraphError, ShapeError, UnsupportedError
from rlx.ir.op import Array
from rlx.lowering.region import Region
from rlx.lowering.rules import Rule
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.rowwise.select import Rowwise
from rlx.ops.nn.blocks import Linear
from rlx.tools import cli, opt
from rlx.tools.reduce import Subject, reduce_graph
from rlx.tools.reduce.arrays import arrays_for, read_arrays, write_arrays
from rlx.tools.reduce.change import Change, _Rebuild, changed
from rlx.tools.reduce.failures import (
    Command,
    CompileError,
    Mismatch,
    _like,
    difference,
    find_failure,
)
from rlx.types import FLOATS, DType, TensorType
from support.planted import plant
from support.random_graphs import random_case


def model() -> rlx.Graph:
    """A dozen nodes and blocks, one ``abs`` among them."""
    g = rlx.Graph("model")
    x = g.input("x", [6, 16])
    w, b = g.param("w", [16, 24]), g.param("b", [24])
    h = g.linear(x, w, b, activation="gelu")
    h = h.layer_norm(g.param("gamma", [24]), g.param("beta", [24]))
    h = (h.abs() + 1.0).sqrt() * h
    y = h.reshape((6, 4, 6)).transpose([0, 2, 1]).softmax(axis=-1)
    g.set_outputs([h @ w.transpose([1, 0]), y.sum(axes=2), x.relu()])
    return g


def whole(graph: rlx.Graph) -> Subject:
    return Subject(graph, arrays_for(graph))


def names(subject: Subject) -> list[str]:
    return [op.name for op in subject.graph.nodes()]


@pytest.fixture
def wrong_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that is wrong for every negative number."""
    plant(monkeypatch, Rule("wrong", "abs(x) --> x"))


@pytest.fixture
def no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel family that cannot lower what it claimed."""

    def lower(self: object, region: Region, lowering: Lowering) -> None:
        raise UnsupportedError(f"the region has {len(region.nodes)} nodes", lowering.location)

    monkeypatch.setattr(Rowwise, "lower", lower)


@pytest.mark.usefixtures("wrong_rule")
def test_a_wrong_rule_is_reduced_to_the_op_that_it_rewrites() -> None:
    mismatch = Mismatch()
    start = whole(model())
    assert mismatch.holds(start)
    small = reduce_graph(start, mismatch.holds)
    assert names(small) == ["mir.abs"]
    (x,) = small.graph.inputs
    assert not small.graph.params and x.type.size == 1
    assert mismatch.holds(small) and small.arrays is not None and small.arrays[str(x.name)] < 0


@pytest.mark.usefixtures("wrong_rule")
def test_a_fault_inside_a_loop_is_taken_out_of_it() -> None:
    g = rlx.Graph("loop")
    x, n = g.input("x", [4]), g.input("n", [], "i64")

    def body(i: rlx.Value, y: rlx.Value) -> tuple[rlx.Value, rlx.Value]:
        z = rlx.cond(i.lt(2), lambda: y.abs() * 0.5, y.tanh)
        return i + 1, z

    _, y = rlx.while_loop(lambda i, y: i.lt(n), body, (g.constant(0), x))
    g.set_outputs([y.exp()])
    start = Subject(g, arrays_for(g) | {"n": np.int64(3)})
    small = reduce_graph(start, Mismatch().holds)
    assert names(small) == ["mir.abs"]


def test_a_wrong_expansion_stays_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault that is in a block's expansion is gone once the block is expanded."""
    right = Linear.expand

    def reference(self: Linear, *arrays: Array) -> Array:
        g = rlx.Graph()
        leaves = [g.input(f"x{i}", v.shape, v.dtype) for i, v in enumerate(self.present)]
        g.set_outputs(right(self.with_operands(leaves)))
        return rlx.interpret(g, {f"x{i}": a for i, a in enumerate(arrays)})[0]

    monkeypatch.setattr(Linear, "reference", reference, raising=False)
    monkeypatch.setattr(Linear, "expand", lambda self: right(self) + 1.0)
    small = reduce_graph(whole(model()), Mismatch().holds)
    assert names(small) == ["hir.linear"]


@pytest.mark.usefixtures("no_rows")
def test_an_error_is_reduced_and_stays_the_same_error() -> None:
    failure = find_failure(whole(model()), "cpu", {}, Mismatch())
    assert isinstance(failure, CompileError) and isinstance(failure.error, UnsupportedError)
    small = reduce_graph(Subject(model()), failure.holds)
    assert len(small.graph) == 1 and len(small.graph.outputs) == 1
    found = failure.raised(small)
    assert isinstance(found, UnsupportedError) and "the region has" in found.message


def test_other_errors_are_not_the_same() -> None:
    error = CompileError("cpu", {}, UnsupportedError("kernel 'a' has 3 steps"))
    assert error.holds(Subject(model())) is False
    for message, same in (("kernel 'bcd' has 17 steps", True), ("kernel 'a' lacks 3 steps", False)):
        assert _like(UnsupportedError(message), error.error) is same
    assert not _like(GraphError("kernel 'a' has 3 steps"), error.error)


def test_a_command_decides() -> None:
    command = Command("! grep -q mir.softmax {} || exit 3", status=3)
    small = reduce_graph(Subject(model()), command.holds)
    assert names(small) == ["mir.softmax"]
    assert command.outcome(small)[0] == 3
    assert Command("exit 2 #", status=3).holds(small) is False
    assert Command("echo bad; exit 3 #", "b.d", status=3).holds(small)
    assert not Command("echo good; exit 3 #", "b.d", status=3).holds(small)
    assert Command("sleep 9 #", seconds=0.1).outcome(small)[0] == 124


@pytest.mark.parametrize("command", ["grep -c mir.softmax", "grep -c mir.softmax {}"])
def test_a_command_finds_its_file_where_folders_have_spaces(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    assert Command(command).outcome(Subject(model())) == (0, "1\n")


@pytest.mark.parametrize("dt", FLOATS, ids=str)
def test_rounding_is_no_mismatch_and_a_wrong_digit_is(dt: DType) -> None:
    e = np.linspace(-2, 2, 64).astype(dt.numpy)
    up = (e.astype(np.float64) * (1 + float(ml_dtypes.finfo(dt.numpy).eps))).astype(dt.numpy)
    assert difference(e, e, None) is None and difference(up, e, None) is None
    wrong = e.copy()
    wrong[-1] = 1.5
    assert "1 of 64 elements differ" in str(difference(wrong, e, None))
    assert difference(wrong, e, 0.5) is None
    wrong[-1] = np.nan
    assert "found nan" in str(difference(wrong, e, 0.5))


# -- changes ---------------------------------------------------------------------------------------


def test_every_change_keeps_what_the_rest_computes() -> None:
    """Whatever is cut, swapped for nothing else, gets the values that it had."""
    case = random_case(11)
    start = Subject(case.graph, {**case.feeds, **case.params})
    for op in case.graph.nodes():
        cut = changed(start, Change(cut=frozenset(op.results)))
        assert cut is not None and cut.arrays is not None
        for found, expected in zip(
            rlx.interpret(cut.graph, cut.arrays), case.expected, strict=True
        ):
            np.testing.assert_array_equal(found, expected)


def test_sizes_are_replaced_in_shapes_attributes_and_literals() -> None:
    g = rlx.Graph()
    x = g.input("x", [6, 4])
    y = (x + g.constant(np.arange(24, dtype=np.float32).reshape(6, 4))).reshape((24,))
    g.set_outputs([y.expand((3, 24)), x.slice((2, 0), (4, 4))])
    small = changed(whole(g), Change(outputs=[g.outputs[0]], sizes={6: 2}))
    assert small is not None and small.graph.outputs[0].shape == (3, 8)
    assert small.arrays is not None and small.arrays["x"].shape == (2, 4)
    sliced = changed(whole(g), Change(outputs=[g.outputs[1]], sizes={6: 2}))
    assert sliced is not None and sliced.graph.outputs[0].shape == (2, 4)
    assert changed(whole(g), Change(cut=frozenset([y]), sizes={24: 5})) is not None
    narrow = TensorType.of((6, 3), "f32")
    assert changed(whole(g), Change(axes={x: narrow})) is None, "it does not add to the literal"


def test_a_value_that_needs_itself_is_no_graph() -> None:
    g = rlx.Graph()
    early = g.input("x", [4]).exp()
    late = early.relu().abs()
    g.set_outputs(late)
    change = Change(swap={early: late})
    with pytest.raises(ShapeError, match="a value is used before it is made"):
        _Rebuild(whole(g), change).run()
    assert changed(whole(g), change) is None


def test_element_types_are_replaced() -> None:
    g = rlx.Graph()
    x = g.input("x", [4], "bf16")
    g.set_outputs(x.cast(to="f16").cast(to="bf16") * x)
    small = changed(whole(g), Change(dtypes={rlx.bf16: rlx.f32}))
    assert small is not None
    assert [v.dtype.name for v in (*small.graph.inputs, *small.graph.outputs)] == ["f32", "f32"]


def test_tries_are_bounded() -> None:
    calls: list[Subject] = []

    def fails(subject: Subject) -> bool:
        calls.append(subject)
        return False

    start = Subject(model())
    assert reduce_graph(start, fails, tries=5) is start
    assert len(calls) == 5


# -- the command -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("wrong_rule")
def test_the_command_writes_a_test_that_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.mlir"
    rlx.save(model(), path)
    out = tmp_path / "small.mlir"
    assert cli.main(["reduce", str(path), "-o", str(out)]) == 0
    assert capsys.readouterr().err.endswith("14 nodes became 1\n")
    text = out.read_text()
    assert text.startswith("// REQUIRES: native\n// RUN: %python -m rlx.tools.cli reduce %s --test")
    assert "Reduced from model.mlir" in text and text.count("mir.") == 1
    line = text.splitlines()[1].replace("%s", shlex.quote(str(out)))
    run = shlex.split(line.replace("%S", shlex.quote(str(tmp_path))))
    assert cli.main(run[run.index("reduce") :]) == 1
    assert "differ from the interpreter" in capsys.readouterr().err


def test_values_that_matter_are_kept_beside_the_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rule that is wrong for infinity alone: no random array meets it."""
    rule = Rule("wrong", "sub(x, x) --> 0", ("float",))
    plant(monkeypatch, rule)
    g = rlx.Graph()
    x = g.input("x", [4], "bf16")
    g.set_outputs((x - x).relu() + 1.0)
    path, arrays, out = (tmp_path / name for name in ("g.mlir", "given.npz", "small.mlir"))
    rlx.save(g, path)
    assert cli.main(["reduce", str(path), "--mismatch"]) == 1
    assert "nothing to reduce" in capsys.readouterr().err
    write_arrays(arrays, {"x": np.array([1, 2, np.inf, 3]).astype(rlx.bf16.numpy)})
    assert cli.main(["reduce", str(path), "-o", str(out), "--arrays", str(arrays)]) == 0
    assert capsys.readouterr().out == f"{out}\n{out.with_suffix('.npz')}\n"
    assert "--test --arrays %S/small.npz" in out.read_text()
    test = ["reduce", str(out), "--test", "--arrays", str(out.with_suffix(".npz"))]
    assert cli.main(test) == 1
    monkeypatch.undo()
    assert cli.main(test) == 0


def test_arrays_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    g = model()
    path = tmp_path / "a.npz"
    write_arrays(path, {"b": np.zeros(3, np.float32)})
    with pytest.raises(GraphError, match=r"'b' is float32\[3\], expected 24xf32"):
        read_arrays(path, g)


@pytest.mark.usefixtures("no_rows")
def test_an_error_becomes_a_line_of_rlx_opt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.mlir"
    rlx.save(model(), path)
    assert cli.main(["reduce", str(path), "--target", "cpu:x86-64-v3"]) == 0
    out = Path(capsys.readouterr().out.strip())
    assert out == tmp_path / "model.mlir.reduced.mlir"
    run = out.read_text().splitlines()[0]
    assert run == "// RUN: %rlx-opt %s --emit=asm -o %t --target=cpu:x86-64-v3"
    assert opt.main([str(out), "--emit=asm", "-o", str(tmp_path / "t")]) == 1


def test_what_does_not_fail_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    g = rlx.Graph()
    g.set_outputs(g.input("x", ["n", 4]).relu())
    path = tmp_path / "g.mlir"
    rlx.save(g, path)
    for arguments, message in (
        ([], "has dims without a size: n"),
        (["--dim", "n=3"], "nothing fails here"),
        (["--dim", "n=3", "--mismatch"], "nothing to reduce"),
        (["--dim", "n=3", "--target", "cuda"], "only code for cpu is run"),
        (["--dim", "n=3", "--check", "true"], "exit status 0"),
        (["--dim", "n=3", "--check", "false", "--match", "a"], "its output must match 'a'"),
    ):
        assert cli.main(["reduce", str(path), *arguments]) == 1
        assert message in capsys.readouterr().err
    assert cli.main(["reduce", str(path), "--dim", "n=3", "--test"]) == 0
