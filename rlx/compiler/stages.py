"""The compiler stage by stage, for programs that look at what is in between.

p = rlx.CompilePipeline("cpu:x86-64-v3")
mir = p.lower_hir(graph)
fused, report = p.optimize_with_report(mir)
compiled = rlx.Session("cpu").compile_module(p.plan_lir(fused))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from rlx.base.frozen import frozen
from rlx.compiler.dispatch import analyze_dispatch, claim_for, refused, refused_error, target_for
from rlx.compiler.graph_module import GraphModule, GraphStage, LirModule, MirModule
from rlx.errors import GraphError
from rlx.ir.builders import located, public
from rlx.ir.graph import Graph
from rlx.lowering.compilation import Compilation, Options
from rlx.lowering.report import DispatchReport, FusionReport
from rlx.runtime.claims import checked_claim, claimed_graph, legal_graph
from rlx.targets import TARGETS, find_target

if TYPE_CHECKING:
    from typing import Unpack

    from rlx.lowering.compilation import OptionArgs
    from rlx.lowering.pass_base import Pass

__all__ = [
    "CompilePipeline",
    "CompileResult",
    "FusionTarget",
    "KernelDispatchPolicy",
    "dispatch_report_for_device",
    "fusion_passes",
    "fusion_passes_for_supported",
    "legalize_for_backend",
    "legalize_graph_for_device",
    "legalize_graph_for_device_with_report",
    "prepare_graph_for_backend_with_report",
    "supported_for_target",
    "supports_op",
]

Source = Graph | GraphModule
Dims = Mapping[str, int]

FusionTarget = StrEnum("FusionTarget", {name.upper(): name for name in TARGETS})
"""The targets by name. Where one is asked for, "cpu:x86-64-v3" says the features too."""

KernelDispatchPolicy = StrEnum(
    "KernelDispatchPolicy",
    {name.upper(): name for name in get_args(get_type_hints(Options)["dispatch"])},
)
"""The values of ``Options.dispatch``."""


@frozen
class CompileResult:
    """A schedule, and what its compile said: fusions, kernels, and seconds by pass; and the
    ``source`` that it was made of."""

    lir: LirModule
    fusion: FusionReport
    dispatch: DispatchReport
    seconds: dict[str, float]
    source: Source | None = field(default=None, repr=False, compare=False)

    def dynamic_symbols(self) -> tuple[str, ...]:
        """The names of the source's symbolic dims, which ``specialize`` binds anew."""
        return tuple(sorted(self.source.symbols)) if isinstance(self.source, Graph) else ()

    def has_dynamic_dims(self) -> bool:
        """Whether the source has symbolic dims; the schedule itself has sizes."""
        return bool(self.dynamic_symbols())

    def specialize(self, pipeline: CompilePipeline, dims: Dims) -> CompileResult:
        """The source compiled for other sizes of its symbolic dims; GraphError if it has none."""
        if not self.has_dynamic_dims():
            raise GraphError("specialize binds symbolic dims, and what was compiled has none")
        assert self.source is not None
        return pipeline.compile_module(self.source, dims)

    def __str__(self) -> str:
        return "\n".join([str(self.fusion), str(self.dispatch), self.lir.inspect()])


