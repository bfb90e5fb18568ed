"""legalize: composites that no kernel family claims become what they expand to.

Before, what is written as several ops becomes the composite that a family claims.

What is left is run by a family, by its own loop nest, or moves nothing; anything else cannot be
compiled for the target, and all such ops are listed at once.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from rlx._mlir import ir
from rlx.dialects.bridge import expand_all, is_mir, place_of, signature
from rlx.dialects.convert import from_type
from rlx.errors import UnsupportedError
from rlx.ir.op import op_class
from rlx.lowering.compilation import Compilation
from rlx.lowering.functions import functions, op_counts
from rlx.lowering.pass_base import Pass
from rlx.lowering.passes.block_products import gather_before_decoding, join_block_products
from rlx.lowering.passes.integer_products import join_integer_products
from rlx.lowering.select.collective import is_step
from rlx.lowering.select.table import not_native, select
from rlx.ops.matmul.contraction import MatMul
from rlx.ops.quant.blocks import DequantizeBlocks

__all__ = ["Legalize"]


class Legalize(Pass):
    """Expand composites without a kernel; refuse ops that have no way to run."""

    name = "legalize"

    def run(self, module: ir.Module, compilation: Compilation) -> ir.Module:
        compilation.fusion.before = op_counts(module)
        verdicts: dict[tuple[Any, ...], bool] = {}

        def unclaimed(op: ir.Operation) -> bool:
            if not _may_expand(op, compilation):
                return False
            key = signature(op)
            if key not in verdicts:
                verdicts[key] = _expands(op, compilation)
            if verdicts[key]:
                _note_decoded(op, compilation)
                compilation.dispatch.rewritten[op.name.split(".")[1]] += 1
                compilation.hit(self.name, f"expand {op.name}")
            return verdicts[key]

        self._join(module, compilation)
        for f in functions(module).values():
            for block in f.regions[0].blocks:
                while expand_all(block, unclaimed, lambda node: False):
                    pass
        _check(module, compilation)
        return module

    def _join(self, module: ir.Module, compilation: Compilation) -> None:
        for f in functions(module).values():
            for block in f.regions[0].blocks:
                for _ in range(gather_before_decoding(block)):
                    compilation.hit(self.name, "gather before decoding")
        if not compilation.options.native(MatMul.name):
            return
        families = compilation.target.families
        joins = (
            ("by blocks", join_block_products, ("block_product", "gpu_block_product")),
            ("of integers", join_integer_products, ("integer_contraction",)),
        )
        for f in functions(module).values():
            for block in f.regions[0].blocks:
                for what, join, takers in joins:
                    for _ in range(join(block) if {*takers} & {*families} else 0):
                        compilation.hit(self.name, f"join product {what}")


def _may_expand(op: ir.Operation, compilation: Compilation) -> bool:
    if not is_mir(op) or op.name in ("mir.fused", "mir.yield"):
        return False
    return op_class(op.name).composite() and not is_step(op, compilation)


def _expands(op: ir.Operation, compilation: Compilation) -> bool:
    """Whether no family claims a composite; UnsupportedError if one is asked for."""
    options, system = compilation.options, compilation.target.system
    if op_class(op.name).meets:
        return True  # no kernel waits for another rank
    if system is not None:
        return op.name not in system.rows
    families = compilation.target.families if options.native(op.name) else ()
    family, reasons = select(compilation.regions.of(op), families)
    expands = family in (None, "common")
    if expands and op.name in options.force_native:
        raise not_native(op.name, compilation.target.name, reasons, place_of(op))
    return expands


def _note_decoded(op: ir.Operation, compilation: Compilation) -> None:
    """Report how much f32 is made of packed weights."""
    if op.name != DequantizeBlocks.name:
        return
    made = from_type(op.results[0].type)
    if made.is_static:
        scheme = ir.StringAttr(op.attributes["scheme"]).value
        compilation.dispatch.decoded[scheme] += made.nbytes


def _check(module: ir.Module, compilation: Compilation) -> None:
    missing: Counter[str] = Counter()
    first: dict[str, tuple[str, int]] = {}
    for f in functions(module).values():
        for op in (v.operation for b in f.regions[0].blocks for v in b.operations):
            if not is_mir(op) or op.name in ("mir.fused", "mir.yield"):
                continue
            if not op_class(op.name).runnable():
                missing[op.name] += 1
                first.setdefault(op.name, place_of(op))
    if missing:
        listed = ", ".join(
            f"{name} x {n} (first at {first[name][0]}:{first[name][1]})"
            for name, n in missing.items()
        )
        raise UnsupportedError(
            f"no kernel and no loop nest on {compilation.target.name} for: {listed}"
        )
