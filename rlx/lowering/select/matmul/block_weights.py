"""Products by weights in packed blocks (``rlx.kernels.matmul.block_product``). The prologue packs a
param's weight into panels, which take as much memory as its bytes."""

from __future__ import annotations

import math

from rlx._mlir import ir
from rlx.dialects.convert import from_type
from rlx.ir.value import Value
from rlx.kernels.matmul import block_pack, block_product
from rlx.kernels.matmul.block_pack import BlockPackConfig
from rlx.kernels.matmul.block_weights import DECODERS
from rlx.lowering.region import Region
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.selector import Selector
from rlx.lowering.select.views import View
from rlx.ops.quant.grouped import DequantGroupedMatMul
from rlx.ops.quant.product import DequantMatMul
from rlx.types import f32, i64, u8

__all__ = ["GROUPED", "SELECTOR", "panels_of"]


def _unread(x: Value, packed: Value, scheme: str) -> str | None:
    """Why the kernel does not read such rows or such a weight."""
    if x.dtype is not f32:
        return f"its rows are {x.dtype}, and the kernel reads f32"
    if scheme not in DECODERS:
        return f"no kernel reads {scheme}; it reads {', '.join(DECODERS)}"
    return "a dim is empty" if 0 in (*x.shape, *packed.shape) else None


class BlockProduct:
    """A single product by blocks that the kernel decodes."""

    def claim(self, region: Region) -> str | None:
        node = region.nodes[0]
        if len(region.nodes) != 1 or not isinstance(node, DequantMatMul):
            return "it is no single dequant_matmul"
        return _unread(node.x, node.packed, node.scheme)

    def lower(self, region: Region, lowering: Lowering) -> None:
        node = region.nodes[0]
        assert isinstance(node, DequantMatMul)
        target, scheme = lowering.target.kernels, node.scheme
        shape = node.x.type.static_shape
        m, depth, n = math.prod(shape[:-1]), shape[-1], node.packed.type.static_shape[0]
        source = lowering.view(region.leaves[node.x])
        rows = source.reshape((m, depth))
        if rows is None or rows.strides[1] != 1:
            rows = lowering.copied(source).reshape((m, depth))
        assert rows is not None, "a dense view takes any shape"
        panels = panels_of(lowering, region.leaves[node.packed], scheme, n, depth)
        result = lowering.result(region.op.results[0])
        config = block_product.config_of(target, scheme, m, n)
        launch = block_product.launch(config, target, m, n, depth, rows.strides[0])
        views = [rows, panels, result]
        lowering.launch("block_product", config, views, launch, region.flops)


class GroupedBlockProduct:
    """A single product by the experts' blocks."""

    def claim(self, region: Region) -> str | None:
        node = region.nodes[0]
        if len(region.nodes) != 1 or not isinstance(node, DequantGroupedMatMul):
            return "it is no single dequant_grouped_matmul"
        return _unread(node.x, node.packed, node.scheme)

    def lower(self, region: Region, lowering: Lowering) -> None:
        node = region.nodes[0]
        assert isinstance(node, DequantGroupedMatMul)
        target, scheme = lowering.target.kernels, node.scheme
        (m, depth), (count, n, _) = node.x.type.static_shape, node.packed.type.static_shape
        rows = lowering.dense(region.leaves[node.x])
        panels = panels_of(lowering, region.leaves[node.packed], scheme, n, depth)
        experts = lowering.dense(region.leaves[node.experts])
        error = View.dense(lowering.error, i64, (2,))
        site = lowering.site(node.out_of_range)
        result = lowering.result(region.op.results[0])
        config = block_product.config_of(target, scheme, m, n, experts.dtype)
        launch = block_product.launch(config, target, m, n, depth, depth, (count, site))
        views = [rows, panels, result, experts, error]
        lowering.launch("grouped_block_product", config, views, launch, region.flops)


def panels_of(lowering: Lowering, leaf: ir.Value, scheme: str, n: int, depth: int) -> View:
    """The panels of a weight, or of several one after the other: of a param packed once for all its
    uses, else in every call."""
    size = block_product.packed_bytes(lowering.target.kernels, scheme, n, depth)
    size = math.prod(from_type(leaf.type).static_shape[:-2]) * size
    static = lowering.static_of(leaf)
    if static is None:
        panels = lowering.fresh(u8, (size,))
        _pack(lowering, leaf, panels, scheme)
        return panels
    key = ("block panels", static, scheme)
    if key not in lowering.packs:
        with lowering.prologue_of(static):
            panels = lowering.fresh(u8, (size,))
            _pack(lowering, static, panels, scheme)
        lowering.packs[key] = panels
    return lowering.packs[key]


def _pack(lowering: Lowering, v: ir.Value, panels: View, scheme: str) -> None:
    config, rows = BlockPackConfig(scheme), lowering.dense(v)
    *lead, n, size = rows.shape
    launch = block_pack.launch(config, lowering.target.kernels, math.prod(lead), n, size)
    lowering.launch("block_pack", config, [rows, panels], launch)


SELECTOR: Selector = BlockProduct()
GROUPED: Selector = GroupedBlockProduct()
