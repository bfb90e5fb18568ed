"""``rlx.to_onnx``: what ONNX's reference evaluator makes of exported graphs, and what is refused."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx
from onnx.reference import ReferenceEvaluator

import rlx
from rlx.errors import (
    DTypeError,
    GraphError,
    NameError,
    ShapeError,
    ToolchainError,
    UnsupportedError,
)  # fmt: skip
from rlx.frontends.onnx.export.formulas import FORMULAS
from rlx.frontends.onnx.export.rows import ROWS
from rlx.ir.op import Op
from rlx.ops.conv.max_pool import MaxPoolIndices
from rlx.ops.movement.dynamic import DynamicSlice, DynamicUpdateSlice
from rlx.types import DTYPES
from support.per_op import each_op
from support.random_graphs import Case as RandomCase
from support.random_graphs import random_case
from support.random_ops import JUMPS
from support.samples import Case, cases
from support.sweeps import covering, seeds
from support.tolerances import Tolerance, assert_close, tolerance_of

Array = np.ndarray[Any, Any]

LEFT_OUT = {
    "mir.searchsorted": "its samples are lines out of order, which mean nothing",
    "mir.softsign": "the evaluator gives no array for one without axes",
    "mir.conv_transpose": "the evaluator fails for groups",
    **dict.fromkeys(
        [f"mir.{n}" for n in ("cummax", "cummin", "cumprod", "linear_recurrence", "logcumsumexp")],
        "the evaluator joins what a Loop stacks along an axis that is there",
    ),
    "mir.celu": "the evaluator computes the exponential in f64 and gives that type",
}
TYPES = [DTYPES[name] for name in ("f32", "i64")]


def evaluated(graph: rlx.Graph, feeds: Mapping[str, Array]) -> list[Array]:
    model = rlx.to_onnx(graph)
    onnx.checker.check_model(model, full_check=True)
    wanted = {i.name for i in model.graph.input}
    with np.errstate(all="ignore"):
        found = ReferenceEvaluator(model).run(None, {k: v for k, v in feeds.items() if k in wanted})
    return [np.asarray(a) for a in found]


def check(op: str, found: list[Array], expected: Any) -> None:
    for a, b in zip(found, expected, strict=True):
        t = tolerance_of(op, b)
        wide = None if t is None else Tolerance(4 * t.relative, 4 * t.absolute)
        assert_close(a.reshape(np.shape(b)), b, wide)


WITHOUT_FORM = frozenset(
    f"mir.{name}"
    for name in (
        "causal_conv_rows", "gated_delta_rows", "selective_scan_rows",
        "bessel_i0e", "bessel_i1e", "bitcast", "cholesky", "complex", "copysign",
        "dequant_grouped_matmul", "dequant_matmul", "dequant_matmul_rows", "dequantize_blocks",
        "digamma", "eigh", "eigvalsh", "erfinv", "gated_delta_net", "grouped_matmul",
        "igamma", "igamma_grad_a", "igammac",
        "grouped_outer", "inv", "left_shift", "lgamma", "lstsq", "lu", "max_pool_backward",
        "nextafter", "pinv", "polygamma", "popcount", "qr", "random_bits", "rasterize_gaussians",
        "rasterize_gaussians_grad", "rasterize_gaussians_tangent", "rfft", "right_shift",
        "selective_scan", "slogdet", "solve", "svd", "svdvals", "triangular_solve",
    )
)  # fmt: skip
"""Ops all of whose samples are refused, since ONNX has nothing to write them as."""


def of_integers(case: Case) -> bool:
    return case.dtype is DTYPES["i64"]


def drawn(case: Case) -> bool:
    return case.sample.attrs.get("rate") not in (0.0, 1.0)


def elsewhere(case: Case) -> bool:
    return bool(case.sample.attrs.get("batch_dims"))


def of_complex(case: Case) -> bool:
    types = {case.sample.attrs["to"], *(t.dtype.name for t in case.types if t is not None)}
    return bool({"c64", "c128"} & {str(t) for t in types})


WINDOWS = "ONNX has windows of floats alone"
PARTLY: dict[str, tuple[str, Callable[[Case], bool]]] = {
    **{f"mir.{name}": (WINDOWS, of_integers)
       for name in ("conv", "conv_transpose", "max_pool", "max_pool_indices")},
    "mir.conv_weights": (WINDOWS, lambda case: of_integers(case) and case.number != 2),
    "mir.q_conv2d": (WINDOWS, lambda case: case.number > 0),
    "mir.scaled_conv": (WINDOWS, lambda case: case.number > 1),
    "mir.dropout": ("mir.threefry2x32", drawn),
    "mir.sample": ("mir.threefry2x32", lambda case: case.sample.attrs.get("temperature") != 0.0),
    "mir.dynamic_slice": ("start elsewhere in each batch", elsewhere),
    "mir.dynamic_update_slice": ("start elsewhere in each batch", elsewhere),
    "mir.cast": ("which no op type of ONNX takes", of_complex),
}  # fmt: skip
"""Ops some of whose samples are refused, in which words, and which those are."""


def refusal(case: Case) -> str | None:
    """What the refusal of a sample must say; None if it has a form."""
    if case.op.name in WITHOUT_FORM:
        return "which ONNX has no form for"
    words, applies = PARTLY.get(case.op.name, ("", lambda _: False))
    return words if applies(case) else None


def exports(op: type[Op]) -> bool:
    return op.name not in LEFT_OUT


@each_op(
    covering(
        (c for c in cases(*TYPES) if exports(c.op)), lambda c: [(c.op, c.number), (c.op, c.dtype)]
    )
)
def test_samples(case: Case) -> None:
    """Of every op that has a form, each sample; what has none is refused."""
    node = case.node()
    graph = next((v.graph for v in node.present if v.graph is not None), None)
    arrays = case.arrays()
    if graph is None:
        assert case.op.name in ("mir.axis_index", "mir.constant", "mir.iota"), "ops of no operands"
        return
    graph.set_outputs(list(node.results))
    feeds = {f"x{i}": a for i, a in enumerate(arrays) if a is not None}
    words = refusal(case)
    if words is not None:
        with pytest.raises(UnsupportedError, match=words):
            rlx.to_onnx(graph)
        return
    if any(a is not None and not a.size for a in arrays):
        rlx.to_onnx(graph)  # the evaluator has few ops of tensors without elements
        return
    with np.errstate(all="ignore"):
        check(case.op.name, evaluated(graph, feeds), rlx.interpret(graph, feeds))


@each_op([c for c in cases(DTYPES["f32"]) if not exports(c.op) and c.op.name != "mir.searchsorted"])
def test_samples_there_and_back(case: Case) -> None:
    """What the evaluator does not do is held against the import, which ONNX's own cases judge."""
    node, arrays = case.node(), case.arrays()
    graph = node.present[0].graph
    if graph is None or any(a is not None and not a.size for a in arrays):
        return
    graph.set_outputs(list(node.results))
    feeds = {f"x{i}": a for i, a in enumerate(arrays) if a is not None}
    found = rlx.interpret(rlx.from_onnx(rlx.to_onnx(graph)), feeds)
    check(case.op.name, [np.asarray(a) for a in found], rlx.interpret(graph, feeds))


