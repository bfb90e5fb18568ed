"""The pipeline: the list of passes from HIR to LIR, in order.

It is a value: it can be printed, cut (``rlx-opt --emit=mir``), timed and started from anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from rlx._mlir import ir, mlir_errors
from rlx.errors import IRError, PassError
from rlx.lowering.compilation import Compilation
from rlx.lowering.pass_base import Pass
from rlx.lowering.pass_options import make_pass
from rlx.lowering.passes.mir_to_lir import MirToLir
from rlx.lowering.region import Regions
from rlx.lowering.registry import PASSES, pass_class
from rlx.schedule.plan import Schedule

__all__ = ["PIPELINE", "STAGES", "Observer", "named", "planned", "run_passes"]

STAGES: dict[str, str | None] = {
    "hir": None,
    "mir": "hir-to-mir",
    "fused": "fuse",
    "lir": "mir-to-lir",
}
"""The levels that can be printed, and the pass after which each is there."""

_REACHED = {p: level for level, p in STAGES.items() if p is not None}

Observer: TypeAlias = Callable[[str, ir.Module], None]
"""What is shown a level and the module that has reached it."""


def named(name: str, options: str = "") -> Pass:
    """The pass of a name, with options as text; PassError with a suggestion if there is none."""
    return make_pass(pass_class(name), options)


PIPELINE: tuple[Pass, ...] = tuple(named(name) for name in PASSES)


def planned(module: ir.Module, compilation: Compilation, *, for_text: bool = False) -> Schedule:
    """The schedule of a module of hir: all passes in order, of which the last makes no module.
    ``for_text`` says that it is to be written as lir text, which shows layouts and locations."""
    *passes, last = PIPELINE
    assert isinstance(last, MirToLir)
    module = _passed(module, passes, compilation)
    with _running(last, module, compilation):
        schedule = last.schedule(module, compilation, for_text=for_text)
    compilation.regions = Regions()
    return schedule


def run_passes(
    module: ir.Module,
    passes: Sequence[Pass],
    compilation: Compilation,
    *,
    verify: bool = True,
    observer: Observer | None = None,
) -> ir.Module:
    """Run passes in order, timed; the module is verified once, after the last.

    ``observer`` is shown the module at every level that a pass of these reaches, verified. It may
    change its locations.
    """
    module = _passed(module, passes, compilation, observer)
    compilation.regions = Regions()  # the report of a compile must not keep its MLIR alive
    if verify and passes and not (observer and passes[-1].name in _REACHED):
        _verify(module, passes[-1], compilation)
    return module


def _passed(
    module: ir.Module,
    passes: Sequence[Pass],
    compilation: Compilation,
    observer: Observer | None = None,
) -> ir.Module:
    """The one loop over passes."""
    for p in passes:
        with _running(p, module, compilation):
            module = p.run(module, compilation)
        if observer is not None and p.name in _REACHED:
            _verify(module, p, compilation)
            observer(_REACHED[p.name], module)
            compilation.regions = Regions()  # they hold locations
    return module


@contextmanager
def _running(p: Pass, module: ir.Module, compilation: Compilation) -> Generator[None]:
    failed = mlir_errors(f"pass {p.name} failed", PassError)
    with compilation.timed(p.name), failed, module.context, ir.Location.unknown():
        yield


def _verify(module: ir.Module, after: Pass, compilation: Compilation) -> None:
    if not after.verifies:
        failed = mlir_errors(f"after {after.name} the module is not valid", IRError)
        with compilation.timed("verify"), failed:
            module.operation.verify()
