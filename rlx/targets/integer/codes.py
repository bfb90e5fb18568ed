"""Codes in a graph: which numbers they stand for, and how they become others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from rlx.errors import GraphError, ShapeError
from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.ops.movement.movement import Transpose
from rlx.ops.quant.affine import Dequantize
from rlx.targets.integer.network import Size

__all__ = ["Weights", "image_size", "multipliers", "scale_of", "weights_of"]

Array = np.ndarray[Any, Any]


class Weights(NamedTuple):
    """Codes without a zero point, and the scale of all of them or of each output."""

    codes: Array
    scale: Array


def scale_of(op: Op, kind: str, known: Mapping[Value, Array]) -> tuple[float, int] | None:
    """The scale and the zero point of a quantize or dequantize of ``kind``, "i8" or "u8", as those
    of i8 codes; None if they are not known, or not one for all."""
    scale, zero = (None if v is None else known.get(v) for v in op.operands[1:3])
    unknown = op.operands[2] is not None and (zero is None or zero.size != 1)
    if scale is None or scale.size != 1 or unknown or kind not in ("i8", "u8"):
        return None
    point = 0 if zero is None else int(zero.reshape(()))
    return float(scale.reshape(())), point - 128 * (kind == "u8")


def weights_of(
    op: Op, known: Mapping[Value, Array], weights: Mapping[Value, Weights]
) -> Weights | None:
    """The codes of numbers that a dequantize or a transpose gives, if they are known as codes."""
    if isinstance(op, Transpose) and (found := weights.get(op.present[0])) is not None:
        return Weights(found.codes.transpose(op.attrs["perm"]), found.scale)
    if not isinstance(op, Dequantize):
        return None
    zero = op.operands[2]
    if zero is not None and known[zero].any():
        return None
    return Weights(known[op.present[0]], known[op.present[1]].reshape(-1))


def image_size(v: Value, who: str) -> Size:
    """Rows, columns and channels of what an image becomes."""
    dims = v.shape[1:]
    if not all(isinstance(d, int) for d in dims) or len(dims) not in (1, 3):
        raise ShapeError(
            f"{who}: a network takes images [batch, elements] or [batch, channels, rows, columns]"
            f" of known sizes, found {v.type}"
        )
    sizes = v.type.with_shape(dims).static_shape
    return (1, 1, sizes[0]) if len(sizes) == 1 else (sizes[1], sizes[2], sizes[0])


def multipliers(name: str, scales: Array, to: float, bits: int, who: str) -> tuple[Array, int]:
    """What takes sums of some scales to codes of another."""
    q, shift = _multipliers(scales / to, bits)
    if shift < 0:
        raise GraphError(
            f"{who}: the codes behind {name} have a scale of {to:.3g}, finer than its"
            f" sums' {scales.max():.3g}; calibrate with inputs as they will be"
        )
    return q, shift


def _multipliers(real: Array, bits: int) -> tuple[Array, int]:
    """Integers of so many bits, and a shift to the right that all share: the largest takes all."""
    exponent = int(np.frexp(real.max())[1])
    q = np.rint(np.ldexp(real, bits - exponent)).astype(np.int64)
    if q.max() >= 1 << bits:
        exponent += 1
        q = np.rint(np.ldexp(real, bits - exponent)).astype(np.int64)
    return q, -exponent
