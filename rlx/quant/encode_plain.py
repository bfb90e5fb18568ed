"""Encoders of GGML's formats with one scale a block, with the bits that GGML's own give.

Each takes f32 ``[n, elements]`` and gives n blocks, with the fields that ``rlx.quant.table`` names.
"""

from __future__ import annotations

import numpy as np

from rlx.errors import FaultError
from rlx.quant.bits import E4M3, E5M2, Array, away, fp8_codes, from_planes, sizes
from rlx.quant.scheme import BlockScheme

__all__ = [
    "bf16", "blocks", "f16", "f32", "half", "inverse", "q1_0", "q4_0", "q4_1", "q5_0", "q5_1",
    "q8_0", "q8_k", "tq1_0", "tq2_0", "wide",
]  # fmt: skip


def blocks(scheme: str, **fields: Array) -> Array:
    """Blocks of a scheme, of the values of their fields."""
    from rlx.quant.table import scheme_named

    row = scheme_named(scheme)
    assert isinstance(row, BlockScheme)
    out = np.empty(len(next(iter(fields.values()))), row.fields)
    for name, values in fields.items():
        out[name] = values
    return out


def half(x: Array) -> Array:
    """Rounded to f16. FaultError: it is too large for one."""
    out = x.astype(np.float16)
    if not np.isfinite(out).all():
        worst = float(np.abs(x).max())
        raise FaultError(
            f"a scale of {worst:.4g} does not fit in the 16 bits that the scheme has for it;"
            " scale the weights down, or take bf16 or f32"
        )
    return out


def inverse(x: Array) -> Array:
    """``1 / x``, and 0 where that is no number."""
    with np.errstate(divide="ignore", over="ignore"):
        out = np.float32(1) / x
    return np.where(np.isfinite(out), out, np.float32(0))


def f32(x: Array) -> Array:
    """As they are."""
    return blocks("f32", x=x[:, 0])


def f16(x: Array) -> Array:
    """To nearest even."""
    return blocks("f16", x=x[:, 0].astype(np.float16))


def bf16(x: Array) -> Array:
    """To nearest even; a nan becomes quiet."""
    n = x[:, 0].view(np.uint32)
    nan = n & 0x7FFFFFFF > 0x7F800000
    rounded = n + (np.uint32(0x7FFF) + (n >> 16 & 1))
    return blocks("bf16", x=np.where(nan, n | 0x400000, rounded) >> 16)


def _extreme(x: Array) -> Array:
    """Of each row the element farthest from 0, the first of several."""
    return np.take_along_axis(x, np.abs(x).argmax(1)[:, None], 1)


def _around(x: Array, bits: int) -> tuple[Array, Array]:
    """The scale that takes the farthest element to the least code, and the codes."""
    middle = 1 << (bits - 1)
    d = _extreme(x) / np.float32(-middle)
    q = np.trunc(x * inverse(d) + np.float32(middle + 0.5))
    return half(d)[:, 0], np.minimum(q, 2 * middle - 1).astype(np.uint8)


def _from_least(x: Array, bits: int) -> tuple[Array, Array, Array]:
    """The scale and the least element, from which codes count."""
    least, top = x.min(1, keepdims=True), (1 << bits) - 1
    d = (x.max(1, keepdims=True) - least) / np.float32(top)
    q = np.trunc((x - least) * inverse(d) + np.float32(0.5))
    return half(d)[:, 0], half(least)[:, 0], np.minimum(q, top).astype(np.uint8)


def _fifth(q: Array) -> Array:
    return np.packbits(q >> 4, axis=1, bitorder="little")


def q4_0(x: Array) -> Array:
    """The farthest element is 0."""
    d, q = _around(x, 4)
    return blocks("q4_0", d=d, qs=from_planes(q, 16, 4))


def q4_1(x: Array) -> Array:
    """From the least element to the greatest."""
    d, m, q = _from_least(x, 4)
    return blocks("q4_1", d=d, m=m, qs=from_planes(q, 16, 4))


