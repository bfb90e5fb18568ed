"""Layouts of attention heads, and the common base of the ops on them.

Layout "bshd" is ``[B, S, H*D]`` (the D elements of a head lie together), "bhsd" is
``[B, H, S, D]``. Builders also take ``[S, H*D]`` as a batch of one, and ``[B, S, H, D]`` when told
"bshd"; sizes never decide which layout is meant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.base.dims import is_known
from rlx.errors import DTypeError, GraphError, ShapeError, did_you_mean
from rlx.ir.value import Value
from rlx.types import FLOATS, Dim, DType, Shape, check_one_type, f32

__all__ = [
    "canonical",
    "check_choice",
    "check_floats",
    "check_layout",
    "compute_type",
    "fold_batch",
    "head_sizes",
    "layout_of",
    "merge_heads",
    "split_heads",
    "static",
    "total",
]

LAYOUTS = ("bshd", "bhsd")


def check_choice(op: str, attribute: str, value: str, choices: Sequence[str]) -> None:
    """GraphError unless ``value`` is one of ``choices``."""
    if value not in choices:
        known = ", ".join(map(repr, choices))
        near = did_you_mean(value, choices)
        raise GraphError(f"{op}: {attribute} must be one of {known}, found {value!r}{near}")


def check_layout(op: str, layout: str, x: Value) -> None:
    """GraphError for an unknown layout, ShapeError if x has not its rank."""
    check_choice(op, "layout", layout, LAYOUTS)
    rank = 3 if layout == "bshd" else 4
    if x.rank != rank:
        raise ShapeError(f"{op}: layout {layout!r} needs rank {rank}, found {x.type}")


def layout_of(op: str, x: Value, layout: str | None) -> str:
    """The layout of a builder's operand; rank 4 must say it, since sizes cannot."""
    if layout is None:
        if x.rank == 4:
            raise GraphError(
                f"{op}: {x.type} of rank 4 needs layout='bhsd' ([batch, heads, seq, dim])"
                " or layout='bshd' ([batch, seq, heads, dim])"
            )
        layout = "bshd"
    check_choice(op, "layout", layout, LAYOUTS)
    if x.rank not in ((2, 3, 4) if layout == "bshd" else (4,)):
        raise ShapeError(f"{op}: layout {layout!r} cannot be that of {x.type}")
    return layout


def canonical(x: Value, layout: str) -> Value:
    """A builder's operand in the one form of its layout that the ops have."""
    if layout == "bhsd" or x.rank == 3:
        return x
    if x.rank == 2:
        return x.reshape((1, *x.shape))
    b, s, h, d = x.shape
    return x.reshape((b, s, h * d))


def head_sizes(
    op: str, x: Value, layout: str, num_heads: int | None, head_dim: int | None
) -> tuple[int, int]:
    """``(H, D)`` of a builder's operand, of which rank 4 needs neither and the others one."""
    if x.rank == 4:
        found = (static(x.shape[1 if layout == "bhsd" else 2]), static(x.shape[-1]))
    else:
        features, given = static(x.shape[-1]), num_heads or head_dim
        if not given:
            raise GraphError(f"{op} needs num_heads or head_dim to part {x.type} into heads")
        if given < 1 or features % given:
            raise ShapeError(f"{op}: {given} does not divide the {features} features of {x.type}")
        rest = features // given
        found = (given, rest) if num_heads else (rest, given)
    for what, want, is_ in (("num_heads", num_heads, found[0]), ("head_dim", head_dim, found[1])):
        if want is not None and want != is_:
            raise ShapeError(f"{op}: {what} {want} does not fit {x.type}, which has {is_}")
    return found


def static(d: Dim) -> int:
    """A dim that heads are counted by; ShapeError if it is symbolic."""
    if not is_known(d):
        raise ShapeError(f"the head and feature dims of attention must be numbers, found {d}")
    return d


def split_heads(x: Any, layout: str, heads: int) -> Any:
    """A Value or array in ``layout`` as ``[B, heads, S, D]``."""
    if layout == "bhsd":
        return x
    b, s, f = x.shape
    return x.reshape((b, s, heads, f // heads)).transpose((0, 2, 1, 3))


def merge_heads(x: Any, layout: str) -> Any:
    """The inverse of ``split_heads``."""
    if layout == "bhsd":
        return x
    b, h, s, d = x.shape
    return x.transpose((0, 2, 1, 3)).reshape((b, s, h * d))


def fold_batch(x: Value, has: bool, n: Dim) -> Value:
    """``[n, B, ...]`` as ``[n*B, ...]``; a value without the new axis (``has``) is repeated."""
    if not has:
        x = x.reshape((1, *x.shape)).expand((n, *x.shape))
    shape: Shape = x.shape
    return x.reshape((n * shape[1], *shape[2:]))


def compute_type(dt: DType) -> DType:
    """The type that an op on ``dt`` computes in: f32 for 16-bit floats."""
    return f32 if dt.bits == 16 else dt


def check_floats(op: str, values: Sequence[Value]) -> None:
    """DTypeError unless all have one float type."""
    first = values[0].dtype
    if first not in FLOATS:
        takes = ", ".join(d.name for d in FLOATS)
        raise DTypeError(f"{op} takes {takes}; found {first}. Cast the operand first")
    check_one_type(op, *(v.dtype for v in values))


def total(parts: Sequence[Value]) -> Value:
    """The sum of one or more values."""
    first, *rest = parts
    for p in rest:
        first = first + p
    return first