@public
class CompilePipeline:
    """The passes for one target and one set of options.

    ``target`` is one such as "cpu:x86-64-v4", ``options`` an ``Options`` or its fields. With
    ``assert_fusion_clean`` a missed fusion is a PassError. With ``supported_ops``, names of ops, a
    graph is first rewritten to those, and one that cannot be is an UnsupportedError. Every stage
    takes a graph or a module of a level before, and raises what a compile raises.
    """

    def __init__(
        self,
        target: str = "cpu",
        options: Options | None = None,
        *,
        assert_fusion_clean: bool = False,
        supported_ops: Iterable[str] | None = None,
    ) -> None:
        self.target = find_target(target)
        self.options = options or Options()
        if assert_fusion_clean:
            self.options = replace(self.options, assert_fusion_clean=True)
        asked = supported_ops
        self.claim = None if asked is None else checked_claim(asked, "supported_ops")

    @property
    def assert_fusion_clean(self) -> bool:
        """Whether a missed fusion is an error."""
        return self.options.assert_fusion_clean

    def with_options(self, **changed: Any) -> CompilePipeline:
        """The same with some options changed (``Options``)."""
        made = copy(self)
        made.options = Options.of({**vars(self.options), **changed})
        return made

    def with_supported_ops(self, names: Iterable[str]) -> CompilePipeline:
        """The same, whose graphs are first rewritten to some ops."""
        made = self.with_options()
        made.claim = checked_claim(names, "supported_ops")
        return made

    def with_kernel_dispatch(self, dispatch: str) -> CompilePipeline:
        """The same by another policy of dispatch ("native" or "common")."""
        return self.with_options(dispatch=dispatch)

    def with_assert_fusion_clean(self, clean: bool = True) -> CompilePipeline:
        """The same where a missed fusion is an error, or is none."""
        return self.with_options(assert_fusion_clean=clean)

    @property
    def passes(self) -> list[Pass]:
        """The passes, in order."""
        from rlx.lowering.levels import passes_between

        return passes_between("hir", "lir")

    def lower_hir(self, source: Source, dims: Dims | None = None) -> MirModule:
        """Blocks become what they expand to."""
        return self._mir(source, "mir", dims)

    def optimize(self, source: Source, dims: Dims | None = None) -> MirModule:
        """Simplified, legalised, hoisted and fused."""
        return self.optimize_with_report(source, dims)[0]

    def optimize_with_report(
        self, source: Source, dims: Dims | None = None
    ) -> tuple[MirModule, FusionReport]:
        """As ``optimize``, and what fused and what did not."""
        compilation = self.compilation()
        return self._mir(source, "fused", dims, compilation), compilation.fusion

    def plan_lir(self, source: Source, dims: Dims | None = None) -> LirModule:
        """Kernels chosen, values placed in memory, launches in order."""
        return self.compile_module(source, dims).lir

    def specialize_lir(self, source: Graph, dims: Dims) -> LirModule:
        """The schedule of a graph for sizes of its symbolic dims: one is planned for each."""
        return self.compile_module(source, dims).lir

    def compile_module(self, source: Source, dims: Dims | None = None) -> CompileResult:
        """All that is left of the pipeline; a module of lir passes through."""
        compilation = self.compilation()
        lir = self._run(source, GraphStage.LIR, dims, compilation)
        assert isinstance(lir, LirModule)
        compilation.check_clean()
        return CompileResult(
            lir, compilation.fusion, compilation.dispatch, compilation.seconds, source
        )

    compile_graph = compile_hir = compile_mir = compile_module

    def compilation(self, **changed: Any) -> Compilation:
        """A compile for the target by the options, of which some may be changed."""
        options = Options.of({**vars(self.options), **changed}) if changed else self.options
        return Compilation(self.target, options)

    def _run(
        self, source: Source, stage: str, dims: Dims | None, compilation: Compilation
    ) -> GraphModule:
        if self.claim is not None:
            graph = source if isinstance(source, Graph) else source.graph()
            source = claimed_graph(graph, self.claim, self.target.name)
        module = GraphModule.of(source, dims) if isinstance(source, Graph) else source
        return module.through(GraphStage(stage), compilation)

    def _mir(
        self,
        source: Source,
        stage: str,
        dims: Dims | None,
        compilation: Compilation | None = None,
    ) -> MirModule:
        compilation = compilation or self.compilation()
        found = self._run(source, stage, dims, compilation)
        assert isinstance(found, MirModule)
        compilation.check_clean()
        return found


# -- what fuses where ----------------------------------------------------------------------


@located
def supported_for_target(target: str) -> tuple[str, ...]:
    """The kernel families that a target has emitters for: what its fused regions may be."""
    return find_target(target).families


@located
def supports_op(claim: Iterable[str], kind: str) -> bool:
    """Whether a claim, such as the families of a target, contains a kind; an empty one has all."""
    listed = tuple(claim)
    return not listed or kind in listed


