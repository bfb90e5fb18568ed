"""The remainder of a division, exact whatever the quotient."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from rlx.codegen.math.core import (
    absolute,
    bits,
    format_of,
    leading,
    power_of_two,
    sign_of,
    toggle_sign,
)
from rlx.codegen.reg import Reg
from rlx.types import f32, f64

if TYPE_CHECKING:
    from rlx.codegen.builder import Kernel

__all__ = ["remainder"]

_LIFT = {f32: 2.0**96, f64: 2.0**960}
"""Divisors larger by this, and by it twice, come first where the quotient would overflow."""

_STEPS = {f32: 16, f64: 45}
"""Enough for the largest quotient: a step takes the significand's bits off it."""

_HALF_STEPS = {f32: 30, f64: 90}
"""The same where a step takes half of them, 11 and 25."""

_SURPLUS = {f32: 1 + 2.0**-21, f64: 1 + 2.0**-50}
"""A quotient times this is not below the right one, if the device's is within 2.5 units of it."""

_LAST = {f32: 2.0**-11, f64: 2.0**-25}
"""The last place of a quotient of half the bits, beside its first."""

_SCALES = {f32: (2.0**30, 2.0**64), f64: (2.0**300, 2.0**512)}
"""A number is large from the first on; smaller ones are multiplied by the second."""


def remainder(x: Reg, y: Reg) -> Reg:
    """x - n·y with the whole number n that leaves |result| < |y| and the sign of x, C's fmod; nan
    for an infinite x and for y = 0.

    A step subtracts the rounded quotient times y. What is left is exact: it is a multiple of the
    last place of y times that of the quotient, and at most y times that quotient's last place, or
    half of it. Nearly always one step is enough; the others stand in a branch.
    """
    k, size = x.k, absolute(y)
    left = _step_of(k)(absolute(x), size)
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
    one = _step_of(k)
    count = (_STEPS if one is _step else _HALF_STEPS)[left.dtype]

    def step(_: Reg, r: Reg) -> Reg:
        # One that has overflowed is above every r.
        t = absolute(r)
        return one(r, k.select(t >= largest, largest, k.select(t >= larger, larger, size)))

    return k.loop(0, count, 1, step, init=(left,))[0]


def _step_of(k: Kernel) -> Callable[[Reg, Reg], Reg]:
    return _step if k.target.fused and k.target.rounded_quotients else _half_step


def _step(r: Reg, size: Reg) -> Reg:
    """r less a multiple of size: half of the last place of r / size, in size, is left at most."""
    k = r.k
    quotient = r / size
    fraction = absolute(quotient) < 2.0 ** format_of(r).mantissa
    whole = k.select(fraction, k.round_even(quotient), quotient)
    return k.select(absolute(quotient) < math.inf, k.fma(-whole, size, r), r)


def _half_step(t: Reg, size: Reg) -> Reg:
    """The same for t ≥ 0 without a fused multiply-add, or where divisions are as rough as languages
    of GPUs allow: the quotient has half the bits, so that its products with the halves of size
    are exact. From 0 to the last place of the quotient, in size, is left.

    The differences are exact too: the first is of numbers near to each other, and the second is at
    most that last place, or little below 0. Then the quotient was too large by its last place.
    """
    k, dt, form = t.k, t.dtype, format_of(t)
    quotient = t / size * _SURPLUS[dt]
    whole = leading(k.floor(quotient))
    place = power_of_two(bits(whole) >> form.mantissa, dt) * _LAST[dt]
    # No product may overflow, nor be subnormal, which some devices take for 0. If the quotient is
    # from 1 to inf, size is near enough to t for either scale.
    bound, up = _SCALES[dt]
    large = t >= bound
    scale = k.select(large, k.const(0.25, dt, t.lanes), up)
    divisor = size * scale
    high = leading(divisor)
    rest = (t * scale - whole * high) - whole * (divisor - high)
    rest = k.select(rest < 0.0, rest + k.select(place > 1.0, place, 1.0) * divisor, rest)
    rest = rest * k.select(large, k.const(4.0, dt, t.lanes), 1.0 / up)
    return k.select((quotient >= 1.0) & (quotient < math.inf), rest, t)
