"""IR text through the parser, passes and stages, as rlx-opt takes it."""

from __future__ import annotations

from rlx._mlir import ir, mlir_errors, run_pipeline
from rlx.dialects.context import make_context, parse
from rlx.errors import IRError
from rlx.lowering.compilation import Compilation
from rlx.lowering.levels import passes_to
from rlx.lowering.pipeline import named
from rlx.targets import find_target
from rlx.tools.opt.nesting import check_nesting
from rlx.tools.stages import emit_stage, run_pass

__all__ = ["transformed"]


def transformed(text: str, to: str, shared: ir.Context | None = None) -> None:
    """Parse text, and take it through passes ("--cse,fuse"), or to a stage of a target
    ("asm@cpu:x86-64-v4")."""
    check_nesting(text)
    context = make_context() if shared is None else shared
    with context:
        module = parse(text, context)
        stage, _, target_name = to.partition("@")
        target = find_target(target_name or "cpu:x86-64-v3")
        compilation = Compilation(target)
        if stage.startswith("--"):
            for name in stage.removeprefix("--").split(","):
                if name.partition("{")[0] in ("canonicalize", "cse"):
                    run_pipeline(module, f"builtin.module({name})", verify=True)
                    continue
                module = _verified(run_pass(module, named(name), compilation), name)
        elif stage:
            for p in passes_to(module, stage):
                module = _verified(run_pass(module, p, compilation), p.name)
            if stage not in ("hir", "mir", "fused"):
                emit_stage(module, stage, target)


def _verified(module: ir.Module, name: str) -> ir.Module:
    with mlir_errors(f"after {name} the module is not valid", IRError):
        module.operation.verify()
    return module
