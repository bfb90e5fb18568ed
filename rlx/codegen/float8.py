"""8-bit floats: from their bits to f32 and back, on integers of 32 bits.

A register of an 8-bit float holds its bits. Where a type has no infinities (e4m3fn) its greatest
code is nan. Rounding is to nearest, ties to even; a subnormal result comes of one addition of f32,
whose unit in the last place is the least of the type.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rlx.codegen.reg import Number, Reg
from rlx.types import DType, f8e4m3fn, f8e5m2, f32, i8, i16, i32, u8, u16, u32

if TYPE_CHECKING:
    from rlx.codegen.builder import Kernel

__all__ = ["bits_of", "rounded", "widened"]

_SIGN = 0x80


class _Format(NamedTuple):
    """Bits of the mantissa, the bias, the greatest code of a finite number, the code of what is
    beyond it, and the code of nan."""

    mantissa: int
    bias: int
    most: int
    beyond: int
    nan: int

    @property
    def least(self) -> float:
        """The distance of subnormal numbers."""
        return math.ldexp(1.0, 1 - self.bias - self.mantissa)

    @property
    def shift(self) -> int:
        """How much further left the mantissa of f32 starts."""
        return 23 - self.mantissa

    @property
    def rebias(self) -> int:
        """What is added to the bits of an exponent, as f32 has them."""
        return (127 - self.bias) << 23


_FORMATS = {
    f8e4m3fn: _Format(3, 7, 0x7E, 0x7F, 0x7F),
    f8e5m2: _Format(2, 15, 0x7B, 0x7C, 0x7E),
}


def widened(k: Kernel, x: Reg) -> Reg:
    """The numbers of a register of 8-bit floats, as f32."""
    if k.target.serial:
        return _by_half(k, x)
    f = _FORMATS[x.dtype]
    bits = k.cast(k.bitcast(x, u8), u32)
    size = bits & 0x7F
    normal = k.bitcast((size << f.shift) + f.rebias, f32)
    tiny = k.cast(k.bitcast(size, i32), f32) * f.least
    number = k.select(size < (1 << f.mantissa), tiny, normal)
    last = f.most if f.beyond == f.nan else f.beyond
    if last != f.most:
        number = k.select(k.compare("eq", size, last), math.inf, number)
    number = k.select(size > last, math.nan, number)
    return k.bitcast(k.bitcast(number, u32) | ((bits & _SIGN) << 24), f32)


def _by_half(k: Kernel, x: Reg) -> Reg:
    """The same on CPUs, which widen f16: e5m2 is the upper half of one, and the bits of e4m3fn at
    its place are 2**-8 of the number."""
    if x.dtype is f8e5m2:
        return k.from_half(k.cast(k.bitcast(x, u8), u16) << 8)
    # The sign, extended, is in both top bits then.
    half = k.bitcast(k.cast(k.bitcast(x, i8), i16), u16) << 7 & 0xBF80
    nan = k.compare("eq", k.bitcast(x, u8) & 0x7F, _FORMATS[x.dtype].nan)
    return k.select(nan, math.nan, k.from_half(half) * 2.0**8)


def rounded(k: Kernel, x: Reg, dt: DType, saturate: bool = True) -> Reg:
    """The 8-bit floats next to a register of f32. What is too large becomes the greatest number,
    or if not ``saturate`` what the type has beyond it: inf, or nan in e4m3fn."""
    f = _FORMATS[dt]
    bits = k.bitcast(x, u32)
    size = bits & 0x7FFFFFFF
    even = (size + ((1 << (f.shift - 1)) - 1)) + ((size >> f.shift) & 1)
    normal = (even - f.rebias) >> f.shift
    # In a sum with this number the last bit stands for the least number of the type.
    anchor = math.ldexp(f.least, 23)
    tiny = k.bitcast(k.bitcast(size, f32) + anchor, u32) - int(np.float32(anchor).view(np.uint32))
    first = int(np.float32(math.ldexp(1.0, 1 - f.bias)).view(np.uint32))
    code = k.select(size < first, tiny, normal)
    code = k.select(code > f.most, f.most if saturate else f.beyond, code)
    code = k.select(size > 0x7F800000, f.nan, code)
    return k.bitcast(k.cast(code | ((bits >> 24) & _SIGN), u8), dt)


def bits_of(value: Number, dt: DType) -> int:
    """The bits of a number of an 8-bit float type."""
    return int(np.asarray(value).astype(dt.numpy).view(np.uint8))
