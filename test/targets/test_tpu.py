"""TPUs: graphs as StableHLO, run by its reference interpreter and by XLA's CPU client."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rlx
from rlx.errors import FaultError, IRError, UnsupportedError
from rlx.runtime.devices.gpu_program import DeviceVariant
from rlx.targets import find_target
from rlx.targets.base import check_kernels
from rlx.targets.graph.tensor import Tensor
from rlx.targets.graph.whole import Refused, Whole
from rlx.tools.opt import main
from rlx.types import bf16, f32, f64, i32
from support.graph_conformance import cases_for, conforms
from support.samples import op_classes
from support.tolerances import assert_close
from support.whole import STANDS, Stood, by_interpreter

TEST = Path(__file__).parents[1]

WITHOUT_ROW = frozenset(
    f"mir.{name}"
    for name in (
        "eigh", "eigvalsh", "lstsq", "pinv", "qr", "rasterize_gaussians",
        "rasterize_gaussians_grad", "rasterize_gaussians_tangent", "svd", "svdvals",
    )
)  # fmt: skip
"""The ops that are refused, or that expand to one."""


def _stood(g: rlx.Graph) -> Stood:
    return Stood(g, "tpu", by_interpreter)


def test_every_op_agrees_with_the_interpreter_on_some_type(tmp_path: Path) -> None:
    """In a process of its own: what StableHLO's interpreter cannot run ends it."""
    out = tmp_path / "found.json"
    command = [sys.executable, "-m", "support.graph_conformance", "tpu", "interpreter"]
    done = subprocess.run(
        [*command, "--out", str(out)], cwd=TEST, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    found = json.loads(out.read_text(encoding="utf-8"))["findings"]
    assert {f["op"] for f in found if f["verdict"] == "refused"} == WITHOUT_ROW
    assert len({f["op"] for f in found}) > len(op_classes()) - 15


@pytest.mark.parametrize("count", [1, 6, 200])
def test_results_of_bf16_are_read(count: int) -> None:
    """Which MLIR prints in three ways: one number, decimals, and the bytes of many."""
    g = rlx.Graph("short")
    g.set_outputs([-g.input("x", [count], "bf16")])
    numbers = np.resize(np.array([1e-40, np.inf, -np.inf, np.nan, 0.1, -0.0]), count)
    x = numbers.astype(bf16.numpy)
    (out,) = _stood(g).run({"x": x})
    np.testing.assert_array_equal(out.astype("f4"), -x.astype("f4"))


def test_xla_agrees_too() -> None:
    stand = STANDS["xla"]
    if why := stand.missing():
        pytest.skip(why)
    chosen = [c for c in cases_for("tpu", stand, "turning") if c.dtype in (None, f32)]
    wrong = [str(f) for f in conforms("tpu", stand, chosen[:60]) if not f.good]
    assert not wrong, "\n".join(wrong)


def test_an_index_out_of_range_is_a_fault_at_its_line() -> None:
    g = rlx.Graph("faults")
    x, i = g.input("x", [4]), g.input("i", [2], "i32")
    first = x.gather(i)
    second = x.gather(i + 1)
    g.set_outputs([first + second])
    stood = _stood(g)
    (out,) = stood.run({"x": np.arange(4, dtype="f4"), "i": np.array([0, 2], "i4")})
    assert out.tolist() == [1.0, 5.0]
    line = second.op.location[1] if second.op else 0
    with pytest.raises(FaultError, match="out of range for axis 0 of 4") as e:
        stood.run({"x": np.zeros(4, "f4"), "i": np.array([0, 3], "i4")})
    assert e.value.location == (__file__, line)


def test_branches_and_loops_run_as_such() -> None:
    g = rlx.Graph("control")
    x, n = g.input("x", [3]), g.input("n", [], "i64")
    branch = rlx.cond(n.gt(2), lambda: x * 2.0, lambda: x - 1.0)
    count, total = rlx.while_loop(
        lambda i, _: i.lt(n), lambda i, v: (i + 1, v + x), (g.constant(0).cast(to="i64"), x)
    )
    last, stack = rlx.scan(lambda c, e: (c + e, c * e), x.sum(), x, reverse=True)
    g.set_outputs([branch, count, total, last, stack])
    feeds = {"x": np.array([1, 2, 3], "f4"), "n": np.asarray(4, np.int64)}
    for a, b in zip(_stood(g).run(feeds), rlx.interpret(g, feeds), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_fault_in_a_loop_is_told() -> None:
    g = rlx.Graph("loop")
    x, start = g.input("x", [3]), g.input("i", [], "i64")
    _, total = rlx.while_loop(
        lambda i, _: i.lt(5), lambda i, v: (i + 1, v + x.gather(i)), (start, x.sum())
    )
    limited = rlx.while_loop(lambda i: i.lt(9), lambda i: i + 1, start, limit=3)
    g.set_outputs([total, limited])
    stood = _stood(g)
    with pytest.raises(FaultError, match="out of range for axis 0 of 3"):
        stood.run({"x": np.ones(3, "f4"), "i": np.asarray(2, np.int64)})
    with pytest.raises(FaultError, match="3"):
        stood.run({"x": np.ones(3, "f4"), "i": np.asarray(5, np.int64)})


def test_rows_of_several_sequences_go_in_order() -> None:
    """Two sequences, one of which begins anew, and a row of none; a slot outside is a fault."""
    g, rng = rlx.Graph("rows"), np.random.default_rng(0)
    x, delta = g.input("x", [6, 4, 2]), g.input("delta", [6, 4])
    b, state = g.input("b", [6, 2, 3]), g.input("state", [3, 4, 2, 3])
    where = g.input("slots", [6], "i32"), g.input("positions", [6], "i32")
    y, after = x.selective_scan_rows(delta, g.input("a", [4, 3]), b, b, state, *where)
    g.set_outputs([y, after])
    feeds = {str(v.name): rng.standard_normal(v.shape).astype("f4") for v in g.inputs}
    feeds["slots"] = np.array([2, 2, 0, 9, 0, 1], "i4")
    feeds["positions"] = np.array([7, 8, 0, -1, 1, 0], "i4")
    stood = _stood(g)
    for a, b in zip(stood.run(feeds), rlx.interpret(g, feeds), strict=True):
        assert_close(a, b)
    feeds["positions"] = np.array([7, 8, 0, 2, 1, 0], "i4")
    with pytest.raises(FaultError, match="a row's slot is outside the states"):
        stood.run(feeds)


def test_a_state_that_decays_without_bound_is_infinite() -> None:
    """And not nan, as infinity times the 0 before a recurrence's first step would be."""
    g = rlx.Graph("scan")
    x, state = g.input("x", [1, 2, 1]), g.input("state", [1, 1, 1])
    y, last = x.selective_scan(x, g.input("a", [1, 1]), x, x, None, state)
    g.set_outputs([y, last])
    feeds = {str(v.name): np.ones(v.shape, "f4") for v in g.inputs}
    feeds["a"][:] = np.inf
    for found, want in zip(_stood(g).run(feeds), rlx.interpret(g, feeds), strict=True):
        assert np.isinf(want).all()
        np.testing.assert_array_equal(found, want)


def test_a_loop_of_a_formula_ends_for_each_element() -> None:
    """Some elements take the series, of few terms or many, others the integral."""
    g = rlx.Graph("gamma")
    a, x = g.input("a", [5, 1]), g.input("x", [7])
    g.set_outputs([a.igamma(x), a.igammac(x)])
    feeds = {
        "a": np.array([[0.01], [0.5], [3], [19], [900]], "f4"),
        "x": np.array([0, 1e-3, 0.7, 4, 30, 880, 1e4], "f4"),
    }
    for found, want in zip(_stood(g).run(feeds), rlx.interpret(g, feeds), strict=True):
        assert_close(found, want)


def test_all_that_is_refused_is_said_at_once() -> None:
    g = rlx.Graph("refused")
    x = g.input("x", [3, 3])
    g.set_outputs([*x.qr(), x.eigvalsh(), x.eigh()[0], (x @ g.input("big", [3, 3])).exp()])
    with pytest.raises(UnsupportedError) as e:
        rlx.compile_artifact(g, "tpu:v6e")
    said = e.value.message
    assert said.startswith("tpu:v6e does not run: mir.qr x 1 (first at ")
    assert "mir.eigvalsh x 1" in said and "mir.eigh x 1" in said and "mir.exp" not in said
    inner = rlx.Graph("inner")
    y = inner.input("x", [3, 3])
    inner.set_outputs([rlx.cond(y.sum().gt(0.0), y.eigvalsh, lambda: y.sum(0))])
    with pytest.raises(UnsupportedError, match=r"control.cond x 1 .*: an op in its body is"):
        rlx.compile_artifact(inner, "tpu")
    large = rlx.Graph("large")
    large.set_outputs([large.input("x", [65, 65]).cholesky()])
    with pytest.raises(UnsupportedError, match=r"mir.cholesky.* a matrix of 65 rows"):
        rlx.compile_artifact(large, "tpu")
    long = rlx.Graph("long")
    keys, share = long.input("q", [1, 65, 1, 2]), long.input("g", [1, 65, 1])
    long.set_outputs([keys.gated_delta_net(keys, keys, share, share)[0]])
    with pytest.raises(UnsupportedError, match="65 steps of a recurrence, of which 64 are written"):
        rlx.compile_artifact(long, "tpu")


def test_a_word_that_a_system_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    k = Whole(find_target("mlx").kernels)
    with pytest.raises(Refused, match="it computes in f64: MLX has none"):
        k.cast(Tensor(k, None, i32, ()), f64)
    with pytest.raises(Refused, match="there is no control flow"):
        k.control(None, [], {})
    with pytest.raises(Refused, match="a loop that goes on until all elements are done"):
        k.repeat(lambda x: x < 1.0, lambda x: (x,), [Tensor(k, None, f32, (2,))])

    def refuses(asked: object, stage: str) -> bytes:
        raise Refused("an argument")

    g = rlx.Graph("one")
    g.set_outputs([g.input("x", [2]).exp()])
    monkeypatch.setattr("rlx.targets.tpu.emit.Tpu.write", lambda self, *given: refuses(*given))
    with pytest.raises(UnsupportedError, match="tpu:v5e does not run: an argument"):
        rlx.compile_artifact(g, "tpu")


def test_an_artifact_holds_a_portable_program(tmp_path: Path) -> None:
    g = rlx.Graph("mlp")
    g.set_outputs([(g.input("x", [2, 3]) @ g.param("w", [3, 4])).gelu()])
    made = rlx.compile_artifact(g, "tpu:v5p", params={"w": np.ones((3, 4), "f4")})
    made.save(tmp_path / "mlp.rlx")
    read = rlx.Artifact.load(tmp_path / "mlp.rlx")
    report = read.extras["v5p/report"].decode()
    assert report.startswith('{"generation": "v5p"') or "not compiled for v5p: it needs" in report
    (variant,) = read.variants
    assert isinstance(variant, DeviceVariant)
    assert (read.target, variant.features) == ("tpu", "v5p")
    assert b"StableHLO" in variant.program.kernels[0].code[:64]
    run = by_interpreter(variant.program.kernels[0].code)
    (y,) = run([np.ones((3, 4), "f4"), np.ones((2, 3), "f4")])
    np.testing.assert_allclose(y, np.full((2, 4), 2.9959502), rtol=1e-6)


TEXT = """
func.func @main(%x: tensor<2x3xf32> {rlx.input = "x"}) -> tensor<2x3xf32> {
  %0 = "mir.softmax"(%x) {axis = 1 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}
"""


def _opt(folder: Path, text: str, stage: str, target: str = "tpu") -> Path:
    source, out = folder / "in.mlir", folder / f"{stage}.mlir"
    source.write_text(text, encoding="utf-8")
    main([str(source), f"--emit={stage}", f"--target={target}", "-o", str(out)])
    return out


def test_rlx_opt_shows_the_stages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = _opt(tmp_path, TEXT, "stablehlo").read_text(encoding="utf-8")
    assert '"stablehlo.exponential"' in shown and "func.func public @main" in shown
    assert b"StableHLO" in _opt(tmp_path, TEXT, "vhlo").read_bytes()[:64]
    _opt(tmp_path, TEXT, "lir")
    said = capsys.readouterr().err
    assert "tpu takes whole graphs" in said and "stablehlo, vhlo, tpu" in said
    fused = _opt(tmp_path, TEXT, "fused", "cpu").read_text(encoding="utf-8")
    assert "mir.fused" in fused
    _opt(tmp_path, fused, "stablehlo")
    assert "the input is fused" in capsys.readouterr().err


def test_a_report_says_what_runs_and_what_does_not() -> None:
    g = rlx.Graph("report")
    x = g.input("x", [3, 3])
    g.set_outputs([x.softmax(), x.eigvalsh()])
    report = rlx.analyze_dispatch(g, "tpu")
    assert not report.compile_ready and report.still_unsupported[0][1] == "mir.eigvalsh"
    assert any("exp" in way for way in report.native)
    assert not rlx.analyze_dispatch(g, "cpu").still_unsupported


def test_there_are_no_kernels_for_it() -> None:
    target = find_target("tpu")
    with pytest.raises(UnsupportedError, match="takes whole graphs, and no kernels"):
        target.emitter.emit([], "vhlo")
    check_kernels([], "cpu")


def test_text_that_is_no_stablehlo_is_refused() -> None:
    from rlx._mlir import portable_stablehlo

    with pytest.raises(IRError, match="MLIR text"):
        portable_stablehlo("module { func.func @main() { stablehlo.nothing } }")
