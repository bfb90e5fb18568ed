"""Compiling a graph: from a Graph through the levels to an Artifact."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.arrays import typed_array
from rlx.dialects.context import SharedContext, parse
from rlx.dialects.export import to_mlir
from rlx.digest import digest
from rlx.errors import DeviceError, ShapeError, UnsupportedError
from rlx.graph import Graph, check_param
from rlx.kernels.custom import CustomConfig
from rlx.kernels.emit import emit_kernel
from rlx.lowering.base import Compilation, Options
from rlx.lowering.compilation import CompileReport
from rlx.lowering.dump import dump_levels
from rlx.lowering.pipeline import PIPELINE, run_passes
from rlx.lowering.places import Places, numbered
from rlx.lowering.schedule import KernelRef, Schedule, read_schedule
from rlx.ops.base import caller
from rlx.ops.builders import located
from rlx.ops.custom import CKernel
from rlx.precision import check_precision, types_of
from rlx.precision.rewrite import with_precision
from rlx.runtime import _native, host
from rlx.runtime.artifact import Artifact, Variant
from rlx.runtime.cache.artifacts import find_or_compile, placed
from rlx.runtime.cache.objects import Shelf, found_or_made
from rlx.runtime.executable import unknown
from rlx.targets import find_target, rank
from rlx.targets.base import Target
from rlx.tracing import span

if TYPE_CHECKING:
    from rlx.modules import GraphModule
    from rlx.targets.gpu.program import GpuProgram

__all__ = [
    "CompileReport", "compile_artifact", "compile_graph", "compile_lowered", "compile_program",
    "compile_schedule", "compile_structure", "show_levels",
]  # fmt: skip

_contexts = SharedContext()
_lock = threading.Lock()


def compile_graph(
    graph: Graph, target: Target, options: Options | None = None
) -> tuple[Artifact, CompileReport]:
    """Compile a graph whose dims are all bound, without the cache; the artifact runs without MLIR
    or LLVM."""
    places = Places(graph)
    with places.errors():
        artifact, report = compile_structure(graph, target, options)
    report.compilation.fusion = places.fusion(report.compilation.fusion)
    return placed(artifact, places), report


def show_levels(graph: Graph, target: Target, options: Options) -> None:
    """Write the levels of a graph where RLX_IR_DUMP says."""
    with _lock:
        dump_levels(graph, target, options)


def compile_structure(
    graph: Graph, target: Target, options: Options | None = None, shelf: Shelf | None = None
) -> tuple[Artifact, CompileReport]:
    """``compile_graph`` with numbers for the user's lines (``rlx.lowering.places``), so that graphs
    of one structure give one artifact. ``shelf`` has objects of kernels of other processes."""
    compilation = Compilation(target, options)
    with _lock, span("compile", graph=graph.name):
        schedule = _schedule(graph, compilation)
        report = CompileReport(compilation)
        if target.kernels.frame == "gpu":
            return _compile_device(schedule, target, report), report
        return compile_schedule(schedule, target, report, shelf), report


def compile_program(
    graph: Graph, target: Target, options: Options | None = None
) -> tuple[GpuProgram, CompileReport]:
    """As ``compile_graph``, for a GPU: the program that a driver runs."""
    from rlx.runtime.device_program import DeviceVariant

    artifact, report = compile_graph(graph, target, options)
    (variant,) = artifact.variants
    assert isinstance(variant, DeviceVariant)
    return variant.program, report


def _compile_device(schedule: Schedule, target: Target, report: CompileReport) -> Artifact:
    """The artifact of a schedule for a GPU."""
    # Imported here: compiling for a CPU needs none of them.
    from rlx.lowering.gpu_program import gpu_program
    from rlx.runtime.device_program import DeviceVariant

    with report.compilation.timed("kernels"):
        symbols = {k.name: _symbol(_digest(_dependences(k, target)), k) for k in schedule.kernels}
        program = gpu_program(schedule, target, symbols, report.compilation.options.most_rounds)
    report.kernels_made += len(program.kernels)
    features = target.features
    variant = DeviceVariant(features.name, target.name, tuple(sorted(features.has)), program)
    return Artifact(schedule.target, program.params, program.inputs, program.outputs, (variant,))


def _schedule(graph: Graph, compilation: Compilation) -> Schedule:
    """A graph taken through all passes."""
    with compilation.timed("context"):
        context = _contexts.get()
    with context:
        with compilation.timed("to-mlir"):
            module = to_mlir(graph, context, numbered(graph))
        module = run_passes(module, PIPELINE, compilation)
        with compilation.timed("read"):
            return read_schedule(module)


def compile_lowered(module: GraphModule, **options: Any) -> Artifact:
    """The artifact of a module of lir, or of mir with regions, for the CPU that it was lowered for,
    with the values of params that it carries. ``options`` are those of the passes that are left.

    Raises UnsupportedError for a module of another target, IRError for one that is malformed.
    """
    target = find_target(module.target or "cpu")
    if target.name != "cpu":
        raise UnsupportedError(
            f"a module of lir runs on the target cpu, found {module.target!r}; rlx-opt --emit shows"
            f" what there is for {target.name}"
        )
    lir = module.to("lir", **options)
    with _lock, _contexts.get() as context:
        schedule = read_schedule(parse(lir.located, context))
        artifact = compile_schedule(schedule, target, CompileReport(Compilation(target)))
    return replace(artifact, values={name: _frozen(a) for name, a in lir.values.items()})


def compile_artifact(
    graph: Graph,
    target: str | Sequence[str] = "cpu",
    *,
    dims: Mapping[str, int] | None = None,
    params: Mapping[str, Any] | None = None,
    precision: str = "f32",
    **options: Any,
) -> Artifact:
    """Compile a graph to an artifact, which is saved to a file and runs without a compiler.

    ``target`` is "cpu" (this machine's CPU), a CPU such as "cpu:x86-64-v3", a GPU's API as it is or
    for some device ("vulkan", "cuda:sm_90"), which need not be here, or a list of one kind: where
    the artifact is loaded, the best that fits the machine is taken. ``dims`` binds all symbolic
    dims. The artifact carries ``params`` (arrays by name, beside the values that the graph
    has); the others are set where it is run. ``precision`` is as for ``Session`` and ``options``
    are as for ``Session.compile``.

    Raises ShapeError for a dim without a size, DeviceError for an unknown target, NameError,
    DTypeError and ShapeError for params that do not fit.
    """
    chosen = located(check_precision)(precision)
    bound = graph.bind(dims) if dims else graph
    if bound.symbols:
        raise ShapeError(
            f"an artifact is for one size of every dim, and {', '.join(sorted(bound.symbols))}"
            f" of graph {graph.name!r} has none; give dims={{{min(bound.symbols)!r}: 1, ...}}",
            caller(),
        )
    values = _values(bound, {**bound.param_values, **(params or {})})
    if options.get("donate"):
        raise UnsupportedError(
            "an artifact has no donated inputs: whoever loads it could not know; compile with"
            " Session.compile, or leave donate out"
        )
    chosen_options = Options.of(options)
    order = _ordered([target] if isinstance(target, str) else list(target))

    def compiled(t: Target) -> Artifact:
        types = types_of(chosen, t.features.has)
        rewritten = with_precision(bound, types)[0] if types.changes else bound
        key = (t.name, t.features.name)
        return find_or_compile(rewritten, key, chosen_options, lambda: t)[0]

    first, *others = map(compiled, order)
    variants = (*first.variants, *(v for other in others for v in other.variants))
    return replace(first, variants=variants, values=values)


def _ordered(names: Sequence[str]) -> list[Target]:
    """The targets of an artifact, the best first."""
    targets = {(t.name, t.features.name): t for t in map(find_target, names)}
    kinds = sorted({t.name for t in targets.values()})
    if len(kinds) != 1:
        found = f", found {', '.join(kinds)}; compile one artifact for each" if kinds else ""
        raise DeviceError(f"an artifact is for one kind of target, such as 'cpu'{found}")
    return sorted(targets.values(), key=lambda t: rank(t.name, t.features), reverse=True)


def _values(graph: Graph, given: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """The params that were given, as arrays of their declared types that nobody can change."""
    types = {str(v.name): v.type for v in graph.params}
    values: dict[str, np.ndarray[Any, Any]] = {}
    for name, value in given.items():
        if name not in types:
            raise unknown(name, list(types), "param")
        t = types[name]
        a = check_param(name, typed_array(value, name, t.dtype.name, "param"), t)
        values[name] = _frozen(a)
    return values


def _frozen(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array, or a copy of it, that nobody can change."""
    kept = a.copy() if a.flags.writeable else a
    kept.flags.writeable = False
    return kept


def compile_schedule(
    schedule: Schedule, target: Target, report: CompileReport, shelf: Shelf | None = None
) -> Artifact:
    """Make the kernels of a schedule, and put them together as an artifact."""
    with report.compilation.timed("kernels"):
        functions = {k.name: f for k in schedule.kernels if (f := _function(k)) is not None}
        kernels = [k for k in schedule.kernels if k.name not in functions]
        texts = {k.name: _dependences(k, target) for k in kernels}
        keys = {name: _digest(text) for name, text in texts.items()}
        needed = {keys[k.name]: k for k in kernels}
        objects, made = found_or_made(
            {keys[name]: text for name, text in texts.items()},
            lambda missing: _make({key: needed[key] for key in missing}, target),
            shelf,
        )
    report.kernels_made += made
    report.kernels_reused += len(needed) - made
    symbols = {k.name: (keys[k.name], _symbol(keys[k.name], k)) for k in kernels}
    features = target.features
    variant = Variant(
        features.name, features.machine_name, tuple(sorted(features.has)), schedule.arena_bytes,
        schedule.packed_bytes, schedule.constants, schedule.prologue, schedule.main,
        schedule.launches, schedule.sites, symbols, objects, functions,
    )  # fmt: skip
    return Artifact(schedule.target, schedule.params, schedule.inputs, schedule.outputs, (variant,))


def _function(kernel: KernelRef) -> Callable[..., Any] | None:
    """The function of this process that a kernel is, if it is none to compile."""
    if not isinstance(kernel.config, CustomConfig) or kernel.config.language != "python":
        return None
    return host.function(kernel.config.on.node())


def _make(kernels: dict[str, KernelRef], target: Target) -> dict[str, bytes]:
    """The objects of kernels by key. They are made on several threads where there are several
    CPUs: LLVM's code generator, half of the work, runs without the GIL."""
    if not kernels:
        return {}

    def make(key: str) -> bytes:
        kernel = kernels[key]
        symbol = _symbol(key, kernel)
        with span(f"emit {kernel.family}", symbol=symbol):
            text = emit_kernel(kernel.family, symbol, kernel.config, target.kernels)
            return target.emitter.emit([text], target.stages[-1])

    workers = min(len(kernels), _native.default_threads())
    with ThreadPoolExecutor(workers, "rlx-compile") as pool:
        made = dict(zip(kernels, pool.map(make, kernels), strict=True))
    _native.trim_heap()  # LLVM's and MLIR's garbage, 6 MB for a small model
    return made


def _symbol(key: str, kernel: KernelRef) -> str:
    """The symbol that the object of a kernel exports."""
    return f"rlx_{kernel.family}_{key[:12]}"


def _dependences(kernel: KernelRef, target: Target) -> str:
    """What a kernel's code depends on: its family, its config, the target and its features, and for
    one in C its compiler and the files that it includes."""
    config, features = kernel.config, target.features.name
    text = f"{kernel.family}|{config!r}|{target.name}|{features}"
    if not isinstance(config, CustomConfig) or config.language != "c":
        return text
    from rlx.targets.cpu.c_compiler import dependences

    own = config.kernel()
    assert isinstance(own, CKernel)
    made = emit_kernel(kernel.family, "kernel_of_c", config, target.kernels)
    return f"{text}|{dependences(made, own.source, target.features)}"


def _digest(text: str) -> str:
    return digest(text.encode())
