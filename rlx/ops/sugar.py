"""Builder methods that are no op of their own: other spellings, and short combinations of ops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlx.base.dims import exact_quotient, is_known
from rlx.errors import GraphError, ShapeError, did_you_mean
from rlx.ir.lift import promoted
from rlx.ir.op import Array, Op
from rlx.ir.value import Value
from rlx.ops.movement.movement import DimLike, axis_of, listed
from rlx.ops.movement.slicing import Concat, Slice
from rlx.ops.nn.attention import Attention
from rlx.ops.pointwise.activation import Silu
from rlx.ops.pointwise.binary import Add, Div, Maximum, Minimum, Mul, Pow, Sub
from rlx.ops.pointwise.compare import Eq, Ge, Gt, Le, Lt, Ne
from rlx.ops.pointwise.functions import activations
from rlx.ops.reduction.reduce import ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum
from rlx.types import Dim

__all__ = [
    "activation",
    "attention_kind",
    "binary",
    "clip",
    "compare",
    "concat",
    "flatten",
    "gated_silu",
    "max_",
    "min_",
    "narrow",
    "permute",
    "prelu",
    "reciprocal",
    "reduce",
    "split",
    "square",
    "squeeze",
    "swapaxes",
    "unsqueeze",
]

Number = float | int | bool

MAX_PARTS = 1 << 16
"""Of a split."""

BINARIES: dict[str, type[Op]] = {
    "add": Add, "sub": Sub, "mul": Mul, "div": Div, "max": Maximum, "min": Minimum, "pow": Pow,
    "+": Add, "-": Sub, "*": Mul, "/": Div, "**": Pow,
}  # fmt: skip
COMPARES: dict[str, type[Op]] = {
    "eq": Eq, "ne": Ne, "lt": Lt, "le": Le, "gt": Gt, "ge": Ge,
    "==": Eq, "!=": Ne, "<": Lt, "<=": Le, ">": Gt, ">=": Ge,
}  # fmt: skip
REDUCTIONS: dict[str, type[Op]] = {
    "sum": ReduceSum, "mean": ReduceMean, "max": ReduceMax, "min": ReduceMin, "prod": ReduceProd,
}  # fmt: skip


# -- parts and axes ------------------------------------------------------------------------


def narrow(x: Value, axis: int, start: DimLike, length: DimLike) -> Value:
    """``length`` elements along one axis from ``start``; negative numbers count from the end."""
    axis = axis_of(axis, x.rank, "narrow")
    starts: list[DimLike] = [0] * x.rank
    starts[axis] = start
    if isinstance(start, int) and start < 0:
        starts[axis] = x.shape[axis] + start
    sizes = [length if i == axis else d for i, d in enumerate(x.shape)]
    return Slice.build(x, starts, sizes)


def concat(values: Sequence[Value], axis: int = 0) -> Value:
    """Tensors joined along an axis, promoted to one element type."""
    if not isinstance(values, list | tuple) or not values:
        raise GraphError("concat takes one or more values in a list: concat([x, y], axis)")
    parts = promoted(*values)
    return _join(parts, axis_of(axis, parts[0].rank, "concat"))


def _join(parts: Sequence[Value], axis: int) -> Value:
    """By halves, so that an element is copied log(n) times at most."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return Concat(_join(parts[:half], axis), _join(parts[half:], axis), axis).out


def split(x: Value, parts: int | Sequence[DimLike], axis: int = 0) -> list[Value]:
    """Pieces along an axis: ``parts`` equal ones, or pieces of the sizes given."""
    axis = axis_of(axis, x.rank, "split")
    sizes = list(parts) if isinstance(parts, Iterable) else _equal_parts(x, parts, axis)
    out: list[Value] = []
    starts: list[Dim] = [0] * x.rank
    for size in sizes:
        piece = Slice.build(x, starts, [size if i == axis else d for i, d in enumerate(x.shape)])
        out.append(piece)
        starts[axis] = starts[axis] + piece.shape[axis]
    if starts[axis] != x.shape[axis]:
        raise ShapeError(
            f"split: sizes {list(sizes)} add up to {starts[axis]}, axis {axis} has {x.shape[axis]}"
        )
    return out


