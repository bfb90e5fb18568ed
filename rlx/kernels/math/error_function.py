"""erf."""

from __future__ import annotations

from rlx.kernels.math.core import absolute, clamp, horner, sign_of, toggle_sign
from rlx.kernels.math.exponential import exp_moderate
from rlx.kernels.reg import Reg
from rlx.types import f32

__all__ = ["erf"]

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
# (1 + 2t)·e^(t²)·(1 - erf t) in u = (t - 2) / (t + 2), 1 ≤ t ≤ 6, where erf becomes 1 in f64
_SCALED_COMPLEMENT = (
    1.2769783815525286, -0.09276382658574356, -0.1660303976151034, 0.1640512800343288,
    -0.05422000102943361, -0.008034015456346542, 0.008722654969936216, 0.0012713650568229524,
    -0.001456749821924738, -0.00045480837935324257, 0.00020369968839753174,
    0.00014966757176540876, 1.8762402814042048e-05, 1.7438840653765967e-05,
    2.839276605091722e-05,
)
# fmt: on


def erf(x: Reg) -> Reg:
    """The error function. In f32 one rational function serves every argument: activations call it
    for each element of wide products, where a second branch with an exponential would cost more
    than the product's own epilogue. In f64 it is a polynomial within ±1, and beyond it 1 less its
    complement."""
    return _erf_f32(x) if x.dtype is f32 else _erf_f64(x)


def _erf_f32(x: Reg) -> Reg:
    k, square = x.k, x * x
    y = clamp(x * horner(square, _P) / horner(square, _Q), -1.0, 1.0)
    return k.select(x > 3.92, 1.0, k.select(x < -3.92, -1.0, y))


def _erf_f64(x: Reg) -> Reg:
    k, t = x.k, absolute(x)
    near = k.fma(t, horner(t * t, _NEAR), t)
    return toggle_sign(k.select(t < 1.0, near, 1.0 - _complement_f64(t)), sign_of(x))


def _complement_f64(t: Reg) -> Reg:
    """1 - erf t for t ≥ 1. The form is that of M. M. Shepherd and J. G. Laframboise, Mathematics
    of Computation 36, 1981: (1 + 2t)·e^(t²)·(1 - erf t) is almost constant."""
    k = t.k
    t = clamp(t, 0.0, 6.0)
    square = t * t
    square_low = k.fma(t, t, -square)
    e = exp_moderate(-square)
    scaled = horner((t - 2.0) / (t + 2.0), _SCALED_COMPLEMENT) / k.fma(t, 2.0, 1.0)
    return k.fma(-e, square_low, e) * scaled
