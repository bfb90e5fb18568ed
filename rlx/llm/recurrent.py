"""The sizes of blocks with a recurrent state, from a configuration."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from rlx.base.frozen import frozen
from rlx.errors import ModelError

__all__ = ["Recurrent"]


@frozen
class Recurrent:
    """A kind of block ("mamba", "mamba2", "delta", or "conv", a convolution alone) and its sizes.

    ``heads`` of ``width`` channels; ``groups`` of heads share ``size`` numbers that say how a state
    is written and read. A state has ``size`` numbers to a channel. The convolution has ``kernel``
    taps. ``rank`` is that of the step sizes of Mamba, and ``part_eps`` that of norms of what says
    how its state is written and read, 0 for none; those of Mamba 2 are from ``least`` to ``most``.
    """

    kind: str
    heads: int
    width: int
    groups: int
    size: int
    kernel: int
    rank: int = 0
    part_eps: float = 0.0
    least: float = 0.0
    most: float = math.inf

    @property
    def inner(self) -> int:
        """The channels of all heads."""
        return self.heads * self.width

    @property
    def channels(self) -> int:
        """Those of the convolution."""
        alone = self.kind in ("mamba", "conv")
        return self.inner + (0 if alone else 2 * self.groups * self.size)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """What a sequence has of a layer: rows of the convolution, and the state."""
        conv = {"conv": (self.kernel - 1, self.channels)}
        if self.kind == "conv":
            return conv
        last = (self.size, self.width) if self.kind == "delta" else (self.width, self.size)
        return {**conv, "state": (self.heads, *last)}

    @staticmethod
    def of(kind: str, found: Mapping[str, Any], whole: Callable[..., int]) -> Recurrent:
        """From what a configuration has; ``whole(name, default)`` is a positive whole number of it.
        ModelError for sizes that do not fit."""
        activation = found.get("ssm_activation", found.get("activation", "silu"))
        if activation != "silu":
            raise ModelError(f"a block with a state has silu, found the activation {activation!r}")
        kernel = whole("conv")
        if kernel < 2:
            raise ModelError(f"a convolution of {kernel} taps has no state; RLX needs 2 or more")
        if kind == "conv":
            made = Recurrent(kind, 1, found["hidden"], 1, 0, kernel)
        elif kind == "delta":
            heads, groups = whole("delta_heads"), whole("delta_key_heads")
            made = Recurrent(
                kind, heads, whole("delta_width"), groups, whole("delta_size"), kernel
            )  # fmt: skip
        elif kind == "mamba":
            inner = whole("ssm_inner", _times(found["hidden"], found.get("expand", 2)))
            rank = found.get("step_rank", "auto")
            rank = math.ceil(found["hidden"] / 16) if rank == "auto" else whole("step_rank")
            made = Recurrent(
                kind, inner, 1, 1, whole("state"), kernel, rank, float(found.get("part_eps", 0.0))
            )
        else:
            least, most = _limits(found.get("step_limits"))
            made = Recurrent(
                kind, whole("ssm_heads"), whole("ssm_width"), whole("ssm_groups", 1),
                whole("state"), kernel, 0, 0.0, least, most,
            )  # fmt: skip
        if made.heads % made.groups:
            raise ModelError(f"{made.groups} groups do not divide {made.heads} heads of a state")
        return made


def _times(hidden: int, expand: Any) -> int:
    """The channels of a block that has so many times those of the model."""
    if isinstance(expand, bool) or not isinstance(expand, int | float) or not 0 < expand < 1 << 16:
        raise ModelError(f"expand is {expand!r}, expected a positive number")
    return int(hidden * expand)


def _limits(given: Any) -> tuple[float, float]:
    """The least and the most of step sizes."""
    if given is None:
        return 0.0, math.inf
    try:
        least, most = map(float, given)
    except (TypeError, ValueError):
        raise ModelError(f"time_step_limit is {given!r}, expected two numbers") from None
    return least, most
