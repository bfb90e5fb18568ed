"""Moving the lanes of vectors."""

from __future__ import annotations

from collections.abc import Sequence

from rlx.kernels.builder import Kernel
from rlx.kernels.reg import Reg

__all__ = ["halves", "shuffle"]


def shuffle(k: Kernel, a: Reg, b: Reg, lanes: Sequence[int]) -> Reg:
    """A vector of the given lanes of ``a`` followed by ``b``."""
    return k.shuffle(a, b, lanes)


def halves(k: Kernel, x: Reg) -> tuple[Reg, Reg]:
    """The lower and the upper lanes of a vector."""
    n = x.lanes // 2
    return shuffle(k, x, x, range(n)), shuffle(k, x, x, range(n, x.lanes))
