"""Complex numbers in kernels: a register is a pair of real registers, its parts.

In memory the parts of an element lie side by side, so a buffer of complex elements is one of twice
as many reals. Products and quotients are NumPy's, bit for bit but for contraction: a product is the
schoolbook formula, a quotient is Smith's (R. L. Smith, "Algorithm 116: Complex division", CACM 5,
1962), which does not overflow on the way. The functions have C99's Annex G in mind for infinities.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rlx.codegen.reg import Reg
from rlx.types import complex_of, i32, i64

if TYPE_CHECKING:
    from rlx.codegen.builder import Kernel

__all__ = [
    "Complex", "absolute", "angle", "arith", "equal", "exp", "flat", "gathered", "log", "pair",
    "parts", "sqrt",
]  # fmt: skip


@dataclass(eq=False, slots=True)
class Complex(Reg):
    """A register of complex values: its parts are registers, and it has no name of its own."""

    re: Reg = field(kw_only=True)
    im: Reg = field(kw_only=True)


def pair(re: Reg, im: Reg) -> Complex:
    """The complex register of two real ones."""
    name = "a complex register has no name"
    return Complex(re.k, name, complex_of(re.dtype), re.lanes, re=re, im=im)


def parts(x: Reg) -> tuple[Reg, Reg]:
    """The real and the imaginary part; 0 is the imaginary part of a real register."""
    if isinstance(x, Complex):
        return x.re, x.im
    return x, x.k.const(0, x.dtype, x.lanes)


def flat(regs: Iterable[Reg]) -> list[Reg]:
    """Registers with each complex one as its two parts."""
    out: list[Reg] = []
    for r in regs:
        out += parts(r) if isinstance(r, Complex) else (r,)
    return out


def gathered(regs: Sequence[Reg], like: Sequence[Reg]) -> list[Reg]:
    """The inverse of ``flat`` for registers of the types of ``like``."""
    rest = iter(regs)
    return [pair(next(rest), next(rest)) if isinstance(r, Complex) else next(rest) for r in like]


# -- arithmetic ----------------------------------------------------------------------------


def arith(k: Kernel, verb: str, x: Complex, y: Complex) -> Complex:
    """add, sub, mul or div; TypeError for what complex numbers do not have."""
    (a, b), (c, d) = parts(x), parts(y)
    match verb:
        case "add":
            return pair(a + c, b + d)
        case "sub":
            return pair(a - c, b - d)
        case "mul":
            return pair(a * c - b * d, a * d + b * c)
        case "div":
            return _quotient(k, x, y)
        case _:
            raise TypeError(f"kernel {k.name}: there is no {verb} of {x.dtype}")


def _quotient(k: Kernel, x: Complex, y: Complex) -> Complex:
    """Smith's quotient: scaled by the divisor's larger part. Over zero both parts are divided by
    zero, which gives infinities and nan."""
    (a, b), (c, d) = parts(x), parts(y)
    size_c, size_d = k.abs(c), k.abs(d)
    real = size_c >= size_d
    large, small = k.select(real, c, d), k.select(real, d, c)
    ratio = small / large
    scale = 1.0 / (large + small * ratio)
    re = k.select(real, a + b * ratio, a * ratio + b) * scale
    im = k.select(real, b - a * ratio, b * ratio - a) * scale
    zero = k.compare("eq", size_c, 0) & k.compare("eq", size_d, 0)
    return pair(k.select(zero, a / size_c, re), k.select(zero, b / size_c, im))


def equal(k: Kernel, pred: str, x: Complex, y: Complex) -> Reg:
    """Whether both parts are equal ("eq"), or one differs ("ne"); TypeError for an order."""
    if pred == "eq":
        return k.compare("eq", x.re, y.re) & k.compare("eq", x.im, y.im)
    if pred == "ne":
        return k.compare("ne", x.re, y.re) | k.compare("ne", x.im, y.im)
    raise TypeError(f"kernel {k.name}: complex numbers have no order, so there is no {pred}")


# -- functions -----------------------------------------------------------------------------


def absolute(k: Kernel, x: Complex) -> Reg:
    """The modulus, without overflow on the way; inf if a part is infinite, even beside nan."""
    a, b = k.abs(x.re), k.abs(x.im)
    large, small = k.select(a > b, a, b), k.select(a > b, b, a)
    # Of two zeros and of two infinities the ratio would be nan; here 0 / 1 and inf / inf -> 1.
    ratio = small / k.select(k.compare("eq", large, 0), 1, large)
    size = large * k.sqrt(ratio * ratio + 1.0)
    inf = float("inf")
    either = k.compare("eq", a, inf) | k.compare("eq", b, inf)
    return k.select(either, inf, size)


def angle(k: Kernel, x: Complex) -> Reg:
    """The argument, in [-pi, pi], as C's atan2 of the parts."""
    a, b = k.abs(x.re), k.abs(x.im)
    # Two zeros, and two infinities, which make 45 degrees.
    both_zero = k.compare("eq", a, 0) & k.compare("eq", b, 0)
    inf = float("inf")
    both_inf = k.compare("eq", a, inf) & k.compare("eq", b, inf)
    steep = b > a
    ratio = k.select(steep, a, b) / k.select(both_zero, 1, k.select(steep, b, a))
    acute = k.atan(k.select(both_inf, 1, ratio))
    acute = k.select(steep, np.pi / 2 - acute, acute)
    wide = k.select(negative(k, x.re), np.pi - acute, acute)
    return k.select(negative(k, x.im), -wide, wide)


