"""The pipeline: the list of passes from HIR to LIR, in order.

It is a value: it can be printed, cut (``rlx-opt --emit=mir``), timed and started from anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx._mlir import ir, mlir_errors
from rlx.errors import IRError, PassError, did_you_mean
from rlx.lowering.base import Compilation, Pass
from rlx.lowering.fuse import Fuse
from rlx.lowering.hir_to_mir import HirToMir
from rlx.lowering.hoist import Hoist
from rlx.lowering.legalize import Legalize
from rlx.lowering.mir_to_lir import MirToLir
from rlx.lowering.region import Regions
from rlx.lowering.share_inputs import ShareInputs
from rlx.lowering.simplify import Simplify

__all__ = ["PASSES", "PIPELINE", "STAGES", "named", "run_passes"]

PIPELINE: tuple[Pass, ...] = (
    HirToMir(),
    Legalize(),
    Simplify(),
    ShareInputs(),
    Hoist(),
    Fuse(),
    MirToLir(),
)

STAGES: dict[str, str | None] = {
    "hir": None,
    "mir": "hir-to-mir",
    "fused": "fuse",
    "lir": "mir-to-lir",
}
"""The levels that can be printed, and the pass after which each is there."""

PASSES: dict[str, Pass] = {p.name: p for p in PIPELINE}


def named(name: str) -> Pass:
    """The pass of a name; PassError with a suggestion if there is none."""
    if name not in PASSES:
        raise PassError(
            f"no pass is called {name!r}{did_you_mean(name, PASSES)}; there are {', '.join(PASSES)}"
        )
    return PASSES[name]


def run_passes(module: ir.Module, passes: Sequence[Pass], compilation: Compilation) -> ir.Module:
    """Run passes in order, timed; the module is verified once, after the last."""
    for p in passes:
        failed = mlir_errors(f"pass {p.name} failed", PassError)
        with compilation.timed(p.name), failed, module.context, ir.Location.unknown():
            module = p.run(module, compilation)
    compilation.regions = Regions()  # the report of a compile must not keep its MLIR alive
    if passes and not passes[-1].verifies:
        with (
            compilation.timed("verify"),
            mlir_errors(f"after {passes[-1].name} the module is not valid", IRError),
        ):
            module.operation.verify()
    return module