def _equal_parts(x: Value, count: int, axis: int) -> list[Dim]:
    dim = x.shape[axis]
    if not 1 <= count <= MAX_PARTS or (is_known(dim) and dim % count):
        raise ShapeError(f"split: {dim} elements along axis {axis} make no {count} equal parts")
    return [exact_quotient(dim, count)] * count


def squeeze(x: Value, axis: int | Iterable[int] | None = None) -> Value:
    """The tensor without axes of size 1: those given, or all of them."""
    if axis is None:
        drop = {i for i, d in enumerate(x.shape) if d == 1}
    else:
        many = axis if isinstance(axis, Iterable) else (axis,)
        drop = {axis_of(i, x.rank, "squeeze") for i in many}
    for i in drop:
        if x.shape[i] != 1:
            raise ShapeError(f"squeeze: axis {i} of {listed(x.shape)} has {x.shape[i]} elements")
    return x.reshape([d for i, d in enumerate(x.shape) if i not in drop])


def unsqueeze(x: Value, axis: int) -> Value:
    """The tensor with a new axis of size 1, which becomes axis ``axis`` of the result."""
    axis = axis_of(axis, x.rank + 1, "unsqueeze")
    return x.reshape([*x.shape[:axis], 1, *x.shape[axis:]])


def swapaxes(x: Value, axis1: int, axis2: int) -> Value:
    """The tensor with two axes interchanged."""
    perm = list(range(x.rank))
    i, j = (axis_of(a, x.rank, "swapaxes") for a in (axis1, axis2))
    perm[i], perm[j] = j, i
    return x.transpose(perm)


def permute(x: Value, perm: Iterable[int] | int, *more: int) -> Value:
    """The axes in another order; ``transpose`` with its permutation."""
    return x.transpose(perm, *more)


def flatten(x: Value, start_axis: int = 0, end_axis: int = -1) -> Value:
    """The axes from ``start_axis`` to ``end_axis`` (both included) as one; a scalar becomes [1]."""
    if not x.rank:
        return x.reshape([1])
    first, last = (axis_of(a, x.rank, "flatten") for a in (start_axis, end_axis))
    if first > last:
        raise ShapeError(f"flatten: axis {start_axis} comes after axis {end_axis}")
    size = x.type.with_shape(x.shape[first : last + 1]).size
    return x.reshape([*x.shape[:first], size, *x.shape[last + 1 :]])


# -- short combinations --------------------------------------------------------------------


def square(x: Value) -> Value:
    """The elements times themselves."""
    return x * x


def reciprocal(x: Value) -> Value:
    """One over every element."""
    return 1.0 / x


def clip(x: Value, low: Value | Number | None = None, high: Value | Number | None = None) -> Value:
    """The elements within bounds, as ``numpy.clip``; None leaves a side open, and nan stays."""
    x = x if low is None else x.maximum(low)
    return x if high is None else x.minimum(high)


def prelu(x: Value, weight: Value | Array, axis: int = 1) -> Value:
    """x, and below 0 ``weight * x``, with a weight for each place along an axis or one for all."""
    (factor,) = promoted(weight, x)[:1]
    if factor.rank == 1 and x.rank:
        axis = axis_of(axis, x.rank, "prelu")
        factor = factor.reshape([factor.shape[0], *[1] * (x.rank - axis - 1)])
    return x.lt(0).where(x * factor, x)


def gated_silu(x: Value, gate_first: bool = False) -> Value:
    """``up * silu(gate)``, with up and gate the halves of the last axis in this order, or in the
    other: what one product by the weights of both gives to the middle of a SwiGLU layer."""
    up, gate = split(x, 2, -1)
    return gate * Silu.build(up) if gate_first else up * Silu.build(gate)


# -- ops by name ---------------------------------------------------------------------------


def activation(kind: str | Value, x: Value | str) -> Value:
    """A pointwise function by name: ``g.activation("gelu", x)`` or ``x.activation("gelu")``.

    The names are those of the methods ("gelu_approx"); "GeluApprox" is taken too.
    """
    name, (value,) = _by_name(kind, x)
    known = {n.replace("_", ""): c for n, c in activations().items()}
    return _named("activation", name.replace("_", "").lower(), known, activations()).build(value)