def exported_ops() -> list[str]:
    """What random graphs have: not pools, whose nan the evaluator takes for padding."""
    names = {*ROWS, *FORMULAS} - JUMPS - set(LEFT_OUT)
    return sorted(n for n in names if n.startswith("mir.") and "_pool" not in n)


OTHER_TYPES = {"bf16", "c64", "c128", "f16"}


def random_model(seed: int) -> tuple[RandomCase, onnx.ModelProto]:
    """The first of a seed's random graphs that has elements of the evaluator's types and a form."""
    for attempt in range(100):
        case = random_case(100 * seed + attempt, 6, ops=exported_ops())
        arrays = {**case.feeds, **case.params}
        types = {v.dtype.name for op in case.graph.nodes() for v in (*op.present, *op.results)}
        if types & OTHER_TYPES or any(not a.size for a in arrays.values()):
            continue
        try:
            return case, rlx.to_onnx(case.graph, params=case.params)
        except UnsupportedError as e:
            assert any(words in e.message for words, _ in PARTLY.values()), e.message
    raise AssertionError("no random graph has a form")


@pytest.mark.parametrize("seed", seeds(15, 40))
def test_random_graphs(seed: int) -> None:
    """Within what the case allows, as compiled graphs are."""
    case, model = random_model(seed)
    with np.errstate(all="ignore"):
        found = ReferenceEvaluator(model).run(None, case.feeds)
    for result, b, allowed in zip(found, case.expected, case.allowed, strict=True):
        a = np.asarray(result).reshape(b.shape)
        if b.dtype.kind != "f":
            np.testing.assert_array_equal(a, b)
            continue
        known = np.broadcast_to(allowed != np.inf, b.shape)
        finite = np.isfinite(b)
        np.testing.assert_array_equal(a[known & ~finite], b[known & ~finite])
        off = np.abs(a[known & finite].astype(np.float64) - b[known & finite])
        scale = float(np.max(np.abs(b[finite]), initial=1.0))  # attributes are f32 in ONNX
        limit = np.broadcast_to(np.maximum(4 * allowed, 1e-6 * scale), b.shape)
        assert np.all(off <= limit[known & finite])


# -- whole graphs --------------------------------------------------------------------------


