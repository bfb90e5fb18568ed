"""The names of the original system's API, and what expresses each here.

``rlx.prelude`` has them all, and so has ``rlx`` itself beside its own; ``docs/names.md`` is made
from this table. Where the two systems differ in more than style, what is here follows the rules of
RLX: errors instead of panics, values instead of node numbers, options by name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

from rlx.base.frozen import frozen
from rlx.errors import did_you_mean

__all__ = ["AREAS", "MODULES", "NAMES", "Name", "exports", "of_module"]


@frozen
class Name:
    """Where a name is found ("module:attribute"), and how it differs, if it does."""

    target: str
    note: str = ""

    def load(self) -> Any:
        """What the name stands for."""
        module, _, attribute = self.target.partition(":")
        return getattr(importlib.import_module(module), attribute)


def _same(module: str, *names: str) -> dict[str, Name]:
    """Names that are the same here."""
    return {name: Name(f"{module}:{name}") for name in names}


_OPTIONS = "rlx.lowering.compilation:Options"

AREAS: dict[str, dict[str, Name]] = {
    "Graphs": {
        **_same("rlx.ir.graph", "Graph"),
        "Node": Name("rlx.ir.op:Op", "a node is one use of an op: `graph.nodes()`"),
        "NodeId": Name("rlx.ir.value:Value", "a typed value, with operators and methods"),
        "Shape": Name("rlx.types:TensorType", "the dims and the element type of a value"),
        "Dim": Name("rlx.ir.dim:Dim", "a named size and its range; a known size is an int"),
        **_same("rlx.types", "DType"),
        "Element": Name("rlx.types:DType", "a type alone; casts say whether they saturate"),
        "Op": Name("rlx.ir.op:Op", "a class for each op holds every fact about it"),
        **_same("rlx.inspect", "NodeOrigin", "node_label"),
        "Error": Name("rlx.errors:RlxError"),
        "LowerError": Name(
            "rlx.errors:GraphError", "operands that do not fit a block, where the block is written"
        ),
    },
    "Kinds of ops": {
        **{
            name: Name(f"rlx.ops.kinds:{name}", "strings, as builder methods take them")
            for name in ("Activation", "BinaryOp", "CmpOp", "ReduceOp", "MaskKind")
        },
        "OpKind": Name("rlx.ops.kinds:OpKind", "the full names of ops"),
        "ChainStep": Name("rlx.codegen.program:Step", "a step of a fused elementwise program"),
        "ChainOperand": Name("builtins:int", "a number: inputs come first, then steps"),
    },
    "Control flow": {
        "If": Name("rlx.ops.control.control:Cond"),
        "While": Name("rlx.ops.control.control:WhileLoop"),
        **_same("rlx.ops.control.control", "Scan"),
        "run_if": Name("rlx.compat.subgraphs:run_if", "by the host; `cond` is part of a graph"),
        "run_while": Name(
            "rlx.compat.subgraphs:run_while", "by the host; `while_loop` is part of a graph"
        ),
        **_same("rlx.compat.subgraphs", "SubgraphCache"),
    },
    "Levels": {
        **_same("rlx.compiler.graph_module", "GraphModule", "GraphStage", "HirModule", "LirModule"),
        "MirModule": Name(
            "rlx.compiler.graph_module:MirModule",
            "of the stage mir, or fused: with regions and a prologue",
        ),
        **_same(
            "rlx.compat.extensions", "apply_hir_extensions", "apply_hir_extensions_named",
            "register_hir_extension", "registered_hir_extensions", "unregister_hir_extension",
        ),
        **_same(
            "rlx.inspect.reflection", "BindingManifest", "HirReflection", "ManifestDiff",
            "MirReflection", "reflect",
        ),
        **_same(
            "rlx.compat.components", "CompilationMode", "ModelComponent", "ModelPhase",
            "ModelVariant",
        ),
        "HirOp": Name("rlx.ops.nn.blocks:Block", "blocks are ops: `graph.linear(x, w)`"),
        "FusionPolicy": Name(
            "rlx.compiler.graph_module:FusionPolicy",
            "of `module.lower(policy)`; DIRECT gives regions",
        ),
    },
    "Fusion": {
        **_same(
            "rlx.compiler.stages", "FusionTarget", "fusion_passes", "fusion_passes_for_supported",
            "supported_for_target", "supports_op",
        ),
        "FusionOptions": Name(_OPTIONS, "`fuse=False` keeps ops apart"),
        **_same("rlx.lowering.report", "FusionReport", "MissedFusion", "MissReason"),
        "Pass": Name("rlx.lowering.pass_base:Pass", "`run` takes an MLIR module and a Compilation"),
    },
    "Compiling": {
        **_same("rlx.compiler.stages", "CompilePipeline", "CompileResult", "KernelDispatchPolicy"),
        "CompileOptions": Name(
            "rlx.runtime.compile_options:CompileOptions",
            "for `compile_with`; `compile` takes most fields by name. There is no `dce` (what no"
            " output reaches is no part of a graph), and no `arena_alignment` (64, a cache line and"
            " the widest vector)",
        ),
        "KernelDispatchConfig": Name(_OPTIONS, "`dispatch`, `force_common`, `force_native`"),
        "KernelDispatchReport": Name("rlx.lowering.report:DispatchReport"),
        "legalize_for_backend": Name(
            "rlx.compiler.stages:legalize_for_backend",
            "the graph in those ops, or an error that lists all",
        ),
        **_same(
            "rlx.compiler.dispatch", "analyze_dispatch", "format_dispatch_report",
            "format_legalize_error",
        ),
        "prepare_graph_for_backend_with_report": Name(
            "rlx.compiler.stages:prepare_graph_for_backend_with_report",
            "no module where the report is not `compile_ready`",
        ),
        "Precision": Name("rlx.precision:Precision", "bf16 and f16 round the operands of products"),
        "PrecisionPolicy": Name(
            "rlx.precision:PrecisionPolicy", "only f32 is changed; custom is a mapping"
        ),
        "QuantMap": Name("rlx.quant:QuantMap", "by the names of weights, with patterns"),
        "CalibrationRecord": Name("rlx.quant:CalibrationRecord", "a mapping of values of a graph"),
        "QuantScheme": Name(
            "rlx.quant:QuantScheme", "a row of `rlx.quant.schemes()`, found by either system's name"
        ),
    },
    "Running": {
        **_same("rlx.runtime.session", "Session", "CompiledGraph"),
        "CompileCache": Name("rlx.compat.compile_cache:CompileCache", "within a process"),
        "Backend": Name(
            "rlx.runtime.backend:Backend", "with `supported_ops`, graphs come rewritten to them"
        ),
        "ExecutableGraph": Name(
            "rlx.runtime.backend:ExecutableGraph", "what `Backend.load` gives"
        ),
        **_same("rlx.runtime.backend", "register_backend", "backend_for"),
        **_same("rlx.compat.record_replay", "RunRecorder", "replay"),
        **_same("rlx.compat.pipeline_schedule", "PipelineSchedule"),
        "pipeline_schedule": Name(
            "rlx.compat.pipeline_schedule:pipeline_schedule", "a function: `order` and `deps` of it"
        ),
        **_same("rlx.compat.experts", "ExpertUsage", "with_expert_outputs"),
        "registered_devices": Name("rlx.runtime.backend:devices"),
        **_same(
            "rlx.compiler.stages", "dispatch_report_for_device", "legalize_graph_for_device",
            "legalize_graph_for_device_with_report",
        ),
        **{
            f"{name}_with_options": Name(f"rlx.compiler.stages:{name}", "options by name")
            for name in ("dispatch_report_for_device", "legalize_graph_for_device")
        },
    },
    "Devices and streams": {
        **_same(
            "rlx.runtime.devices.available", "DEVICE_PRIORITY", "Device", "available_apple_devices",
            "available_devices", "devices_for", "drain_device", "fastest_among", "fastest_device",
            "first_unsupported_op", "full_name", "is_available", "supports", "supports_graph",
            "supports_run_slots",
        ),
        **{
            f"{name}_with_options": Name(
                f"rlx.runtime.devices.available:{name}", "no option changes what a device runs"
            )
            for name in ("first_unsupported_op", "supports_graph")
        },
        "CommandStream": Name(
            "rlx.runtime.devices.stream:CommandStream", "of runs, which are its commands"
        ),
        **_same("rlx.runtime.devices.stream", "SyncStream"),
    },
    "Several devices": {
        **_same("rlx.runtime.devices.policy", "DevicePickStrategy", "DevicePolicy"),
        **_same(
            "rlx.runtime.devices.graph_devices", "DeviceBenchResult", "DeviceCandidate",
            "DeviceFallbackError", "GraphDevices",
        ),
        **_same(
            "rlx.runtime.devices.calls", "benchmark_devices", "device_chain_from_env",
            "device_report", "devices_for_with_policy", "fastest_device_for",
            "fastest_device_for_with_policy", "graph_param_names", "parse_device",
            "resolve_device", "resolve_device_chain", "warm_all",
        ),
        **_same("rlx.runtime.devices.router", "FlexibleSession"),
        "DeviceRouter": Name(
            "rlx.runtime.devices.router:DeviceRouter",
            "a device that has slowed is told by its runs, not by a sensor of heat",
        ),
    },
    "Looking inside": {
        **_same(
            "rlx.inspect", "PipelineInspect", "inspect_graph", "inspect_graph_diff", "inspect_hir",
            "inspect_hir_stats", "inspect_lir", "inspect_mir_diff", "inspect_mir_stats",
            "inspect_mir_with_diff", "inspect_pipeline",
        ),
        "inspect_mir": Name("rlx.inspect:inspect_mir", "a fused module is listed as it is"),
        "maybe_dump_pipeline": Name(
            "rlx.lowering.dump:dump_levels", "every compile calls it; `RLX_IR_DUMP` turns it on"
        ),
    },
    "Measuring": {
        "MetricsRegistry": Name(
            "rlx.compat.telemetry:MetricsRegistry", "of the `Counter` and `Histogram` beside it"
        ),
        **_same("rlx.base.clock", "Tick", "time_ns"),
        "trace": Name("rlx.tracing:trace", "writes what ran to a file; graphs are built by Graph"),
    },
    "Transforms of signals": {
        "fft": Name(
            "rlx.ops.fft.fft:Fft",
            "the class of the op; a call is `x.fft(n, axis, norm)`: NumPy's, any axis and length",
        ),
        "rfft": Name(
            "rlx.ops.fft.fft:Rfft",
            "the class of the op; a call is `x.rfft()`: complex, not filled to a power of two",
        ),
        "irfft": Name(
            "rlx.ops.fft.fft:Irfft",
            "the class of the op; a call is `z.irfft(n)`, of a complex tensor",
        ),
        "stft": Name("rlx.ops.fft.spectral:stft", "PyTorch's conventions"),
        "fft_real": Name("rlx.ops.fft.helpers:fft_real", "of a Value; complex, not filled up"),
        "fft_batch_real": Name("rlx.ops.fft.helpers:fft_batch_real", "of rows [batch, n]"),
        "psd_real": Name("rlx.ops.fft.helpers:psd_real", "`|rfft(x)|^2 / n`; `x.psd()` is SciPy's"),
        "ifft_spectrum": Name("rlx.ops.fft.helpers:ifft_spectrum", "of a complex tensor"),
        "split_spectrum": Name("rlx.ops.fft.helpers:split_spectrum", "two Values"),
        "pad_last_axis_to_pow2": Name("rlx.ops.fft.helpers:pad_last_axis_to_pow2"),
        "fftfreq_tensor": Name("rlx.ops.fft.axes:fftfreq", "NumPy's, with -0.5 at n / 2"),
        "rfftfreq_tensor": Name("rlx.ops.fft.axes:rfftfreq", "NumPy's"),
    },
    "Derivatives": {
        "grad": Name("rlx.functions:grad", "of one float: there is no input `d_output`"),
        "grad_with_loss": Name("rlx.autodiff:value_and_grad", "no input `d_output`"),
        **_same("rlx.autodiff", "jvp", "hvp"),
        "vmap": Name("rlx.functions:vmap", "`in_axes` names what is batched, at any axis"),
        "jacfwd": Name("rlx.autodiff:jacfwd", "a graph too; elements at `[*out, *wrt]`"),
    },
    "Serving": {
        "KvPagePool": Name(
            "rlx.llm.pages:KvPagePool", "`share` gives a page one holder more, for common prefixes"
        ),
        **_same("rlx.llm.pages", "KvBlockTable", "BatchEntry", "BatchConstructor"),
    },
    "Tracing": {
        "Tracer": Name("rlx.ir.graph:Graph", "a graph has the inputs, params and ops"),
        "TracedTensor": Name("rlx.ir.value:Value", "with operators and methods"),
        "op_registry": Name("rlx.ir.op:registry", "a class enters as it is defined, by full name"),
    },
    "Macros": {
        "rlx_model": Name("rlx.compat.traced:rlx_model", "a decorator: `f.compiled()`"),
    },
    "Training": {
        "compile_training": Name(
            "rlx.training:compile_training", "one region holds the state; with the optimiser"
        ),
    },
}  # fmt: skip
"""The names by what they are about."""

MODULES: dict[str, tuple[str, ...]] = {
    "ir": ("Graphs", "Kinds of ops", "Control flow", "Levels", "Measuring"),
    "opt": ("Fusion", "Compiling", "Looking inside", "Derivatives", "Training"),
    "driver": ("Devices and streams",),
    "macros": ("Macros",),
}
"""The areas of the names that modules of the original's module map have."""

NAMES: dict[str, Name] = {name: row for names in AREAS.values() for name, row in names.items()}
"""All names."""


def _names_of(module: str) -> list[str]:
    return [n for area in MODULES[module] for n in AREAS[area]]


def of_module(module: str, name: str) -> Any:
    """What a name of a module of the original's module map stands for; AttributeError for a name
    that it has not."""
    names = _names_of(module)
    if name not in names:
        hint = "" if name.startswith("__") else did_you_mean(name, names)
        raise AttributeError(f"module 'rlx.{module}' has no attribute {name!r}{hint}")
    return NAMES[name].load()


def exports(module: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """``__all__``, ``__getattr__`` and ``__dir__`` of a module that has such names alone."""
    return _names_of(module), partial(of_module, module), lambda: _names_of(module)
