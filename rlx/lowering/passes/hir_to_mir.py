"""hir-to-mir: each block's own expansion takes its place."""

from __future__ import annotations

from rlx._mlir import ir
from rlx.dialects.bridge import expand_all
from rlx.lowering.base import Compilation, Pass, functions

__all__ = ["HirToMir"]


class HirToMir(Pass):
    """Replace every hir block by what its class expands to."""

    name = "hir-to-mir"

    def run(self, module: ir.Module, compilation: Compilation) -> ir.Module:
        def wanted(op: ir.Operation) -> bool:
            if not op.name.startswith("hir."):
                return False
            compilation.hit(self.name, f"expand {op.name}")
            return True

        for f in functions(module).values():
            for block in f.regions[0].blocks:
                expand_all(block, wanted, lambda n: n.dialect == "hir")
        return module
