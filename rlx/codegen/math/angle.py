"""Reduction of an angle to a quadrant and a remainder within ±π/4.

Up to a bound that RLX's users meet (positions of a rotary embedding), three parts of π/2 do: with
fused multiply-adds, or what stands for them where they may round twice, the first product is
subtracted without error (S. Boldo, M. Daumas, R.-C. Li, IEEE Transactions on Computers 58, 2009).
Beyond it the product of the angle with 2/π is summed in pieces short enough to multiply exactly,
and of each only the part below 4 is kept, since whole turns do not count (M. Payne and R. Hanek,
ACM SIGNUM Newsletter 18, 1983). The second way is a branch, taken if any lane needs it. A machine
without doubles takes neither, but integers.
"""

from __future__ import annotations

from rlx.codegen.math.angle_digits import reduce_by_digits
from rlx.codegen.math.core import (
    bits,
    exact_fma,
    fast_two_sum,
    multiply_add,
    product_error,
    round_scaled,
    two_sum,
)
from rlx.codegen.reg import Reg
from rlx.types import f32, f64, u32

__all__ = ["reduce_angle"]

_TWO_OVER_PI = 0.6366197723675814
# π/2 in parts, each the nearest number to what the ones before it leave.
_PARTS = {
    f32: ("0x1.921fb6p+0", "-0x1.777a5cp-25", "-0x1.ee59dap-50"),
    f64: ("0x1.921fb54442d18p+0", "0x1.1a62633145c07p-54", "-0x1.f1976b7ed8fbcp-110"),
}
_BOUND = {f32: 2.0**16, f64: 2.0**28}

# The first bits of 2/π after the binary point.
_DIGIT_COUNT = 1200
_DIGITS = int(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424"
    "dd2e006492eea09d1921cfe1deb1cb129a73ee88235f52ebb4484e99c7026b45f7e413991d6"
    "39835339f49c845f8bbdf9283b1ff897ffde05980fef2f118b5a0a6d1f6d367ecf27cb09b74"
    "f463f669e5fea2d7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d0856033046fc7b",
    16,
)
_CHUNK = 26


def reduce_angle(t: Reg) -> tuple[Reg, Reg]:
    """r and q with t = (q + 4m)·π/2 + r, |r| ≤ π/4, for t ≥ 0.

    q is an integer whose two low bits count. r has a relative error of an ulp at most, also where
    t is next to a multiple of π/2; it is nan for inf.
    """
    k = t.k
    if f64 in k.target.lacks:
        return reduce_by_digits(t, _DIGITS, _DIGIT_COUNT)
    n, quadrant = round_scaled(t, _TWO_OVER_PI)
    first, second, third = (-float.fromhex(p) for p in _PARTS[t.dtype])
    r = multiply_add(n, third, exact_fma(n, second, exact_fma(n, first, t)))
    huge = t > _BOUND[t.dtype]

    def exactly() -> tuple[Reg, Reg]:
        exact, turns = _reduce_f32(t) if t.dtype is f32 else _reduce_f64(t)
        return k.select(huge, exact, r), k.select(huge, turns, quadrant)

    reduced = k.when(k.any(huge), exactly, lambda: (r, quadrant), results=(r, quadrant))
    return reduced[0], reduced[1]


def _reduce_f32(t: Reg) -> tuple[Reg, Reg]:
    k = t.k
    r, quadrant = _reduce_exactly([k.cast(t, f64)], _chunks(128 + 128, 0))
    return k.cast(r, f32), k.cast(quadrant, u32)


def _reduce_f64(t: Reg) -> tuple[Reg, Reg]:
    # Half of the scale is moved from the angle to 2/π, whose last digits would be subnormal.
    k, shift = t.k, 512
    scaled = t * 2.0**-shift
    head = k.bitcast(bits(scaled) & ~0x7FFFFFF & 0xFFFFFFFFFFFFFFFF, f64)
    return _reduce_exactly([head, scaled - head], _chunks(1024 + 160, shift))


def _chunks(count: int, shift: int) -> list[float]:
    """``count`` bits of 2/π · 2^shift in chunks short enough to multiply exactly."""
    chunks = []
    for top in range(0, count, _CHUNK):
        digits = (_DIGITS >> (_DIGIT_COUNT - top - _CHUNK)) & ((1 << _CHUNK) - 1)
        chunks.append(float(digits) * 2.0 ** (shift - top - _CHUNK))
    return chunks


def _reduce_exactly(pieces: list[Reg], chunks: list[float]) -> tuple[Reg, Reg]:
    """As ``reduce_angle`` for the sum of ``pieces`` times the sum of ``chunks``.

    The sum has three parts: a double can be as near to a multiple of π/2 as 2^-62 (J.-M. Muller,
    Elementary Functions, 3rd ed., 11.3), and the remainder needs its 53 bits below that.
    """
    k, lanes = pieces[0].k, pieces[0].lanes
    table = k.stack(f64, len(chunks))
    for n, chunk in enumerate(chunks):
        k.store(chunk, table, n)

    def add(j: Reg, *total: Reg) -> tuple[Reg, ...]:
        chunk = k.splat(k.load(table, j), lanes) if lanes else k.load(table, j)
        high, mid, low = total
        for piece in pieces:
            product = piece * chunk
            part = k.fma(k.floor(product * 0.25), -4.0, product)
            high, error = two_sum(high, part)
            mid, error = two_sum(mid, error)
            low = low + error
        return high, mid, low

    zero = k.const(0.0, f64, lanes)
    high, mid, low = k.loop(0, len(chunks), 1, add, init=(zero, zero, zero))
    n, quadrant = round_scaled(high, 1.0)
    fraction, rest = two_sum(high - n, mid)
    fraction, rest = fast_two_sum(fraction, rest + low)
    return _times_half_pi(fraction, rest), quadrant


def _times_half_pi(fraction: Reg, rest: Reg) -> Reg:
    """The sum of both times π/2, rounded once or nearly so; ``rest`` is small beside the other."""
    k, (high, low, _) = rest.k, (float.fromhex(p) for p in _PARTS[f64])
    small = k.fma(fraction, low, rest * high)
    if k.target.fused:
        return k.fma(fraction, high, small)
    product = fraction * high
    return product + (product_error(fraction, k.const(high, f64, rest.lanes), product) + small)
