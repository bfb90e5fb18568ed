"""Compiling a graph: from a Graph through the levels to an Artifact."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

from rlx.base.digest import digest
from rlx.base.giving_way import checkpoint, compiles
from rlx.base.preload import preload
from rlx.base.threads import threads_with_large_stacks
from rlx.dialects.context import SharedContext, parse
from rlx.dialects.export import to_mlir
from rlx.dialects.held import holding
from rlx.errors import ToolchainError, UnsupportedError
from rlx.ir.arrays import fixed
from rlx.ir.declared import outside
from rlx.ir.foreign_kernel import CKernel
from rlx.ir.graph import Graph
from rlx.kernels.fallback.foreign import CustomConfig
from rlx.kernels.registry import FAMILIES, emit_kernel
from rlx.lowering.compilation import Compilation, CompileReport, Options
from rlx.lowering.dump import dump_levels
from rlx.lowering.locations import Places, numbered
from rlx.lowering.pipeline import planned, run_passes
from rlx.runtime import _native, host
from rlx.runtime.artifact import Artifact, KernelCode, Variant
from rlx.runtime.cache.artifacts import placed
from rlx.runtime.cache.objects import Shelf, found_or_made, keep
from rlx.schedule.codec import main_words, prologue_words
from rlx.schedule.plan import KernelRef, Schedule, prologue_first
from rlx.schedule.steps import VERSION as STEPS_VERSION
from rlx.targets import find_target
from rlx.targets.base import Target
from rlx.targets.cpu.plain import target_of
from rlx.tracing import span

if TYPE_CHECKING:
    from typing import Unpack

    from rlx.base.guards import Guard
    from rlx.compiler.graph_module import GraphModule
    from rlx.lowering.compilation import OptionArgs
    from rlx.targets.gpu.program import GpuProgram

__all__ = [
    "CompileReport", "compile_device", "compile_graph", "compile_lowered", "compile_program",
    "compile_schedule", "compile_structure", "lowered", "show_levels",
]  # fmt: skip

_contexts = SharedContext()
_compiles = count(1)


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
    with compiles:
        dump_levels(graph, target, options)


def compile_structure(
    graph: Graph, target: Target, options: Options | None = None, shelf: Shelf | None = None
) -> tuple[Artifact, CompileReport]:
    """``compile_graph`` with numbers for the user's lines (``rlx.lowering.locations``), so that
    graphs of one structure give one artifact. ``shelf`` has objects of kernels of other processes.
    """
    compilation = Compilation(target, options)
    with compiles, span("compile", graph=graph.name):
        if target.system is not None:
            return _compile_whole(graph, compilation), CompileReport(compilation, 1)
        schedule = lowered(graph, compilation)
        report = CompileReport(compilation)
        if target.programs:
            return compile_device(schedule, target, report), report
        return compile_schedule(schedule, target, report, shelf), report


def compile_program(
    graph: Graph, target: Target, options: Options | None = None
) -> tuple[GpuProgram, CompileReport]:
    """As ``compile_graph``, for a GPU: the program that a driver runs."""
    from rlx.runtime.devices.gpu_program import DeviceVariant

    artifact, report = compile_graph(graph, target, options)
    (variant,) = artifact.variants
    assert isinstance(variant, DeviceVariant)
    return variant.program, report


def compile_device(
    schedule: Schedule,
    target: Target,
    report: CompileReport,
    sizes: Mapping[str, int] | None = None,
    guards: Sequence[Guard] = (),
) -> Artifact:
    """The artifact of a schedule as a program, whose kernels are one file: a GPU's or a page's. One
    of symbolic sizes is for all that meet the guards; ``sizes`` are those at hand."""
    # Imported here: compiling for a CPU needs none of them.
    from rlx.lowering.passes.gpu_program import gpu_program, without_sizes
    from rlx.runtime.devices.gpu_program import DeviceVariant

    most_rounds = report.compilation.options.most_rounds
    with report.compilation.timed("kernels"):
        symbols = {k.name: _symbol(_digest(_dependences(k, target)), k) for k in schedule.kernels}
        program = gpu_program(schedule, target, symbols, most_rounds, sizes)
        later = None
        if sizes is not None:
            program, later = without_sizes(program, guards, sizes)
    report.kernels_made += len(program.kernels)
    features = target.features
    has = tuple(sorted(features.has))
    variant = DeviceVariant(features.name, target.name, has, program, later)
    return Artifact(schedule.target, program.params, program.inputs, program.outputs, (variant,))


def _compile_whole(graph: Graph, compilation: Compilation) -> Artifact:
    """The artifact of a graph for a target that takes it whole."""
    from rlx.lowering.levels import passes_to_whole
    from rlx.lowering.passes.whole_program import whole_program
    from rlx.runtime.devices.gpu_program import DeviceVariant

    context, target = _contexts.get(), compilation.target
    with context, holding():
        with compilation.timed("to-mlir"):
            module = to_mlir(graph, context, numbered(graph), verify=False)
        module = run_passes(module, passes_to_whole("hir"), compilation, verify=False)
        with compilation.timed("program"):
            program = whole_program(module, compilation)
    features = target.features
    variant = DeviceVariant(features.name, target.name, tuple(sorted(features.has)), program)
    return Artifact(target.name, program.params, program.inputs, program.outputs, (variant,))


def lowered(graph: Graph, compilation: Compilation) -> Schedule:
    """A graph taken through all passes."""
    with compilation.timed("context"):
        context = _contexts.get()
    with context, holding():
        with compilation.timed("to-mlir"):
            module = to_mlir(graph, context, numbered(graph), verify=False)
        return planned(module, compilation)


def compile_lowered(module: GraphModule, **options: Unpack[OptionArgs]) -> Artifact:
    """The artifact of a module of lir, or of mir with regions, for the CPU that it was lowered for,
    with the values of params that it carries. ``options`` are those of the passes that are left.

    Raises UnsupportedError for a module of another target, IRError for one that is malformed.
    """
    from rlx.lowering.passes.lir_reader import read_schedule  # a compile reads no text

    target = find_target(module.target or "cpu")
    if target.name != "cpu":
        raise UnsupportedError(
            f"a module of lir runs on the target cpu, found {module.target!r}; rlx-opt --emit shows"
            f" what there is for {target.name}"
        )
    lir = module.to("lir", **options)
    with compiles, _contexts.get() as context:
        schedule = read_schedule(parse(lir.located, context))
        artifact = compile_schedule(schedule, target, CompileReport(Compilation(target)))
    return replace(artifact, values={name: fixed(a) for name, a in lir.values.items()})


def compile_schedule(
    schedule: Schedule, target: Target, report: CompileReport, shelf: Shelf | None = None
) -> Artifact:
    """Make the kernels of a schedule, and put them together as an artifact."""
    _check_runtime(schedule)
    with report.compilation.timed("kernels"):
        functions = {k.name: f for k in schedule.kernels if (f := _function(k)) is not None}
        kernels = [k for k in schedule.kernels if k.name not in functions]
        number = next(_compiles)
        texts = {k.name: _dependences(k, target, number) for k in kernels}
        keys = {name: _digest(text) for name, text in texts.items()}
        needed = {keys[k.name]: k for k in kernels}
        objects, made = found_or_made(
            {keys[name]: text for name, text in texts.items()},
            lambda missing: _make({key: needed[key] for key in missing}, target),
            shelf,
        )
    report.kernels_made += made
    report.kernels_reused += len(needed) - made
    schedule, constants, launched = prologue_first(schedule)
    codes = [
        KernelCode(k.name, key, _symbol(key, k) if key else "")
        for k in schedule.kernels
        for key in [keys.get(k.name, "")]
    ]
    features = target.features
    variant = Variant(
        features.name, features.machine_name, tuple(sorted(features.has)), schedule.arena_bytes,
        schedule.packed_bytes, schedule.constants, constants, launched,
        prologue_words(schedule.prologue), main_words(schedule.main),
        schedule.launches, schedule.sites, tuple(codes), objects, functions,
    )  # fmt: skip
    return Artifact(schedule.target, schedule.params, schedule.inputs, schedule.outputs, (variant,))


def _check_runtime(schedule: Schedule) -> None:
    """Refuse a native module of another build than the sources, which reads no such steps, or which
    a kernel would call at a wrong address."""
    built = getattr(_native, "STEPS_VERSION", 0)
    if built != STEPS_VERSION:
        raise ToolchainError(
            f"the native module reads steps of version {built}, and RLX's sources write version"
            f" {STEPS_VERSION}: it is of other sources; build it again by `make setup`"
        )
    loops = [k.config.block for k in schedule.kernels if k.family == "loop"]
    if not loops:
        return
    from rlx.kernels.loop import emit as loop

    if _native.ABI_VERSION < loop.ASKS_SINCE and any(loop.runs_long(block) for block in loops):
        raise ToolchainError(
            f"the native module is of ABI {_native.ABI_VERSION}, and a loop's kernel needs ABI"
            f" {loop.ASKS_SINCE}: it is older than RLX's sources; build it again by `make setup`"
        )


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

    preload("llvmlite")
    check = checkpoint()

    def make(key: str) -> bytes:
        check()
        kernel = kernels[key]
        symbol = _symbol(key, kernel)
        made_for = target_of(kernel.family, repr(kernel.config), target)
        with span(f"emit {kernel.family}", symbol=symbol):
            text = emit_kernel(kernel.family, symbol, kernel.config, made_for.kernels)
            made = made_for.emitter.emit([text], made_for.stages[-1])
        keep(key, made)  # for when this compile is begun anew
        return made

    workers = min(len(kernels), _native.default_threads())
    with ThreadPoolExecutor(workers, "rlx-compile") as pool:
        # The longest go first: one that is begun last would be waited for alone.
        order = sorted(kernels, key=lambda key: not FAMILIES[kernels[key].family].long)
        with threads_with_large_stacks():  # they are started as work is given
            results = pool.map(make, order)
        made = dict(zip(order, results, strict=True))
    _native.trim_heap()  # LLVM's and MLIR's garbage, 6 MB for a small model
    return made


def _symbol(key: str, kernel: KernelRef) -> str:
    """The symbol that the object of a kernel exports."""
    return f"rlx_{kernel.family}_{key[:12]}"


def _dependences(kernel: KernelRef, target: Target, compile_number: int = 0) -> str:
    """What a kernel's code depends on: its family, its config, the target and its features, and for
    one in C its compiler and the files that it includes; for one of an op from outside on whatever
    that reads, which may be something else in every compile."""
    config, told = kernel.config, repr(kernel.config)
    features = target_of(kernel.family, told, target).features.name
    text = f"{kernel.family}|{told}|{target.name}|{features}"
    if any(name in text for name in outside):
        text += f"|compile {compile_number}"
    if not isinstance(config, CustomConfig) or config.language != "c":
        return text
    from rlx.targets.cpu.c_compiler import dependences

    own = config.kernel()
    assert isinstance(own, CKernel)
    made = emit_kernel(kernel.family, "kernel_of_c", config, target.kernels)
    return f"{text}|{dependences(made, own.source, target.features)}"


def _digest(text: str) -> str:
    return digest(text.encode())
