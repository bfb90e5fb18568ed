"""From any level of IR to any later stage: what ``rlx-opt --emit`` and inspection share."""

from __future__ import annotations

from rlx._mlir import ir
from rlx.errors import UnsupportedError
from rlx.kernels.emit import emit_kernel
from rlx.lowering.base import Pass, functions
from rlx.lowering.pipeline import PIPELINE, STAGES
from rlx.lowering.schedule import read_schedule
from rlx.targets.base import Target

__all__ = ["emit_stage", "level_of", "passes_to"]


def level_of(module: ir.Module) -> str:
    """The level of a module: "lir" by its kernels or roles, "hir" by its blocks, else "mir"."""
    names: set[str] = set()

    def visit(op: ir.Operation) -> ir.WalkResult:
        names.add(op.name)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    if any("lir.family" in f.attributes for f in functions(module).values()) or "lir.view" in names:
        return "lir"
    if any(n.startswith("hir.") for n in names):
        return "hir"
    return "fused" if "mir.fused" in names else "mir"


def passes_to(module: ir.Module, stage: str) -> list[Pass]:
    """The passes of the pipeline that lead from a module's level to a stage."""
    order = list(STAGES)
    goal = stage if stage in order else "lir"
    start, end = order.index(level_of(module)), order.index(goal)
    if start > end:
        raise UnsupportedError(f"the input is {order[start]} already; it cannot go back to {stage}")
    names = [p.name for p in PIPELINE]
    first = 0 if start == 0 else names.index(str(STAGES[order[start]])) + 1
    last = 0 if end == 0 else names.index(str(STAGES[order[end]])) + 1
    return list(PIPELINE[first:last])


def emit_stage(module: ir.Module, stage: str, target: Target) -> str:
    """The text of a stage: of a level the module itself, of later ones what the target emits."""
    if stage in STAGES:
        return str(module)
    if stage not in target.stages:
        raise UnsupportedError(f"target {target.name} has no stage {stage!r}; it has {', '.join(target.stages)}")
    schedule = read_schedule(module)
    texts = [emit_kernel(k.family, k.name, k.config, target.kernels) for k in schedule.kernels]
    return target.emitter.emit(texts, stage).decode()