def test_symbolic_dims_names_and_params(tmp_path: Path) -> None:
    """There and back: the model is read again, and has the names, dims and values."""
    g = rlx.Graph("net")
    x = g.input("x", ("batch", "seq", 8), "f32")
    w = g.param("w", value=np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32))
    h = (x @ w).layer_norm().gelu()
    flat = h.reshape([x.shape[0], x.shape[1] * 6])
    g.set_outputs({"flat": flat, "mean": h.mean(axes=[1]), "half": h[:, : x.shape[1] // 2]})
    path = tmp_path / "net.onnx"
    model = rlx.to_onnx(g, path)
    assert [d.dim_param or d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim] == [
        "batch", "seq", 8,
    ]  # fmt: skip
    assert [i.name for i in model.graph.initializer if i.name == "w"] == ["w"]
    again = rlx.from_onnx(str(path))
    assert again.output_names == ("flat", "mean", "half")
    feed = {"x": np.random.default_rng(1).standard_normal((2, 5, 8)).astype(np.float32)}
    for found in (evaluated(g, feed), rlx.Session("cpu").compile(again).run(feed)):
        for a, b in zip(found, rlx.interpret(g, feed), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_trained_params_take_the_place_of_the_graphs_own() -> None:
    g = rlx.Graph()
    g.set_outputs([g.input("x", (2,), "f32") * g.param("w", (2,), "f32")])
    with pytest.raises(GraphError, match=r"the params 'w' have no values; give to_onnx"):
        rlx.to_onnx(g)
    with pytest.raises(DTypeError, match="param 'w' is f32, found float64"):
        rlx.to_onnx(g, params={"w": np.ones(2)})
    with pytest.raises(ShapeError, match=r"param 'w' has shape \[2\], found \[3\]"):
        rlx.to_onnx(g, params={"w": np.ones(3, np.float32)})
    model = rlx.to_onnx(g, params={"w": np.array([2, 3], np.float32)})
    found: Any = ReferenceEvaluator(model).run(None, {"x": np.ones(2, np.float32)})
    assert model.graph.output[0].name == "output_0"
    np.testing.assert_array_equal(found[0], [2, 3])


@pytest.mark.parametrize(
    ("inputs", "named", "outputs"),
    [
        (["x", "output_0"], [], ["output_0_*", "output_1"]),
        (["output_1", "output_0"], [], ["output_0_*", "output_1_*"]),
        (["add_0", "add_1"], ["0", "output_0"], ["0", "output_0"]),
        (["x", "output_0"], ["mul_0", "add_1"], ["mul_0", "add_1"]),
    ],
)
def test_values_have_a_name_each(inputs: list[str], named: list[str], outputs: list[str]) -> None:
    """Where a leaf has the name that an output would get, and where a node would."""
    g = rlx.Graph()
    x, y = (g.input(name, (2,), "f32") for name in inputs)
    results = [x * y + y, x + x]
    g.set_outputs(dict(zip(named, results, strict=True)) if named else results)
    feeds = {name: np.array([i + 2, 3], np.float32) for i, name in enumerate(inputs)}
    found = rlx.to_onnx(g)
    assert all(fnmatchcase(o.name, p) for o, p in zip(found.graph.output, outputs, strict=True))
    check("control", evaluated(g, feeds), rlx.interpret(g, feeds))


def test_names_that_are_taken_or_that_nothing_has() -> None:
    g = rlx.Graph()
    x, w = g.input("x", (2,), "f32"), g.param("w", value=np.ones(2, np.float32))
    for name in "xw":
        g.set_outputs({"y": x * w, name: x + w})
        with pytest.raises(
            GraphError, match=f"an output and an input or param are called '{name}'"
        ):
            rlx.to_onnx(g)
    g.set_outputs(x * w)
    with pytest.raises(NameError, match=r"no param is called 'W'; did you mean 'w'\?"):
        rlx.to_onnx(g, params={"W": np.ones(2, np.float32)})


@pytest.mark.parametrize("way", [1.0, -1.0])
def test_branches_and_loops(way: float) -> None:
    g = rlx.Graph()
    x = g.input("x", (3,), "f32")
    chosen = rlx.cond(x.sum().gt(0.0), lambda v: v * 2.0, lambda v: v - 1.0, x)
    grown = rlx.while_loop(lambda v: v.abs().max().lt(50.0), lambda v: v * 3.0, chosen)
    carried, stacked = rlx.scan(lambda c, v: (c + v, c * v), x.sum(), x, reverse=True)
    g.set_outputs([chosen, grown, carried, stacked])
    feed = {"x": np.array([1, 2, 3], np.float32) * np.float32(way)}
    check("control", evaluated(g, feed), rlx.interpret(g, feed))


def test_lines_in_order_are_looked_up() -> None:
    g = rlx.Graph()
    line, at = g.input("line", (2, 4), "f32"), g.input("at", (2, 6), "f32")
    g.set_outputs([line.searchsorted(at), line.searchsorted(at, "right")])
    nan = np.nan
    feed = {
        "line": np.array([[1, 2, 2, 5], [0, 3, nan, nan]], np.float32),
        "at": np.array([[0, 1, 2, 5, 9, nan]] * 2, np.float32),
    }
    for a, b in zip(evaluated(g, feed), rlx.interpret(g, feed), strict=True):
        np.testing.assert_array_equal(a, b)


def test_bools_are_chosen_by_logic() -> None:
    """ONNX Runtime has no Where of bools."""
    g = rlx.Graph()
    c, x, y = (g.input(name, shape, "bool") for name, shape in
               (("c", (2, 1)), ("x", (2, 3)), ("y", (3,))))  # fmt: skip
    at = g.input("at", (4,), "i64")
    g.set_outputs([c.where(x, y), x.gather(at, axis=1, mode="fill")])
    rng = np.random.default_rng(0)
    feed: dict[str, Array] = {v.name: rng.random(v.shape) < 0.5 for v in (c, x, y)}
    feed["at"] = np.array([2, -4, 3, -1])
    for a, b in zip(evaluated(g, feed), rlx.interpret(g, feed), strict=True):
        np.testing.assert_array_equal(a, b)
    model = onnx.shape_inference.infer_shapes(rlx.to_onnx(g))
    kinds = {v.name: v.type.tensor_type.elem_type for v in model.graph.value_info}
    wheres = [n for n in model.graph.node if n.op_type == "Where"]
    assert wheres, "indices are chosen by it"
    assert all(kinds[n.output[0]] != onnx.TensorProto.BOOL for n in wheres)


# -- refusals ------------------------------------------------------------------------------


def over(*types: str) -> Any:
    def of(function: Any) -> rlx.Graph:
        g = rlx.Graph()
        values = [
            g.input(f"x{i}", [int(d) if d.isdigit() else d for d in t.split("x")[:-1]],
                    t.rsplit("x", 1)[-1])
            for i, t in enumerate(types)
        ]  # fmt: skip
        g.set_outputs([function(*values)])
        return g

    return of


REFUSED: dict[str, tuple[rlx.Graph, str]] = {
    "ops": (
        over("3xf32")(lambda x: (x.lgamma() + x.erfinv()).digamma()),
        "ONNX has no form for, are not there yet: mir.lgamma x 1 .*mir.erfinv x 1",
    ),
    "ops of a body": (
        over("3xf32")(lambda x: rlx.scan(lambda c, v: (c, v.lgamma()), x.sum(), x)[1]),
        "mir.lgamma x 1",
    ),
    "complex numbers": (over("3xc64")(lambda x: x.real()), "c64|mir.real"),
    "celu of f64": (over("3xf64")(lambda x: x.celu()), "Celu of f32 alone"),
    "windows of integers": (over("1x2x5xi32")(lambda x: x.max_pool(2)), "windows of floats alone"),
    "orders of u64": (over("4xu64")(lambda x: x.sort()[0]), "orders no u64"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_form_is_refused(case: str) -> None:
    graph, match = REFUSED[case]
    with pytest.raises(UnsupportedError, match=match):
        rlx.to_onnx(graph)


def test_a_size_that_no_input_has_by_itself() -> None:
    g = rlx.Graph()
    n = rlx.Dim("n")
    x = g.input("x", (2 * n, 3), "f32")
    g.set_outputs([x.reshape([n * 6])])
    with pytest.raises(UnsupportedError, match="no input has the dim n by itself"):
        rlx.to_onnx(g)


def test_boxes_of_batches_and_padded_places() -> None:
    g = rlx.Graph()
    x, at = g.input("x", (2, 5), "f32"), g.input("at", (2, 1), "i64")
    taken = DynamicSlice(x, at, sizes=(2,), batch_dims=1).out
    written = DynamicUpdateSlice(x, taken, at, batch_dims=1).out
    for out in (taken, written):
        g.set_outputs([out])
        with pytest.raises(UnsupportedError, match="start elsewhere in each batch"):
            rlx.to_onnx(g)
    n = rlx.Dim("n", 4, 199)
    images = g.input("images", (1, 1, n), "f32")
    places = MaxPoolIndices(
        images, taps=(2,), stride=(1,), low=(0,), high=(n // 100,), dilation=(1,)
    )
    g.set_outputs([places.out])
    with pytest.raises(UnsupportedError, match="no form in ONNX with this padding"):
        rlx.to_onnx(g)


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ToolchainError, match=r"pip install 'rlx\[onnx\]'"):
        rlx.to_onnx(rlx.Graph())
