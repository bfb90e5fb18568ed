"""A graph at a level of the compiler, as a value: text that moves to later levels.

    m = rlx.GraphModule.of(graph)
    lir = m.to("fused", target="cpu:x86-64-v3").to("lir")

The moves are the compiler's own passes. A module holds text and no MLIR, so that it can be kept,
compared, written to a file and edited on the way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rlx.base.frozen import frozen
from rlx.errors import GraphError, IRError, UnsupportedError
from rlx.ir.builders import public
from rlx.ir.graph import Graph
from rlx.text import graph_text, parse_graph

if TYPE_CHECKING:
    from typing import Unpack

    from rlx.lowering.compilation import Compilation, OptionArgs
    from rlx.lowering.pass_base import Pass

__all__ = [
    "FusionPolicy",
    "GraphModule",
    "GraphStage",
    "HirModule",
    "LirModule",
    "MirModule",
]


class GraphStage(StrEnum):
    """The levels, in order: ``rlx.lowering.pipeline.STAGES`` has the pass that reaches each."""

    HIR = "hir"
    MIR = "mir"
    FUSED = "fused"
    LIR = "lir"


class FusionPolicy(StrEnum):
    """How blocks become mir (``GraphModule.lower``): FUSABLE as the ops that they expand to, of
    which the pass fuse makes regions later; DIRECT as those regions, for one target. Which ops fuse
    is the kernels' claims to say either way."""

    FUSABLE = "fusable"
    DIRECT = "direct"


@public
@frozen
class GraphModule:
    """A graph at one level. ``text`` is the module's own; ``located`` has places too.

    ``target`` is the one that it was lowered for, once it is fused or lir; ``values`` are those
    that the graph's params carried.
    """

    name: str
    text: str
    located: str = field(repr=False)
    target: str = ""
    values: Mapping[str, np.ndarray[Any, Any]] = field(
        default_factory=dict[str, Any], repr=False, compare=False
    )
    stage: ClassVar[GraphStage]

    @staticmethod
    def of(graph: Graph, dims: Mapping[str, int] | None = None) -> HirModule:
        """A graph as hir, with symbolic dims bound to ``dims``."""
        bound = graph.bind(dims) if dims else graph
        text = graph_text(bound, values=False, places=False)
        located = graph_text(bound, values=False)
        return HirModule(graph.name, text, located, "", dict(bound.param_values))

    @staticmethod
    def parse(text: str, target: str = "") -> GraphModule:
        """A module of any level from its text, as MLIR prints it; IRError says what is wrong."""
        from rlx.dialects.context import make_context, parse
        from rlx.lowering.levels import level_of

        with make_context() as context:
            module = parse(text, context)
            stage = GraphStage(level_of(module))
            said = stage in (GraphStage.HIR, GraphStage.MIR) and "rlx.value" in text
            values = parse_graph(text).param_values if said else {}
            return _module(stage, module, "main", target, values)

    def to(
        self, stage: GraphStage | str, target: str | None = None, **options: Unpack[OptionArgs]
    ) -> GraphModule:
        """The module at a later level, by the compiler's passes.

        ``target`` is one such as "cpu:x86-64-v4"; by default that of the module, or this machine's
        CPU. ``options`` are those of ``rlx.lowering.compilation.Options``. UnsupportedError for a
        level before this one; what a compile raises.
        """
        from rlx.lowering.compilation import Compilation, Options
        from rlx.targets import find_target

        name = target or self.target or "cpu"
        compilation = Compilation(find_target(name), Options.of(options))
        return self.through(_stage(stage), compilation)

    def through(self, stage: GraphStage, compilation: Compilation) -> GraphModule:
        """As ``to``, noting in a compilation what the passes report."""
        from rlx.lowering.levels import passes_between

        return self.after(passes_between(self.stage, stage), compilation, stage)

    def after(
        self, passes: Sequence[Pass], compilation: Compilation, stage: GraphStage | None = None
    ) -> GraphModule:
        """The module after some passes, which take it to ``stage`` (by default they keep it)."""
        from rlx.dialects.context import make_context, parse
        from rlx.lowering.pipeline import run_passes

        if not passes:
            return self
        goal = stage or self.stage
        target = ""
        if goal in (GraphStage.FUSED, GraphStage.LIR):
            target = compilation.target.spec
        with make_context() as context:
            module = run_passes(parse(self.located, context), passes, compilation)
            return _module(goal, module, self.name, target, self.values)

    def graph(self) -> Graph:
        """The graph that a module of hir or mir says; UnsupportedError below."""
        if self.stage in (GraphStage.FUSED, GraphStage.LIR):
            raise UnsupportedError(
                f"a {self.stage} module is no graph any more; keep the hir or mir that it came from"
            )
        graph = parse_graph(self.located, f"<{self.name}>")
        graph.param_values.update(self.values)
        return graph

    def lower(
        self,
        policy: FusionPolicy | str = FusionPolicy.FUSABLE,
        target: str | None = None,
        **options: Unpack[OptionArgs],
    ) -> MirModule:
        """The module as mir: of ops, or by the policy DIRECT with regions for a target. Arguments
        as for ``to``; GraphError for another policy."""
        known = [p.value for p in FusionPolicy]
        if policy not in known:
            raise GraphError(f"a fusion policy is one of {', '.join(known)}, found {policy!r}")
        direct = policy == FusionPolicy.DIRECT
        found = self.to(GraphStage.FUSED if direct else GraphStage.MIR, target, **options)
        assert isinstance(found, MirModule)
        return found

    def inspect(self) -> str:
        """The listing of the module; see ``rlx.inspect_mir`` and its like."""
        from rlx.inspect import inspect_module

        return inspect_module(self)

    def __str__(self) -> str:
        return self.text


class HirModule(GraphModule):
    """A graph as it was said: blocks, and ops."""

    stage = GraphStage.HIR


class MirModule(GraphModule):
    """Tensor ops: ``stage`` is mir, or fused once regions and a prologue are there."""

    stage = GraphStage.MIR


class _FusedModule(MirModule):
    stage = GraphStage.FUSED


class LirModule(GraphModule):
    """A schedule of launches over named memories, for one target."""

    stage = GraphStage.LIR


_CLASSES = {cls.stage: cls for cls in (HirModule, MirModule, _FusedModule, LirModule)}


def _stage(stage: GraphStage | str) -> GraphStage:
    try:
        return GraphStage(stage)
    except ValueError:
        listed = ", ".join(GraphStage)
        raise IRError(f"no level is called {stage!r}; there are {listed}") from None


def _module(
    stage: GraphStage, module: Any, default: str, target: str, values: Mapping[str, Any]
) -> GraphModule:
    from rlx._mlir import ir

    attrs = module.operation.attributes
    name = ir.StringAttr(attrs["rlx.graph"]).value if "rlx.graph" in attrs else default
    located = module.operation.get_asm(enable_debug_info=True)
    return _CLASSES[stage](name, str(module), located, target, values)
