"""The calls of arithmetic, casts, folds and norms: numbers, promotion, axes, where errors point."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rlx.errors import DTypeError, GraphError, RlxError, ShapeError
from rlx.ir.graph import Graph
from rlx.ir.interpreter import interpret
from rlx.ir.value import Value
from rlx.types import bf16, bool_, f32, f64, i32, i64
from support import ad
from support.evaluate import call

X = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)


def leaf(dtype: str = "f32", *shape: int | str) -> Value:
    return Graph().input("x", shape or (2, 3), dtype)


def test_numbers_take_the_type_of_the_tensor() -> None:
    x = leaf("bf16")
    assert {v.dtype for v in (x * 2, 2 - x, x / 3.0, x**2, 2.0**x, x.maximum(0))} == {bf16}
    assert (leaf("i32") * 2.0).dtype is i32
    with pytest.raises(DTypeError, match="does not fit i32"):
        leaf("i32") * 0.5


def test_two_types_are_promoted() -> None:
    g = Graph()
    i, h, d = g.input("i", [2], "i64"), g.input("h", [2], "bf16"), g.input("d", [2], "f64")
    assert [(i * h).dtype, (h - d).dtype, i.lt(h).dtype] == [f64, f64, bool_]
    assert i.lt(h).op.operands[0].dtype is f64  # type: ignore[union-attr]
    with pytest.raises(DTypeError, match="no common integer type"):
        i + g.input("u", [2], "u64")


def test_where_lifts_and_promotes() -> None:
    g = Graph()
    c, x = g.input("c", [2], "bool"), g.input("x", [2], "bf16")
    types = [c.where(x, 0), c.where(1.5, x), c.where(1, 2), c.where(1, 2.5), c.where(True, False)]
    assert [v.dtype for v in types] == [bf16, bf16, i64, f32, bool_]
    assert g.where(np.array([True, False]), x, np.zeros(2, np.float32)).dtype is f32


def test_cast_to_the_own_type_is_the_value() -> None:
    x = leaf()
    assert x.cast("f32") is x
    assert x.astype(np.float32) is x
    assert x.cast(to="f16").dtype.name == "f16"


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "prod"])
def test_axes_of_folds(name: str) -> None:
    f: Callable[..., np.ndarray] = getattr(np, name)

    def forms(x: Value) -> list[Value]:
        method = getattr(x, name)
        return [
            method(),
            method(axis=-1),
            method(axes=(-1, 0)),
            method(axis=1, keepdims=True),
            method(axes=[0, 1], keep_dim=True),
            method(axes=()),
        ]

    expected = [
        f(X),
        f(X, axis=-1),
        f(X, axis=(0, 2)),
        f(X, axis=1, keepdims=True),
        f(X, axis=(0, 1), keepdims=True),
        X,
    ]
    for found, want in zip(call(forms, X), expected, strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-6)


@pytest.mark.parametrize(
    ("call_", "error", "match"),
    [
        (lambda x: x.sum(axis=2), ShapeError, "reduce_sum: axis 2 is out of range"),
        (lambda x: x.sum(axes=(1, -1)), ShapeError, "twice"),
        (lambda x: x.sum(0, axis=0), GraphError, "found both"),
        (lambda x: x.lt(0).sum(), DTypeError, "found bool. Cast the operand"),
        (lambda x: x.cast("i32") ** 2, DTypeError, "found i32. Cast the operand"),
        (lambda x: x.cast("f9"), DTypeError, "unknown dtype"),
        (lambda x: x.softmax(axis=2), ShapeError, "axis 2"),
        (lambda x: x.layer_norm(np.ones(2, np.float32)), ShapeError, "gamma has shape"),
        (lambda x: x.cumsum(-3), ShapeError, "axis -3"),
        (lambda x: x.where(x, x), DTypeError, "condition is bool, found f32"),
        (lambda x: x + np.ones(4, np.float32), ShapeError, "do not broadcast"),
    ],
)
def test_errors_name_the_callers_line(
    call_: Callable[[Value], Value], error: type[RlxError], match: str
) -> None:
    with pytest.raises(error, match=match) as refusal:
        call_(leaf())
    assert refusal.value.location == (__file__, call_.__code__.co_firstlineno)


def test_symbolic_dims() -> None:
    g = Graph()
    x = g.input("x", ["batch", 3, "seq"])
    assert str((x + g.input("y", [3, 1])).type) == "batchx3xseqxf32"
    assert str(x.sum(axes=(0, 1)).type) == "seqxf32"
    assert str(x.max(axis=0, keepdims=True).type) == "1x3xseqxf32"
    assert str(x.softmax().layer_norm(axis=1).cumsum(2).type) == "batchx3xseqxf32"


def test_gradient_of_a_mean_over_symbolic_dims() -> None:
    g = Graph()
    x = g.input("x", ["n", 3, "m"])
    mean = (x * x).mean(axes=(0, 2))
    g.set_outputs(ad.grad(mean.sum(), [x]))
    (found,) = interpret(g.bind({"n": 2, "m": 4}), {"x": X})
    np.testing.assert_allclose(found, X * 2 / 8, rtol=1e-6)
