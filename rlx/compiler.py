"""Compiling a graph: from a Graph through the levels to an Artifact."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from typing import Any

from rlx.dialects.context import make_context
from rlx.dialects.export import to_mlir
from rlx.graph import Graph
from rlx.kernels.emit import emit_kernel
from rlx.lowering.base import Compilation, Options
from rlx.lowering.pipeline import PIPELINE, run_passes
from rlx.lowering.schedule import KernelRef, Schedule, read_schedule
from rlx.runtime.artifact import Artifact
from rlx.targets.base import Target

__all__ = ["CompileReport", "compile_graph", "compile_schedule"]


@dataclass
class CompileReport:
    """What a compile says of itself: times, fusions and dispatch, kernels made and reused."""

    compilation: Compilation
    kernels_made: int = 0
    kernels_reused: int = 0

    def __str__(self) -> str:
        c = self.compilation
        times = [f"{s * 1e3:9.2f} ms  {stage}" for stage, s in c.seconds.items()]
        made = f"kernels: {self.kernels_made} compiled, {self.kernels_reused} found in memory"
        return "\n".join([*times, made, str(c.fusion), str(c.dispatch)])


_objects: dict[str, bytes] = {}
_lock = threading.Lock()


def compile_graph(graph: Graph, target: Target, options: Options | None = None) -> tuple[Artifact, CompileReport]:
    """Compile a graph whose dims are all bound; the artifact runs without MLIR or LLVM."""
    compilation = Compilation(target, options or Options())
    with _lock:
        with compilation.timed("context"):
            context = make_context()
        with context:
            with compilation.timed("to-mlir"):
                module = to_mlir(graph, context)
            module = run_passes(module, PIPELINE, compilation)
            with compilation.timed("read"):
                schedule = read_schedule(module)
        report = CompileReport(compilation)
        return compile_schedule(schedule, target, report), report


def compile_schedule(schedule: Schedule, target: Target, report: CompileReport) -> Artifact:
    """Make the kernels of a schedule, and put them together as an artifact."""
    symbols: dict[str, tuple[str, str]] = {}
    objects: dict[str, bytes] = {}
    with report.compilation.timed("kernels"):
        for kernel in schedule.kernels:
            key = _digest(kernel, target)
            symbol = f"rlx_{kernel.family}_{key[:12]}"
            if key in _objects:
                report.kernels_reused += 1
            else:
                text = emit_kernel(kernel.family, symbol, kernel.config, target.kernels)
                _objects[key] = target.emitter.emit([text], target.stages[-1])
                report.kernels_made += 1
            objects[key] = _objects[key]
            symbols[kernel.name] = (key, symbol)
    return Artifact(
        schedule.target, target.features.name, schedule.params, schedule.constants, schedule.inputs,
        schedule.outputs, schedule.arena_bytes, schedule.packed_bytes, schedule.prologue, schedule.main,
        schedule.places, schedule.sites, symbols, objects,
    )  # fmt: skip


def _digest(kernel: KernelRef, target: Any) -> str:
    """What a kernel's code depends on: its family, its config, and the machine's features."""
    text = f"{kernel.family}|{kernel.config!r}|{target.features.name}"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