def binary(op: str | Value, a: Value | Number | str, b: Value | Number) -> Value:
    """Arithmetic by name or symbol: ``g.binary("+", a, b)``, ``a.binary("max", b)``."""
    name, operands = _by_name(op, a, b)
    return _named("binary op", name, BINARIES).build(*operands)


def compare(op: str | Value, a: Value | Number | str, b: Value | Number) -> Value:
    """A comparison by name or symbol: ``g.compare("<", a, b)``, ``a.compare("le", b)``."""
    name, operands = _by_name(op, a, b)
    return _named("comparison", name, COMPARES).build(*operands)


def reduce(
    x: Value, op: str, axes: Iterable[int] | int | None = None, keep_dim: bool = False
) -> Value:
    """A reduction by name: sum, mean, max, min or prod."""
    return _named("reduction", op, REDUCTIONS).build(x, axes=axes, keep_dim=keep_dim)


def max_(
    x: Value,
    other: Value | float | None = None,
    *,
    axes: Iterable[int] | int | None = None,
    keepdims: bool = False,
    axis: Iterable[int] | int | None = None,
    keep_dim: bool = False,
) -> Value:
    """With another operand the larger of the two, element by element (``maximum``); otherwise the
    largest element along ``axes``, or of all.

    An int as the second argument could be either and is refused: write ``x.max(axes=0)`` or
    ``x.maximum(0)``.
    """
    how = {"axes": axes, "keepdims": keepdims, "axis": axis, "keep_dim": keep_dim}
    return _extreme("max", x, other, how)


def min_(
    x: Value,
    other: Value | float | None = None,
    *,
    axes: Iterable[int] | int | None = None,
    keepdims: bool = False,
    axis: Iterable[int] | int | None = None,
    keep_dim: bool = False,
) -> Value:
    """With another operand the smaller of the two, element by element (``minimum``); otherwise
    the smallest element along ``axes``, or of all. An int as the second argument is refused, as
    in ``max``.
    """
    how = {"axes": axes, "keepdims": keepdims, "axis": axis, "keep_dim": keep_dim}
    return _extreme("min", x, other, how)


def _extreme(name: str, x: Value, other: Any, how: dict[str, Any]) -> Value:
    if other is None:
        return REDUCTIONS[name].build(x, **how)
    if isinstance(other, int | tuple | list):
        raise GraphError(
            f"{name}: {other!r} could be axes or an operand; write x.{name}(axes={other!r}) or"
            f" x.{name}imum({other!r})"
        )
    if any(v is not None and v is not False for v in how.values()):
        raise GraphError(f"{name} takes another operand or axes, not both")
    return BINARIES[name].build(x, other)


def attention_kind(
    q: Value, k: Value, v: Value, num_heads: int, head_dim: int, mask_kind: str = "none"
) -> Value:
    """Attention whose mask needs no tensor: "none", "causal", or "sliding:N" for a causal window
    that reaches N positions back."""
    kind, _, reach = mask_kind.partition(":")
    masks: dict[str, dict[str, Any]] = {"none": {}, "causal": {"mask_kind": "causal"}}
    if kind == "sliding" and reach.isdigit():
        masks["sliding"] = {"mask_kind": "sliding_window", "window": int(reach)}
    if kind not in masks or (reach and kind != "sliding"):
        raise GraphError(
            f'attention: a mask is "none", "causal" or "sliding:N", found {mask_kind!r}'
        )
    return Attention.build(q, k, v, num_heads=num_heads, head_dim=head_dim, **masks[kind])


def _by_name(*args: Any) -> tuple[str, list[Any]]:
    """The name among the first two arguments, and the operands in order."""
    at = 0 if isinstance(args[0], str) else 1
    name, operands = args[at], [a for i, a in enumerate(args) if i != at]
    if not isinstance(name, str):
        raise GraphError(f"expected the name of an op, found {args[0]!r} and {args[1]!r}")
    return name, operands


def _named(
    what: str, name: str, table: Mapping[str, type[Op]], listing: Iterable[str] | None = None
) -> type[Op]:
    if name not in table:
        known = ", ".join(listing or table)
        raise GraphError(f"unknown {what} {name!r}{did_you_mean(name, table)}; known: {known}")
    return table[name]
