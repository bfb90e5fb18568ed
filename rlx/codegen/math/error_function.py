"""erf, and gelu: x times the distribution function of the standard normal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx.codegen.math.core import (
    absolute,
    bits,
    clamp,
    exact_fma,
    format_of,
    horner,
    product_error,
    sign_of,
    toggle_sign,
)
from rlx.codegen.math.exponential import EXP, exp_moderate
from rlx.codegen.reg import Reg
from rlx.types import f32, f64

__all__ = ["erf", "gelu"]

# fmt: off
# erf x = x · P(x²) / Q(x²), |x| ≤ 3.92, where erf becomes 1 in f32. Least squares on Chebyshev
# points with Lawson's weights; the fit's relative error is 2.8e-8, the rest is rounding.
_P = (1.1283791065216064, 0.18970178067684174, 0.051496028900146484, 0.00358032644726336,
      0.0002303525834577158)
_Q = (1.0, 0.5014512538909912, 0.11279233545064926, 0.014425011351704597, 0.0010535991750657558,
      2.3158005205914378e-05, -1.1220992490734716e-07)
# erf x = x + x·P(x²), |x| ≤ 1, in f64
_NEAR = (
    0.1283791670955126, -0.3761263890318411, 0.11283791670972051, -0.026866170648275876,
    0.005223977655607058, -0.0008548328729211818, 0.00012055394050879598,
    -1.4927086764659953e-05, 1.6484578885387683e-06, -1.6596512969869377e-07,
    1.629009839306376e-08, -1.7574854497481813e-09, 1.627969497378027e-10,
)
# (1 + 2t)·e^(t²)·(1 - erf t) in u = (t - 4) / (t + 4), 0 ≤ t ≤ 27.6: a sum of Chebyshev
# polynomials, cut off where it is 6e-17 from the function
_SCALED_COMPLEMENT = (
    1.2329951186255526, -0.13962111684056294, 0.015379652102606252, 0.0680970542547391,
    -0.10103906603557694, 0.09373283499691759, -0.06633036582766631, 0.03716751555645692,
    -0.016197733888156936, 0.005031969852353846, -0.0007577743805957355, -0.00019925628108385186,
    0.00015062605867058657, -2.439962945294969e-05, -1.1233255556754763e-05,
    5.708227193644538e-06, 3.1199143494332523e-07, -8.196007544779408e-07, 5.6904075743844964e-08,
    1.0168801295526798e-07, -8.700244107120788e-09, -8.629276612894948e-09,
)
# e^(t²/2)·Φ(-t) = S·P(t) / Q(t), 0 ≤ t ≤ 14.6, in f32. The fit has a relative error of 1e-8, and
# holds e^(ct²) besides, for what _lifted_gauss leaves.
_TAIL_S = 0.3989455645596198
_TAIL_P = (119.71662902832031, 105.35658264160156, 44.172481536865234, 9.828471183776855, 1.0)
_TAIL_Q = (95.52083587646484, 160.27772521972656, 115.36705017089844, 45.15981674194336,
           9.82907772064209, 1.0)
# e^r, |r| ≤ ln2/2, in f32, for less than EXP has: the fit's relative error is 9e-8
_SHORT_EXP = (1.0, 0.9999997019767761, 0.4999914765357971, 0.16667653620243073,
              0.041898176074028015, 0.008289217948913574)
# fmt: on

_SQRT_HALF = 0.5**0.5
_END = {f32: 14.6, f64: 38.8}
"""From here on t·Φ(-t) rounds to 0."""

_LIFT = 2.0**100
"""What is below the least normal number at the end is computed times this."""

_TWO_LN2 = {
    f32: (float.fromhex("0x1.62e430p+0"), 0.0),
    f64: (float.fromhex("0x1.62e42fefa39efp+0"), float.fromhex("0x1.abc9e3b39803fp-55")),
}
"""Rounded, and what that leaves. In f32 it is e^(-1.4e-9·t²) in the result, which the fit takes."""


def erf(x: Reg, exponential: Callable[[Reg], Reg] = exp_moderate) -> Reg:
    """The error function. In f32 one rational function serves every argument: activations call it
    for each element of wide products, where a second branch with an exponential would cost more
    than the product's own epilogue. In f64 it is a polynomial within ±1, and beyond it 1 less its
    complement, which has an ``exponential`` of moderate numbers in it."""
    return _erf_f32(x) if x.dtype is f32 else _erf_f64(x, exponential)


def _erf_f32(x: Reg) -> Reg:
    k, square = x.k, x * x
    y = clamp(x * horner(square, _P) / horner(square, _Q), -1.0, 1.0)
    return k.select(x > 3.92, 1.0, k.select(x < -3.92, -1.0, y))


def _erf_f64(x: Reg, exponential: Callable[[Reg], Reg]) -> Reg:
    k, t = x.k, absolute(x)
    near = k.fma(t, horner(t * t, _NEAR), t)
    return toggle_sign(k.select(t < 1.0, near, 1.0 - _complement_f64(t, exponential)), sign_of(x))


def _complement_f64(t: Reg, exponential: Callable[[Reg], Reg]) -> Reg:
    """1 - erf t for t ≥ 1."""
    k = t.k
    t = clamp(t, 0.0, 6.0)
    square = t * t
    square_low = product_error(t, t, square)
    e = exponential(-square)
    return k.fma(-e, square_low, e) * _scaled_complement(t)


def _scaled_complement(t: Reg) -> Reg:
    """e^(t²)·(1 - erf t) for f64 t ≥ 0. The form is that of M. M. Shepherd and J. G. Laframboise,
    Mathematics of Computation 36, 1981: times 1 + 2t it is almost constant."""
    return horner((t - 4.0) / (t + 4.0), _SCALED_COMPLEMENT) / t.k.fma(t, 2.0, 1.0)


def gelu(x: Reg) -> Reg:
    """x·Φ(x), as max(x, 0) - t·Φ(-t) with t = |x|: no digits cancel at either side of 0.

    -inf gives -0, the limit.
    """
    k, t = x.k, absolute(x)
    t = k.select(t > _END[x.dtype], _END[x.dtype], t)
    if x.dtype is f32:
        tail = _lifted_gauss(t, _TAIL_S, _SHORT_EXP) * (t * horner(t, _TAIL_P) / horner(t, _TAIL_Q))
    else:
        scaled = _scaled_complement(t * _SQRT_HALF)
        tail = _lifted_gauss(t, 0.5, EXP[f64].polynomial) * (t * scaled)
    # The product rounds once, to a subnormal number or -0 where need be.
    return k.fma(tail, -1.0 / _LIFT, k.select(x < 0.0, -0.0, x))


def _lifted_gauss(t: Reg, scale: float, exponential: Sequence[float]) -> Reg:
    """``scale``·e^(-t²/2)·``_LIFT`` for 0 ≤ t ≤ ``_END``, by a polynomial for e^r.

    t² = q - n·2ln2 with |q| ≤ ln2. An ulp of a large square is many of the result, so that what
    its rounding loses is added to q, which is exact.
    """
    k, form, (high, low) = t.k, format_of(t), _TWO_LN2[t.dtype]
    square = t * t
    shifted = k.fma(square, -1.0 / high, form.rounder)
    n = shifted - form.rounder
    q = exact_fma(n, high, square) + product_error(t, t, square)
    q = k.fma(n, low, q) if low else q
    p = horner(q, [c * (-0.5) ** i * scale * _LIFT for i, c in enumerate(exponential)])
    # n is in the low bits of the shifted number; the others leave the word.
    return k.bitcast(bits(p) + (bits(shifted) << form.mantissa), t.dtype)
