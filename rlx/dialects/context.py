"""The MLIR context of a compile: RLX's dialects loaded, and text parsed with located errors."""

from __future__ import annotations

from rlx import _mlir
from rlx._mlir import ir

__all__ = ["make_context", "parse"]


def make_context() -> ir.Context:
    """A new context with hir, mir and lir loaded; one a compile."""
    from rlx.dialects.lir import Lir
    from rlx.dialects.tensor import Hir, Mir

    ctx = _mlir.context()
    with ctx:
        for dialect in (Hir, Mir, Lir):
            dialect.load()
    return ctx


def parse(text: str, ctx: ir.Context | None = None) -> ir.Module:
    """Parse and verify HIR, MIR or LIR text; IRError says where it is wrong."""
    ctx = ctx or make_context()
    with ctx:
        return _mlir.parse_module(text, ctx)
