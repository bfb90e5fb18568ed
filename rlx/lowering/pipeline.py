"""The pipeline: the list of passes from HIR to LIR, in order.

It is a value: it can be printed, cut (``rlx-opt --emit=mir``), timed and started from anywhere.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from rlx._mlir import ir, mlir_errors
from rlx.errors import IRError, PassError
from rlx.lowering.base import Compilation, Pass
from rlx.lowering.pass_options import make_pass
from rlx.lowering.passes.mir_to_lir import MirToLir
from rlx.lowering.region import Regions
from rlx.lowering.registry import PASSES, pass_class
from rlx.schedule.plan import Schedule

__all__ = ["PIPELINE", "STAGES", "named", "planned", "run_passes"]

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


def planned(module: ir.Module, compilation: Compilation) -> Schedule:
    """The schedule of a module of hir: all passes in order, of which the last makes no module."""
    *passes, last = PIPELINE
    assert isinstance(last, MirToLir)
    for p in passes:
        with _running(p, module, compilation):
            module = p.run(module, compilation)
    with _running(last, module, compilation):
        schedule = last.schedule(module, compilation)
    compilation.regions = Regions()
    return schedule


@contextmanager
def _running(p: Pass, module: ir.Module, compilation: Compilation) -> Generator[None]:
    failed = mlir_errors(f"pass {p.name} failed", PassError)
    with compilation.timed(p.name), failed, module.context, ir.Location.unknown():
        yield


def run_passes(
    module: ir.Module, passes: Sequence[Pass], compilation: Compilation, *, verify: bool = True
) -> ir.Module:
    """Run passes in order, timed; the module is verified once, after the last."""
    for p in passes:
        with _running(p, module, compilation):
            module = p.run(module, compilation)
    compilation.regions = Regions()  # the report of a compile must not keep its MLIR alive
    if verify and passes and not passes[-1].verifies:
        with (
            compilation.timed("verify"),
            mlir_errors(f"after {passes[-1].name} the module is not valid", IRError),
        ):
            module.operation.verify()
    return module
