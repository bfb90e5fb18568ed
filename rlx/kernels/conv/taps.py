"""The taps of a window on planes, whose offsets lie in a buffer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx.codegen.builder import Kernel
from rlx.codegen.reg import Buffer, Reg

__all__ = ["over_taps"]


def over_taps(
    k: Kernel, offsets: Buffer, count: Reg, width: int, step: Callable[..., list[Reg]],
    places: tuple[Reg, Reg], acc: Sequence[Reg],
) -> list[Reg]:  # fmt: skip
    """``acc`` after ``step(at, w, acc)`` for each tap of a channel, whose first element and weights
    are at ``places``; a tap has ``width`` weights."""
    at, w = places

    def tap(t: Reg, *acc: Reg) -> list[Reg]:
        offset = k.cast(k.load(offsets, t), at.dtype)
        return step(at + offset, w + t * width, acc)

    return k.loop(0, count, 1, tap, acc)
