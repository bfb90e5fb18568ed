"""Reflection: the inputs, params and outputs of a graph as values for programs."""

from __future__ import annotations

from collections.abc import Mapping

from rlx.base.frozen import frozen
from rlx.compiler.graph_module import GraphModule
from rlx.ir.builders import located, public
from rlx.ir.graph import Graph, names_of_outputs
from rlx.types import TensorType

__all__ = ["BindingManifest", "HirReflection", "ManifestDiff", "MirReflection", "reflect"]

Types = tuple[tuple[str, TensorType], ...]
Source = Graph | GraphModule


@frozen
class ManifestDiff:
    """What one manifest has and another has not, and what has another type in each."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[tuple[str, str, str], ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    def __str__(self) -> str:
        lines = [*(f"+ {n}" for n in self.added), *(f"- {n}" for n in self.removed)]
        return "\n".join([*lines, *(f"~ {n}: {a} -> {b}" for n, a, b in self.changed)])


@public
@frozen
class BindingManifest:
    """What must be bound before a run: inputs and params, by name, with their types."""

    inputs: Types
    params: Types

    @staticmethod
    def of(source: Source) -> BindingManifest:
        """The manifest of a graph, or of a module of hir or mir."""
        graph = source if isinstance(source, Graph) else source.graph()
        return BindingManifest(
            tuple((str(v.name), v.type) for v in graph.inputs),
            tuple((str(v.name), v.type) for v in graph.params),
        )

    def weight_blocks(self) -> dict[str, tuple[str, ...]]:
        """The params by block: what comes before the last dot of their names
        ("layers.0.attention"), and "" for those without one."""
        found: dict[str, list[str]] = {}
        for name, _ in self.params:
            found.setdefault(name.rpartition(".")[0], []).append(name)
        return {block: tuple(names) for block, names in found.items()}

    def weight_bytes(self) -> int:
        """Bytes of all params; ShapeError where one has a symbolic dim."""
        return sum(t.nbytes for _, t in self.params)

    def diff(self, other: BindingManifest) -> ManifestDiff:
        """What ``other`` has more, has not, and has of another type."""
        mine, theirs = dict((*self.inputs, *self.params)), dict((*other.inputs, *other.params))
        return ManifestDiff(
            tuple(n for n in theirs if n not in mine),
            tuple(n for n in mine if n not in theirs),
            tuple(
                (n, str(t), str(theirs[n]))
                for n, t in mine.items() if n in theirs and theirs[n] != t
            ),
        )  # fmt: skip


@frozen
class MirReflection:
    """A graph at a level: its name, how many nodes of which ops, and its leaves and outputs."""

    name: str
    node_count: int
    kinds: Mapping[str, int]
    inputs: Types
    params: Types
    outputs: Types


@frozen
class HirReflection(MirReflection):
    """As ``MirReflection``, with the blocks among the nodes, which are those of its dialect."""

    block_labels: tuple[str, ...] = ()


@located
def reflect(source: Source) -> HirReflection | MirReflection:
    """What a graph, or a module of hir or mir, asks for and gives: an ``HirReflection`` of a graph
    and of hir, a ``MirReflection`` of mir."""
    graph = source if isinstance(source, Graph) else source.graph()
    nodes, manifest = graph.nodes(), BindingManifest.of(graph)
    kinds: dict[str, int] = {}
    for op in nodes:
        kinds[op.name] = kinds.get(op.name, 0) + 1
    outputs = tuple(zip(names_of_outputs(graph), (v.type for v in graph.outputs), strict=True))
    said = (graph.name, len(nodes), kinds, manifest.inputs, manifest.params, outputs)
    if isinstance(source, GraphModule) and source.stage != "hir":
        return MirReflection(*said)
    blocks = [op for op in nodes if op.dialect == "hir"]
    labels = tuple(f"{op.name} at {op.location[0]}:{op.location[1]}" for op in blocks)
    return HirReflection(*said, labels)
