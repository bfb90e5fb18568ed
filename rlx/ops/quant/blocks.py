"""Weights in blocks of a few bits, decoded to f32."""

from __future__ import annotations

from collections.abc import Sequence

from rlx.errors import DTypeError, ShapeError, UnsupportedError
from rlx.ir.op import Array, Op, attr, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.movement.movement import Reshape
from rlx.quant import dequantize
from rlx.quant.scheme import BlockScheme
from rlx.quant.table import scheme_named
from rlx.types import TensorType, f32, u8

__all__ = ["DequantizeBlocks", "blocks_of", "check_packed"]


def blocks_of(op: Op, scheme: str) -> BlockScheme:
    """A scheme by name. UnsupportedError for one whose weights are no blocks of bytes."""
    found = scheme_named(scheme)
    if not isinstance(found, BlockScheme):
        raise UnsupportedError(f"{op.short}: {found} has several arrays, and no blocks")
    return found


def check_packed(op: Op, scheme: str, rows: Value, packed: Value, rank: int) -> None:
    """Raise unless ``packed`` is a weight ``[..., N, bytes of K]`` of that rank in blocks of a
    scheme, for ``rows`` ``[..., K]``."""
    row, depth = blocks_of(op, scheme), rows.shape[-1] if rows.rank else 0
    if packed.dtype is not u8:
        raise DTypeError(f"{op.short} takes u8 for packed, found {packed.dtype}")
    if packed.rank != rank:
        raise ShapeError(f"{op.short} takes a packed of a rank of {rank}, found {packed.rank}")
    if not isinstance(depth, int) or depth % row.block:
        raise ShapeError(
            f"{op.short}: {row} has blocks of {row.block}, and the last axis of {rows.type} no"
            " whole number of them"
        )
    wanted = depth // row.block * row.bytes
    if packed.shape[-1] != wanted:
        raise ShapeError(
            f"{op.short}: {depth} elements of {row} are rows of {wanted} bytes, found {packed.type}"
        )


class DequantizeBlocks(Op, name="mir.dequantize_blocks"):
    """The numbers of packed blocks of a scheme of ``rlx.quant``, such as ``"q4_k"``, in f32.

    The last axis holds the bytes of whole blocks, as ``rlx.quant.quantize`` gives them. The bits
    are those of ``rlx.quant.dequantize``.
    """

    packed: Value = operand("u8 [..., bytes]")
    scheme: str = attr(doc='a scheme of blocks, such as "q4_k"')

    differentiable = False
    samples = (
        sample("3x36xu8", scheme="q4_0"),
        sample("2x2x24xu8", scheme="q5_1"),
        sample("34xu8", scheme="q8_0"),
        sample("2x84xu8", scheme="q2_k"),
        sample("2x144xu8", scheme="q4_k"),
        sample("1x420xu8", scheme="q6_k"),
        sample("2x66xu8", scheme="iq2_xxs"),
        sample("2x17xu8", scheme="mxfp4"),
        sample("2x36xu8", scheme="fp8_e5m2_f32"),
        sample("0x18xu8", scheme="iq4_nl"),
    )
    bads = (
        bad("2x18xi8", match="takes u8", error=DTypeError, scheme="q4_0"),
        bad("2x19xu8", match="blocks of 18 bytes", error=ShapeError, scheme="q4_0"),
        bad("u8", match="rank of at least 1", error=ShapeError, scheme="q4_0"),
        bad("2x18xu8", match="has several arrays", error=UnsupportedError, scheme="awq"),
    )

    @property
    def _row(self) -> BlockScheme:
        return blocks_of(self, self.scheme)

    def infer(self) -> TensorType:
        packed, row = self.packed, self._row
        if packed.dtype is not u8:
            raise DTypeError(f"dequantize_blocks takes u8, found {packed.dtype}")
        if packed.rank == 0:
            raise ShapeError("dequantize_blocks takes a rank of at least 1, found 0")
        size = packed.shape[-1]
        if not isinstance(size, int) or size % row.bytes:
            raise ShapeError(
                f"dequantize_blocks: {row} has blocks of {row.bytes} bytes, and the last axis of"
                f" {packed.type} no whole number of them"
            )
        return TensorType((*packed.shape[:-1], size // row.bytes * row.block), f32)

    def reference(self, packed: Array) -> Array:
        row = self._row
        shape = (*packed.shape[:-1], packed.shape[-1] // row.bytes * row.block)
        return dequantize(packed, row, shape)

    def expand(self) -> Value:
        from rlx.ops.quant.traced import traced_blocks

        row, lead = self._row, self.packed.shape[:-1]
        size = self.packed.shape[-1]
        assert isinstance(size, int)
        count = size // row.bytes
        for d in lead:
            count = count * d
        blocks = Reshape.build(self.packed, [count, row.bytes])
        return Reshape.build(traced_blocks(row, blocks), [*lead, size // row.bytes * row.block])

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        return self.with_operands(operands).out
