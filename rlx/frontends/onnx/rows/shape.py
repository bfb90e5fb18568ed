"""Shapes as data, literals, and tensors that are made from a shape."""

from __future__ import annotations

import math

import numpy as np

from rlx.base.dims import ceil_div
from rlx.errors import ModelError, ShapeError, UnsupportedError
from rlx.frontends.common.values import constant, size_value
from rlx.frontends.onnx.edges import is_symbolic
from rlx.frontends.onnx.node import Node, Result, Rows
from rlx.frontends.onnx.tensors import dtype_of
from rlx.ir.value import Value
from rlx.ops.movement.constant import Iota
from rlx.types import dtype, i64

__all__ = ["ROWS"]

LITERAL = 1 << 16
"""The most elements of a sequence that is written down; a longer one is computed."""


def shape(n: Node) -> Result:
    dims = n.edge(0).shape
    start, end = n.attr("start", 0), n.attr("end", None)
    part = dims[slice(start, end)]
    out = np.empty(len(part), object)
    out[:] = part
    return out


def size(n: Node) -> Result:
    out = np.empty((), object)
    out[()] = n.edge(0).type.size
    return out


def literal(n: Node) -> Result:
    kinds = {"value": None, "value_float": np.float32, "value_floats": np.float32,
             "value_int": np.int64, "value_ints": np.int64}  # fmt: skip
    for name, kind in kinds.items():
        if n.given(name):
            return np.asarray(n.need(name), kind)
    raise UnsupportedError("it holds no numbers in a dense tensor, which a literal is here")


def constant_of_shape(n: Node) -> Result:
    fill = n.attr("value", np.zeros(1, np.float32))
    if fill.size != 1:
        raise ModelError(f"its value has {fill.size} elements, expected one")
    return constant(fill.reshape(())).expand(n.dims(0))


def ranged(n: Node) -> Result:
    if any(b is not None and is_symbolic(b) for b in map(n.known, range(3))):
        (start,), (limit,), (delta,) = n.dims(0), n.dims(1), n.ints(2)
        if delta == 0:
            raise ModelError("its step is 0, expected another number")
        length = limit - start if delta > 0 else start - limit
        counted = Iota((ceil_div(length, abs(delta)),), 0, i64).out
        counted = counted if delta == 1 else counted * delta
        return counted if start == 0 else counted + size_value(start)
    first, last, step = (n.array(i).reshape(()) for i in range(3))
    if step == 0:
        raise ModelError("its step is 0, expected another number")
    count = max(math.ceil((last.item() - first.item()) / step.item()), 0)
    if count <= LITERAL:
        return (first + np.arange(count, dtype=first.dtype) * step).astype(first.dtype)
    dt = dtype(first.dtype)
    return Iota((count,), 0, dt).out * constant(step) + constant(first)


def eye_like(n: Node) -> Value:
    dt = dtype_of(n.need("dtype"), "its result") if n.given("dtype") else n[0].dtype
    rows, columns = _grid(n[0])
    return (columns - rows).eq(n.attr("k", 0)).cast(dt)


def triangle(n: Node) -> Value:
    """The upper or lower part of matrices, zeros elsewhere."""
    x, k = n[0], n[1] if n.has(1) else 0
    rows, columns = _grid(x)
    kept = (columns - rows).ge(k) if n.attr("upper", 1) else (columns - rows).le(k)
    return kept.where(x, constant(0, x.dtype))


def _grid(x: Value) -> tuple[Value, Value]:
    """The row and the column of every element of a matrix."""
    if x.rank < 2:
        raise ShapeError(f"it takes matrices, found {x.type}")
    matrix = x.shape[-2:]
    return Iota(matrix, 0, i64).out, Iota(matrix, 1, i64).out


def one_hot(n: Node) -> Value:
    """A new axis that holds the on value at the place of each index, the off value elsewhere;
    an index out of range has no place."""
    indices, depth, values = n[0], n.ints(1)[0], n[2]
    axis = n.axis(-1, indices.rank + 1)
    at = indices.cast("i64")
    at = at.lt(0).where(at + depth, at)
    at = at.reshape([*at.shape[:axis], 1, *at.shape[axis:]])
    line = [depth if i == axis else 1 for i in range(indices.rank + 1)]
    return at.eq(Iota((depth,), 0, i64).out.reshape(line)).where(values[1], values[0])


def non_zero(n: Node) -> Result:
    found = np.nonzero(np.atleast_1d(n.array(0)))
    return np.array(found, np.int64)


def unique(n: Node) -> list[Result]:
    x, axis = n.array(0), n.attr("axis", None)
    values, first, back, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    back = back.reshape(-1)
    if not n.attr("sorted", 1):
        order = np.argsort(first)
        rank = np.argsort(order)
        values = np.take(values, order, 0 if axis is None else axis)
        first, back, counts = first[order], rank[back], counts[order]
    return [values, first, back, counts]


def compress(n: Node) -> Result:
    """Where the condition is not known the number of elements is not either."""
    kept = np.flatnonzero(n.array(1))
    axis = n.attr("axis", None)
    x = n[0].reshape([n[0].type.size]) if axis is None else n[0]
    return x.gather(constant(kept), 0 if axis is None else axis)


def _window(n: Node, weights: tuple[float, float, float]) -> Result:
    size = n.ints(0)[0]
    if size < 0:
        raise ModelError(f"its size is {size}, expected a number from 0 on")
    dt = dtype_of(n.attr("output_datatype", 1), "its result")
    at = n.line(size) * 2 * np.pi / (size if n.attr("periodic", 1) else size - 1)
    total = np.sum([w * np.cos(i * at) for i, w in enumerate(weights)], 0)
    return total.astype(dt.numpy)


ROWS: Rows = {
    "BlackmanWindow": lambda n: _window(n, (0.42, -0.5, 0.08)),
    "Compress": compress,
    "Constant": literal,
    "ConstantOfShape": constant_of_shape,
    "EyeLike": eye_like,
    "HammingWindow": lambda n: _window(n, (25 / 46, -21 / 46, 0.0)),
    "HannWindow": lambda n: _window(n, (0.5, -0.5, 0.0)),
    "NonZero": non_zero,
    "OneHot": one_hot,
    "Range": ranged,
    "Shape": shape,
    "Size": size,
    "Trilu": triangle,
    "Unique": unique,
}
