"""Reductions, windows and sorting: ops with a region that is written on scalars."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.base.frozen import frozen
from rlx.errors import UnsupportedError
from rlx.frontends.stablehlo.node import Node, Result, as_type, row
from rlx.frontends.stablehlo.rows.elementwise import total_order
from rlx.frontends.stablehlo.rows.movement import trimmed
from rlx.ir.builders import builder
from rlx.ir.graph import Graph
from rlx.ir.interpreter import interpret
from rlx.ir.value import Value
from rlx.ops.movement.constant import Constant
from rlx.ops.sugar import concat
from rlx.types import Dim, bool_

__all__ = ["Window", "windowed"]

MAX_PLACES = 400
"""The most places of a window that is taken apart into them."""

_FOLDS = {"add": "sum", "multiply": "prod", "maximum": "reduce_max", "minimum": "reduce_min"}
_OF_BOOLS = {"add": "any", "or": "any", "maximum": "any", "multiply": "all", "and": "all",
             "minimum": "all"}  # fmt: skip
_RUNNING = {"add": "cumsum", "multiply": "cumprod", "maximum": "cummax", "minimum": "cummin"}
_JOINS = {"add": "add", "multiply": "mul", "maximum": "maximum", "minimum": "minimum",
          "any": "logical_or", "all": "logical_and"}  # fmt: skip


def _call(name: str, *args: Any, **kwargs: Any) -> Any:
    found: Any = builder(name)
    return found(*args, **kwargs)


@row("reduce")
def _reduce(n: Node) -> Result:
    half = len(n.xs) // 2
    xs, starts, axes = n.xs[:half], n.xs[half:], n.ints("dimensions")
    op = n.single(0) if half == 1 else None
    if op in _OF_BOOLS and xs[0].dtype is bool_:
        fold = _OF_BOOLS[op]
        return _call(_JOINS[fold], _call(fold, xs[0], axes=axes), starts[0])
    if op in _FOLDS:
        found = _call(_FOLDS[op], xs[0], axes=axes) if 0 not in xs[0].shape else None
        if found is None:
            return starts[0].expand([d for i, d in enumerate(xs[0].shape) if i not in axes])
        return _joined(op, found, starts[0])
    return _folded(n, xs, starts, axes)


def _joined(op: str, x: Value, start: Value) -> Value:
    """A result of a reduction with what it starts from, unless that changes nothing."""
    literal = start.op.attrs["value"] if isinstance(start.op, Constant) else None
    if literal is not None and literal.size == 1 and literal.item() == _neutral(op, start):
        return x
    return _call(_JOINS[op], x, start)


def _neutral(op: str, start: Value) -> Any:
    if op in ("add", "multiply"):
        return 0 if op == "add" else 1
    low = op == "maximum"
    if start.dtype.is_float:
        return -math.inf if low else math.inf
    limits = np.iinfo(start.dtype.numpy)
    return limits.min if low else limits.max


def _folded(
    n: Node, xs: Sequence[Value], starts: Sequence[Value], axes: Sequence[int]
) -> list[Value]:
    """Any reduction: the halves of what is folded are combined, again and again."""
    rest = [i for i in range(xs[0].rank) if i not in axes]
    kept = [xs[0].shape[i] for i in rest]
    size = math.prod(xs[0].shape[i] for i in axes)
    if not isinstance(size, int):
        raise n.refuse(f"by a region of several ops along {size} elements, expected a number")
    if not size or 0 in kept:
        return [s.expand(kept) for s in starts]
    parts = [x.transpose([*axes, *rest]).reshape([size, *kept]) for x in xs]
    while size > 1:
        half, odd = divmod(size, 2)
        low = [x.narrow(0, 0, half) for x in parts]
        found = n.each(0, [*low, *(x.narrow(0, half, half) for x in parts)])
        if odd:
            last = [x.narrow(0, size - 1, 1) for x in parts]
            found = [concat([f, v], 0) for f, v in zip(found, last, strict=True)]
        parts, size = found, half + odd
    first = [s.expand([1, *kept]) for s in starts]
    return [v.reshape(kept) for v in n.each(0, [*first, *parts])]


@row("map")
def _map(n: Node) -> Result:
    return n.each(0, n.xs)


# -- windows -------------------------------------------------------------------------------


@frozen
class Window:
    """Windows of a reduction, by axis, and what folds two elements, by its name if it is one op."""

    sizes: Sequence[Dim]
    strides: Sequence[Dim]
    spread: Sequence[Dim]  # of the operand's elements
    apart: Sequence[Dim]  # places of a window
    pads: Sequence[tuple[Dim, Dim]]
    op: str | None
    fold: Callable[[list[Value]], list[Value]]


@row("reduce_window")
def _reduce_window(n: Node) -> Result:
    half, ones = len(n.xs) // 2, [1] * n.xs[0].rank
    window = Window(
        n.ints("window_dimensions"), n.ints("window_strides", ones), n.ints("base_dilations", ones),
        n.ints("window_dilations", ones), n.pairs("padding", len(ones)),
        n.single(0) if half == 1 else None, lambda values: n.each(0, values),
    )  # fmt: skip
    return windowed(n, n.xs[:half], n.xs[half:], window)


def windowed(n: Node, xs: Sequence[Value], starts: Sequence[Value], w: Window) -> Result:
    """A reduction of windows."""
    running = _running(w, xs[0], starts[0]) if w.op in _RUNNING else None
    if running is not None:
        return running
    numbers = [*w.sizes, *w.strides, *w.spread, *w.apart, *(p for pair in w.pads for p in pair)]
    if not all(isinstance(d, int) for d in numbers):
        raise n.refuse("windows of any size are read where they hold all elements up to each")
    if math.prod(w.sizes) > MAX_PLACES:
        raise n.refuse(f"a window of {math.prod(w.sizes)} places, expected {MAX_PLACES} at most")
    low, high = ([int(p[i]) for p in w.pads] for i in (0, 1))
    between = [int(s) - 1 for s in w.spread]
    wide = [trimmed(x, s, low, high, between) for x, s in zip(xs, starts, strict=True)]
    shape = [
        (d - (k - 1) * a - 1) // s + 1
        for d, k, a, s in zip(wide[0].shape, w.sizes, w.apart, w.strides, strict=True)
    ]
    found: list[Value] = [s.expand(shape) for s in starts]
    for i, at in enumerate(np.ndindex(*map(int, w.sizes))):
        offset = [a * b for a, b in zip(at, w.apart, strict=True)]
        part = [x.slice(offset, shape, [int(s) for s in w.strides]) for x in wide]
        if i == 0 and w.op in _FOLDS and part[0].dtype is not bool_:
            found = [_joined(w.op, part[0], starts[0])]
        else:
            found = w.fold([*found, *part])
    return found


def _running(w: Window, x: Value, start: Value) -> Value | None:
    """A window that holds all elements up to each along one axis, or from each on: what is called
    a cumulative op."""
    plain = all(d == 1 for d in (*w.strides, *w.spread, *w.apart))
    long = [i for i, d in enumerate(w.sizes) if d != 1]
    if not plain or len(long) != 1 or x.dtype is bool_ or w.op is None:
        return None
    (axis,) = long
    size = x.shape[axis]
    others = any(p != (0, 0) for i, p in enumerate(w.pads) if i != axis)
    if others or w.sizes[axis] != size or w.pads[axis] not in ((size - 1, 0), (0, size - 1)):
        return None
    return _joined(w.op, _call(_RUNNING[w.op], x, axis, reverse=w.pads[axis][0] == 0), start)


@row("select_and_scatter")
def _select_and_scatter(n: Node) -> Result:
    x, source, start = n.xs
    rank, ones = x.rank, [1] * x.rank
    window, strides = n.ints("window_dimensions", ones), n.ints("window_strides", ones)
    if math.prod(window) > MAX_PLACES:
        raise n.refuse(f"a window of {math.prod(window)} places, expected {MAX_PLACES} at most")
    if n.single(1) != "add":
        raise n.refuse("what is scattered is added up, another region is not read")
    pads = n.pairs("padding", rank)
    low, high = ([p[i] for p in pads] for i in (0, 1))
    wide = x.pad(low, high)
    inside = x.ones_like().cast(bool_).pad(low, high, value=False)
    shape = source.type.static_shape
    best = found = chosen = None
    places = list(np.ndindex(*window))
    for k, at in enumerate(places):
        part, there = wide.slice(at, shape, strides), inside.slice(at, shape, strides)
        if best is None or found is None or chosen is None:
            best, found, chosen = part, there, source.zeros_like().cast("i64")
            continue
        keeps = n.body(0, [best, part])[0]
        takes = there.logical_and(found.logical_not().logical_or(keeps.logical_not()))
        best, found = takes.where(part, best), found.logical_or(there)
        chosen = takes.where(Constant(np.asarray(k, np.int64)).out, chosen)
    assert chosen is not None, "a window has a place"
    total: Value | None = None
    zero = Constant(np.zeros((), source.dtype.numpy)).out
    for k, at in enumerate(places):
        part = chosen.eq(k).where(source, zero)
        ends = [
            w - a - 1 - (s - 1) * (d - 1)
            for w, a, s, d in zip(wide.type.static_shape, at, shape, strides, strict=True)
        ]
        ends = [e - (s - 1) for e, s in zip(ends, shape, strict=True)]
        spread = part.pad(list(at), ends, interior=[d - 1 for d in strides])
        total = spread if total is None else total + spread
    assert total is not None
    return total.slice(low, x.shape) + start


# -- sorting -------------------------------------------------------------------------------


@row("sort")
def _sort(n: Node) -> Result:
    axis = n.int("dimension") % max(1, n.x.rank)
    keys = _keys(n)
    if keys is None:
        raise n.refuse(
            "the region compares otherwise than by the order of some operands, first by one, then"
            " by the next"
        )
    total = _totally_ordered(n)
    if len(n.xs) == 1 and not total:
        return n.x.sort(axis, keys[0][1])
    order: Value | None = None
    for operand, descending in reversed(keys):
        key = total_order(n.xs[operand]) if operand in total else n.xs[operand]
        key = key if order is None else key.take_along_axis(order, axis)
        found = key.argsort(axis, descending)
        order = found if order is None else order.take_along_axis(found, axis)
    assert order is not None
    return [x.take_along_axis(order, axis) for x in n.xs]


def _keys(n: Node) -> list[tuple[int, bool]] | None:
    """The operands that are compared, the most significant first, each with whether it descends;
    None if the region compares otherwise, as samples of elements show."""
    count = len(n.xs)
    rng = np.random.default_rng(0)
    samples = [_sample(x, rng) for x in n.xs for _ in "ab"]
    graph = Graph("comparator")
    leaves = [graph.input(f"x{i}", [len(samples[i])], n.xs[i // 2].dtype) for i in range(2 * count)]
    graph.set_outputs([n.body(0, leaves)[0]])
    feeds = {f"x{i}": a for i, a in enumerate(samples)}
    less = np.broadcast_to(interpret(graph, feeds)[0], samples[0].shape)
    found: list[tuple[int, bool]] = []
    equal = np.ones(samples[0].shape, bool)
    while len(found) < count:
        for operand in (i for i in range(count) if i not in [k for k, _ in found]):
            a, b = samples[2 * operand], samples[2 * operand + 1]
            differ = equal & (a != b)
            for descending in (False, True):
                wanted = a > b if descending else a < b
                if differ.any() and (less[differ] == wanted[differ]).all():
                    found.append((operand, descending))
                    equal &= a == b
                    break
            else:
                continue
            break
        else:
            break
        if not less[equal].any():
            return found
    return found if found and not less[equal].any() else None


def _totally_ordered(n: Node) -> list[int]:
    """The operands of which the region tells the zeros apart."""
    floats = [i for i, x in enumerate(n.xs) if x.dtype.is_float]
    graph = Graph("comparator")
    count = max(1, 2 * len(floats))
    kinds = [x.dtype for x in n.xs for _ in "ab"]
    leaves = [graph.input(f"x{i}", [count], dt) for i, dt in enumerate(kinds)]
    graph.set_outputs([n.body(0, leaves)[0]])
    feeds = {f"x{i}": np.zeros(count, dt.numpy) for i, dt in enumerate(kinds)}
    for k, i in enumerate(floats):  # once with each operand of the comparison below 0.0
        feeds[f"x{2 * i}"][2 * k] = feeds[f"x{2 * i + 1}"][2 * k + 1] = -0.0
    apart = np.broadcast_to(interpret(graph, feeds)[0], [count])
    return [i for k, i in enumerate(floats) if apart[2 * k] != apart[2 * k + 1]]


def _sample(x: Value, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Elements with many ties."""
    if x.dtype.is_complex:
        raise UnsupportedError("stablehlo.sort: complex numbers have no order")
    return rng.integers(0, 2 if x.dtype is bool_ else 4, 4096).astype(x.dtype.numpy)


@row("chlo.top_k")
def _top_k(n: Node) -> Result:
    values, places = n.x.topk(n.int("k"), -1)
    return [values, as_type(places, n.importer.dtype_of_result(n.op, 1))]
