"""Matrices ``[k, n]`` with scales beside them: integers in blocks of rows, and small floats.

int8_block        q i8 [k, n], scale f32 [k / block, n]:  q * scale
int8_block_asym   and zero f32 [k / block, n]:            (q - zero) * scale
int4_block        q u8 [k * n / 2], two of 0 to 15 a byte, the first one low; scale as above, and
                  no zero: it holds no number below 0
int4_block_asym   and zero f32 [k / block, n]
fp8_e4m3          q u8 [k, n], scale f32 [n]:             value * scale; e4m3fn, which has no inf
fp8_e5m2          the same of e5m2
nvfp4_block       q u8 [k, n / 2], scale u8 [k / 16, n] of E4M3, global_scale f32 [1]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlx.errors import FaultError, ShapeError
from rlx.quant.bits import E2M1, E4M3, E5M2, Array, fp8_codes, nibbles, sizes
from rlx.quant.encode_codes import fp4_codes, scale_codes
from rlx.quant.encode_plain import away, inverse
from rlx.quant.parts import matrix, part, rows_of_scales

__all__ = ["decode", "encode"]

_FLOATS = "float32 float16 bfloat16"
_FP8 = {"fp8_e4m3": E4M3, "fp8_e5m2": E5M2}
_BYTES = "uint8 int8 float8_e4m3fn float8_e5m2"


def decode(scheme: str, data: Mapping[str, Any], shape: Sequence[int]) -> Array:
    """The f32 matrix ``[k, n]``."""
    k, n = matrix(scheme, shape)
    if scheme in _FP8:
        q = part(scheme, data, "q", _BYTES, (k, n)).view(np.uint8)
        return _FP8[scheme][q] * part(scheme, data, "scale", _FLOATS, (n,)).astype(np.float32)
    if scheme == "nvfp4_block":
        return _nvfp4(data, k, n)
    scale = part(scheme, data, "scale", _FLOATS, (None, n)).astype(np.float32)
    rows = rows_of_scales(scheme, scale, k)
    if scheme.startswith("int8"):
        q = part(scheme, data, "q", "int8", (k, n)).astype(np.float32)
    else:
        packed = part(scheme, data, "q", "uint8", ((k * n + 1) // 2,))
        q = nibbles(packed)[: k * n].reshape(k, n).astype(np.float32)
    if scheme.endswith("asym"):
        q = q - part(scheme, data, "zero", _FLOATS, scale.shape).astype(np.float32)[rows]
    return q * scale[rows]


def _nvfp4(data: Mapping[str, Any], k: int, n: int) -> Array:
    name = "nvfp4_block"
    if k % 16 or n % 2:
        raise ShapeError(
            f"{name} has a scale for 16 rows and two columns a byte; [{k}, {n}] has no whole number"
        )
    q = part(name, data, "q", "uint8", (k, n // 2))
    scale = part(name, data, "scale", _BYTES, (k // 16, n)).view(np.uint8)
    everywhere = part(name, data, "global_scale", _FLOATS, (1,)).astype(np.float32)
    return E2M1[nibbles(q)] * np.repeat(E4M3[scale], 16, 0) * everywhere


def encode(scheme: str, x: Array, group: int) -> dict[str, Array]:
    """The arrays of an f32 matrix ``[k, n]``, with a scale for ``group`` rows of a column."""
    k, n = matrix(scheme, x.shape)
    if scheme in _FP8:
        scale: Array = np.abs(x).max(0, initial=0) / sizes(_FP8[scheme])[-1]
        return {"q": fp8_codes(x * inverse(scale), _FP8[scheme]), "scale": scale}
    if k % group:
        raise ShapeError(f"{scheme} has scales of {group} rows, and {k} rows are no whole number")
    parts = x.reshape(k // group, group, n)
    if scheme == "nvfp4_block":
        return _encode_nvfp4(parts, n)
    integer = _asymmetric if scheme.endswith("asym") else _symmetric
    out = integer(parts, 8 if scheme.startswith("int8") else 4)
    q = out["q"].reshape(k, n)
    if scheme.startswith("int4"):
        flat = np.append(q.reshape(-1), np.zeros(q.size % 2, q.dtype)).astype(np.uint8)
        q = flat[::2] | flat[1::2] << 4
    return {**out, "q": q}


def _symmetric(parts: Array, bits: int) -> dict[str, Array]:
    """Codes from -127 to 127 of 8 bits, from 0 to 15 of 4."""
    if bits == 4 and parts.min(initial=0) < 0:
        raise FaultError("int4_block holds no number below 0: take int4_block_asym, or q4_0")
    top = np.float32(127 if bits == 8 else 15)
    scale = np.abs(parts).max(1) / top
    return {"q": away(parts * inverse(scale)[:, None]).astype(np.int8), "scale": scale}


def _asymmetric(parts: Array, bits: int) -> dict[str, Array]:
    """Codes over the range of the elements and 0, which is a code: the zero point."""
    low, high = (-128, 127) if bits == 8 else (0, 15)
    least, most = np.minimum(parts.min(1), 0), np.maximum(parts.max(1), 0)
    scale = (most - least) / np.float32(high - low)
    zero = np.clip(away(low - least * inverse(scale)), low, high)
    q = np.clip(away(parts * inverse(scale)[:, None]) + zero[:, None], low, high)
    return {"q": q.astype(np.int8), "scale": scale, "zero": zero.astype(np.float32)}


def _encode_nvfp4(parts: Array, n: int) -> dict[str, Array]:
    if parts.shape[1] != 16 or n % 2:
        raise ShapeError("nvfp4_block has a scale for 16 rows, and an even number of columns")
    everywhere = np.abs(parts).max(initial=0) / np.float32(6 * 448)
    columns = np.moveaxis(parts * inverse(everywhere), 1, 2)
    scale = scale_codes(columns, np.ones_like(columns), E4M3)
    codes = fp4_codes(columns * inverse(E4M3[scale])[..., None])
    q = np.moveaxis(codes, 2, 1).reshape(-1, n)
    return {
        "q": q[:, ::2] | q[:, 1::2] << 4,
        "scale": scale,
        "global_scale": np.array([everywhere], np.float32),
    }
