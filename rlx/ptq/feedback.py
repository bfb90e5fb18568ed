"""Weights in blocks whose rounding errors make up for one another, by what the inputs look like.

A matrix ``w [outputs, inputs]`` is multiplied by inputs ``x``, of which ``hessian`` is the sum of
``x xᵀ``, ``[inputs, inputs]``. What rounding a column loses is taken off the columns that follow,
so that ``sum((w - q) x)²`` is small: GPTQ (Frantar et al. 2022, "GPTQ: accurate post-training
quantization for generative pre-trained transformers", algorithm 1). A block's scales are those of
its numbers as they are when its turn comes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlx.quant import dequantize, quantize
from rlx.quant.bits import Array, from_planes
from rlx.quant.scheme import BlockScheme

__all__ = ["FEEDBACK", "loss", "with_feedback"]

DAMPING = 0.01
"""What is added to the diagonal, of its mean: inputs of few texts do not say all."""


def _fifth(codes: Array, width: int) -> dict[str, Array]:
    low, high = codes & np.uint8(15), codes >> np.uint8(4)
    if width == 16:
        return {"qs": from_planes(low, 16, 4), "qh": np.packbits(high, axis=1, bitorder="little")}
    return {"qs": from_planes(low, 32, 4), "qh": from_planes(high, 32, 1)}


FEEDBACK: dict[str, tuple[int, Callable[[Array], dict[str, Array]]]] = {
    **dict.fromkeys(("q4_0", "q4_1"), (15, lambda q: {"qs": from_planes(q, 16, 4)})),
    **dict.fromkeys(("q5_0", "q5_1"), (31, lambda q: _fifth(q, 16))),
    "q8_0": (255, lambda q: {"qs": (q ^ np.uint8(128)).view(np.int8)}),
    "q4_k": (15, lambda q: {"qs": from_planes(q, 32, 4)}),
    "q5_k": (31, lambda q: _fifth(q, 32)),
    "q6_k": (63, lambda q: {"ql": from_planes(q & np.uint8(15), 64, 4),
                            "qh": from_planes(q >> np.uint8(4), 32, 2)}),
}  # fmt: skip
"""Schemes whose numbers are a scale times a code and a least value: the greatest code, and the
fields that hold the codes of blocks, u8 ``[blocks, elements]``."""


def loss(error: Array, hessian: Array) -> float:
    """The sum of the squares of what an error of a weight makes of the inputs."""
    return float(np.sum((error @ hessian) * error, dtype=np.float64))


def with_feedback(w: Array, hessian: Array, scheme: BlockScheme) -> Array:
    """The bytes of a weight ``[outputs, inputs]`` in a scheme, u8 ``[outputs, bytes]``. Inputs that
    are always 0 have no say."""
    most, fields = FEEDBACK[scheme.name]
    (rows, size), factor = w.shape, _factor(hessian)
    left = np.ascontiguousarray(w.T, np.float64)  # a column of the weight is a row here
    out = np.empty((rows, size // scheme.block), scheme.fields)
    for b in range(size // scheme.block):
        columns = slice(b * scheme.block, (b + 1) * scheme.block)
        own, upper = left[columns], factor[columns, columns]
        block = quantize(own.T.astype(np.float32), scheme).view(scheme.fields).reshape(rows)
        least, step = (_with_codes(scheme, block, fields, n).T for n in (0, 1))
        step = step - least
        inverse = np.divide(1.0, step, where=step != 0, out=np.zeros_like(step))
        codes, errors = np.zeros((scheme.block, rows), np.uint8), np.zeros(own.shape)
        for i in range(scheme.block):
            codes[i] = np.clip(np.rint((own[i] - least[i]) * inverse[i]), 0, most)
            errors[i] = (own[i] - (least[i] + step[i] * codes[i])) / upper[i, i]
            own[i + 1 :] -= np.outer(upper[i, i + 1 :], errors[i])
        left[columns.stop :] -= factor[columns, columns.stop :].T @ errors
        for name, values in fields(np.ascontiguousarray(codes.T)).items():
            block[name] = values
        out[:, b] = block
    return out.view(np.uint8).reshape(rows, size // scheme.block * scheme.bytes)


def _factor(hessian: Array) -> Array:
    """The upper triangle whose product with its transpose, from the left, is the inverse."""
    h = hessian.astype(np.float64)
    diagonal = np.diagonal(h).copy()
    dead = diagonal == 0
    diagonal[dead] = 1.0
    np.fill_diagonal(h, diagonal + DAMPING * max(float(diagonal.mean()), 1e-30))
    return np.linalg.cholesky(np.linalg.inv(h)).T


def _with_codes(
    scheme: BlockScheme, block: Array, fields: Callable[[Array], dict[str, Array]], code: int
) -> Array:
    """The numbers of blocks if all codes were the same."""
    same = block.copy()
    for name, values in fields(np.full((len(block), scheme.block), code, np.uint8)).items():
        same[name] = values
    shape = len(block), scheme.block
    return dequantize(same.view(np.uint8).reshape(-1), scheme, shape).astype(np.float64)
