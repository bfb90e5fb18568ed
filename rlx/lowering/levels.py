"""The levels of a module, and the stretches of the pipeline between them."""

from __future__ import annotations

from rlx._mlir import ir
from rlx.dialects.control import is_composite
from rlx.errors import UnsupportedError
from rlx.lowering.compilation import Compilation
from rlx.lowering.functions import functions
from rlx.lowering.pass_base import Pass
from rlx.lowering.pipeline import PIPELINE, STAGES, Observer, run_passes

__all__ = ["level_of", "lower", "passes_between", "passes_to", "passes_to_whole"]

_WHOLE = ("hir-to-mir", "legalize", "simplify")
"""The passes before a whole-graph program: the other compiler fuses and plans memory itself."""


def level_of(module: ir.Module) -> str:
    """The level of a module: "lir" by its kernels, views or roles, "fused" by a region or a
    prologue, "hir" by its blocks or composite regions, else "mir"."""
    names: set[str] = set()
    composites: list[str] = []
    found = functions(module)

    def visit(op: ir.Operation) -> ir.WalkResult:
        names.add(op.name)
        if is_composite(op, found):
            composites.append(op.name)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    marked = any("lir.family" in f.attributes or _has_roles(f) for f in found.values())
    if marked or any(n.startswith("lir.") for n in names):
        return "lir"
    if "mir.fused" in names or "prologue" in found:
        return "fused"
    return "hir" if composites or any(n.startswith("hir.") for n in names) else "mir"


def _has_roles(f: ir.Operation) -> bool:
    marks = ir.ArrayAttr(f.attributes["arg_attrs"]) if "arg_attrs" in f.attributes else ()
    return any("lir.role" in ir.DictAttr(d) for d in marks)


def passes_to(module: ir.Module, stage: str, whole: bool = False) -> list[Pass]:
    """The passes of the pipeline that lead from a module's level to a stage, of a target that takes
    ``whole`` graphs or of another.

    A module of mir ops alone is hir too: a graph without blocks.
    """
    level, goal = level_of(module), stage if stage in STAGES else "lir"
    if whole and stage not in STAGES:
        return passes_to_whole(level)
    if (level, goal) == ("mir", "hir"):
        return []
    return passes_between(level, goal)


def passes_to_whole(level: str) -> list[Pass]:
    """The passes from hir or mir to what a target that takes whole graphs is given.
    UnsupportedError for what is fused or lir already."""
    if level not in ("hir", "mir"):
        raise UnsupportedError(
            f"the input is {level}, and whole graphs are written from hir or mir"
        )
    names = _WHOLE if level == "hir" else _WHOLE[1:]
    return [p for p in PIPELINE if p.name in names]


def passes_between(level: str, goal: str) -> list[Pass]:
    """The passes from one level to a later one; UnsupportedError if it is no later one."""
    order = list(STAGES)
    start, end = order.index(level), order.index(goal)
    if start > end:
        raise UnsupportedError(f"the input is {level} already; it cannot go back to {goal}")
    names = [p.name for p in PIPELINE]
    first, last = (0 if i == 0 else names.index(str(STAGES[order[i]])) + 1 for i in (start, end))
    return list(PIPELINE[first:last])


def lower(
    module: ir.Module, compilation: Compilation, observer: Observer, *, level: str = "hir"
) -> ir.Module:
    """Take a module of ``level`` down to lir; ``observer`` is shown it at each level, those two
    included, as soon as it is reached."""
    observer(level, module)
    return run_passes(module, passes_between(level, "lir"), compilation, observer=observer)
