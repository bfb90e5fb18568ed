"""Products by weights in packed blocks on GPUs (``rlx.kernels.matmul.gpu_block_product``), of rows
of floats and of rows in 8 bits. The prologue packs a param's weight into panels, which take as much
memory as its bytes."""

from __future__ import annotations

import math

from rlx._mlir import ir
from rlx.kernels.matmul import gpu_block_panels, gpu_block_product
from rlx.kernels.matmul.block_weights import DECODERS, scheme_of
from rlx.lowering.region import Region
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.selector import Selector
from rlx.lowering.select.views import View
from rlx.ops.quant.product import DequantMatMul
from rlx.ops.quant.rows import DequantMatMulRows
from rlx.types import bf16, f16, f32, u32

__all__ = ["SELECTOR"]

_ROWS = (f32, f16, bf16)


class GpuBlockProduct:
    """A single product by blocks that the kernels decode."""

    def claim(self, region: Region) -> str | None:
        node = region.nodes[0]
        if len(region.nodes) != 1 or not isinstance(node, (DequantMatMul, DequantMatMulRows)):
            return "it is no single product by packed blocks"
        if isinstance(node, DequantMatMul) and node.x.dtype not in _ROWS:
            return f"its rows are {node.x.dtype}; kernels read {', '.join(map(str, _ROWS))}"
        read = [name for name in DECODERS if scheme_of(name).whole]
        if node.scheme not in read:
            return f"no kernel reads {node.scheme}; kernels read {', '.join(read)}"
        if any(d == 0 for v in node.present for d in v.shape):
            return "a dim is empty"
        return None

    def lower(self, region: Region, lowering: Lowering) -> None:
        node = region.nodes[0]
        assert isinstance(node, (DequantMatMul, DequantMatMulRows))
        x, scales = (node.x, ()) if isinstance(node, DequantMatMul) else (node.q, (node.scales,))
        shape = x.type.static_shape
        m, depth, n = math.prod(shape[:-1]), shape[-1], node.packed.type.static_shape[0]
        source = lowering.view(region.leaves[x])
        rows = source.reshape((m, depth))
        if rows is None or rows.strides[1] != 1:
            rows = lowering.copied(source).reshape((m, depth))
        assert rows is not None, "a dense view takes any shape"
        factors = [lowering.dense(region.leaves[v]) for v in scales]
        panels = _panels(lowering, region.leaves[node.packed], node.scheme, n, depth)
        result = lowering.result(region.op.results[0])
        config, launch = gpu_block_product.launch(
            node.scheme, lowering.target.kernels, (rows.dtype, result.dtype), m, n, depth,
            rows.strides[0], math.gcd(rows.start, *(step for _, step in rows.moves)),
        )  # fmt: skip
        views = [rows, *factors, panels, result]
        lowering.launch("gpu_block_product", config, views, launch, region.flops)


def _panels(lowering: Lowering, leaf: ir.Value, scheme: str, n: int, depth: int) -> View:
    """The panels of a weight: of a param packed once for all its uses, else in every call."""
    static = lowering.static_of(leaf)
    if static is None:
        return _packed(lowering, leaf, scheme, n, depth)
    key = ("gpu block panels", static, scheme)
    if key not in lowering.packs:
        with lowering.prologue_of(static):
            lowering.packs[key] = _packed(lowering, static, scheme, n, depth)
    return lowering.packs[key]


def _packed(lowering: Lowering, v: ir.Value, scheme: str, n: int, depth: int) -> View:
    panels = lowering.fresh(u32, (gpu_block_panels.words_of(scheme, n, depth),))
    config, launch = gpu_block_panels.launch(scheme, n, depth)
    lowering.launch("gpu_block_pack", config, [lowering.dense(v), panels], launch)
    return panels


SELECTOR: Selector = GpuBlockProduct()
