"""exp, exp2, expm1 and tanh.

On AVX-512 the exponential of f32 takes the sixteenth roots of two from a register, which one
instruction picks by lane; the rest of the argument is so small that a polynomial of degree 3 does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.base.frozen import frozen
from rlx.codegen.lanes import halves
from rlx.codegen.math.core import (
    LN2,
    absolute,
    bits,
    clamp,
    format_of,
    horner,
    multiply_add,
    power_of_two,
    round_scaled,
    sign_of,
    toggle_sign,
)
from rlx.codegen.reg import Reg
from rlx.types import f32, f64, u32

__all__ = [
    "EXP", "exp", "exp2", "exp2_bf16", "exp2_share", "exp_moderate", "expm1", "half_exp", "tanh",
]  # fmt: skip

_LOG2_E = 1.4426950408889634
_LN2 = 0.6931471805599453


@frozen
class _Exp:
    """``ln2`` in two parts, the polynomial of e^r on |r| ≤ ln2/2, and where the result is 0 or inf.

    In f64 the first part times a whole number is exact by a fused multiply-add only.
    Below ``low`` e^x rounds to 0, above ``high`` to inf; both leave the scaling below in range.
    """

    ln2: tuple[float, float]
    polynomial: tuple[float, ...]
    low: float
    high: float


# fmt: off
EXP = {
    f32: _Exp(
        LN2[f32],
        (1.0, 1.0, 0.4999999403953552, 0.1666652262210846, 0.04166816174983978,
         0.008367384783923626, 0.0013818040024489164),
        -104.0, 89.0,
    ),
    f64: _Exp(
        (float.fromhex("0x1.62e42fefa39efp-1"), float.fromhex("0x1.abc9e3b39803fp-56")),
        (1.0, 1.0, 0.500000000000001, 0.16666666666665422, 0.04166666666654792,
         0.00833333333419297, 0.0013888888937447204, 0.00019841267945666668,
         2.480150002286633e-05, 2.7558980099214618e-06, 2.7627796725919173e-07,
         2.456668749311896e-08),
        -746.0, 710.0,
    ),
}
# The bits of 2^(k/16), and the coefficients of r² and r³ in e^r for |r| ≤ ln2/32.
_ROOTS = tuple(int(np.float32(2.0 ** (k / 16)).view(np.uint32)) for k in range(16))
_ROOT_BITS = 4
_ROOT_FIELD = 23 - _ROOT_BITS
_SHORT = (0.5000162124633789, 0.16666939854621887)
# (2^r - 1) / r on |r| ≤ 1/32: the series
_ROOT_EXP2 = (_LN2, _LN2**2 / 2, _LN2**3 / 6)
# 2^r on |r| ≤ 1/2
_EXP2 = {
    f32: (1.0, 0.6931470036506653, 0.24022246897220612, 0.0555071085691452, 0.009671293199062347,
          0.0013269555056467652),
    f64: tuple(c * _LN2**i for i, c in enumerate(EXP[f64].polynomial)),
}
# tanh x = x + x·z·P(z), z = x², |x| ≤ 5/8
_TANH = {
    f32: (-0.3333333134651184, 0.13333222270011902, -0.053948454558849335, 0.021708663552999496,
          -0.008194772526621819, 0.0021572657860815525),
    f64: (-0.33333333333333315, 0.13333333333329989, -0.05396825396617052, 0.021869488471331428,
          -0.008863234348906662, 0.0035921143209622967, -0.001455727822069691,
          0.0005894591122480738, -0.00023703061293431843, 9.158936769274808e-05,
          -3.0216397865696006e-05, 6.054506685178873e-06),
}
# fmt: on


def _reduced(x: Reg, tail: Reg | None = None) -> tuple[Reg, Reg, Reg]:
    """e^r and n, as ``round_scaled`` gives it, with x + tail = n·ln2 + r (W. J. Cody and W. Waite,
    Software Manual for the Elementary Functions, 1980)."""
    n, whole = round_scaled(x, _LOG2_E)
    r = _less_ln2(x, n)
    return horner(r if tail is None else r + tail, EXP[x.dtype].polynomial), n, whole


def _less_ln2(x: Reg, n: Reg) -> Reg:
    """x - n·ln2, where n is x / ln2 rounded; the first step is exact on every target."""
    high, low = EXP[x.dtype].ln2 if x.k.target.fused else LN2[x.dtype]
    return multiply_add(n, -low, multiply_add(n, -high, x))


def _constants(x: Reg) -> _Exp:
    format_of(x)  # refuses other types
    return EXP[x.dtype]


def exp(x: Reg, tail: Reg | None = None) -> Reg:
    """e^x over the whole range, or e^(x + tail) for a ``tail`` below an ulp of x."""
    c = _constants(x)
    x = clamp(x, c.low, c.high)
    if tail is None and _has_table(x):
        return _by_table(x)
    return _scaled(*_reduced(x, tail))


def half_exp(x: Reg) -> Reg:
    """e^x / 2, which is finite where e^x alone no longer is."""
    c = _constants(x)
    p, n, whole = _reduced(clamp(x, c.low, c.high + 1.0))
    return _scaled(p, n - 1.0, whole - 1)


def exp2(x: Reg) -> Reg:
    """2^x over the whole range; exact where x is whole."""
    c = _constants(x)
    x = clamp(x, c.low * _LOG2_E, c.high * _LOG2_E)
    n, whole = round_scaled(x, 1.0)
    return _scaled(horner((x - n) * _LN2, c.polynomial), n, whole)


def _scaled(p: Reg, n: Reg, whole: Reg) -> Reg:
    """p · 2^n, rounded once; n as a float and as an integer."""
    if _has_instruction(p):
        return _by_instruction(p, n)
    # 2^n in two factors: n goes beyond the exponents of normal numbers at both ends, and only the
    # last product may round, to a subnormal number or to infinity.
    field = whole + 2 * format_of(p).bias
    half = field >> 1
    return p * power_of_two(half, p.dtype) * power_of_two(field - half, p.dtype)


def _has_instruction(p: Reg) -> bool:
    return "avx512f" in p.k.target.has and p.lanes >= p.k.target.lanes(p.dtype)


def _by_instruction(p: Reg, n: Reg) -> Reg:
    """p · 2^n by AVX-512's scalef, a register at a time; its bits are those of the products."""
    k, native = p.k, p.k.target.lanes(p.dtype)
    if p.lanes > native:
        lower, upper = map(_by_instruction, halves(k, p), halves(k, n))
        return k.shuffle(lower, upper, range(p.lanes))
    kind = "ps" if p.dtype is f32 else "pd"
    mask = k.op(f"arith.constant -1 : i{native}", u32, 0).name
    rounding = k.op("arith.constant 4 : i32", u32, 0).name  # as the processor is set
    call = f'llvm.call_intrinsic "llvm.x86.avx512.mask.scalef.{kind}.512"'
    given = f"({p.name}, {n.name}, {p.name}, {mask}, {rounding})"
    kinds = f"({p.mlir}, {p.mlir}, {p.mlir}, i{native}, i32) -> {p.mlir}"
    return k.op(f"{call}{given} : {kinds}", p.dtype, p.lanes)


