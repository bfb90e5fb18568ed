"""Compiling a graph: from a Graph through the levels to an Artifact."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlx.dialects.context import SharedContext, parse
from rlx.dialects.export import to_mlir
from rlx.errors import DeviceError, ShapeError, UnsupportedError
from rlx.graph import Graph, check_param
from rlx.kernels.emit import emit_kernel
from rlx.lowering.base import Compilation, Options
from rlx.lowering.dump import dump_levels
from rlx.lowering.pipeline import PIPELINE, run_passes
from rlx.lowering.report import print_reports, times_text
from rlx.lowering.schedule import KernelRef, Schedule, read_schedule
from rlx.ops.base import caller
from rlx.runtime import _native
from rlx.runtime.artifact import Artifact, Variant
from rlx.runtime.executable import typed_array, unknown
from rlx.targets import find_target
from rlx.targets.base import Target

__all__ = [
    "CompileReport", "compile_artifact", "compile_graph", "compile_lir", "compile_schedule",
]  # fmt: skip


@dataclass
class CompileReport:
    """What a compile says of itself: times, fusions and dispatch, kernels made and reused."""

    compilation: Compilation
    kernels_made: int = 0
    kernels_reused: int = 0

    def __str__(self) -> str:
        c = self.compilation
        made = f"kernels: {self.kernels_made} compiled, {self.kernels_reused} found in memory"
        return "\n".join([times_text(c.seconds), made, str(c.fusion), str(c.dispatch)])


_objects: dict[str, bytes] = {}
_contexts = SharedContext()
_lock = threading.Lock()


def compile_graph(
    graph: Graph, target: Target, options: Options | None = None
) -> tuple[Artifact, CompileReport]:
    """Compile a graph whose dims are all bound; the artifact runs without MLIR or LLVM."""
    compilation = Compilation(target, options or Options())
    with _lock:
        dump_levels(graph, target, compilation.options)
        with compilation.timed("context"):
            context = _contexts.get()
        with context:
            with compilation.timed("to-mlir"):
                module = to_mlir(graph, context)
            module = run_passes(module, PIPELINE, compilation)
            with compilation.timed("read"):
                schedule = read_schedule(module)
        report = CompileReport(compilation)
        print_reports(graph.name, compilation)
        return compile_schedule(schedule, target, report), report


def compile_lir(text: str, target: Target) -> tuple[Artifact, CompileReport]:
    """Compile a lir module from its text: what is left after all passes."""
    report = CompileReport(Compilation(target))
    with _lock, _contexts.get() as context:
        schedule = read_schedule(parse(text, context))
        return compile_schedule(schedule, target, report), report


def compile_artifact(
    graph: Graph,
    target: str | Sequence[str] = "cpu",
    *,
    dims: Mapping[str, int] | None = None,
    params: Mapping[str, Any] | None = None,
    **options: Any,
) -> Artifact:
    """Compile a graph to an artifact, which is saved to a file and runs without a compiler.

    ``target`` is "cpu" (this machine's CPU), a CPU such as "cpu:x86-64-v3", or a list of them:
    where the artifact is loaded, the best that fits the machine is taken. ``dims`` binds all
    symbolic dims. The artifact carries ``params`` (arrays by name, beside the values that the graph
    has); the others are set where it is run. ``options`` are as for ``Session.compile``.

    Raises ShapeError for a dim without a size, DeviceError for an unknown target, NameError,
    DTypeError and ShapeError for params that do not fit.
    """
    bound = graph.bind(dims) if dims else graph
    if bound.symbols:
        raise ShapeError(
            f"an artifact is for one size of every dim, and {', '.join(sorted(bound.symbols))}"
            f" of graph {graph.name!r} has none; give dims={{{min(bound.symbols)!r}: 1, ...}}",
            caller(),
        )
    values = _values(bound, {**bound.param_values, **(params or {})})
    names = [target] if isinstance(target, str) else list(target)
    targets = {t.features.name: t for t in map(_cpu_target, names)}
    order = sorted(targets.values(), key=lambda t: t.features.rank, reverse=True)
    if not order:
        raise DeviceError("an artifact needs at least one target, such as 'cpu'")
    first, *others = [compile_graph(bound, t, Options(**options))[0] for t in order]
    variants = (*first.variants, *(v for other in others for v in other.variants))
    return replace(first, variants=variants, values=values)


def _cpu_target(name: str) -> Target:
    target = find_target(name)
    if target.name != "cpu":
        raise UnsupportedError(
            f"an artifact runs on the target cpu, found {name!r}; rlx-opt --emit shows what there"
            f" is for {target.name}"
        )
    return target


def _values(graph: Graph, given: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """The params that were given, as arrays of their declared types that nobody can change."""
    types = {str(v.name): v.type for v in graph.params}
    values: dict[str, np.ndarray[Any, Any]] = {}
    for name, value in given.items():
        if name not in types:
            raise unknown(name, list(types), "param")
        t = types[name]
        a = check_param(name, typed_array(value, name, t.dtype.name, "param"), t)
        values[name] = a.copy() if a.flags.writeable else a
        values[name].flags.writeable = False
    return values


def compile_schedule(schedule: Schedule, target: Target, report: CompileReport) -> Artifact:
    """Make the kernels of a schedule, and put them together as an artifact."""
    with report.compilation.timed("kernels"):
        keys = {k.name: _digest(k, target) for k in schedule.kernels}
        needed = {keys[k.name]: k for k in schedule.kernels}
        missing = {key: k for key, k in needed.items() if key not in _objects}
        _objects.update(_make(missing, target))
    report.kernels_made += len(missing)
    report.kernels_reused += len(needed) - len(missing)
    symbols = {k.name: (keys[k.name], _symbol(keys[k.name], k)) for k in schedule.kernels}
    objects = {key: _objects[key] for key in needed}
    features = target.features
    variant = Variant(
        features.name, features.machine_name, tuple(sorted(features.has)), schedule.arena_bytes,
        schedule.packed_bytes, schedule.constants, schedule.prologue, schedule.main,
        schedule.places, schedule.sites, symbols, objects,
    )  # fmt: skip
    return Artifact(schedule.target, schedule.params, schedule.inputs, schedule.outputs, (variant,))


def _make(kernels: dict[str, KernelRef], target: Target) -> dict[str, bytes]:
    """The objects of kernels by key. They are made on several threads where there are several
    CPUs: LLVM's code generator, half of the work, runs without the GIL."""

    def make(key: str) -> bytes:
        kernel = kernels[key]
        text = emit_kernel(kernel.family, _symbol(key, kernel), kernel.config, target.kernels)
        return target.emitter.emit([text], target.stages[-1])

    workers = min(len(kernels), _native.default_threads())
    if workers < 2:
        return {key: make(key) for key in kernels}
    with ThreadPoolExecutor(workers, "rlx-compile") as pool:
        return dict(zip(kernels, pool.map(make, kernels), strict=True))


def _symbol(key: str, kernel: KernelRef) -> str:
    """The symbol that the object of a kernel exports."""
    return f"rlx_{kernel.family}_{key[:12]}"


def _digest(kernel: KernelRef, target: Target) -> str:
    """What a kernel's code depends on: its family, its config, the target and its features."""
    text = f"{kernel.family}|{kernel.config!r}|{target.name}|{target.features.name}"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
