"""IR text through the parser, passes and stages, as rlx-opt takes it."""

from __future__ import annotations

from rlx._mlir import ir
from rlx.dialects.context import make_context, parse
from rlx.lowering.base import Compilation
from rlx.targets import find_target
from rlx.tools.diagnostics import check_limits
from rlx.tools.stages import emit_stage, passes_to, run_pass

__all__ = ["transformed"]


def transformed(text: str, to: str, shared: ir.Context | None = None) -> None:
    """Parse text, and take it through passes ("--cse,fuse"), or to a stage of a target
    ("asm@cpu:x86-64-v4")."""
    check_limits(text)
    context = make_context() if shared is None else shared
    with context:
        module = parse(text, context)
        stage, _, target_name = to.partition("@")
        target = find_target(target_name or "cpu:x86-64-v3")
        compilation = Compilation(target)
        if stage.startswith("--"):
            for name in stage.removeprefix("--").split(","):
                module = run_pass(module, name, compilation)
        elif stage:
            for p in passes_to(module, stage):
                module = run_pass(module, p.name, compilation)
            if stage not in ("hir", "mir", "fused"):
                emit_stage(module, stage, target)