def _has_table(x: Reg) -> bool:
    return x.dtype is f32 and "avx512f" in x.k.target.has


def _by_table(x: Reg, moderate: bool = False) -> Reg:
    """e^x of f32 as 2^m · 2^(k/16) · e^r, by whole registers; ``moderate`` if 2^m is normal."""
    k, lanes, native, c = x.k, x.lanes, x.k.target.lanes(f32), EXP[f32]
    if not lanes:
        return k.extract(_by_table(k.splat(x, native), moderate), 0)
    if lanes < native:
        wide = k.shuffle(x, x, [n % lanes for n in range(native)])
        found = _by_table(wide, moderate)
        return k.shuffle(found, found, range(lanes))
    rounder = format_of(x).rounder / 2**_ROOT_BITS
    shifted = k.fma(x, _LOG2_E, rounder)  # its last bits are k
    n = shifted - rounder
    r = k.fma(n, -c.ln2[1], k.fma(n, -c.ln2[0], x))
    rest = r * k.fma(k.fma(r, _SHORT[1], _SHORT[0]), r, 1.0)
    if moderate:
        root = _power(shifted)
        return k.fma(root, rest, root)
    root = k.bitcast(_picked(_ROOTS, bits(shifted)), f32)
    return _by_instruction(k.fma(root, rest, root), n)  # which takes the floor of n


def _power(shifted: Reg) -> Reg:
    """2^m · 2^(k/16) for whole registers whose last bits are m and then k; 2^m is normal. The roots
    come less k in the place where the shift puts it, so that the sum has m as its exponent."""
    fields = [word - (i << _ROOT_FIELD) for i, word in enumerate(_ROOTS)]
    word = _picked(fields, bits(shifted)) + (bits(shifted) << _ROOT_FIELD)
    return shifted.k.bitcast(word, f32)


