"""The pipeline: the list of passes from HIR to LIR, in order.

It is a value: it can be printed, cut (``rlx-opt --emit=mir``), timed and started from anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx._mlir import ir, mlir_errors
from rlx.errors import IRError, PassError
from rlx.lowering.base import Compilation, Pass
from rlx.lowering.pass_options import make_pass
from rlx.lowering.region import Regions
from rlx.lowering.registry import PASSES, pass_class

__all__ = ["PIPELINE", "STAGES", "named", "run_passes"]

STAGES: dict[str, str | None] = {
    "hir": None,
    "mir": "hir-to-mir",
    "fused": "fuse",
    "lir": "mir-to-lir",
}
"""The levels that can be printed, and the pass after which each is there."""


def named(name: str, options: str = "") -> Pass:
    """The pass of a name, with options as text; PassError with a suggestion if there is none."""
    return make_pass(pass_class(name), options)


PIPELINE: tuple[Pass, ...] = tuple(named(name) for name in PASSES)


def run_passes(
    module: ir.Module, passes: Sequence[Pass], compilation: Compilation, *, verify: bool = True
) -> ir.Module:
    """Run passes in order, timed; the module is verified once, after the last."""
    for p in passes:
        failed = mlir_errors(f"pass {p.name} failed", PassError)
        with compilation.timed(p.name), failed, module.context, ir.Location.unknown():
            module = p.run(module, compilation)
    compilation.regions = Regions()  # the report of a compile must not keep its MLIR alive
    if verify and passes and not passes[-1].verifies:
        with (
            compilation.timed("verify"),
            mlir_errors(f"after {passes[-1].name} the module is not valid", IRError),
        ):
            module.operation.verify()
    return module
