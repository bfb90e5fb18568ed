"""Looking at a compile: every level as text, fusions, the kernel of each op, and the times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx.errors import GraphError
from rlx.graph import Graph
from rlx.ops.builders import located
from rlx.ops.location import caller

__all__ = ["PipelineInspect", "inspect_pipeline"]


@dataclass(frozen=True)
class PipelineInspect:
    """The text of each level of one compile, and its reports."""

    hir: str
    mir: str
    fused: str
    lir: str
    fusion: str
    dispatch: str
    seconds: dict[str, float]

    def __str__(self) -> str:
        times = "\n".join(f"{s * 1e3:9.2f} ms  {name}" for name, s in self.seconds.items())
        sections = [
            ("HIR", self.hir),
            ("MIR (lowered)", self.mir),
            ("MIR (optimized)", self.fused),
            ("FUSION", self.fusion),
            ("DISPATCH", self.dispatch),
            ("LIR", self.lir),
            ("TIME", times),
        ]
        return "\n".join(f"===== {name} =====\n{text.rstrip()}\n" for name, text in sections)


def inspect_pipeline(
    graph: Graph, target: str = "cpu", *, dims: dict[str, int] | None = None, **options: Any
) -> PipelineInspect:
    """Compile ``graph`` down to LIR and return every level.

    ``target`` is one such as "cpu" or "cpu:x86-64-v4", whatever this machine is; ``dims`` binds the
    symbolic dims of the graph; ``options`` are those of ``rlx.lowering.base.Options``.

    Raises ShapeError for a dim that is not bound, DeviceError for an unknown target, GraphError
    for an unknown option, and what a compile raises.
    """
    from rlx.dialects.context import make_context
    from rlx.dialects.export import to_mlir
    from rlx.lowering.base import Compilation, Options
    from rlx.lowering.pipeline import PIPELINE, STAGES, run_passes
    from rlx.targets import find_target

    if not isinstance(graph, Graph):
        raise GraphError(
            f"inspect_pipeline takes a Graph, found a {type(graph).__name__}", caller()
        )
    compilation = Compilation(find_target(target), Options.of(options))
    bound = graph if dims is None else graph.bind(dims)
    for v in (*bound.inputs, *bound.params):
        located(lambda t: t.static_shape)(v.type)
    ends = {p: level for level, p in STAGES.items()}
    context = make_context()
    with context:
        module = to_mlir(bound, context)
        texts = {"hir": str(module)}
        for p in PIPELINE:
            module = run_passes(module, [p], compilation)
            if p.name in ends:
                texts[ends[p.name]] = str(module)
    return PipelineInspect(
        texts["hir"], texts["mir"], texts["fused"], texts["lir"],
        str(compilation.fusion), str(compilation.dispatch), dict(compilation.seconds),
    )  # fmt: skip
