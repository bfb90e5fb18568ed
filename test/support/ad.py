"""Derivatives of Values by the rules of the ops, for tests of these rules."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.ir.value import Value
from rlx.ops.movement.constant import Constant
from rlx.ops.movement.movement import zeros
from rlx.ops.rules import jvp, vjp

__all__ = ["grad", "jvp", "vjp"]


def grad(y: Value, wrt: Sequence[Value]) -> list[Value]:
    """The gradients of a scalar; zeros where it does not depend on an operand."""
    one = Constant(np.ones((), y.dtype.numpy)).out
    found = vjp([y], wrt, [one])
    return [zeros(x.shape, x.dtype) if g is None else g for x, g in zip(wrt, found, strict=True)]
