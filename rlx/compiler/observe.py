"""Looking at a compile: every level as text, fusions, the kernel of each op, and the times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlx.base.frozen import frozen
from rlx.base.printed import Printed
from rlx.compiler.graph_module import GraphModule
from rlx.errors import GraphError, a_type
from rlx.ir.builders import located
from rlx.ir.graph import Graph
from rlx.ir.location import caller

if TYPE_CHECKING:
    from typing import Unpack

    from rlx.lowering.compilation import OptionArgs

__all__ = ["PipelineInspect", "inspect_pipeline"]


@frozen
class PipelineInspect(Printed):
    """The text of each level of one compile, and its reports. ``diff`` counts what fusion changed,
    op by op."""

    hir: str
    mir: str
    fused: str
    lir: str
    diff: str
    fusion: str
    dispatch: str
    seconds: dict[str, float]

    def _repr_html_(self) -> str:
        from rlx.view.notebook import pipeline_html

        return pipeline_html(self)

    def __str__(self) -> str:
        from rlx.lowering.dump import section
        from rlx.lowering.report import times_text

        sections = [
            ("HIR", self.hir),
            ("MIR (lowered)", self.mir),
            ("MIR (fusion diff)", self.diff),
            ("MIR (optimized)", self.fused),
            ("FUSION", self.fusion),
            ("DISPATCH", self.dispatch),
            ("LIR", self.lir),
            ("TIME", times_text(self.seconds)),
        ]
        return "\n".join(section(name, text) for name, text in sections)


@located
def inspect_pipeline(
    graph: Any,
    target: Any = "cpu",
    *,
    dims: dict[str, int] | None = None,
    **options: Unpack[OptionArgs],
) -> PipelineInspect:
    """Compile a graph, or a module of hir or mir, down to LIR and return every level.

    ``target`` is one such as "cpu" or "cpu:x86-64-v4", whatever this machine is; ``dims`` binds the
    symbolic dims of the graph; ``options`` are those of ``rlx.lowering.compilation.Options``.

    ``inspect_pipeline(pipeline, graph)`` takes target and options from a CompilePipeline.

    Raises ShapeError for a dim that is not bound, DeviceError for an unknown target, GraphError
    for an unknown option, and what a compile raises: with ``assert_fusion_clean`` a PassError where
    a fusion is missed.
    """
    from rlx.dialects.context import make_context
    from rlx.dialects.export import to_mlir
    from rlx.inspect.modules import list_module
    from rlx.lowering.compilation import Compilation, Options
    from rlx.lowering.levels import lower
    from rlx.targets import find_target

    compilation = None
    if isinstance(target, Graph | GraphModule) and hasattr(graph, "compilation"):
        compilation, graph = graph.compilation(**options), target
    if isinstance(graph, GraphModule):
        graph = graph.graph()
    if not isinstance(graph, Graph):
        raise GraphError(f"inspect_pipeline takes a Graph, found {a_type(graph)}", caller())
    if compilation is None:
        named: Any = target
        compilation = Compilation(find_target(named), Options.of(options))
    bound = graph if dims is None else graph.bind(dims)
    for v in (*bound.inputs, *bound.params):
        located(lambda t: t.static_shape)(v.type)
    texts, stats = dict[str, str](), dict[str, Any]()

    def keep(level: str, module: Any) -> None:
        texts[level] = str(module)
        if level in ("mir", "fused"):
            stats[level] = list_module(module, level).stats

    with make_context() as context:
        lower(to_mlir(bound, context), compilation, keep)
    compilation.check_clean()
    return PipelineInspect(
        texts["hir"], texts["mir"], texts["fused"], texts["lir"],
        stats["mir"].diff(stats["fused"]),
        str(compilation.fusion), str(compilation.dispatch), dict(compilation.seconds),
    )  # fmt: skip
