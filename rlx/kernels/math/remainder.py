"""The remainder of a division, exact whatever the quotient."""

from __future__ import annotations

import math

from rlx.kernels.math.core import absolute, exact_fma, format_of, sign_of, toggle_sign
from rlx.kernels.reg import Reg
from rlx.types import f32, f64

__all__ = ["remainder"]

_LIFT = {f32: 2.0**96, f64: 2.0**960}
"""Divisors larger by this, and by it twice, come first where the quotient would overflow."""

_STEPS = {f32: 16, f64: 45}
"""Enough for the largest quotient: a step takes the significand's bits off it."""


def remainder(x: Reg, y: Reg) -> Reg:
    """x - n·y with the whole number n that leaves |result| < |y| and the sign of x, C's fmod; nan
    for an infinite x and for y = 0.

    A step subtracts the rounded quotient times y. What is left is exact: it is a multiple of the
    last place of y times that of the quotient, and at most y times half of that quotient's last
    place. Nearly always one step is enough; the others stand in a branch.
    """
    k, size = x.k, absolute(y)
    left = _step(absolute(x), size)
    unfinished = (absolute(left) >= size) & (size > 0.0) & (absolute(left) < math.inf)
    left = k.when(k.any(unfinished), lambda: _further(left, size), lambda: left, results=(left,))[0]
    left = k.select(left < 0.0, left + size, left)
    left = k.select(k.compare("eq", size, math.inf), absolute(x), left)
    defined = (size > 0.0) & (absolute(x) < math.inf)
    return toggle_sign(k.select(defined, absolute(left), math.nan), sign_of(x))


def _further(left: Reg, size: Reg) -> Reg:
    """What steps leave of a number that may be any multiple of ``size``."""
    k = left.k
    larger = size * _LIFT[left.dtype]
    largest = larger * _LIFT[left.dtype]

    def step(_: Reg, r: Reg) -> Reg:
        # One that has overflowed is above every r.
        t = absolute(r)
        return _step(r, k.select(t >= largest, largest, k.select(t >= larger, larger, size)))

    return k.loop(0, _STEPS[left.dtype], 1, step, init=(left,))[0]


def _step(r: Reg, size: Reg) -> Reg:
    """r less a multiple of size: half of the last place of r / size, in size, is left at most."""
    k = r.k
    quotient = r / size
    fraction = absolute(quotient) < 2.0 ** format_of(r).mantissa
    whole = k.select(fraction, k.round_even(quotient), quotient)
    return k.select(absolute(quotient) < math.inf, exact_fma(-whole, size, r), r)
