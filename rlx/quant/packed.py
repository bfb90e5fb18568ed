"""Matrices of integers packed in words of 32 bits: the layouts of GPTQ, AWQ and MLX.

    gptq        qweight i32 [k * bits / 32, n], qzeros i32 [groups, n * bits / 32], scales
                [groups, n], g_idx i32 [k]: (q - (zero + 1) % 2 ** bits) * scale, of the
                matrix [k, n]
    gptq_v2     zeros are stored as they are
    awq         qweight i32 [k, n / 8], qzeros i32 [groups, n / 8], scales [groups, n]; 4 bits
    mlx_affine  weight u32 [n, k * bits / 32], scales and biases [n, groups]: q * scale + bias, of
                the matrix [n, k]

k are a layer's inputs and n its outputs. Fields follow one another from the lowest bit of a word
on, over the ends of words too; the eight of a word of AWQ have an order of their own. ``g_idx``,
the group of a row, may be left out where groups follow one another. The bits of an element follow
from the shapes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlx.errors import FaultError, ShapeError
from rlx.quant.bits import Array, away
from rlx.quant.codes import Codes
from rlx.quant.encode_plain import inverse
from rlx.quant.parts import matrix, part, rows_of_scales

__all__ = ["codes_of", "codes_of_words", "decode", "encode"]

_FLOATS = "float16 float32 bfloat16"
_WORDS = "int32 uint32"
_AWQ = [0, 2, 4, 6, 1, 3, 5, 7]
"""The column, of 8, of each field of a word."""


def _fields(words: Array, bits: int) -> Array:
    """The fields of ``bits`` of words ``[..., m]``, as u8 ``[..., m * 32 / bits]``."""
    stream = np.ascontiguousarray(words).astype("<u4", copy=False).view(np.uint8)
    if bits == 8:
        return stream
    each = np.unpackbits(stream, axis=-1, bitorder="little").reshape(*words.shape[:-1], -1, bits)
    return np.packbits(each, axis=-1, bitorder="little")[..., 0]


def _words(fields: Array, bits: int) -> Array:
    """Words ``[..., m]`` of i32, of fields ``[..., m * 32 / bits]``."""
    each = np.unpackbits(fields.astype(np.uint8)[..., None], axis=-1, bitorder="little")
    stream = np.packbits(each[..., :bits].reshape(*fields.shape[:-1], -1), -1, bitorder="little")
    return stream.view("<u4").astype(np.uint32).view(np.int32)


def _bits(scheme: str, words: int, elements: int) -> int:
    """How many bits an element has."""
    if elements and words * 32 % elements == 0 and words * 32 // elements in (2, 3, 4, 5, 6, 8):
        return words * 32 // elements
    raise ShapeError(f"{scheme}: {words} words of 32 bits are none of 2 to 8 bits for {elements}")


class _Apart(NamedTuple):
    """Codes ``[k, n]``, zero points and f32 scales ``[groups, n]``, the bits of a code, and for
    each row its group."""

    q: Array
    zero: Array
    scales: Array
    bits: int
    group: Array


def decode(scheme: str, data: Mapping[str, Any], shape: Sequence[int]) -> Array:
    """The f32 matrix: ``[n, k]`` of mlx_affine, else ``[k, n]``."""
    rows, columns = matrix(scheme, shape)
    if scheme == "mlx_affine":
        return _mlx(data, rows, columns).numpy()
    q, zero, scales, _, group = _apart(scheme, data, rows, columns)
    return (q.astype(np.float32) - zero.astype(np.float32)[group]) * scales[group]


def codes_of(scheme: str, data: Mapping[str, Any], shape: Sequence[int]) -> Codes | None:
    """The codes of the matrix, a row for each output; None where the groups do not follow one
    another."""
    rows, columns = matrix(scheme, shape)
    if scheme == "mlx_affine":
        return _mlx(data, rows, columns)
    q, zero, scales, bits, group = _apart(scheme, data, rows, columns)
    size = rows // max(len(scales), 1)
    if not np.array_equal(group, np.arange(rows) // max(size, 1)):
        return None
    least = -(zero.astype(np.float32) * scales)
    return Codes(np.ascontiguousarray(q.T), bits, scales.T, least.T, size)


def codes_of_words(data: Mapping[str, Any], shape: Sequence[int]) -> Codes:
    """Those of a matrix of compressed-tensors: weight_packed i32 ``[n, k * bits / 32]``, of codes
    around the middle one, weight_scale ``[n, groups]``, and the zero points of columns in words,
    weight_zero_point i32 ``[n * bits / 32, groups]``, if there are any."""
    name = "compressed-tensors"
    n, k = matrix(name, shape)
    words = part(name, data, "weight_packed", _WORDS, (n, None))
    scales = part(name, data, "weight_scale", _FLOATS, (n, None)).astype(np.float32)
    rows_of_scales(name, scales.T, k)
    bits = _bits(name, words.shape[1], k)
    least = None
    if "weight_zero_point" in data:
        groups = scales.shape[1]
        packed = part(name, data, "weight_zero_point", _WORDS, (-(-n * bits // 32), groups))
        zero = _fields(packed.T, bits).T[:n].astype(np.float32)
        least = -(zero * scales)
    return Codes(_fields(words, bits)[:, :k], bits, scales, least, k // scales.shape[1])


def _apart(scheme: str, data: Mapping[str, Any], rows: int, columns: int) -> _Apart:
    """The parts of GPTQ's and AWQ's layouts."""
    awq = scheme == "awq"
    scales = part(scheme, data, "scales", _FLOATS, (None, columns)).astype(np.float32)
    packed = (rows, None) if awq else (None, columns)
    weight = part(scheme, data, "qweight", _WORDS, packed)
    zeros = part(scheme, data, "qzeros", _WORDS, (len(scales), None))
    bits = _bits(scheme, weight.shape[awq], columns if awq else rows)
    if _bits(scheme, zeros.shape[1], columns) != bits or (awq and bits != 4):
        raise ShapeError(f"{scheme}: qzeros of shape {list(zeros.shape)} do not fit {bits} bits")
    q = _fields(weight, bits) if awq else _fields(weight.T, bits).T
    zero = _fields(zeros, bits)
    if awq:
        q, zero = (
            v.reshape(len(v), -1, 8)[..., np.argsort(_AWQ)].reshape(len(v), -1) for v in (q, zero)
        )
    group = _groups(scheme, data, scales, rows)
    if scheme == "gptq":  # one less is stored: a zero point of 0 has all bits
        zero = (zero + 1) & ((1 << bits) - 1)
    return _Apart(q, zero, scales, bits, group)


def _groups(scheme: str, data: Mapping[str, Any], scales: Array, k: int) -> Array:
    """For each row its group."""
    if scheme == "awq" or "g_idx" not in data:
        return rows_of_scales(scheme, scales, k)
    found = part(scheme, data, "g_idx", "int32 int64", (k,))
    if k and not 0 <= found.min() <= found.max() < len(scales):
        raise FaultError(
            f"{scheme}: g_idx holds groups from {found.min()} to {found.max()},"
            f" and scales has {len(scales)}"
        )
    return found


def _mlx(data: Mapping[str, Any], n: int, k: int) -> Codes:
    name = "mlx_affine"
    weight = part(name, data, "weight", _WORDS, (n, None))
    scales = part(name, data, "scales", _FLOATS, (n, None)).astype(np.float32)
    biases = part(name, data, "biases", _FLOATS, scales.shape).astype(np.float32)
    rows_of_scales(name, scales.T, k)
    bits = _bits(name, weight.shape[1], k)
    return Codes(_fields(weight, bits), bits, scales, biases, k // max(scales.shape[1], 1))


def encode(scheme: str, x: Array, group: int) -> dict[str, Array]:
    """The arrays of an f32 matrix, in 4 bits, with a scale for ``group`` inputs, in f16, or f32 in
    mlx_affine."""
    mlx = scheme == "mlx_affine"
    a = x.T if mlx else x
    k, n = matrix(scheme, a.shape)
    if k % group or n % 8 or k % 8:
        raise ShapeError(
            f"{scheme} has groups of {group} inputs and 8 elements a word; {k} inputs and {n}"
            " outputs are no whole numbers of them"
        )
    parts = a.reshape(k // group, group, n)
    least, most = np.minimum(parts.min(1), 0), np.maximum(parts.max(1), 0)
    scale = (most - least) / np.float32(15)
    if mlx:
        q = np.clip(away((parts - least[:, None]) * inverse(scale)[:, None]), 0, 15)
        return {
            "weight": _words(q.reshape(k, n).T, 4).view(np.uint32),
            "scales": np.ascontiguousarray(scale.T),
            "biases": np.ascontiguousarray(least.T),
        }
    scale = scale.astype(np.float16)
    back = inverse(scale.astype(np.float32))
    shift = scheme == "gptq"
    zero = np.clip(away(-least * back), shift, 15)
    q = np.clip(away(parts * back[:, None]) + zero[:, None], 0, 15).reshape(k, n)
    if scheme == "awq":
        q, zero = (v.reshape(len(v), -1, 8)[..., _AWQ].reshape(len(v), -1) for v in (q, zero))
        return {"qweight": _words(q, 4), "qzeros": _words(zero, 4), "scales": scale}
    return {
        "qweight": np.ascontiguousarray(_words(q.T, 4).T),
        "qzeros": _words(zero - np.float32(shift), 4),
        "scales": scale,
        "g_idx": (np.arange(k) // group).astype(np.int32),
    }