def negative(k: Kernel, x: Reg) -> Reg:
    """Whether the sign bit is set: of -0.0 too."""
    return k.bitcast(x, i32 if x.dtype.bits == 32 else i64) < 0


def exp(k: Kernel, x: Complex) -> Complex:
    """e to the power of x: by halves, so that it overflows only where the result does. A real
    exponent has a real power, also where that is inf."""
    half = k.exp(x.re * 0.5)
    cosine, sine = k.cos(x.im), k.sin(x.im)
    re = half * cosine * half
    im = k.select(k.compare("eq", x.im, 0), x.im, half * sine * half)
    # e to -inf is 0 in any direction, and to inf it is inf in none.
    inf = float("inf")
    lost = k.compare("ne", x.im - x.im, 0)
    vanishes, explodes = lost & k.compare("eq", x.re, -inf), lost & k.compare("eq", x.re, inf)
    re = k.select(vanishes, 0, k.select(explodes, inf, re))
    return pair(re, k.select(vanishes, 0, im))


def log(k: Kernel, x: Complex) -> Complex:
    """The principal logarithm: of the modulus, and the argument."""
    return pair(k.log(absolute(k, x)), angle(k, x))


def sqrt(k: Kernel, x: Complex) -> Complex:
    """The principal square root: its real part is not negative, and -0.0i stays below the cut."""
    a, b = x.re, x.im
    large = float(np.finfo(a.dtype.numpy).max) / 4
    huge = (k.abs(a) >= large) | (k.abs(b) >= large)
    a, b = k.select(huge, a * 0.25, a), k.select(huge, b * 0.25, b)
    root = k.sqrt((k.abs(a) + absolute(k, pair(a, b))) * 0.5)
    none = k.compare("eq", root, 0)
    other = k.abs(b) / k.select(none, 1, root * 2.0)
    right = k.compare("ge", a, 0)
    re, im = k.select(right, root, other), k.select(right, other, root)
    im = k.select(negative(k, b), -im, im)
    scale = k.select(huge, k.const(2, a.dtype, a.lanes), k.const(1, a.dtype, a.lanes))
    inf = float("inf")
    endless = k.compare("eq", k.abs(x.im), inf)
    broken = k.compare("ne", a, a)
    re = k.select(endless, inf, k.select(broken, a, re * scale))
    return pair(re, k.select(endless, x.im, im * scale))
