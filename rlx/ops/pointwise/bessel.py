"""Modified Bessel functions of the first kind, times exp(-|x|), by Chebyshev series."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.ir.op import Array
from rlx.ir.value import Value
from rlx.ops.pointwise.activation import Activation
from rlx.ops.pointwise.cast import in_double
from rlx.ops.pointwise.elementary import two_samples
from rlx.types import f64

__all__ = ["BesselI0e", "BesselI1e"]

_I0_NEAR = (
    0.33839763720473803, -0.3046826723431984, 0.17162090152220877, -0.09490109704804764,
    0.04930528423967071, -0.02373741480589947, 0.010546460394594998, -0.004324309995050576,
    0.0016394756169413357, -0.0005763755745385824, 0.00018850288509584165, -5.754195010082104e-05,
    1.6448448070728896e-05, -4.4167383584587505e-06, 1.1173875391201037e-06,
    -2.670793853940612e-07, 6.046995022541919e-08, -1.300025009986248e-08, 2.6598237246823866e-09,
    -5.189795601635263e-10, 9.675809035373237e-11, -1.726826291441556e-11, 2.95505266312964e-12,
    -4.856446783111929e-13, 7.676185498604936e-14, -1.1685332877993451e-14, 1.715391285555133e-15,
    -2.431279846547955e-16, 3.3307945188222384e-17, -4.4153416464793395e-18,
)  # fmt: skip
_I0_FAR = (
    0.4022452055070544, 0.0033691164782556943, 6.889758346916825e-05, 2.8913705208347567e-06,
    2.0489185894690638e-07, 2.266668990498178e-08, 3.3962320257083865e-09, 4.94060238822497e-10,
    1.1889147107846439e-11, -3.1499165279632416e-11, -1.3215811840447713e-11,
    -1.7941785315068062e-12, 7.180124451383666e-13, 3.8527783827421426e-13, 1.54008621752141e-14,
    -4.150569347287222e-14, -9.554846698828307e-15, 3.8116806693526224e-15, 1.7725601330565263e-15,
    -3.425485619677219e-16, -2.8276239805165836e-16, 3.461222867697461e-17, 4.46562142029676e-17,
    -4.830504485944182e-18, -7.233180487874754e-18,
)  # fmt: skip
_I1_NEAR = (
    0.12629359322181682, -0.17641651835783406, 0.1026436586898471, -0.05294598120809499,
    0.024726449030626516, -0.010564084894626197, 0.004156422944312888, -0.0015135724506312532,
    0.0005122859561685758, -0.00016176081582589674, 4.781565107550054e-05, -1.3273163656039436e-05,
    3.4702513081376785e-06, -8.568720264695455e-07, 2.0032947535521353e-07, -4.445059128796328e-08,
    9.381537386495773e-09, -1.8872497517228294e-09, 3.625590281552117e-10, -6.663489723502027e-11,
    1.1736186298890901e-11, -1.9839743977649436e-12, 3.223793365945575e-13, -5.042185504727912e-14,
    7.600684294735408e-15, -1.1055969477353862e-15, 1.5536319577362005e-16, -2.111421214358166e-17,
    2.7779141127610464e-18,
)  # fmt: skip
_I1_FAR = (
    0.38928811750914005, -0.009761097491361469, -0.00011058893876262371, -3.882564808877691e-06,
    -2.512236237870209e-07, -2.6314688468895196e-08, -3.835380385964237e-09,
    -5.589743462196584e-10, -1.8974958123505413e-11, 3.2526035830154884e-11,
    1.4125807436613782e-11, 2.0356285441470896e-12, -7.198551776245908e-13,
    -4.0835511110921974e-13, -2.1015418427726643e-14, 4.272440016711951e-14,
    1.0420276984128802e-14, -3.8144030724370075e-15, -1.8803547755107825e-15,
    3.3082023109209285e-16, 2.96262899764595e-16, -3.209525921993424e-17, -4.6503053684893586e-17,
    4.414348323071708e-18, 7.517296310842105e-18,
)  # fmt: skip
"""Coefficients of exp(-x) I0(x), exp(-x) I1(x) / x in x/4 - 1 for x up to 8, and beyond of exp(-x)
sqrt(x) In(x) in 16/x - 1, down to the last place of f64."""

BEND = 8.0


def _series(coefficients: Sequence[float], t: Any) -> Any:
    """A Chebyshev series at t, by Clenshaw's recurrence."""
    twice = t * 2.0
    above, here = t * 0.0, t * 0.0 + coefficients[-1]
    for c in reversed(coefficients[1:-1]):
        above, here = here, twice * here - above + c
    return t * here - above + coefficients[0]


def _needed(coefficients: Sequence[float], wide: bool) -> Sequence[float]:
    """Those that count: all of them in f64."""
    if wide:
        return coefficients
    return [c for c in coefficients if abs(c) > 2**-27 * abs(coefficients[0])]


class Scaled(Activation):
    """A function of two series, of |x|."""

    samples = two_samples()
    near: tuple[float, ...]
    far: tuple[float, ...]
    odd: bool

    def reference(self, x: Array) -> Array:
        return in_double(self._in_double, x)

    def _in_double(self, x: Array) -> Array:
        a = np.abs(x)
        low, high = np.minimum(a, BEND), np.maximum(a, BEND)
        near = _series(self.near, low / 4.0 - 1.0) * (low if self.odd else 1.0)
        found = np.where(a > BEND, _series(self.far, 16.0 / high - 1.0) / np.sqrt(high), near)
        return np.copysign(found, x) if self.odd else found

    def scalar(self, k: Any, x: Any) -> Any:
        wide, a = x.dtype is f64, k.abs(x)
        low, high = k.minimum(a, BEND), k.maximum(a, BEND)
        near = _series(_needed(self.near, wide), low * 0.25 - 1.0)
        far = _series(_needed(self.far, wide), 16.0 / high - 1.0) / k.sqrt(high)
        found = k.select(a > BEND, far, near * low if self.odd else near)
        return k.select(x < 0.0, -found, found) if self.odd else found


class BesselI0e(Scaled, name="mir.bessel_i0e"):
    """``exp(-|x|) I0(x)``, I0 being the modified Bessel function of order 0."""

    near, far, odd = _I0_NEAR, _I0_FAR, False

    def slope(self, x: Value, y: Value) -> Value:
        return x.bessel_i1e() - x.sign() * y


class BesselI1e(Scaled, name="mir.bessel_i1e"):
    """``exp(-|x|) I1(x)``, I1 being the modified Bessel function of order 1."""

    near, far, odd = _I1_NEAR, _I1_FAR, True

    def slope(self, x: Value, y: Value) -> Value:
        zero = x.eq(0)
        inverse = 1.0 / zero.where(1.0, x)
        return zero.where(0.5, x.bessel_i0e() - y * (x.sign() + inverse))
