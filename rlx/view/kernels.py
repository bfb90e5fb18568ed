"""The kernels of a schedule: their text, and what the target makes of it."""

from __future__ import annotations

from rlx.base.frozen import frozen
from rlx.kernels.registry import emit_kernel
from rlx.lowering.base import Compilation
from rlx.schedule.plan import KernelRef
from rlx.targets.base import BINARY_STAGES, Target

__all__ = ["KernelView", "Listing", "view_kernel"]


@frozen
class Listing:
    """A stage of a kernel as text. ``lines`` has for each line that of the kernel's own text which
    it came from (from 1; 0 for none), and is empty where the target does not say."""

    stage: str
    text: str
    lines: list[int]


@frozen
class KernelView:
    """A kernel: its name in LIR, its config, and its listings, its own MLIR text first."""

    name: str
    family: str
    config: str
    listings: list[Listing]


def view_kernel(kernel: KernelRef, target: Target, compilation: Compilation) -> KernelView:
    """Emit a kernel, stage by stage; the time goes to ``compilation``."""
    with compilation.timed("kernel text"):
        text = emit_kernel(kernel.family, kernel.name, kernel.config, target.kernels)
    own = Listing("mlir", text.text, list(range(1, text.text.count("\n") + 2)))
    listings = [own]
    lines = target.emitter.lines(text)
    for stage in target.stages:
        if stage not in BINARY_STAGES:
            with compilation.timed(f"kernel {stage}"):
                emitted = target.emitter.emit([text], stage).decode()
            listings.append(Listing(stage, emitted, lines.get(stage, [])))
    return KernelView(kernel.name, kernel.family, repr(kernel.config), listings)
