"""Weights as plain codes with a scale and a least value for each group, and the packed blocks that
they become: what ONNX, GPTQ, AWQ, MLX and compressed-tensors hold comes to kernels this way."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rlx.quant.bits import Array, from_planes
from rlx.quant.scheme import BlockScheme
from rlx.quant.table import scheme_named

__all__ = ["BLOCK", "Codes"]

BLOCK = 32
"""Elements of a packed block."""


class Codes(NamedTuple):
    """A matrix ``[rows, size]``: ``codes * scale + least``.

    ``numbers`` are unsigned codes of ``bits``, a byte each; ``scales`` and ``least`` are
    ``[rows, groups]``, of groups of ``group`` elements, of which the last may be shorter. Without
    ``least`` it is that of codes around the middle one.
    """

    numbers: Array
    bits: int
    scales: Array
    least: Array | None
    group: int

    @property
    def whole(self) -> bool:
        """Whether rows and groups are whole blocks, as packed ones need."""
        size = self.numbers.shape[1]
        return size > 0 and size % BLOCK == 0 and (self.group % BLOCK == 0 or self.group >= size)

    def packed(self) -> tuple[Array, str]:
        """The bytes of blocks of 32, u8 ``[rows, bytes]``, and their scheme."""
        assert self.whole
        rows, size = self.numbers.shape
        held = next(b for b in (2, 4, 8) if b >= self.bits)
        d, numbers = self._each(self.scales), self.numbers.reshape(-1, BLOCK)
        fields: dict[str, Array] = {"d": d, "qs": from_planes(numbers, 4 * held, held)}
        least = self.least
        if least is None and held in (4, 8) and held == self.bits:
            name = f"q{held}_0" if np.array_equal(_half(d), d) else f"q{held}_0_f32"
            if held == 8:
                fields["qs"] = (fields["qs"] ^ 128).view(np.int8)
        else:
            name = f"q{held}_1_f32"
            fields["m"] = self._each(self.middle() if least is None else least)
        scheme = scheme_named(name)
        assert isinstance(scheme, BlockScheme)
        out = np.empty(len(d), scheme.fields)
        for field, values in fields.items():
            out[field] = values
        return out.view(np.uint8).reshape(rows, size // BLOCK * scheme.bytes), name

    def middle(self) -> Array:
        """The least values of codes around the middle one."""
        return -self.scales.astype(np.float32) * np.float32(1 << (self.bits - 1))

    def numpy(self) -> Array:
        """The numbers, in f32."""
        least = self.middle() if self.least is None else self.least
        d, m = (np.repeat(v.astype(np.float32), self.group, 1) for v in (self.scales, least))
        size = self.numbers.shape[1]
        return self.numbers.astype(np.float32) * d[:, :size] + m[:, :size]

    def _each(self, values: Array) -> Array:
        """The number of each block, of those of the groups."""
        count = self.numbers.shape[1] // BLOCK
        wide = np.repeat(values.astype(np.float32), -(-self.group // BLOCK), 1)
        return wide[:, :count].reshape(-1)


def _half(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float32)
