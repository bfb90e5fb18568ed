"""How a random graph takes one more op: a maker for every op of the library.

A maker picks operands with ``Builder`` (which knows every value's array, since it evaluates as it
builds), so an op is given what it is defined and well conditioned on: logarithms get positive
numbers, divisors stay off zero, and what jumps (a comparison, a rounding, an index) reads only
values that no way of computing can change by a unit in the last place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.ir.op import Op, op_class, type_of
from rlx.ir.value import Value
from rlx.ops.control import builders as control
from rlx.ops.pointwise.base import INEXACT
from rlx.types import COMPLEX, FLOATS, INTS, DType, bool_, f64, i32, i64

if TYPE_CHECKING:
    from support.random_graphs import Builder

__all__ = ["JUMPS", "MOTIFS", "computed_weight", "is_exact", "make"]

NUMBERS = (*FLOATS, *INTS)
EVERY = (*NUMBERS, bool_, *COMPLEX)

EXACT = frozenset(
    f"mir.{name}"
    for name in (
        "abs", "argmax", "argmin", "bitcast", "bitwise_and", "bitwise_not", "bitwise_or",
        "bitwise_xor", "cast", "ceil", "concat", "constant", "conv_integer", "copysign",
        "cummax", "cummin", "dynamic_slice", "dynamic_update_slice", "eq", "expand", "flip",
        "floor", "floor_divide", "fmod", "gather", "ge", "gt", "iota", "isfinite", "isinf",
        "isnan", "le", "left_shift", "logical_and", "logical_not", "logical_or", "logical_xor",
        "lt", "max_pool", "max_pool_indices", "maximum", "minimum", "ne", "neg", "nextafter",
        "pad", "popcount", "position", "random_bits", "reduce_max", "reduce_min", "relu",
        "remainder", "reshape", "right_shift", "round", "searchsorted", "sign", "slice", "sort",
        "threefry2x32", "topk", "transpose", "trunc", "where",
    )
)  # fmt: skip
"""Ops whose result has one right value to the last bit, if their operands have."""


def is_exact(op: Op) -> bool:
    """Whether a node is of such an op; the absolute value of a complex number is a square root."""
    rooted = op.name == "mir.abs" and any(v.dtype.is_complex for v in op.present)
    return op.name in EXACT and not rooted


JUMPS = frozenset(
    f"mir.{name}"
    for name in (
        "argmax", "argmin", "atan2", "bitcast", "ceil", "copysign", "eq", "fake_quantize",
        "fake_quantize_backward", "fake_quantize_lsq", "fake_quantize_lsq_backward_scale",
        "fake_quantize_lsq_backward_x", "floor", "floor_divide", "fmod", "ge", "gt", "isfinite",
        "isinf", "isnan", "le", "lt", "max_pool_indices", "ne", "nextafter", "q_conv2d",
        "q_matmul", "quantize", "quantize_rows", "remainder", "round", "sample", "searchsorted",
        "sign", "sort", "topk", "trunc",
    )
)  # fmt: skip
"""Ops that a change of a unit in the last place can throw far; a cast to an integer is another."""

Maker = Callable[["Builder", type[Op]], Op]


def make(b: Builder, name: str) -> Op:
    """A node of the op of that name on values of ``b``, or the last node of the motif."""
    if name in MOTIFS:
        return MOTIFS[name](b)
    cls = op_class(name)
    return _maker(cls)(b, cls)


def _sampled(b: Builder, cls: type[Op]) -> Op:
    """The op on the operand types of one of its samples: for ops without a maker of their own."""
    sample = b.one_of(cls.samples)
    dt = b.dtype(cls.dtypes) if cls.dtypes else None
    exact = cls.name in JUMPS
    operands = [
        None if t is None else b.of_type(type_of(t, dt), sample.data.get(i, "normal"), exact=exact)
        for i, t in enumerate(sample.types)
    ]
    return cls(*operands, **sample.attrs)


# -- pointwise -------------------------------------------------------------------------------------


def _unary(b: Builder, cls: type[Op]) -> Op:
    x = b.value(cls.dtypes or FLOATS, exact=cls.name in JUMPS)
    return cls(b.tame(x, cls.samples[0].data.get(0, "normal")))


_QUOTIENTS = ("div", "floor_divide", "remainder", "fmod", "atan2")
"""What divides by its second operand."""


def _binary(b: Builder, cls: type[Op]) -> Op:
    short, exact = cls.name.split(".")[1], cls.name in JUMPS
    x = b.value(cls.dtypes or NUMBERS, exact=exact)
    y = b.partner(x, exact=exact)
    if short in _QUOTIENTS:
        y = b.tame(y, "nonzero")
    elif short == "pow":
        x, y = b.tame(x, "positive"), b.tame(y, "unit")
    return cls(y, x) if short not in (*_QUOTIENTS, "pow") and b.chance(0.3) else cls(x, y)


def _where(b: Builder, cls: type[Op]) -> Op:
    x = b.value(EVERY)
    return cls(b.partner(x, dtype=bool_), x, b.partner(x))


def _cast(b: Builder, cls: type[Op]) -> Op:
    to = b.dtype(EVERY)
    source = EVERY if to.is_complex or to is bool_ else (*NUMBERS, bool_)
    return cls(b.value(source, exact=to not in INEXACT), to)


def _bitcast(b: Builder, cls: type[Op]) -> Op:
    x = b.value(cls.dtypes, exact=True)
    return cls(x, b.one_of([dt for dt in cls.dtypes if dt.bits == x.dtype.bits]))


# -- movement --------------------------------------------------------------------------------------


def _reshape(b: Builder, cls: type[Op]) -> Op:
    x = b.value(EVERY)
    left, dims = int(x.type.size), []
    while left > 1 and len(dims) < 3:
        d = b.one_of([d for d in range(1, left + 1) if left % d == 0])
        dims.append(d)
        left //= d
    return cls(x, [*dims, left] if left != 1 or b.chance(0.3) else dims)


def _transpose(b: Builder, cls: type[Op]) -> Op:
    x = b.value(EVERY)
    return cls(x, tuple(int(p) for p in b.rng.permutation(x.rank)))


def _expand(b: Builder, cls: type[Op]) -> Op:
    x = b.value(EVERY)
    shape = [b.dim() if d == 1 and b.chance(0.7) else d for d in x.shape]
    while len(shape) < 4 and b.chance(0.4):
        shape.insert(0, b.dim())
    return cls(x, shape)


def _slice(b: Builder, cls: type[Op]) -> Op:
    x = b.value(EVERY)
    starts, sizes, steps = [], [], []
    for d in x.type.static_shape:
        step = b.one_of((1, 1, 1, 2, 3))
        size = 0 if d == 0 else b.between(0 if b.chance(0.05) else 1, (d - 1) // step + 1)
        steps.append(step)
        sizes.append(size)
        starts.append(b.between(0, d - ((size - 1) * step + 1) if size else d))
    return cls(x, starts, sizes, steps)


def _concat(b: Builder, cls: type[Op]) -> Op:
    x = b.value(EVERY, min_rank=1)
    axis = b.axis(x)
    shape = list(x.type.static_shape)
    shape[axis] = b.dim()
    y = b.value((x.dtype,), shape=tuple(shape))
    return cls(x, y, axis) if b.chance(0.5) else cls(y, x, axis)


def _pad(b: Builder, cls: type[Op]) -> Op:
    x = b.value(EVERY)
    low, high = ([b.between(0, 2) for _ in x.shape] for _ in "lh")
    return cls(x, b.value((x.dtype,), shape=()), low, high, [b.one_of((0, 0, 1)) for _ in x.shape])


def _gather(b: Builder, cls: type[Op]) -> Op:
    x = b.value(EVERY, min_rank=1, full=True)
    axis = b.axis(x)
    lead = b.between(0, axis) if b.chance(0.3) else 0
    shape = (*x.type.static_shape[:lead], *b.shape(max_rank=2))
    return cls(x, *_indices(b, shape, x.type.static_shape[axis], axis, lead))


def _scatter_add(b: Builder, cls: type[Op]) -> Op:
    x = b.value(NUMBERS, min_rank=1, full=True)
    axis = b.axis(x)
    lead = b.between(0, axis) if b.chance(0.3) else 0
    many = b.between(0, min(2, x.rank - axis))
    size = max(b.dim(), 1)
    shape = (*x.type.static_shape[:lead], *x.type.static_shape[axis : axis + many])
    indices, axis, mode, lead = _indices(b, shape, size, axis, lead)
    return cls(x, indices, (size,), axis, mode, lead)


def _scatter(b: Builder, cls: type[Op]) -> Op:
    x = b.value(EVERY, min_rank=1, full=True)
    axis = b.axis(x)
    lead = b.between(0, axis) if b.chance(0.3) else 0
    dims = x.type.static_shape
    middle = b.shape(max_rank=2)
    how = _indices(b, (*dims[:lead], *middle), dims[axis], axis, lead)
    indices, axis, mode, lead = how
    updates = b.value((x.dtype,), shape=(*dims[:axis], *middle, *dims[axis + 1 :]))
    kinds = ("set", "min", "max") if x.dtype is bool_ else ("set", "add", "min", "max")
    return cls(x, indices, updates, axis, b.one_of(kinds), mode, lead)


def _indices(
    b: Builder, shape: tuple[int, ...], length: int, axis: int, lead: int
) -> tuple[Value, int, str, int]:
    """Indices of a shape with the attributes that go with them; any integers go with any mode but
    "fault"."""
    if b.chance(0.4):
        return b.value(INTS, shape=shape), axis, b.one_of(("clip", "wrap", "fill")), lead
    return b.leaf(shape, b.one_of((i32, i64)), f"index:{length}"), axis, "fault", lead


# -- reductions and rows ---------------------------------------------------------------------------


def _reduce(b: Builder, cls: type[Op]) -> Op:
    x = b.value(cls.dtypes, full=not cls.name.endswith(("sum", "prod")))
    if cls.name.endswith("prod") and x.dtype.is_float:
        x = b.tame(x, "nonzero")
    axes = tuple(a for a in range(x.rank) if b.chance(0.5))
    return cls(b.masked(x) if cls.name == "mir.logsumexp" else x, axes, b.chance(0.5))


def _rows(b: Builder, cls: type[Op]) -> Op:
    x = b.value(FLOATS, min_rank=1, full=True)
    axis = b.axis(x)
    if cls.name in ("mir.softmax", "mir.log_softmax"):
        return cls(b.masked(x), axis)
    width = (x.type.static_shape[axis],)
    scale, shift = (
        b.value((x.dtype,), shape=width) if b.chance(0.7) else None for _ in ("gamma", "beta")
    )
    return cls(x, scale, shift, axis, b.one_of((1e-2, 1e-1)))


def _cumsum(b: Builder, cls: type[Op]) -> Op:
    x = b.value(NUMBERS, min_rank=1)
    return cls(x, b.axis(x), b.chance(0.5), b.chance(0.5))


def _ordered(b: Builder, cls: type[Op]) -> Op:
    x = b.value(EVERY, min_rank=1, full=True, exact=True)
    flags = [b.chance(0.5) for f in cls.attr_fields if f.kind == "bool"]
    return cls(x, b.axis(x), *flags)


def _topk(b: Builder, cls: type[Op]) -> Op:
    x = b.value(NUMBERS, min_rank=1, full=True, exact=True)
    axis = b.axis(x)
    return cls(x, b.between(1, x.type.static_shape[axis]), axis, b.chance(0.5))


def _max_pool_indices(b: Builder, cls: type[Op]) -> Op:
    sample = b.one_of(cls.samples)
    t = type_of(str(sample.types[0]), b.dtype(cls.dtypes))
    return cls(b.value((t.dtype,), shape=t.static_shape, exact=True), **sample.attrs)


# -- products --------------------------------------------------------------------------------------


def _matmul(b: Builder, cls: type[Op]) -> Op:
    x = b.value(NUMBERS, min_rank=2)
    *lead, _, k = x.type.static_shape
    if b.chance(0.6):
        return cls(x, b.weight((k, b.dim()), x.dtype))
    batch = [d if b.chance(0.7) else 1 for d in lead]
    while batch and b.chance(0.2):
        batch.pop(0)
    return cls(x, b.value((x.dtype,), shape=(*batch, k, b.dim())))


def _dot_general(b: Builder, cls: type[Op]) -> Op:
    x = b.value(NUMBERS, min_rank=1)
    axes = [int(a) for a in b.rng.permutation(x.rank)]
    batch, over = axes[: b.between(0, 1)], axes[1 : b.between(1, min(2, x.rank) + 1)]
    shared = [*batch, *over]
    order = [int(i) for i in b.rng.permutation(len(shared) + 1)]
    sizes = [*(x.type.static_shape[a] for a in shared), b.dim()]
    y = b.value((x.dtype,), shape=tuple(sizes[i] for i in order))
    place = [order.index(i) for i in range(len(shared))]
    return cls(x, y, over, place[len(batch) :], batch, place[: len(batch)])


def _linear(b: Builder, cls: type[Op]) -> Op:
    x = b.value(FLOATS, min_rank=2, full=True)
    k, n = x.type.static_shape[-1], b.dim()
    turned = cls.name == "hir.linear" and b.chance(0.5)
    w = b.weight((n, k) if turned else (k, n), x.dtype)
    bias = b.weight((n,), x.dtype) if cls.name != "hir.linear" or b.chance(0.7) else None
    activation = b.one_of(("none", "relu", "gelu", "gelu_approx", "silu", "tanh", "sigmoid"))
    attrs: dict[str, Any] = {"activation": activation}
    return cls(x, w, bias, **attrs, **({"transposed": turned} if turned else {}))


def _shared_linear_pair(b: Builder, cls: type[Op]) -> Op:
    x = b.value(FLOATS, min_rank=2, full=True)
    k = x.type.static_shape[-1]
    return cls(x, b.weight((k, b.dim()), x.dtype), b.weight((k, b.dim()), x.dtype))


def _swiglu(b: Builder, cls: type[Op]) -> Op:
    x = b.value(FLOATS, min_rank=2, full=True)
    k, m, n = x.type.static_shape[-1], b.dim(), b.dim()
    turned = b.chance(0.5)
    shapes = [(m, k), (m, k), (n, m)] if turned else [(k, m), (k, m), (m, n)]
    return cls(x, *(b.weight(s, x.dtype) for s in shapes), turned)


def _residual_norm(b: Builder, cls: type[Op]) -> Op:
    x = b.value(FLOATS, min_rank=1, full=True)
    width = x.type.static_shape[-1:]
    beta, bias = (b.weight(width, x.dtype) if b.chance(0.5) else None for _ in range(2))
    other = b.value((x.dtype,), shape=x.type.static_shape)
    return cls(x, other, b.weight(width, x.dtype), beta, bias, 1e-2)


def _attention(b: Builder, cls: type[Op]) -> Op:
    dt, layout = b.dtype(FLOATS), b.one_of(("bshd", "bhsd"))
    kv = b.between(1, 2)
    heads, dim = kv * b.between(1, 3), b.one_of((1, 3, 4, 8, 17))
    batch, queries, keys = b.between(1, 3), b.dim(), b.dim()

    def rows(h: int, s: int) -> Value:
        packed = (batch, s, h * dim) if layout == "bshd" else (batch, h, s, dim)
        return b.value((dt,), shape=packed)

    kind = b.one_of(("none", "causal", "sliding_window", "custom", "bias"))
    mask = None
    if kind == "custom":
        mask = b.leaf((batch, keys), b.one_of((bool_, i64, i32)), "index:2")
    elif kind == "bias":
        full = (batch, heads, queries, keys)
        shape = [d if b.chance(0.6) else 1 for d in full][b.between(0, 3) :]
        own = b.chance(0.5)
        mask = b.leaf(tuple(shape), dt, "mask") if own else b.value((dt,), shape=tuple(shape))
    return cls(
        rows(heads, queries), rows(kv, keys), rows(kv, keys), mask,
        num_heads=heads, kv_heads=kv, scale=b.one_of((0.3, 1.0)), mask_kind=kind, layout=layout,
        window=b.between(1, 5) if kind == "sliding_window" else 0, softcap=b.one_of((0.0, 2.0)),
    )  # fmt: skip


def _constant(b: Builder, cls: type[Op]) -> Op:
    return cls(b.array(b.shape(), b.dtype(EVERY)))


def _iota(b: Builder, cls: type[Op]) -> Op:
    shape = b.shape(min_rank=1)
    dt: DType = b.one_of((i32, i64, f64, *FLOATS))
    return cls(shape, b.between(0, len(shape) - 1), dt)


# -- what the passes look for ----------------------------------------------------------------------


def _projections(b: Builder) -> Op:
    """Products of one tensor with several weights, with biases or not: queries, keys, values."""
    x = b.value(FLOATS, min_rank=2, full=True)
    k, biased = x.type.static_shape[-1], b.chance(0.5)
    last = x
    for _ in range(b.between(2, 4)):
        n = b.dim()
        last = b.take(op_class("mir.matmul")(x, b.weight((k, n), x.dtype)))
        if biased or b.chance(0.2):
            last = b.take(op_class("mir.add")(last, b.weight((n,), x.dtype)))
    return op_class(b.one_of(("mir.relu", "mir.neg", "mir.tanh")))(last)


def _chain(b: Builder) -> Op:
    """Pointwise ops one after the other, the operands of some of them broadcast."""
    x = b.value(FLOATS)
    for _ in range(b.between(1, 4)):
        name = b.one_of(("add", "mul", "maximum", "sub", "tanh", "abs", "where"))
        cls = op_class(f"mir.{name}")
        y = b.partner(x)
        if name == "where":
            x = b.take(cls(b.partner(x, dtype=bool_), x, y))
        else:
            x = b.take(cls(x, y) if len(cls.operand_fields) == 2 else cls(x))
    return op_class(b.one_of(("mir.sigmoid", "mir.neg")))(x)


def _kept(b: Builder) -> Op:
    """A value that a norm, a reduction or a pointwise op reads, and something behind it too: the
    residual of a layer, a value and its statistics, the moment of an optimiser."""
    x = b.value(FLOATS, min_rank=1, full=True)
    shape = x.type.static_shape
    h = b.take(op_class("mir.add")(x, b.value((x.dtype,), shape=shape)))
    last, kind = len(shape) - 1, b.one_of(("rms_norm", "layer_norm", "softmax", "sum", "tanh"))
    cls = op_class("mir.reduce_sum" if kind == "sum" else f"mir.{kind}")
    if kind == "sum":
        b.take(cls(h, (last,), b.chance(0.5)))
    elif kind in ("softmax", "tanh"):
        b.take(cls(h, last) if kind == "softmax" else cls(h))
    else:
        b.take(cls(h, None, None, last, 1e-1))
    again = b.one_of(("turned", "folded", "near"))
    if again == "turned":
        return op_class("mir.transpose")(h, tuple(range(len(shape)))[::-1])
    return (
        op_class("mir.reduce_max")(h, (0,), False) if again == "folded" else op_class("mir.neg")(h)
    )


def _discarded(b: Builder) -> Op:
    """A product by zero, of which simplify leaves nothing, nor of the op with two results below."""
    x = b.value((i64,), min_rank=1, full=True)
    axis = b.axis(x)
    top = op_class("mir.topk")(x, b.between(1, x.type.static_shape[axis]), axis)
    values, places = b.take(top), top.results[1]
    both = b.take(op_class("mir.add")(values, places))
    zero = b.take(op_class("mir.constant")(np.zeros(both.type.static_shape, np.int64)))
    return op_class("mir.mul")(both, zero)


def computed_weight(b: Builder, shape: tuple[int, ...], param: Callable[..., Value]) -> Value:
    """A weight that depends on params alone; ``param(shape)`` declares one."""
    kind = b.one_of(("transpose", "concat", "constant", "scale", "expand"))
    axis = b.between(0, len(shape) - 1)
    if kind == "transpose":
        return b.take(op_class("mir.transpose")(param(shape[::-1]), tuple(range(len(shape)))[::-1]))
    if kind in ("concat", "constant") and shape[axis] > 1:
        first = b.between(1, shape[axis] - 1)
        parts = [(*shape[:axis], n, *shape[axis + 1 :]) for n in (first, shape[axis] - first)]
        left = param(parts[0])
        right = param(parts[1]) if kind == "concat" else b.literal(parts[1], left.dtype)
        both = (left, right) if b.chance(0.5) or parts[0] != parts[1] else (right, left)
        return b.take(op_class("mir.concat")(*both, axis))
    if kind == "expand" and axis > 0:
        return b.take(op_class("mir.expand")(param((1, *shape[1:])), shape))
    whole = param(shape)
    return b.take(op_class("mir.mul")(whole, b.literal(shape[-1:], whole.dtype)))


def _control(b: Builder) -> Op:
    """A branch or a loop, whose bodies use values from around them."""
    x = b.value(FLOATS, min_rank=1, full=True)
    rows = x.type.static_shape[1:]
    w, row = b.value((x.dtype,), shape=x.type.static_shape), b.value((x.dtype,), shape=rows)
    update = b.one_of((
        lambda v, w: v * 0.5 + w, lambda v, w: v.tanh(), lambda v, w: v.maximum(w) * 0.5,
        lambda v, w: v * 0.25 + v.sum() * 0.01, lambda v, w: w,
    ))  # fmt: skip
    kind = b.one_of(("cond", "fori", "swap", "scan", "stack", "while", "region"))
    if kind == "cond":
        pred = b.value((bool_,), shape=())
        out = control.cond(pred, lambda: update(x, w), lambda: x - w)
    elif kind == "fori":
        out = control.fori(b.between(0, 3), lambda i, v: update(v, w), x, reverse=b.chance(0.5))
    elif kind == "swap":
        out = control.fori(b.between(0, 3), lambda i, c: (c[1], update(c[0], w)), (x, w))[0]
    elif kind == "scan":
        back = b.chance(0.5)
        out = control.scan(lambda c, e: (update(c, e), (c, e)), row, x, reverse=back)[0]
    elif kind == "stack":
        back = b.chance(0.5)
        out = control.scan(lambda c, e: (update(c, e), c * 0.5), row, x, reverse=back)[1]
    elif kind == "region":
        out = control.checkpoint(lambda v: update(update(v, w), w))(x)
    else:
        start, limit = (b.take(op_class("mir.constant")(np.int64(n))) for n in (0, b.between(0, 3)))
        out = control.while_loop(
            lambda i, v: i < limit, lambda i, v: (i + 1, update(v, w)), (start, x)
        )[1]
    assert out.op is not None
    return out.op


MOTIFS: dict[str, Callable[[Builder], Op]] = {
    "projections": _projections, "chain": _chain, "control": _control,
    "discarded": _discarded, "kept": _kept,
}  # fmt: skip

_MAKERS: dict[str, Maker] = {
    "where": _where, "bitcast": _bitcast, "cast": _cast, "reshape": _reshape,
    "transpose": _transpose,
    "expand": _expand, "slice": _slice, "concat": _concat, "pad": _pad, "gather": _gather,
    "scatter_add": _scatter_add, "cumsum": _cumsum, "topk": _topk, "matmul": _matmul,
    "scatter": _scatter, "sort": _ordered, "argmax": _ordered, "argmin": _ordered,
    "max_pool_indices": _max_pool_indices,
    "dot_general": _dot_general, "linear": _linear, "linear_fused": _linear,
    "shared_linear_pair": _shared_linear_pair, "swiglu": _swiglu,
    "residual_rms_norm": _residual_norm, "residual_layer_norm": _residual_norm,
    "attention": _attention, "constant": _constant, "iota": _iota,
    **{f"reduce_{kind}": _reduce for kind in ("sum", "mean", "max", "min", "prod")},
    **dict.fromkeys(("softmax", "layer_norm", "rms_norm"), _rows),
}  # fmt: skip


def _maker(cls: type[Op]) -> Maker:
    """The maker of an op: its own, one by its number of operands if it is pointwise, or any."""
    short = cls.name.split(".")[1]
    if short in _MAKERS:
        return _MAKERS[short]
    if cls.pointwise:
        return {1: _unary, 2: _binary}.get(len(cls.operand_fields), _sampled)
    return _sampled