@located
def fusion_passes(target: str, options: Options | None = None) -> list[Pass]:
    """The passes between mir and its fused form that do something on a target."""
    return fusion_passes_for_supported(supported_for_target(target), options)


@located
def fusion_passes_for_supported(
    families: Iterable[str], options: Options | None = None
) -> list[Pass]:
    """The passes between mir and its fused form that do something where these families are."""
    from rlx.lowering.levels import passes_between
    from rlx.lowering.passes.fuse import Fuse

    chosen = options or Options()
    fuses = chosen.fuse and chosen.dispatch == "native" and any(True for _ in families)
    return [p for p in passes_between("mir", "fused") if fuses or not isinstance(p, Fuse)]


# -- what a device makes of a graph --------------------------------------------------------


@located
def legalize_for_backend(
    graph: Graph,
    target: str | Iterable[str] = "cpu",
    dims: Dims | None = None,
    **options: Unpack[OptionArgs],
) -> GraphModule:
    """The mir of a graph in the ops that a target such as "opengl" or "cuda:sm_90" runs; or the
    graph in the ops of a claim, which is names of ops, or what a backend from outside has.

    UnsupportedError for what is refused as it is: it lists every such node, and says which way the
    other ops go (``rlx.analyze_dispatch``). It is what ``legalize_graph_for_device`` says of a
    device with the features that the target names.
    """
    from rlx.lowering.levels import passes_between
    from rlx.lowering.passes.legalize import Legalize

    if found := refused(graph, target):
        raise refused_error(graph, target, found)
    name, claim = claim_for(target)
    if claim is not None:
        legal = legal_graph(graph.bind(dims) if dims else graph, claim, name).graph
        assert legal is not None
        return GraphModule.of(legal)
    compilation = Compilation(find_target(str(target)), Options.of(options))
    module = GraphModule.of(graph, dims).through(GraphStage.MIR, compilation)
    passes = passes_between("mir", "fused")
    last = [p.name for p in passes].index(Legalize.name)
    return module.after(passes[: last + 1], compilation)


@located
def prepare_graph_for_backend_with_report(
    graph: Graph,
    backend: str | Iterable[str] = "cpu",
    dims: Dims | None = None,
    **options: Unpack[OptionArgs],
) -> tuple[GraphModule | None, DispatchReport]:
    """A graph in the ops that a backend runs, and which way each goes. There is no module where the
    report is not ``compile_ready``."""
    report = analyze_dispatch(graph, backend, dims, **options)
    if not report.compile_ready:
        return None, report
    return legalize_for_backend(graph, backend, dims, **options), report


@located
def legalize_graph_for_device(
    graph: Graph, device: str = "cpu", dims: Dims | None = None, **options: Unpack[OptionArgs]
) -> GraphModule:
    """The mir of a graph in the ops that a device runs, which need not be here; UnsupportedError if
    it does not run one of them as it is (``first_unsupported_op``)."""
    return legalize_for_backend(graph, _on(device), dims, **options)


@located
def dispatch_report_for_device(
    graph: Graph, device: str = "cpu", dims: Dims | None = None, **options: Unpack[OptionArgs]
) -> DispatchReport:
    """Which kernels run the ops of a graph on a device, and for which features: those of the device
    if it is here and none are named. Raises as ``legalize_graph_for_device``."""
    if found := refused(graph, _on(device)):
        raise refused_error(graph, _on(device), found)
    return analyze_dispatch(graph, _on(device), dims, **options)


@located
def legalize_graph_for_device_with_report(
    graph: Graph, device: str = "cpu", dims: Dims | None = None, **options: Unpack[OptionArgs]
) -> tuple[GraphModule, DispatchReport]:
    """``legalize_graph_for_device``, and which kernels then run the ops."""
    legal = legalize_graph_for_device(graph, device, dims, **options)
    return legal, dispatch_report_for_device(graph, device, dims, **options)


def _on(device: str) -> str:
    """The target to compile a graph for on a device, or the device where its backend claims ops."""
    name, claim = claim_for(device)
    return target_for(device) if claim is None else name
