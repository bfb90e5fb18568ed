"""The masks of attention: which kinds there are, what fits them, and which keys a query sees."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.base.dims import is_known, maximum
from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.ir.op import Array
from rlx.ir.value import Value
from rlx.ops.movement.constant import Iota
from rlx.ops.movement.movement import listed
from rlx.ops.nn.heads import check_choice, fold_batch
from rlx.types import Dim, Shape, broadcast_shapes, i32

__all__ = ["HIDDEN", "batch_bias", "check_kind", "check_mask", "pairs", "seen", "seen_array"]

HIDDEN = -1e9
"""The score of a key that a mask hides."""
"""The score of a key that a query must not see: finite, so that a row in which no key is visible
is uniform and not nan."""

MASK_KINDS = ("none", "causal", "sliding_window", "custom", "bias")


def check_kind(kind: str, window: int) -> None:
    """GraphError for an unknown kind, or a window that does not go with it."""
    check_choice("attention", "mask_kind", kind, MASK_KINDS)
    if kind == "sliding_window" and window < 1:
        raise GraphError(f"attention: a sliding window needs a window of 1 or more, found {window}")
    if kind != "sliding_window" and window:
        raise GraphError(f"attention: mask_kind {kind!r} takes no window, found {window}")


def check_mask(kind: str, mask: Value | None, scores: Shape) -> None:
    """Refuse a mask that does not fit ``scores`` ``[B, H, Sq, Sk]``, or is missing, or too much."""
    if kind not in ("custom", "bias"):
        if mask is not None:
            raise GraphError(f"attention: mask_kind {kind!r} takes no mask, found {mask.type}")
        return
    if mask is None:
        raise GraphError(f"attention: mask_kind {kind!r} needs a mask")
    if kind == "custom":
        want = (scores[0], scores[3])
        if mask.shape != want:
            raise ShapeError(f"attention: the mask must be {listed(want)}, found {mask.type}")
        return
    if not mask.dtype.is_float:
        raise DTypeError(f"attention: a bias is a float tensor, found {mask.type}")
    try:
        fits = broadcast_shapes(mask.shape, scores) == scores
    except ShapeError:
        fits = False
    if not fits:
        raise ShapeError(
            f"attention: the bias must broadcast to {listed(scores)}, found {mask.type}"
        )


def seen(kind: str, window: int, mask: Value | None, sq: Dim, sk: Dim) -> Value | None:
    """Which scores stay, as a bool that broadcasts to them; None if the kind hides nothing."""
    if kind in ("none", "bias"):
        return None
    if kind == "custom":
        assert mask is not None
        if mask.dtype.is_float:
            mask = mask.ge(0.5)
        elif mask.dtype.is_int:
            mask = mask.ge(1)
        return mask.reshape((mask.shape[0], 1, 1, sk))
    shift = sk - sq
    if not is_known(shift):
        raise ShapeError(
            f"attention: a {kind} mask over {sq} queries and {sk} keys needs their difference;"
            " bind these dims first"
        )
    # No sequence is as long as 2^30, and some devices have no integers of 64 bits.
    position, key = Iota((sq, 1), 0, i32).out + shift, Iota((1, sk), 1, i32).out
    past = key.le(position)
    if kind != "sliding_window":
        return past
    return past.logical_and(key.ge(position - min(window, 1 << 30)))


def seen_array(kind: str, window: int, mask: Array | None, sq: int, sk: int) -> Any:
    """``seen`` on arrays, for the reference; True if the kind hides nothing."""
    if kind in ("none", "bias"):
        return True
    if kind == "custom":
        assert mask is not None
        return (mask if mask.dtype == bool else mask >= 0.5)[:, None, None, :]
    back = np.arange(sq)[:, None] + (sk - sq) - np.arange(sk)
    return (back >= 0) & (back <= window) if kind == "sliding_window" else back >= 0


def pairs(kind: str, window: int, sq: int, sk: int) -> int:
    """How many of the scores of one head a mask of that kind leaves; one given as data is taken to
    leave all."""
    if kind not in ("causal", "sliding_window"):
        return sq * sk
    seen = _sum_to(sk) - _sum_to(sk - sq)
    if kind == "sliding_window":
        seen -= _sum_to(sk - 1 - window) - _sum_to(sk - sq - 1 - window)
    return seen


def _sum_to(n: int) -> int:
    """1 + 2 + ... + n."""
    n = maximum(n, 0)
    return n * (n + 1) // 2


def batch_bias(bias: Value, has: bool, n: Dim, batch: Dim) -> Value:
    """The bias for ``n * batch`` sequences, which ``n`` leads if ``has``; one that does not vary
    over them stays small."""
    lead = bias.shape[:1] if has else ()
    rest = bias.shape[len(lead) :]
    bias = bias.reshape((*lead, *[1] * (4 - len(rest)), *rest))
    if not has and bias.shape[0] == 1:
        return bias
    return fold_batch(bias.expand((*lead, batch, *bias.shape[-3:])), has, n)
