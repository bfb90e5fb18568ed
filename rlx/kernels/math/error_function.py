"""erf."""

from __future__ import annotations

from rlx.kernels.math.core import absolute, clamp, horner, sign_of, toggle_sign
from rlx.kernels.math.exponential import exp_moderate
from rlx.kernels.reg import Reg
from rlx.types import f32

__all__ = ["erf"]

# fmt: off
# erf x = x + x·P(x²), |x| ≤ 1
_NEAR = {
    32: (0.12837916612625122, -0.3761262893676758, 0.11283618211746216, -0.026855122298002243,
         0.005190716590732336, -0.0008030509343370795, 7.91918791946955e-05),
    64: (0.1283791670955126, -0.3761263890318411, 0.11283791670972051, -0.026866170648275876,
         0.005223977655607058, -0.0008548328729211818, 0.00012055394050879598,
         -1.4927086764659953e-05, 1.6484578885387683e-06, -1.6596512969869377e-07,
         1.629009839306376e-08, -1.7574854497481813e-09, 1.627969497378027e-10),
}
# -log(1 - erf t), 1 ≤ t ≤ 3.96, where erf becomes 1 in f32
_LOG_COMPLEMENT = (
    -0.0001884421071736142, 1.1295801401138306, 0.6332167983055115, 0.10842163860797882,
    -0.025210054591298103, 0.004205190576612949, -0.00044145790161564946, 2.1696874682675116e-05,
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
    """The error function: a polynomial within ±1, beyond it 1 less its complement."""
    k, t = x.k, absolute(x)
    near = k.fma(t, horner(t * t, _NEAR[x.dtype.bits]), t)
    complement = _complement_f32(t) if x.dtype is f32 else _complement_f64(t)
    return toggle_sign(k.select(t < 1.0, near, 1.0 - complement), sign_of(x))


def _complement_f32(t: Reg) -> Reg:
    """1 - erf t for t ≥ 1, as e to a polynomial."""
    return exp_moderate(-horner(clamp(t, 0.0, 3.96), _LOG_COMPLEMENT))


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