def q5_0(x: Array) -> Array:
    """The farthest element is 0."""
    d, q = _around(x, 5)
    return blocks("q5_0", d=d, qh=_fifth(q), qs=from_planes(q & 15, 16, 4))


def q5_1(x: Array) -> Array:
    """From the least element to the greatest."""
    d, m, q = _from_least(x, 5)
    return blocks("q5_1", d=d, m=m, qh=_fifth(q), qs=from_planes(q & 15, 16, 4))


def q8_0(x: Array) -> Array:
    """The farthest element is 127 or -127."""
    d = np.abs(x).max(1, keepdims=True) / np.float32(127)
    return blocks("q8_0", d=half(d)[:, 0], qs=away(x * inverse(d)))


def wide(scheme: str, x: Array) -> Array:
    """Blocks with scales in f32: from the least element to the greatest where they have a least
    value, else the farthest element is the greatest code."""
    if scheme.endswith("_1_f32"):
        bits = int(scheme[1])
        most, least = np.float32(2**bits - 1), x.min(1, keepdims=True)
        d = (x.max(1, keepdims=True) - least) / most
        codes = np.minimum(np.rint((x - least) * inverse(d)), most).astype(np.uint8)
        return blocks(scheme, d=d[:, 0], m=least[:, 0], qs=from_planes(codes, 4 * bits, bits))
    if scheme.startswith("fp8"):
        table = E4M3 if "e4m3" in scheme else E5M2
        d = np.abs(x).max(1, keepdims=True) / sizes(table)[-1]
        return blocks(scheme, d=d[:, 0], qs=fp8_codes(x * inverse(d), table))
    most = 7 if scheme == "q4_0_f32" else 127
    d = np.abs(x).max(1, keepdims=True) / np.float32(most)
    q = np.clip(np.rint(x * inverse(d)), -most, most).astype(np.int8)
    packed = from_planes((q + 8).astype(np.uint8), 16, 4) if most == 7 else q
    return blocks(scheme, d=d[:, 0], qs=packed)


def q8_k(x: Array) -> Array:
    """The farthest element is -127, and the sums of 16 elements lie beside them."""
    step = inverse(_extreme(x)) * np.float32(-127)
    q = np.minimum(np.rint(x * step), 127).astype(np.int8)
    sums = q.reshape(-1, 16, 16).sum(2, dtype=np.int16)
    return blocks("q8_k", d=inverse(step)[:, 0], qs=q, sums=sums)


def q1_0(x: Array) -> Array:
    """The mean size, with which the error is least."""
    d = np.abs(x).mean(1, dtype=np.float32)
    return blocks("q1_0", d=half(d), qs=np.packbits(x >= 0, axis=1, bitorder="little"))


def _ternary(x: Array) -> tuple[Array, Array]:
    d = np.abs(x).max(1, keepdims=True)
    return half(d)[:, 0], (away(x * inverse(d)) + 1).astype(np.uint8)


def tq2_0(x: Array) -> Array:
    """The farthest element is 1 or -1, in 2 bits."""
    d, q = _ternary(x)
    return blocks("tq2_0", d=d, qs=from_planes(q, 32, 2))


def _fractions(q: Array, width: int, count: int) -> Array:
    """Digits of base 3, in the order of ``planes``, as fractions of 256, rounded up."""
    powers = np.array([81, 27, 9, 3, 1][:count], np.uint16)[:, None]
    whole = (q.reshape(len(q), -1, count, width) * powers).sum(2, dtype=np.uint16)
    return (whole.reshape(len(q), -1) * np.uint32(256) + 242) // 243


def tq1_0(x: Array) -> Array:
    """The farthest element is 1 or -1, five digits of base 3 a byte."""
    d, q = _ternary(x)
    first, second = _fractions(q[:, :160], 32, 5), _fractions(q[:, 160:240], 16, 5)
    return blocks(
        "tq1_0", d=d, qs=np.concatenate([first, second], 1), qh=_fractions(q[:, 240:], 4, 4)
    )
