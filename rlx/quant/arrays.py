"""From arrays to bytes and back by a scheme."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from rlx.errors import DTypeError, FaultError, GraphError, ShapeError, UnsupportedError
from rlx.ir.builders import located
from rlx.quant.bits import Array
from rlx.quant.scheme import BlockScheme, PartsScheme, QuantScheme
from rlx.quant.table import scheme_named

__all__ = ["byte_count", "dequantize", "quantize"]

_AT_ONCE = 1 << 16
"""Elements decoded at a time, so that what is made on the way stays in a cache."""

_ORDERS: dict[str, Literal["<", ">"]] = {"little": "<", "big": ">"}


@located
def dequantize(
    data: bytes | Array | Mapping[str, Array],
    scheme: str | QuantScheme,
    shape: Sequence[int],
    *,
    byteorder: str = "little",
) -> Array:
    """The f32 array of a shape that the data are by a scheme, such as ``"q4_k"``.

    ``data`` are bytes, or a u8 array of any shape; of a scheme of several arrays, such as
    ``"gptq"``, a dict of them. ``byteorder`` is that of the scales in blocks. For GGML's types the
    result is equal to what GGML decodes, bit for bit.
    """
    found, sizes = scheme_named(scheme), _sizes(shape)
    if isinstance(found, PartsScheme):
        if not isinstance(data, Mapping):
            raise DTypeError(
                f"{found} has the arrays {', '.join(found.parts)}: give a dict of them,"
                f" found {type(data).__name__}"
            )
        return found.decode(data, sizes)
    assert isinstance(found, BlockScheme)
    if byteorder not in _ORDERS:
        raise GraphError(f"byteorder is 'little' or 'big', found {byteorder!r}")
    fields = found.fields.newbyteorder(_ORDERS[byteorder])
    raw = _raw(data, found)
    expected = byte_count(found, sizes)
    if raw.size != expected:
        raise ShapeError(
            f"{found}: a shape of {list(sizes)} is {expected} bytes, blocks of {found.bytes} bytes"
            f" for {found.block} elements; found {raw.size} bytes"
        )
    blocks = raw.view(fields)
    out = np.empty((len(blocks), found.block), np.float32)
    step = max(1, _AT_ONCE // found.block)
    with np.errstate(all="ignore"):
        for i in range(0, len(blocks), step):
            out[i : i + step] = found.decode(blocks[i : i + step])
    return out.reshape(sizes)


@located
def quantize(
    array: Any, scheme: str | QuantScheme, *, importance: Any = None, group: int = 0
) -> Any:
    """The u8 array ``[..., bytes]`` of numbers ``[..., elements]`` by a scheme, such as ``"q4_k"``.

    The last dim is a multiple of the scheme's block. ``importance``, an array that broadcasts to
    the numbers, weights the squares of their errors, for a scheme that searches its scales. Of a
    scheme of several arrays the result is a dict of them; ``group`` is how many elements share a
    scale there. FaultError: an element is not finite, or a scale too large.
    """
    found, x = scheme_named(scheme), _numbers(array)
    if found.encode is None:
        raise UnsupportedError(
            f"{found} is read and not made; of a similar size are iq4_xs, q3_k, q2_k and tq2_0"
        )
    if isinstance(found, PartsScheme):
        if importance is not None:
            raise UnsupportedError(f"{found} searches no scales: leave importance out")
        _all_finite(x, found)
        return found.encode(x, group or found.group)
    assert isinstance(found, BlockScheme)
    if group:
        raise GraphError(f"{found} has blocks of {found.block} elements: leave group out")
    blocks = x.reshape(byte_count(found, x.shape) // found.bytes, found.block)
    if found.block > 1:
        _all_finite(x, found)
    args = [blocks]
    if importance is not None:
        if not found.weighs:
            raise UnsupportedError(f"{found} searches no scales: leave importance out")
        args.append(_weights(importance, x).reshape(blocks.shape))
    out = np.empty((len(blocks), found.bytes), np.uint8)
    step = max(1, _AT_ONCE // found.block)
    with np.errstate(over="ignore", invalid="ignore"):
        for i in range(0, len(blocks), step):
            part = found.encode(*(a[i : i + step] for a in args))
            out[i : i + step] = part.view(np.uint8).reshape(-1, found.bytes)
    return out.reshape(*x.shape[:-1], x.shape[-1] // found.block * found.bytes)


def byte_count(scheme: BlockScheme, shape: Sequence[int]) -> int:
    """The bytes of an array of a shape. ShapeError: its last dim is no whole number of blocks."""
    if not shape or shape[-1] % scheme.block:
        raise ShapeError(
            f"{scheme} has blocks of {scheme.block} elements along the last dim, which"
            f" {list(shape)} has no whole number of; pad it, or take a scheme with smaller blocks"
        )
    return math.prod(shape) // scheme.block * scheme.bytes


def _sizes(shape: Sequence[int]) -> tuple[int, ...]:
    sizes = tuple(shape)
    if not all(isinstance(d, int | np.integer) and d >= 0 for d in sizes):
        raise ShapeError(f"a shape is sizes of 0 and more, found {list(sizes)}")
    return tuple(int(d) for d in sizes)


def _raw(data: Any, scheme: BlockScheme) -> Array:
    """The bytes one after another, aligned or not."""
    if isinstance(data, Mapping):
        raise DTypeError(f"{scheme} is one array of bytes, found a dict")
    if not isinstance(data, np.ndarray):
        try:
            return np.frombuffer(data, np.uint8)
        except (TypeError, ValueError, BufferError) as e:
            raise DTypeError(f"{scheme} is decoded from bytes or a u8 array: {e}") from e
    if data.dtype != np.uint8:
        raise DTypeError(f"{scheme} is decoded from a u8 array, found {data.dtype}: view it as u8")
    return np.ascontiguousarray(data).reshape(-1)


def _numbers(array: Any) -> Array:
    x = np.asarray(array)
    if x.dtype.kind not in "fiu" and x.dtype.name not in ("bfloat16",):
        raise DTypeError(f"quantize takes real numbers, found {x.dtype}")
    if x.ndim == 0:
        raise ShapeError("quantize takes an array of one dim or more, found a single number")
    return np.ascontiguousarray(x, np.float32)


def _all_finite(x: Array, scheme: QuantScheme) -> None:
    bad = np.argwhere(~np.isfinite(x))
    if len(bad):
        place = tuple(int(i) for i in bad[0])
        raise FaultError(
            f"{scheme} holds finite numbers; {len(bad)} are not, the first is {x[place]} at {place}"
        )


def _weights(importance: Any, x: Array) -> Array:
    w = np.asarray(importance, np.float32)
    try:
        w = np.broadcast_to(w, x.shape)
    except ValueError as e:
        raise ShapeError(
            f"importance of shape {list(w.shape)} does not broadcast to {list(x.shape)}"
        ) from e
    if not (np.isfinite(w) & (w >= 0)).all():
        raise FaultError("importance is finite numbers of 0 and more; some are not")
    return np.ascontiguousarray(w)
