"""Graphs in few bits without training: scales, records, and products of integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx import quant
from rlx.errors import DTypeError, FaultError, GraphError, ShapeError

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
PARAMS = {
    "up.w": RNG.standard_normal((64, 96), np.float32) / 8,
    "up.b": RNG.standard_normal((96,), np.float32),
    "down.w": RNG.standard_normal((32, 96), np.float32) / 10,
    "k": RNG.standard_normal((8, 3, 3, 3), np.float32) / 5,
}
X = RNG.standard_normal((20, 64), np.float32)
IMAGES = RNG.standard_normal((2, 3, 10, 10), np.float32)


def mlp() -> rlx.Graph:
    """A block of the model builder, and a product by a transposed weight."""
    g = rlx.Graph("mlp")
    x = g.input("x", X.shape)
    w, b, v = (g.param(n, PARAMS[n].shape) for n in ("up.w", "up.b", "down.w"))
    g.set_outputs({"y": g.linear(x, w, b).gelu() @ v.transpose()})
    return g


def convolution() -> rlx.Graph:
    g = rlx.Graph("conv")
    k = g.param("k", PARAMS["k"].shape)
    g.set_outputs(g.input("x", IMAGES.shape).conv2d(k, None, 1, 1).relu())
    return g


def run(graph: rlx.Graph, params: Any, x: Array, device: str = "cpu") -> tuple[Array, Any]:
    f = rlx.Session(device).compile(graph)
    for p in graph.params:
        f.set_param(str(p.name), params[p.name])
    return f.run({"x": x})[0], f


def off(found: Array, want: Array) -> float:
    return float(np.linalg.norm(found - want) / np.linalg.norm(want))


@pytest.mark.parametrize("calibration", [None, [{"x": X}, {"x": X[::-1] * 2}]])
def test_products_are_of_integers(calibration: Any) -> None:
    g = mlp()
    want, _ = run(g, PARAMS, X)
    found = quant.quantize_graph(g, PARAMS, "int8", calibration)
    y, f = run(found.graph, found.params, X)
    assert 1e-4 < off(y, want) < (0.02 if calibration is None else 0.04)
    matrices = {str(p.name): p.dtype for p in found.graph.params}
    assert matrices == {
        "up.b": rlx.DType.F32, "up.w.int8": rlx.DType.I8, "up.w.scales": rlx.DType.F32,
        "down.w.int8.t": rlx.DType.I8, "down.w.scales.t": rlx.DType.F32,
    }  # fmt: skip
    native = f.reports[0].compilation.dispatch.native
    assert sum(n for name, n in native.items() if "contraction: cast+cast+matmul" in name) == 2
    assert found.graph.output_names == ("y",)
    np.testing.assert_allclose(run(found.graph, found.params, X, "interpret")[0], y, atol=1e-5)
    assert [r.name for r in found.rows] == ["up.w", "down.w"]
    assert all(0.001 < r.error < 0.02 and r.after < r.before / 3 for r in found.rows)
    assert "up.w" in str(found)
    assert "int8" in str(found)


def test_without_calibration_a_row_does_not_depend_on_others() -> None:
    found = quant.quantize_graph(mlp(), PARAMS)
    whole, _ = run(found.graph, found.params, X)
    other = X.copy()
    other[1:] *= 100
    np.testing.assert_array_equal(run(found.graph, found.params, other)[0][0], whole[0])


def test_a_map_says_the_scheme_of_each_weight() -> None:
    schemes = quant.QuantMap({"up.*": "q8_0", "down.w": None, "*": "int8"})
    found = quant.quantize_graph(mlp(), PARAMS, schemes)
    assert {r.name: r.scheme for r in found.rows} == {"up.w": "q8_0", "down.w": "left"}
    assert found.params["up.w.q8_0"].shape == (96, 68)
    y, f = run(found.graph, found.params, X)
    assert off(y, run(mlp(), PARAMS, X)[0]) < 0.01
    assert f.reports[0].compilation.dispatch.native["block_product: dequant_matmul"] == 1
    left = quant.quantize_graph(mlp(), PARAMS, "q4_k").rows
    assert [r.scheme for r in left] == ["left: no blocks of 256"] * 2
    assert dict(schemes) == {"up.*": "q8_0", "down.w": None, "*": "int8"}
    assert schemes.scheme_of("k") == "int8"
    assert "q8_0" in repr(schemes)
    assert len(schemes) == 3


def test_convolutions_are_of_integers() -> None:
    g = convolution()
    want, _ = run(g, PARAMS, IMAGES)
    found = quant.quantize_graph(g, PARAMS, calibration=[{"x": IMAGES}])
    y, f = run(found.graph, found.params, IMAGES)
    assert 1e-4 < off(y, want) < 0.03
    assert found.graph.params[0].dtype is rlx.DType.I8
    assert quant.quantize_graph(g, PARAMS, "q8_0").rows[0].scheme == "left: a convolution"
    assert quant.quantize_graph(g, PARAMS, {"k": None}).rows[0].scheme == "left"
    assert f.reports


def test_a_weight_that_is_read_otherwise_too_stays_beside() -> None:
    g = rlx.Graph("tied")
    w = g.param("w", (96, 64), value=PARAMS["up.w"].T.copy())
    g.set_outputs(w.gather(g.input("ids", [5], "i64")) @ w.transpose())
    found = quant.quantize_graph(g)
    assert sorted(str(p.name) for p in found.graph.params) == ["w", "w.int8.t", "w.scales.t"]
    ids = np.arange(5)
    f = rlx.Session("cpu").compile(found.graph)
    for name, value in found.params.items():
        f.set_param(name, value)
    w0 = PARAMS["up.w"].T
    assert off(f.run({"ids": ids})[0], w0[ids] @ w0.T) < 0.02


def test_a_calibrator_folds_the_largest_elements() -> None:
    calibrator = quant.Calibrator(mlp(), params=PARAMS)
    with pytest.raises(GraphError, match="call step"):
        _ = calibrator.record
    calibrator.step({"x": X})
    calibrator.step({"x": X / 2})
    record = calibrator.record
    x = calibrator.graph.inputs[0]
    np.testing.assert_allclose(record[x].scales, np.abs(X).max() / 127, rtol=1e-6)
    assert len(record) == 4
    weights = {str(v.name): e for v, e in record.items() if v.name}
    assert weights["up.w"].axis == 1
    assert weights["down.w"].axis == 0
    np.testing.assert_allclose(
        weights["down.w"].scales, np.abs(PARAMS["down.w"]).max(1) / 127, rtol=1e-6
    )
    graph = quant.insert_q_dq(calibrator.graph, record)
    y, f = run(graph, PARAMS, X)
    want, _ = run(mlp(), PARAMS, X)
    assert 1e-4 < off(y, want) < 0.04
    native = f.reports[0].compilation.dispatch.native
    assert sum(n for name, n in native.items() if "cast+cast+matmul" in name) == 2
    static = quant.quantize_graph(mlp(), PARAMS, calibration=[{"x": X}])
    np.testing.assert_allclose(y, run(static.graph, static.params, X)[0], rtol=1e-4, atol=1e-5)
    assert "CalibrationEntry" in repr(record)


def test_a_value_of_zeros_has_the_least_scale() -> None:
    calibrator = quant.Calibrator(mlp(), params=PARAMS)
    calibrator.step({"x": X * 0})
    assert calibrator.record[calibrator.graph.inputs[0]].scales == np.float32(1e-6)


def test_taps_may_be_any_value() -> None:
    g = rlx.Graph("taps")
    x = g.input("x", X.shape)
    h = x.exp()
    g.set_outputs([h * 2, h])
    calibrator = quant.Calibrator(g, [h])
    calibrator.step({"x": X})
    most = np.exp(X.astype(np.float64)).max()
    np.testing.assert_allclose(calibrator.record[h].scales, most / 127, rtol=1e-5)
    entry = quant.CalibrationEntry(0.5, 3)
    f = rlx.Session("cpu").compile(quant.insert_q_dq(g, {h: entry}))
    twice, same = f.run({"x": X})
    np.testing.assert_allclose(same, np.exp(X), rtol=1e-6)
    rounded = (np.clip(np.rint(np.exp(X) / 0.5) + 3, -128, 127) - 3) * 0.5
    assert np.mean(np.abs(twice - 2 * rounded) > 1e-6) < 1e-2, "but for ties of rounding"


def calibrated(x: Array) -> None:
    quant.Calibrator(mlp(), params=PARAMS).step({"x": x})


H = mlp().inputs[0]
REFUSED: list[tuple[type[Exception], str, Any]] = [
    (GraphError, "no value: give it by params", lambda: quant.quantize_graph(mlp())),
    (GraphError, "needs scales of its inputs", lambda: quant.quantize_graph(convolution(), PARAMS)),
    (DTypeError, "of a scheme of blocks, found awq", lambda: quant.QuantMap({"*": "awq"})),
    (GraphError, "no value to calibrate", lambda: quant.Calibrator(mlp(), [])),
    (GraphError, "is no value of graph", lambda: quant.Calibrator(mlp(), [H])),
    (GraphError, "has no op that reads", lambda: quant.insert_q_dq(
        mlp(), {H: quant.CalibrationEntry(1.0)})),
    (DTypeError, "maps values of a graph", lambda: quant.CalibrationRecord({"x": 1.0})),  # type: ignore[dict-item]
    (FaultError, "not finite", lambda: calibrated(X * np.inf)),
    (FaultError, "positive and finite", lambda: quant.CalibrationEntry(0.0)),
    (ShapeError, "the axis that they are along", lambda: quant.CalibrationEntry([1.0, 2.0])),
]  # fmt: skip


@pytest.mark.parametrize(("error", "words", "use"), REFUSED, ids=range(len(REFUSED)))
def test_refusals(error: type[Exception], words: str, use: Any) -> None:
    with pytest.raises(error, match=words):
        use()


def test_taps_are_floats() -> None:
    g = rlx.Graph("ids")
    ids = g.input("ids", [3], "i64")
    g.set_outputs(ids + 1)
    with pytest.raises(DTypeError, match="scales are of floats"):
        quant.Calibrator(g, [ids])


def test_names_that_are_none() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'quantise'"):
        _ = quant.quantise  # type: ignore[attr-defined]
