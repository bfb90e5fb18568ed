"""The MLIR context of a compile: RLX's dialects loaded, and text parsed with located errors."""

from __future__ import annotations

from rlx import _mlir
from rlx._mlir import ir
from rlx.dialects.convert import forget_types
from rlx.ir.op import Op

__all__ = ["SharedContext", "make_context", "parse"]


def make_context() -> ir.Context:
    """A new context with hir, mir and lir loaded, and the dialects of ops from outside."""
    from rlx.dialects.lir import load_lir
    from rlx.dialects.tensor import load_tensor_dialects

    # What is kept of contexts that are no longer used would keep them alive.
    forget_types()
    _mlir.kept_pipeline.cache_clear()
    ctx = _mlir.context()
    with ctx:
        load_tensor_dialects()
        load_lir()
    return ctx


class SharedContext:
    """One context for several compiles: declaring the dialects takes longer than a small compile.

    A context keeps every type, attribute and location that it has seen, so a new one is made after
    ``uses``, and once ops were declared that it does not know. The caller sees to it that one
    thread at a time works in it.
    """

    def __init__(self, uses: int = 32) -> None:
        self._uses, self._left = uses, 0
        self._foreign: tuple[type[Op], ...] = ()

    def get(self) -> ir.Context:
        """The context, for one compile more."""
        from rlx.dialects.tensor import foreign

        declared = foreign()
        if not self._left or declared != self._foreign:
            self._context, self._left, self._foreign = make_context(), self._uses, declared
        self._left -= 1
        return self._context


def parse(text: str | bytes, ctx: ir.Context | None = None) -> ir.Module:
    """Parse and verify HIR, MIR or LIR text or bytecode; IRError says where it is wrong."""
    context = make_context() if ctx is None else ctx
    with context:
        return _mlir.parse_module(text, context)
