"""Rows in 8 bits, and products of them by weights in packed blocks
(``rlx.kernels.matmul.block_product_rows``)."""

from __future__ import annotations

import math

from rlx.codegen.builder import KernelTarget
from rlx.kernels.matmul import block_product_rows, block_product_tiles, block_rows
from rlx.kernels.matmul.block_product_tiles import BlockProductTilesConfig
from rlx.kernels.matmul.block_rows import BlockRowsConfig, Extras
from rlx.kernels.matmul.block_weights import DECODERS
from rlx.lowering.region import Region, users
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.matmul.block_weights import panels_of
from rlx.lowering.select.selector import Selector
from rlx.lowering.select.views import View
from rlx.ops.quant.affine import QuantizeRows
from rlx.ops.quant.rows import ROW_BLOCK, DequantMatMulRows
from rlx.types import f32

__all__ = ["PRODUCT", "ROUND"]


def _extras(target: KernelTarget, m: int) -> Extras:
    """What a product of ``m`` rows reads beside their integers and scales."""
    tiles = block_product_tiles.serves(target, m)
    return Extras(sums=not tiles, tiles=tiles)


def _made(lowering: Lowering, extras: Extras, m: int, depth: int) -> list[View]:
    """Buffers for extras."""
    return [lowering.fresh(*shape) for shape in block_rows.extra_shapes(extras, m, depth)]


class BlockRows:
    """Rows rounded to 8 bits."""

    def claim(self, region: Region) -> str | None:
        node = region.nodes[0]
        if len(region.nodes) != 1 or not isinstance(node, QuantizeRows):
            return "it is no single quantize_rows"
        if node.x.dtype is not f32 or node.block != ROW_BLOCK:
            return f"the kernel makes blocks of {ROW_BLOCK} of f32"
        return "a dim is empty" if any(d == 0 for d in node.x.shape) else None

    def lower(self, region: Region, lowering: Lowering) -> None:
        node = region.nodes[0]
        assert isinstance(node, QuantizeRows)
        shape = node.x.type.static_shape
        m, depth = math.prod(shape[:-1]), shape[-1]
        source = lowering.view(region.leaves[node.x])
        rows = source.reshape((m, depth))
        if rows is None or rows.strides[1] != 1:
            rows = lowering.copied(source).reshape((m, depth))
        assert rows is not None, "a dense view takes any shape"
        made = [lowering.result(v) for v in region.op.results]
        extras, q = Extras(), region.op.results[0]
        if any(op.name == DequantMatMulRows.name for op in users(q)):
            extras = _extras(lowering.target.kernels, m)
            lowering.row_extras[q] = _made(lowering, extras, m, depth)
        views = [rows, *made, *lowering.row_extras.get(q, [])]
        launch = block_rows.launch(m, depth, rows.strides[0])
        config = BlockRowsConfig(extras=extras)
        lowering.launch("block_rows", config, views, launch, region.flops)


class BlockProductRows:
    """A single product of such rows by blocks that the kernel decodes."""

    def claim(self, region: Region) -> str | None:
        node = region.nodes[0]
        if len(region.nodes) != 1 or not isinstance(node, DequantMatMulRows):
            return "it is no single dequant_matmul_rows"
        if node.scheme not in DECODERS:
            return f"no kernel reads {node.scheme}; it reads {', '.join(DECODERS)}"
        if any(d == 0 for d in (*node.q.shape, *node.packed.shape)):
            return "a dim is empty"
        return None

    def lower(self, region: Region, lowering: Lowering) -> None:
        node = region.nodes[0]
        assert isinstance(node, DequantMatMulRows)
        target, scheme = lowering.target.kernels, node.scheme
        shape = node.q.type.static_shape
        m, depth, n = math.prod(shape[:-1]), shape[-1], node.packed.type.static_shape[0]
        q, scales = (lowering.dense(region.leaves[v]) for v in (node.q, node.scales))
        panels = panels_of(lowering, region.leaves[node.packed], scheme, n, depth)
        extras = _extras(target, m)
        made = lowering.row_extras.get(region.leaves[node.q])
        if made is None:
            made = _made(lowering, extras, m, depth)
            config = BlockRowsConfig(rounds=False, extras=extras)
            launch = block_rows.launch(m, depth, depth)
            lowering.launch("block_rows", config, [q, scales, *made], launch)
        result = lowering.result(region.op.results[0])
        if extras.tiles:
            config = BlockProductTilesConfig(scheme)
            launch = block_product_tiles.launch(config, target, m, n, depth)
            views = [*made, panels, result]
            lowering.launch("block_product_tiles", config, views, launch, region.flops)
            return
        config = block_product_rows.config_of(target, scheme, m, n)
        launch = block_product_rows.launch(config, target, m, n, depth)
        views = [q, scales, *made, panels, result]
        lowering.launch("block_product_rows", config, views, launch, region.flops)


ROUND: Selector = BlockRows()
PRODUCT: Selector = BlockProductRows()
