"""Building blocks of the elementary functions: number formats, polynomials, bits, error-free sums.

The functions take and give registers of f32 or f64 with any number of lanes. They use no branches
but one (the reduction of huge angles), and choose between ranges by ``select``; integer arithmetic
on the bits stands where a conversion would need instructions that AVX2 lacks for 64 bits.

Polynomial coefficients are minimax (Remez's exchange algorithm), the low ones rounded to the
format before the high ones are fitted; see J.-M. Muller, Elementary Functions (3rd ed.), ch. 3.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx.base.frozen import frozen
from rlx.codegen.reg import Number, Reg
from rlx.types import DType, f32, f64, u32, u64

__all__ = [
    "FORMATS", "LN2", "Format", "absolute", "bits", "clamp", "exact_fma", "fast_two_sum",
    "format_of", "horner", "leading", "multiply_add", "power_of_two", "product_error",
    "round_scaled", "sign_of", "toggle_sign", "two_sum",
]  # fmt: skip

LN2 = {
    f32: (float.fromhex("0x1.62e400p-1"), float.fromhex("0x1.7f7d1cp-20")),
    f64: (float.fromhex("0x1.62e42fefa3000p-1"), float.fromhex("0x1.3de6af278ece6p-42")),
}
"""ln 2 in two parts, of which the first has trailing zeros: times an exponent it is exact."""


@frozen
class Format:
    """An IEEE 754 binary format: width of the mantissa field, exponent bias, type of its bits."""

    mantissa: int
    bias: int
    word: DType

    @property
    def sign(self) -> int:
        """The bit pattern of the sign."""
        return 1 << (self.word.bits - 1)

    @property
    def rounder(self) -> float:
        """1.5 · 2^mantissa: adding it rounds to an integer, kept in the low bits of the sum."""
        return 1.5 * 2.0**self.mantissa

    @property
    def rounder_bits(self) -> int:
        """The bit pattern of ``rounder``."""
        return ((self.bias + self.mantissa) << self.mantissa) | 1 << (self.mantissa - 1)


FORMATS = {f32: Format(23, 127, u32), f64: Format(52, 1023, u64)}


def format_of(x: Reg) -> Format:
    """The format of a register; TypeError unless it is f32 or f64."""
    if x.dtype not in FORMATS:
        raise TypeError(f"kernel {x.k.name}: elementary functions take f32 or f64, not {x.dtype}")
    return FORMATS[x.dtype]


def horner(x: Reg, coefficients: Sequence[float]) -> Reg:
    """c0 + c1·x + c2·x² + …, a fused multiply-add a coefficient; a last one of 1 costs less."""
    *rest, last, top = coefficients
    total = x + last if top == 1.0 else x.k.fma(x, top, last)
    for c in reversed(rest):
        total = x.k.fma(total, x, c)
    return total


def bits(x: Reg) -> Reg:
    """The register's bits as an unsigned integer."""
    return x.k.bitcast(x, format_of(x).word)


def sign_of(x: Reg) -> Reg:
    """The sign bit, in its place."""
    return bits(x) & format_of(x).sign


def absolute(x: Reg) -> Reg:
    """x with its sign bit cleared."""
    return x.k.bitcast(bits(x) & (format_of(x).sign - 1), x.dtype)


def toggle_sign(x: Reg, sign: Reg) -> Reg:
    """x with its sign bit xor-ed by ``sign``."""
    return x.k.bitcast(bits(x) ^ sign, x.dtype)


def clamp(x: Reg, low: float, high: float) -> Reg:
    """x within [low, high]; nan stays, which is why this is not minimum and maximum."""
    x = x.k.select(x > high, high, x)
    return x.k.select(x < low, low, x)


def round_scaled(x: Reg, factor: float) -> tuple[Reg, Reg]:
    """n = x · factor rounded to an integer, as a float and in two's complement.

    |x · factor| must be below 2^(mantissa - 1).
    """
    form = format_of(x)
    shifted = x.k.fma(x, factor, form.rounder)
    return shifted - form.rounder, bits(shifted) - form.rounder_bits


def power_of_two(field: Reg, dt: DType) -> Reg:
    """The float whose exponent field is the integer ``field``."""
    return field.k.bitcast(field << FORMATS[dt].mantissa, dt)


def two_sum(a: Reg, b: Reg) -> tuple[Reg, Reg]:
    """a + b and its rounding error, exactly (Knuth, TAOCP vol. 2, 4.2.2, theorem B)."""
    total = a + b
    shadow = total - a
    return total, (a - (total - shadow)) + (b - shadow)


def product_error(a: Reg, b: Reg, product: Reg) -> Reg:
    """What rounding a·b to ``product`` has lost, exactly, unless that overflowed.

    By a fused multiply-add; where a target may round that twice, from halves, whose products are
    exact (T. J. Dekker, Numer. Math. 18, 1971), unless a factor is next to the largest f64.
    """
    if a.k.target.fused:
        return a.k.fma(a, b, -product)
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    crossed = ((a_high * b_high - product) + a_high * b_low) + a_low * b_high
    return crossed + a_low * b_low


def exact_fma(a: Reg, b: Reg | Number, c: Reg | Number) -> Reg:
    """a·b + c where that is rounded once or, if c is near -a·b, not at all, on every target."""
    if a.k.target.fused:
        return a.k.fma(a, b, c)
    b = a.k.const(b, a.dtype, a.lanes) if isinstance(b, int | float | complex) else b
    product = a * b
    return (product + c) + product_error(a, b, product)


def multiply_add(a: Reg, b: Reg | Number, c: Reg) -> Reg:
    """a·b + c, rounded once or twice, but as it is written.

    Of a multiply-add that may round twice drivers make a product and a sum that nothing protects:
    they take n·u + (n·v + x) for n·(u + v) + x. What they are given as two ops stays.
    """
    return a.k.fma(a, b, c) if a.k.target.fused else a * b + c


def _halves(x: Reg) -> tuple[Reg, Reg]:
    """Two numbers of half the bits, at most 12 in f32 and 26 in f64, whose sum x is; next to the
    largest f64, inf and -inf.

    As 53 bits are odd, the first half is rounded, and the other may be negative. It is done on the
    bits, where no driver can reorder it, and no constant times x overflows.
    """
    high = leading(x) if x.dtype is f32 else leading(x.k.bitcast(bits(x) + (1 << 26), f64))
    return high, x - high


def leading(x: Reg) -> Reg:
    """x without its last bits: 12 are left in f32, and 26 in f64."""
    word = FORMATS[x.dtype].word
    dropped = 12 if x.dtype is f32 else 27
    return x.k.bitcast(bits(x) & (1 << word.bits) - (1 << dropped), x.dtype)


def fast_two_sum(a: Reg, b: Reg | Number) -> tuple[Reg, Reg]:
    """As ``two_sum`` where |a| ≥ |b| or a = 0 (T. J. Dekker, Numer. Math. 18, 1971)."""
    total = a + b
    return total, b - (total - a)