def exp2_bf16(x: Reg) -> Reg:
    """2^x of f32 for x ≤ 0, to be rounded to bf16 by an instruction that may take subnormal numbers
    for 0: on registers of AVX-512 within 2^-17 of it, and subnormal or 0 below -126.9."""
    if not _has_table(x):
        return exp2(x)
    k = x.k
    shifted, r = _sixteenths(k.select(x < -127.0, -127.0, x))
    root = _power(shifted)
    return k.fma(root, r * horner(r, _ROOT_EXP2[:2]), root)


def _sixteenths(x: Reg) -> tuple[Reg, Reg]:
    """x rounded to sixteenths, in the last bits of a register, and what that leaves."""
    rounder = format_of(x).rounder / 2**_ROOT_BITS
    shifted = x + rounder
    return shifted, x - (shifted - rounder)


def _picked(words: Sequence[int], index: Reg) -> Reg:
    """The word of a register of them that the last bits of each lane number."""
    k, native = index.k, len(words)
    if index.lanes > native:
        lower, upper = (_picked(words, part) for part in halves(k, index))
        return k.shuffle(lower, upper, range(index.lanes))
    table = k.constants(words, u32)
    call = 'llvm.call_intrinsic "llvm.x86.avx512.permvar.si.512"'
    kinds = f"({table.mlir}, {index.mlir}) -> {table.mlir}"
    return k.op(f"{call}({table.name}, {index.name}) : {kinds}", u32, native)


def expm1(x: Reg) -> Reg:
    """e^x - 1, with no digits lost near 0: 2^n·(e^r - 1) + (2^n - 1)."""
    k, form, c = x.k, format_of(x), _constants(x)
    # Below the first bound the result is -1.
    t = clamp(x, -(form.mantissa + 3) * _LN2, c.high)
    n, whole = round_scaled(t, _LOG2_E)
    r = _less_ln2(t, n)
    near = k.fma(r * horner(r, c.polynomial[2:]), r, r)
    # By 2^(n-1) and then by 2, so that 2^n does not overflow before the result does.
    power = power_of_two(whole + (form.bias - 1), x.dtype)
    far = k.fma(near, power, power - 0.5) * 2.0
    result = k.select(k.compare("eq", n, 0.0), near, far)
    # The sum above loses the sign of -0 and the last bits of subnormal numbers.
    return k.select(absolute(x) < 2.0 ** -(form.mantissa + 2), x, result)


def exp_moderate(x: Reg) -> Reg:
    """e^x for |x| ≤ 80, where 2^n is a normal number; shorter than ``exp``."""
    if _has_table(x):
        return _by_table(x, moderate=True)
    p, n, whole = _reduced(x)
    if _has_instruction(p):
        return _by_instruction(p, n)
    return p * power_of_two(whole + format_of(x).bias, x.dtype)


def exp2_share(x: Reg) -> Reg:
    """2^x where that is added to a 1 or to a multiple of it: 0 below -120, which is less than
    rounding, and within 2 units of the last place else; x is at most 120. nan stays."""
    k = x.k
    if _has_table(x) and _has_instruction(x):
        shifted, r = _sixteenths(x)
        root = _power(shifted)
        found = k.fma(root, r * horner(r, _ROOT_EXP2), root)
    elif _has_instruction(x):
        n = k.round_even(x)
        found = _by_instruction(horner(x - n, _EXP2[x.dtype]), n)
    else:
        # Far below, n is no number, and what comes of it is not taken.
        n, whole = round_scaled(x, 1.0)
        power = power_of_two(whole + format_of(x).bias, x.dtype)
        found = horner(x - n, _EXP2[x.dtype]) * power
    return k.select(x < -120.0, 0.0, found)


def tanh(x: Reg) -> Reg:
    """The hyperbolic tangent: a polynomial near 0, elsewhere 1 - 2 / (e^2|x| + 1)."""
    k, t = x.k, absolute(x)
    z = t * t
    near = k.fma(horner(z, _TANH[x.dtype]) * z, t, t)
    # At 20 the result is 1 in either format.
    far = 1.0 - 2.0 / (exp_moderate(clamp(t, 0.0, 20.0) * 2.0) + 1.0)
    return toggle_sign(k.select(t < 0.625, near, far), sign_of(x))
