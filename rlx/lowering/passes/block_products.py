"""What reads decoded blocks reads the packed bytes: ``x @ dequantize_blocks(w).T`` becomes the one
op that a kernel runs on them, and rows are gathered before they are decoded."""

from __future__ import annotations

from rlx._mlir import ir
from rlx.dialects.bridge import attributes_of, create, node_of
from rlx.dialects.convert import from_type, to_type
from rlx.ir.value import Value
from rlx.kernels.matmul.block_weights import DECODERS
from rlx.lowering.region import producer, users
from rlx.ops.indexing.gather import Gather
from rlx.ops.matmul.contraction import MatMul
from rlx.ops.matmul.experts import GroupedMatMul
from rlx.ops.movement.movement import Transpose
from rlx.ops.quant.blocks import DequantizeBlocks
from rlx.ops.quant.grouped import DequantGroupedMatMul
from rlx.ops.quant.product import DequantMatMul

__all__ = ["gather_before_decoding", "join_block_products"]


def join_block_products(block: ir.Block) -> int:
    """Rewrite the products of a block in place; returns how many."""
    count = 0
    for view in list(block.operations):
        op = view.operation
        rank = {MatMul.name: 2, GroupedMatMul.name: 3}.get(op.name)
        if rank is not None and (decoded := _decoded(op.operands[1], rank)) is not None:
            _join(op, decoded)
            count += 1
    return count


def gather_before_decoding(block: ir.Block) -> int:
    """Rewrite the gathers of whole rows of decoded blocks in place: what they do not read is never
    decoded. Returns how many."""
    count = 0
    for view in list(block.operations):
        op = view.operation
        if op.name != Gather.name:
            continue
        decoded = producer(op.operands[0])
        if decoded is not None and decoded.name == DequantizeBlocks.name:
            count += _gathered(op, decoded)
    return count


def _gathered(op: ir.Operation, decoded: ir.Operation) -> bool:
    node, decoder = node_of(op), node_of(decoded)
    assert isinstance(node, Gather)
    assert isinstance(decoder, DequantizeBlocks)
    # What "fill" writes is a number, and no block of bytes.
    if node.axis == node.table.rank - 1 or node.mode == "fill":
        return False
    operands = [decoded.operands[0], op.operands[1]]
    packed, indices = (Value(from_type(v.type)) for v in operands)
    rows = Gather(packed, indices, node.axis, node.mode, node.batch_dims)
    at = {"loc": op.location, "ip": ir.InsertionPoint(op)}
    found = create(rows.name, [to_type(rows.out.type)], operands, attributes_of(rows), **at)
    made = create(decoded.name, [op.results[0].type], [found.results[0]],
                  attributes_of(decoder), **at)  # fmt: skip
    op.results[0].replace_all_uses_with(made.results[0])
    op.erase()
    if not users(decoded.results[0]):
        decoded.erase()
    return True


def _decoded(weight: ir.Value, rank: int) -> ir.Operation | None:
    """The op that decodes a matrix of blocks, or several, of which ``weight`` is the transpose."""
    turned = producer(weight)
    if turned is None or turned.name != Transpose.name:
        return None
    transpose = node_of(turned)
    assert isinstance(transpose, Transpose)
    if transpose.perm != (*range(rank - 2), rank - 1, rank - 2):
        return None
    decoded = producer(turned.operands[0])
    if decoded is None or decoded.name != DequantizeBlocks.name:
        return None
    node = node_of(decoded)
    assert isinstance(node, DequantizeBlocks)
    return decoded if node.scheme in DECODERS else None


def _join(product: ir.Operation, decoded: ir.Operation) -> None:
    turned = producer(product.operands[1])
    assert turned is not None
    operands = [product.operands[0], decoded.operands[0], *list(product.operands)[2:]]
    decoder = node_of(decoded)
    assert isinstance(decoder, DequantizeBlocks)
    x, packed, *rest = (Value(from_type(v.type)) for v in operands)
    node = (
        DequantGroupedMatMul(x, packed, rest[0], decoder.scheme)
        if rest
        else DequantMatMul(x, packed, decoder.scheme)
    )
    made = create(
        node.name, [product.results[0].type], operands, attributes_of(node),
        loc=product.location, ip=ir.InsertionPoint(product),
    )  # fmt: skip
    product.results[0].replace_all_uses_with(made.results[0])
    for op in (product, turned, decoded):
        if all(not users(v) for v in op.results):
            op.erase()
