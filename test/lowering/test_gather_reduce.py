"""Which gathers and reductions run natively, and that they are right where they lie strided."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import FaultError
from rlx.kernels.reduce import emit as reduce

Array = np.ndarray[Any, Any]


def run(g: rlx.Graph, feeds: dict[str, Array]) -> tuple[Array, dict[str, int]]:
    """The output, and which family ran what how often."""
    compiled = rlx.Session("cpu").compile(g)
    (out,) = compiled.run(feeds)
    report = compiled.reports[0].compilation.dispatch
    return out, {**report.native, **report.common}


def numbers(*shape: int) -> Array:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_a_gather_is_native_and_faults_at_the_users_line() -> None:
    g = rlx.Graph()
    table, ids = g.input("table", [7, 20]), g.input("ids", [2, 3], "i64")
    g.set_outputs([table.gather(ids)])
    t, i = numbers(7, 20), np.array([[0, 6, -1], [3, -7, 2]])
    out, families = run(g, {"table": t, "ids": i})
    np.testing.assert_array_equal(out, t[i])
    assert families == {"gather: gather": 1}
    message = "index out of range for axis 0 of 7 elements"
    with pytest.raises(FaultError, match=message) as caught:
        run(g, {"table": t, "ids": i + 1})
    assert "test_gather_reduce.py" in str(caught.value)


@pytest.mark.parametrize("dtype", ["bool", "i8", "bf16", "f64"])
def test_a_table_is_read_where_it_lies(dtype: str) -> None:
    g = rlx.Graph()
    table, ids = g.input("table", [9, 2, 30], dtype), g.input("ids", [2, 4], "i32")
    turned = table.slice((1, 0, 3), (6, 2, 24)).transpose((1, 0, 2))
    g.set_outputs([turned.gather(ids, axis=1, batch_dims=1)])
    t = numbers(9, 2, 30).astype(rlx.types.DTYPES[dtype].numpy)
    i = np.array([[0, 5, -6, 1], [2, 2, -1, 3]], np.int32)
    out, families = run(g, {"table": t, "ids": i})
    view = t[1:7, :, 3:27].transpose(1, 0, 2)
    np.testing.assert_array_equal(out, np.stack([v[n] for v, n in zip(view, i, strict=True)]))
    assert families == {"gather: gather": 1}


@pytest.mark.parametrize(
    ("axes", "family"),
    [
        ((0,), "reduce"),
        ((1,), "reduce"),
        ((0, 1), "reduce"),
        ((2,), "rowwise"),
        ((1, 2), "rowwise"),
        ((0, 1, 2), "rowwise"),
        ((0, 2), "reduce"),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_reductions_over_any_axes(axes: tuple[int, ...], family: str, turned: bool) -> None:
    g = rlx.Graph()
    x = g.input("x", [3, 5, 40])
    value = x.transpose((1, 2, 0)) if turned else x
    g.set_outputs([value.sum(axes=axes)])
    a = numbers(3, 5, 40)
    out, families = run(g, {"x": a})
    np.testing.assert_array_equal(out, (a.transpose(1, 2, 0) if turned else a).sum(axis=axes))
    assert f"{family}: reduce_sum" in families


@pytest.mark.parametrize("dtype", ["bool", "i16", "bf16", "f32"])
@pytest.mark.parametrize("axes", [(0, 2, 3), (0, 3), (1, 3), (0, 2)])
def test_axes_that_are_apart_are_reduced_in_turn(axes: tuple[int, ...], dtype: str) -> None:
    kinds = ("max", "min") if dtype == "bool" else ("sum", "mean", "max", "prod")
    a = (numbers(3, 5, 4, 6) % 3).astype(rlx.types.DTYPES[dtype].numpy)
    for kind in kinds[: 4 if dtype in ("bf16", "f32") else 1]:
        g = rlx.Graph()
        x = g.input("x", [3, 5, 4, 6], dtype)
        g.set_outputs([getattr(x, kind)(axes=axes)])
        out, families = run(g, {"x": a})
        assert list(families) == [f"reduce: reduce_{kind}"]
        np.testing.assert_array_equal(out, rlx.interpret(g, {"x": a})[0])


def test_any_and_all_of_bools_are_native() -> None:
    for method, reference in (("max", np.any), ("min", np.all)):
        for axes in (0, 1, None):
            g = rlx.Graph()
            x = g.input("x", [4, 30], "bool")
            g.set_outputs([getattr(x, method)(axes=axes)])
            a = np.random.default_rng(0).random((4, 30)) < 0.6
            out, families = run(g, {"x": a})
            np.testing.assert_array_equal(out, reference(a, axis=axes))
            assert families == {f"reduce: reduce_{method}": 1}


def long_columns(kind: str, dtype: str) -> tuple[rlx.Graph, Array]:
    """A reduction of a few columns that are cut into parts, the last of them shorter."""
    g = rlx.Graph()
    x = g.input("x", [2, 80_001, 9], dtype)
    g.set_outputs(getattr(x.slice((0, 0, 1), (2, 80_001, 8)), kind)(axes=1))
    rng = np.random.default_rng(1)
    return g, rng.uniform(0.5, 4, (2, 80_001, 9)).astype(rlx.types.DTYPES[dtype].numpy)


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "i32", "u8"])
@pytest.mark.parametrize("kind", ["sum", "mean", "max", "min", "prod"])
def test_long_columns_are_cut_into_parts(kind: str, dtype: str) -> None:
    if kind == "mean" and dtype in ("i32", "u8"):
        return
    g, x = long_columns(kind, dtype)
    if kind == "prod" and dtype in ("f32", "f64", "bf16"):
        x = np.exp2(np.sign(x)).astype(x.dtype)  # powers of two: exact in any order
        x[:, 1::2] = 1 / x[:, : x.shape[1] - 1 : 2]
    out, families = run(g, {"x": x})
    assert families == {f"reduce: reduce_{kind}": 1}
    (expected,) = rlx.interpret(g, {"x": x})
    tolerance = {"f32": 1e-5, "f64": 1e-13, "bf16": 2**-8}.get(dtype, 0)
    np.testing.assert_allclose(out.astype(np.float64), expected.astype(np.float64), tolerance)


def test_parts_do_not_depend_on_threads() -> None:
    g, x = long_columns("sum", "f32")
    before = rlx.runtime._native.num_threads()
    found = []
    try:
        for threads in (1, 2, 5):
            compiled = rlx.Session("cpu", threads=threads).compile(g)
            found.append(compiled.run({"x": x})[0].tobytes())
    finally:
        rlx.runtime._native.set_threads(before)
    assert len(set(found)) == 1
    rows = reduce.rows_of_part((2, 80_001, 7))
    assert 1 < rows < 80_001, "else nothing was tested"
