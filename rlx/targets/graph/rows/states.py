"""Recurrences that go from step to step, and over rows of several sequences."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from rlx.ops.nn.state_rows import OUTSIDE
from rlx.targets.graph.rows.common import Row, shape_of
from rlx.targets.graph.tensor import Tensor
from rlx.targets.graph.whole import Refused, Whole
from rlx.types import i32, i64

__all__ = ["ROWS"]

STEPS = 64
"""Steps of a recurrence up to which they are written out."""

Step: TypeAlias = Callable[[int, Tensor], tuple[Tensor, Tensor]]
"""``step(t, state)`` gives what step t reads, and the state after it."""


def _check_steps(count: int) -> None:
    if count > STEPS:
        raise Refused(f"{count} steps of a recurrence, of which {STEPS} are written out")


def _at(k: Whole, t: Tensor, axis: int, i: int, shape: Sequence[int]) -> Tensor:
    """The part of index i along an axis, in a shape."""
    return k.reshape(k.narrow(t, axis, i, i + 1), shape)


def _in_order(
    k: Whole, node: Any, state: Tensor, slots: Tensor, positions: Tensor, step: Step
) -> tuple[Tensor, Tensor]:
    """The results of rows in order, and the states after them, as ``StateRows`` has them; ``step``
    takes and gives tensors whose first axis is the one row."""
    rows, count, shape = slots.shape[0], state.shape[0], shape_of(node)
    if 0 in shape or 0 in state.shape:
        return k.literal(0, state.dtype, shape), state
    _check_steps(rows)
    outside = (slots < 0) | (slots >= count)
    real = positions >= 0
    k.check(real & outside, f"{node.short}: {OUTSIDE}")
    real = real & k.logical_not(outside)
    places = k.cast(k.select(real, slots, 0), i32 if k.target.index_bits == 32 else i64)
    fresh, found = positions <= 0, list[Tensor]()
    for t in range(rows):
        at, ones = k.narrow(places, 0, t, t + 1), [1] * state.rank
        before = k.reshape(k.taken(state, at, 0, 0), (1, *state.shape[1:]))
        y, own = step(t, k.select(_at(k, fresh, 0, t, ones), 0.0, before))
        is_real = k.narrow(real, 0, t, t + 1)
        own = k.select(k.reshape(is_real, ones), own, before)
        state = k.scattered("set", state, at, own, 0, 0)
        found.append(k.select(k.reshape(is_real, [1] * y.rank), y, 0.0))
    return k.joined(found, 0) if rows > 1 else found[0], state


def _causal_conv_rows(
    k: Whole, node: Any, x: Tensor, weight: Tensor, state: Tensor, slots: Tensor, positions: Tensor
) -> tuple[Tensor, Tensor]:
    taps, channels = weight.shape

    def step(t: int, own: Tensor) -> tuple[Tensor, Tensor]:
        seen = k.joined([own, _at(k, x, 0, t, (1, 1, channels))], 1)
        y = k.fold("add", seen * k.reshape(weight, (1, taps, channels)), [1], 0)
        return y, k.narrow(seen, 1, 1, taps)

    return _in_order(k, node, state, slots, positions, step)


def _selective_scan_rows(
    k: Whole, node: Any, x: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor,
    slots: Tensor, positions: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    _, h, p = x.shape
    groups, n = b.shape[1:]

    def step(t: int, own: Tensor) -> tuple[Tensor, Tensor]:
        width = _at(k, delta, 0, t, (1, h, 1, 1))
        enters, reads = (_of_heads(k, v, t, h, (groups, n), (1, h, 1, n)) for v in (b, c))
        decay = k.exp(width * k.reshape(a, (1, h, 1, a.shape[1])))
        own = decay * own + width * _at(k, x, 0, t, (1, h, p, 1)) * enters
        return k.fold("add", own * reads, [3], 0), own

    return _in_order(k, node, state, slots, positions, step)


def _of_heads(
    k: Whole, t: Tensor, i: int, heads: int, each: tuple[int, int], shape: Sequence[int]
) -> Tensor:
    """Row i of what heads that follow one another share, for each head."""
    groups, n = each
    found = _at(k, t, 0, i, (1, groups, 1, n))
    return k.reshape(k.spread(found, (1, groups, heads // max(groups, 1), n)), shape)


def _delta_step(
    k: Whole, own: Tensor, q: Tensor, key: Tensor, v: Tensor, g: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor]:
    """A step of the gated delta rule on a state [B, H, N, M]: ``q`` and ``key`` are [B, H, N, 1],
    ``v`` [B, H, M], ``g`` and ``beta`` [B, H, 1]."""
    own = own * k.exp(k.reshape(g, (*g.shape, 1)))
    moved = beta * (v - k.fold("add", own * key, [2], 0))
    own = own + key * k.reshape(moved, (*v.shape[:2], 1, v.shape[2]))
    return k.fold("add", own * q, [2], 0) * (1.0 / math.sqrt(own.shape[2])), own


def _gated_delta_rows(
    k: Whole, node: Any, q: Tensor, key: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor,
    slots: Tensor, positions: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    _, h, m = v.shape
    groups, n = q.shape[1:]

    def step(t: int, own: Tensor) -> tuple[Tensor, Tensor]:
        q_t, key_t = (_of_heads(k, x, t, h, (groups, n), (1, h, n, 1)) for x in (q, key))
        share = (_at(k, x, 0, t, (1, h, 1)) for x in (g, beta))
        return _delta_step(k, own, q_t, key_t, _at(k, v, 0, t, (1, h, m)), *share)

    return _in_order(k, node, state, slots, positions, step)


def _gated_delta_net(
    k: Whole, node: Any, q: Tensor, key: Tensor, v: Tensor, g: Tensor, beta: Tensor,
    state: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    (rows, steps, h, n), m = q.shape, v.shape[3]
    q, key, v, g, beta = (k.rounded(k.widened(t), node.wide) for t in (q, key, v, g, beta))
    own = k.literal(0, node.wide, shape_of(node, 1)) if state is None else state
    own = k.rounded(k.widened(own), node.wide)
    if 0 in shape_of(node):
        return k.literal(0, node.v.dtype, shape_of(node)), own
    _check_steps(steps)
    found: list[Tensor] = []
    for t in range(steps):
        q_t, key_t = (_at(k, x, 1, t, (rows, h, n, 1)) for x in (q, key))
        share = (_at(k, x, 1, t, (rows, h, 1)) for x in (g, beta))
        y, own = _delta_step(k, own, q_t, key_t, _at(k, v, 1, t, (rows, h, m)), *share)
        found.append(k.reshape(y, (rows, 1, h, m)))
    y = k.joined(found, 1) if steps > 1 else found[0]
    return k.rounded(y, node.v.dtype), own


ROWS: dict[str, Row] = {
    "mir.causal_conv_rows": _causal_conv_rows,
    "mir.selective_scan_rows": _selective_scan_rows,
    "mir.gated_delta_rows": _gated_delta_rows,
    "mir.gated_delta_net": _gated_delta_net,
}
