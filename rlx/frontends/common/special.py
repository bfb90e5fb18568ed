"""Functions of statistics that are formulas over ops of ours, to full relative precision."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlx.frontends.common.values import scalar
from rlx.ir.value import Value
from rlx.ops.pointwise.compare import Where
from rlx.types import f32

__all__ = ["erfc", "normal_quantile"]

# W. J. Cody, "Rational Chebyshev approximations for the error function", Math. Comp. 23, 1969: of
# exp(x²) erfc x from 0.46875 to 4, and of (exp(x²) erfc x · x - 1/√π) · x² in 1/x² above. The
# highest power last.
# fmt: off
_MIDDLE = (
    (1.23033935479799725e3, 2.05107837782607147e3, 1.71204761263407058e3, 8.81952221241769090e2,
     2.98635138197400131e2, 6.61191906371416295e1, 8.88314979438837594e0, 5.64188496988670089e-1,
     2.15311535474403846e-8),
    (1.23033935480374942e3, 3.43936767414372164e3, 4.36261909014324716e3, 3.29079923573345963e3,
     1.62138957456669019e3, 5.37181101862009858e2, 1.17693950891312499e2, 1.57449261107098347e1,
     1.0),
)
_FAR = (
    (-6.58749161529837803e-4, -1.60837851487422766e-2, -1.25781726111229246e-1,
     -3.60344899949804439e-1, -3.05326634961232344e-1, -1.63153871373020978e-2),
    (2.33520497626869185e-3, 6.05183413124413191e-2, 5.27905102951428412e-1, 1.87295284992346725e0,
     2.56852019228982242e0, 1.0),
)

# M. J. Wichura, "Algorithm AS 241: the percentage points of the normal distribution", Applied
# Statistics 37, 1988, PPND16: around 1/2, and where sqrt(-log p) is up to 5 and above.
_CENTRE = (
    (3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
     1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
     3.3430575583588128105e4, 2.5090809287301226727e3),
    (1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
     2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4,
     5.2264952788528545610e3),
)
_TAIL = (
    (1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
     3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
     2.27238449892691845833e-2, 7.74545014278341407640e-4),
    (1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
     1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
     1.05075007164441684324e-9),
)
_END = (
    (6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0,
     2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
     2.71155556874348757815e-5, 2.01033439929228813265e-7),
    (1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
     7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
     2.04426310338993978564e-15),
)
# fmt: on


def erfc(x: Value) -> Value:
    """``1 - erf(x)``, whose digits are all there where it is small."""
    wide = _wide(x)
    # Each formula is of a number in its range, so that no derivative is of what overflows.
    size = wide.abs()
    near = wide.maximum(-0.5).minimum(0.5)
    middle, far = size.maximum(0.46875).minimum(4.0), size.maximum(4.0).minimum(40.0)
    square = 1.0 / (far * far)
    last = (1 / math.sqrt(math.pi) + square * _ratio(_FAR, square)) / far
    tail = Where.build(size.lt(4.0), _gaussian(middle) * _ratio(_MIDDLE, middle),
                       _gaussian(far) * last)  # fmt: skip
    sides = Where.build(wide.lt(0.0), 2.0 - tail, tail)
    found = Where.build(size.le(0.5), 1.0 - near.erf(), sides)
    return Where.build(wide.eq(wide), found, wide).cast(x.dtype)


def normal_quantile(p: Value) -> Value:
    """The number below which a normal variable is with probability p: infinite at 0 and 1, nan
    beyond them."""
    wide = _wide(p)
    q = wide - 0.5
    central = q.maximum(-0.425).minimum(0.425)
    centre = central * _ratio(_CENTRE, 0.180625 - central * central)
    least = Where.build(q.lt(0.0), wide, 1.0 - wide)
    root = (-least.maximum(_smallest(wide)).minimum(0.075).log()).sqrt()
    tail = _ratio(_TAIL, root.minimum(5.0) - 1.6)
    tail = Where.build(root.le(5.0), tail, _ratio(_END, root.maximum(5.0) - 5.0))
    tail = Where.build(least.eq(0.0), scalar(math.inf, wide), tail)
    sides = Where.build(q.lt(0.0), -tail, tail)
    found = Where.build(q.abs().le(0.425), centre, sides)
    inside = wide.ge(0.0).logical_and(wide.le(1.0))
    return Where.build(inside, found, scalar(math.nan, wide)).cast(p.dtype)


def _wide(x: Value) -> Value:
    """In f32 at least."""
    return x if x.dtype.bits >= f32.bits else x.cast(f32)


def _smallest(like: Value) -> float:
    """The least positive number of a type."""
    return 2.0**-149 if like.dtype is f32 else 2.0**-1074


def _gaussian(x: Value) -> Value:
    """``exp(-x²)``, of which x² is split so that none of its digits is lost."""
    high = (x * 16.0).trunc() * (1 / 16)
    return (-high * high).exp() * ((high - x) * (high + x)).exp()


def _ratio(both: tuple[Sequence[float], Sequence[float]], x: Value) -> Value:
    """A quotient of polynomials, whose constants come first."""
    top, bottom = (_polynomial(c, x) for c in both)
    return top / bottom


def _polynomial(coefficients: Sequence[float], x: Value) -> Value:
    found = x * coefficients[-1] + coefficients[-2]
    for c in reversed(coefficients[:-2]):
        found = found * x + c
    return found
