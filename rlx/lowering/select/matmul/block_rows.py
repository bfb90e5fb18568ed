"""Rows in 8 bits, and products of them by weights in packed blocks
(``rlx.kernels.matmul.block_product_rows``)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from rlx._mlir import ir
from rlx.codegen.builder import KernelTarget
from rlx.dialects.bridge import node_of
from rlx.kernels.matmul import (
    block_product_dots,
    block_product_rows,
    block_product_tiles,
    block_rows,
)
from rlx.kernels.matmul.block_product_dots import BlockProductDotsConfig
from rlx.kernels.matmul.block_product_tiles import BlockProductTilesConfig
from rlx.kernels.matmul.block_rows import BlockRowsConfig, Extras, start_name
from rlx.kernels.matmul.block_weights import DECODERS, scheme_of
from rlx.lowering.region import Region, users
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.matmul.block_weights import panels_of
from rlx.lowering.select.selector import Selector
from rlx.lowering.select.views import View
from rlx.ops.quant.affine import QuantizeRows
from rlx.ops.quant.rows import ROW_BLOCK, DequantMatMulRows
from rlx.types import f32

__all__ = ["PRODUCT", "ROUND"]


def _extras(target: KernelTarget, m: int, schemes: Iterable[str]) -> Extras:
    """What products of ``m`` rows by weights of some schemes read beside integers and scales."""
    if block_product_tiles.serves(target, m):
        return Extras(tiles=True)
    if m >= block_product_dots.FEWEST:
        starts = {block_product_dots.start_of(scheme) for scheme in schemes}
        return Extras(tiles=True, starts=tuple(sorted(s for s in starts if s)))
    needed = {block_product_rows.extra_of(scheme) for scheme in schemes}
    return Extras("sums16" in needed, "sums32" in needed)


def _made(lowering: Lowering, extras: Extras, m: int, depth: int) -> dict[str, View]:
    """Buffers for extras."""
    shapes = block_rows.extra_shapes(extras, m, depth)
    return {name: lowering.fresh(*shape) for name, shape in shapes.items()}


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
        if schemes := _schemes(q):
            extras = _extras(lowering.target.kernels, m, schemes)
            lowering.row_extras[q] = _made(lowering, extras, m, depth)
        views = [rows, *made, *lowering.row_extras.get(q, {}).values()]
        config = BlockRowsConfig(extras=extras)
        launch = block_rows.launch(config, m, depth, rows.strides[0])
        lowering.launch("block_rows", config, views, launch, region.flops)


def _schemes(q: ir.Value) -> set[str]:
    """The schemes of the weights that rows of integers are multiplied with by the kernel below."""
    found: set[str] = set()
    for op in users(q):
        node = node_of(op) if op.name == DequantMatMulRows.name else None
        if isinstance(node, DequantMatMulRows) and node.scheme in DECODERS:
            found.add(node.scheme)
    return found


class BlockProductRows:
    """A single product of such rows by blocks that the kernel decodes."""

    def claim(self, region: Region) -> str | None:
        node = region.nodes[0]
        if len(region.nodes) != 1 or not isinstance(node, DequantMatMulRows):
            return "it is no single dequant_matmul_rows"
        read = [name for name in DECODERS if scheme_of(name).whole]
        if node.scheme not in read:
            return f"no kernel reads {node.scheme}; kernels read {', '.join(read)}"
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
        extras = _extras(target, m, [scheme])
        made = lowering.row_extras.get(region.leaves[node.q])
        if made is None:
            made = _made(lowering, extras, m, depth)
            config = BlockRowsConfig(rounds=False, extras=extras)
            launch = block_rows.launch(config, m, depth, depth)
            lowering.launch("block_rows", config, [q, scales, *made.values()], launch)
        if extras.tiles:
            self._tiles(lowering, region, scheme, (m, n, depth), made, panels)
            return
        config = block_product_rows.config_of(scheme, m)
        launch = block_product_rows.launch(config, target, n, depth)
        result = lowering.result(region.op.results[0])
        views = [q, scales, made[block_product_rows.extra_of(scheme)], panels, result]
        lowering.launch("block_product_rows", config, views, launch, region.flops)

    def _tiles(
        self,
        lowering: Lowering,
        region: Region,
        scheme: str,
        sizes: tuple[int, int, int],
        made: Mapping[str, View],
        panels: View,
    ) -> None:
        """The product of rows in tiles."""
        target, result = lowering.target.kernels, lowering.result(region.op.results[0])
        tiles, scales, sums = (made[n] for n in ("tiles", "tile_scales", "tile_sums"))
        if block_product_tiles.serves(target, sizes[0]):
            config = BlockProductTilesConfig(scheme)
            launch = block_product_tiles.launch(config, target, *sizes)
            views = [tiles, scales, sums, panels, result]
            lowering.launch("block_product_tiles", config, views, launch, region.flops)
            return
        config = BlockProductDotsConfig(scheme)
        launch = block_product_dots.launch(config, target, *sizes)
        start = block_product_dots.start_of(scheme)
        views = [tiles, scales, made[start_name(*start)] if start else sums, panels, result]
        lowering.launch("block_product_dots", config, views, launch, region.flops)


ROUND: Selector = BlockRows()
PRODUCT: Selector = BlockProductRows()
