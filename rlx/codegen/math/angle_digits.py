"""Reduction of an angle in f32 by integers of 32 bits, for machines that have no doubles.

As in ``angle``, the angle's digits are multiplied with those of 2/π from where whole turns end (M.
Payne and R. Hanek, ACM SIGNUM Newsletter 18, 1983); here all products are of digits to base 2^12,
and their sums are exact. Nothing depends on how floats are rounded, or on a multiply-add being
fused, which several languages leave open.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from rlx.codegen.math.core import bits
from rlx.codegen.reg import INDEX, Reg
from rlx.types import f32, u32

__all__ = ["reduce_by_digits"]

_BASE = 12
_MASK = (1 << _BASE) - 1

_WINDOW = 8
"""Digits of 2/π that are multiplied with the 24 bits of an angle: of the 96 bits of the product,
72 are exact. An f32 is within 2^-32 of a multiple of π/2 at the nearest."""

_KEPT = 6
"""Digits of the product that count."""

_LEAST = 126
"""The exponent field of the smallest angle that is reduced, 1/2."""

_ZEROS = 26
"""Zeros before 2/π's digits: so many turns is the last place of such an angle below 1/4."""

_TABLE = (254 - _LEAST) // _BASE + _WINDOW + 1

# π/2 · 2^11, · 2^23, · 2^35: the parts, each below 2^12, of what the ones before leave.
_HALF_PI = (0xC90, 0xFDA, 0xA22)


def reduce_by_digits(t: Reg, two_over_pi: int, count: int) -> tuple[Reg, Reg]:
    """As ``reduce_angle`` for an f32, where ``two_over_pi`` has ``count`` bits of 2/π."""
    k = t.k
    zero = k.const(0, u32)
    near = t <= math.pi / 4
    r, quadrant = k.when(
        near, lambda: (t, zero), lambda: _reduce(t, two_over_pi, count), results=(t, zero)
    )
    return k.select(t < math.inf, r, math.nan), quadrant


def _reduce(t: Reg, two_over_pi: int, count: int) -> tuple[Reg, Reg]:
    word = bits(t)
    window = _window((word >> 23) - _LEAST, two_over_pi, count)
    first, *rest = _product((word & 0x7FFFFF) | 0x800000, window)
    # The turn's quarter is in the two highest bits. From a half of one on the next is nearer, and
    # what is missing to it has the other digits.
    upper = (first >> (_BASE - 3)) & 1
    quadrant = (first >> (_BASE - 2)) + upper
    flip = upper * _MASK
    digits = [(first ^ flip) & (_MASK >> 2), *(d ^ flip for d in rest)]
    r = _times_half_pi(digits[:_KEPT])
    sign = upper << 31
    return t.k.bitcast(bits(r) ^ sign, f32), quadrant


def _window(first: Reg, two_over_pi: int, count: int) -> list[Reg]:
    """Digits of 2/π from its bit ``first`` on, counted from the first of the zeros before it."""
    k = first.k
    table = k.stack(u32, _TABLE)
    for n in range(_TABLE):
        shift = count + _ZEROS - _BASE * (n + 1)
        k.store((two_over_pi >> shift) & _MASK, table, n)
    whole = (first * 171) >> 11  # first / 12, for what comes here
    rest = first - whole * _BASE
    at = k.cast(whole, INDEX)
    found = [k.load(table, at + n) for n in range(_WINDOW + 1)]
    return [((high << rest) | (low >> (_BASE - rest))) & _MASK for high, low in pairwise(found)]


def _product(m: Reg, window: Sequence[Reg]) -> list[Reg]:
    """The digits of a number of 24 bits times a fraction, without the whole part."""
    low, high = m & _MASK, m >> _BASE
    columns = [d * low for d in window]
    for n, d in enumerate(window[1:]):
        columns[n] = columns[n] + d * high
    return _carried(columns)[1]


def _carried(columns: Sequence[Reg]) -> tuple[Reg, list[Reg]]:
    """The digits of a number whose columns, the highest first, may have more than one, and what is
    carried out of the first."""
    digits: list[Reg] = []
    carry: Reg | int = 0
    for column in reversed(columns):
        total = column + carry
        digits.append(total & _MASK)
        carry = total >> _BASE
    assert isinstance(carry, Reg)
    return carry, digits[::-1]


def _times_half_pi(digits: Sequence[Reg]) -> Reg:
    """A fraction, of which the first digit has two bits less, times π/2, rounded to f32."""
    columns: list[Reg] = []
    for n in range(len(digits)):
        parts = [digits[n - j] * p for j, p in enumerate(_HALF_PI[: n + 1])]
        columns.append(sum(parts[1:], start=parts[0]))
    carry, d = _carried(columns[1:])
    # Each is exact in f32. Where the first is 0, the sum of the others is rounded once.
    whole = (columns[0] + carry, (d[0] << _BASE) | d[1], (d[2] << _BASE) | d[3])
    high, mid, low = (x.k.cast(x, f32) for x in whole)
    return high * 2.0**-21 + (mid * 2.0**-45 + low * 2.0**-69)
