"""Graphs in few bits without training: scales, records, and products of integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx import quant
from rlx.errors import DTypeError, FaultError, GraphError, NameError, ShapeError
from rlx.types import DTYPES
from support.per_op import each_op
from support.samples import Case, cases
from support.tolerances import Tolerance, assert_close

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
PARAMS = {
    "up.w": RNG.standard_normal((64, 96), np.float32) / 8,
    "up.b": RNG.standard_normal((96,), np.float32),
    "down.w": RNG.standard_normal((32, 96), np.float32) / 10,
}
KERNEL = {"k": RNG.standard_normal((8, 3, 3, 3), np.float32) / 5}
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
    k = g.param("k", KERNEL["k"].shape)
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
    sizes = [PARAMS[name].nbytes for name in ("up.w", "down.w")]
    assert [(r.before, r.after) for r in left] == [(n, n) for n in sizes]
    assert found.rows[1].after == found.rows[1].before == PARAMS["down.w"].nbytes
    assert dict(schemes) == {"up.*": "q8_0", "down.w": None, "*": "int8"}
    assert schemes.scheme_of("k") == "int8"
    assert "q8_0" in repr(schemes)
    assert len(schemes) == 3


def test_convolutions_are_of_integers() -> None:
    g = convolution()
    want, _ = run(g, KERNEL, IMAGES)
    found = quant.quantize_graph(g, KERNEL, calibration=[{"x": IMAGES}])
    y, f = run(found.graph, found.params, IMAGES)
    assert 1e-4 < off(y, want) < 0.03
    assert found.graph.params[0].dtype is rlx.DType.I8
    assert quant.quantize_graph(g, KERNEL, "q8_0").rows[0].scheme == "left: a convolution"
    assert quant.quantize_graph(g, KERNEL, {"k": None}).rows[0].scheme == "left"
    assert f.reports


def test_a_weight_that_is_read_otherwise_too_stays_beside() -> None:
    g = rlx.Graph("tied")
    w = g.param("w", (96, 64), value=PARAMS["up.w"].T.copy())
    g.set_outputs(w.gather(g.input("ids", [5], "i64")) @ w.transpose())
    found = quant.quantize_graph(g)
    assert sorted(str(p.name) for p in found.graph.params) == ["w", "w.int8.t", "w.scales.t"]
    (row,) = found.rows
    assert row.before == 4 * 96 * 64
    assert row.after == row.before + 96 * 64 + 4 * 96
    assert row.after == sum(a.nbytes for a in found.params.values())
    ids = np.arange(5)
    f = rlx.Session("cpu").compile(found.graph)
    for name, value in found.params.items():
        f.set_param(name, value)
    w0 = PARAMS["up.w"].T
    assert off(f.run({"ids": ids})[0], w0[ids] @ w0.T) < 0.02


def test_a_weight_of_two_uses_counts_all_that_is_left_of_it() -> None:
    """One of which is in blocks; of the other nothing is whole."""
    for first in (True, False):
        g = rlx.Graph("both")
        w, x, y = g.param("w", (64, 48)), g.input("x", (2, 64)), g.input("y", (2, 48))
        uses = [x @ w, y @ w.transpose()]
        g.set_outputs(uses if first else uses[::-1])
        value = {"w": RNG.standard_normal((64, 48), np.float32)}
        found = quant.quantize_graph(g, value, "q8_0")
        assert [r.scheme for r in found.rows] == ["q8_0"]
        assert found.rows[0].after == sum(a.nbytes for a in found.params.values()) > 64 * 48 * 4


def test_a_weight_without_a_size_may_be_left() -> None:
    g = rlx.Graph("unbound")
    g.set_outputs(g.input("x", (2, 64)) @ g.param("w", (64, "n")))
    (row,) = quant.quantize_graph(g, {}, {"w": None}).rows
    assert (row.before, row.after) == (0, 0)
    with pytest.raises(ShapeError, match="symbolic dim n"):
        quant.quantize_graph(g, {"w": PARAMS["up.w"]})


@pytest.mark.parametrize("size", [1.0, 1e-9, 1e-36, 0.0])
def test_scales_follow_weights_of_any_size(size: float) -> None:
    """In both ways to integers, for each kind of product; an output of zeros has some scale."""
    g = rlx.Graph("sizes")
    x, images = g.input("x", (4, 64)), g.input("images", IMAGES.shape)
    a, b, k = g.param("a", (64, 16)), g.param("b", (8, 64)), g.param("k", (8, 3, 3, 3))
    g.set_outputs([x @ a, x @ b.transpose(), images.conv2d(k)])
    values = {
        str(p.name): RNG.standard_normal(p.type.static_shape, np.float32) * np.float32(size)
        for p in g.params
    }
    values["a"][:, 3] = 0
    calibrator = quant.Calibrator(g, params=values)
    feeds = {"x": X[:4], "images": IMAGES}
    calibrator.step(feeds)
    entries = {str(v.name): e for v, e in calibrator.record.items() if str(v.name) in values}
    found = quant.quantize_graph(g, values, "int8", [feeds])
    for name, turned in (("a", ""), ("b", ".t"), ("k", "")):
        scales = found.params[f"{name}.scales{turned}"]
        np.testing.assert_array_equal(entries[name].scales, scales)
        whole = np.moveaxis(values[name], 1 if name == "a" else 0, 0)
        most = np.abs(whole.reshape(len(whole), -1)).max(1)
        np.testing.assert_allclose(scales[most > 0], most[most > 0] / 127, rtol=1e-6)
        assert (scales > 0).all()
        assert np.abs(found.params[f"{name}.int8{turned}"]).max() == (127 if size else 0)


@each_op(list(cases(*(DTYPES[name] for name in ("f32", "f64", "f16", "bf16")))))
def test_every_op_reads_what_is_rounded(case: Case) -> None:
    """Blocks too, where another op reads the same value."""
    node, arrays = case.node(), case.arrays()
    leaves = [v for v in node.present if v.dtype.is_float]
    graph = next((v.graph for v in leaves), None)
    if graph is None:
        return
    graph.set_outputs([*node.results, *(v.abs() for v in leaves)])
    feeds = {f"x{i}": a for i, a in enumerate(arrays) if a is not None}
    rounded = dict(feeds)
    for v in leaves:
        steps = np.clip(np.rint(feeds[str(v.name)].astype(np.float64) / 0.125), -128, 127)
        rounded[str(v.name)] = (steps * 0.125).astype(v.dtype.numpy)
    record = {v: quant.CalibrationEntry(0.125) for v in leaves}
    with np.errstate(all="ignore"):
        found = rlx.interpret(quant.insert_q_dq(graph, record), feeds)
        want = rlx.interpret(graph, rounded)
    for a, b in zip(found, want, strict=True):
        assert_close(a, b, Tolerance(0.0, 0.0))


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


def changed(name: str, value: Any) -> dict[str, Any]:
    return {**PARAMS, name: value}


def with_bad(value: float) -> dict[str, Any]:
    found = PARAMS["down.w"].copy()
    found[2, 5] = found[3, 1] = value
    return changed("down.w", found)


WAYS: dict[str, Any] = {
    "int8": lambda params: quant.quantize_graph(mlp(), params),
    "blocks": lambda params: quant.quantize_graph(mlp(), params, "q8_0"),
    "calibrator": lambda params: quant.Calibrator(mlp(), params=params),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("error", "words", "params"),
    [
        (ShapeError, r"param 'up.w' has shape \[64, 96\], found \[96, 64\]",
         changed("up.w", PARAMS["up.w"].T.copy())),
        (ShapeError, r"param 'up.b' has shape \[96\], found \[1, 96\]",
         changed("up.b", PARAMS["up.b"][None])),
        (DTypeError, "param 'up.w' is f32, found float64",
         changed("up.w", PARAMS["up.w"].astype(np.float64))),
        (NameError, "no param is called 'up.v'; did you mean 'up.w'", changed("up.v", 1.0)),
        (FaultError, r"the weight 'down.w' has 2 elements that are not finite, the first is nan at"
         r" \(2, 5\)", with_bad(np.nan)),
        (FaultError, "2 elements that are not finite, the first is -inf", with_bad(-np.inf)),
    ],
)  # fmt: skip
def test_params_that_do_not_fit(
    way: str, error: type[Exception], words: str, params: dict[str, Any]
) -> None:
    with pytest.raises(error, match=words):
        WAYS[way](params)


REFUSED: list[tuple[type[Exception], str, Any]] = [
    (GraphError, "no value: give it by params", lambda: quant.quantize_graph(mlp())),
    (GraphError, "needs scales of its inputs", lambda: quant.quantize_graph(convolution(), KERNEL)),
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
