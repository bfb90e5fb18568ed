"""Running a module that was lowered before, and maybe edited: what starts below a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlx.errors import UnsupportedError
from rlx.graph import Graph
from rlx.ops.value import Value
from rlx.runtime.artifact import Artifact
from rlx.runtime.backend import Backend
from rlx.runtime.executable import Executable
from rlx.types import TensorType

if TYPE_CHECKING:
    from rlx.modules import GraphModule

__all__ = ["Lowered", "compile_lowered"]


class Lowered:
    """A backend that has one thing to load: an artifact."""

    def __init__(self, name: str, backend: Backend, artifact: Artifact, report: Any) -> None:
        self.name, self.backend, self.artifact, self.report = name, backend, artifact, report

    def load(self, graph: Graph, options: Mapping[str, Any], shared: Sequence[Any]) -> Executable:
        """The artifact, loaded; ``graph`` and ``options`` were settled as it was lowered."""
        return Executable(self.artifact, self.report, shared)

    def set_threads(self, n: int) -> None:
        """Set the number of threads that runs may use."""
        self.backend.set_threads(n)


def compile_lowered(
    module: GraphModule, device: str, backend: Backend, options: Mapping[str, Any]
) -> tuple[Graph, Lowered]:
    """The artifact of a module of mir with regions, or of lir, with a graph of its inputs, params
    and outputs alone. UnsupportedError for a device that has no lir; options are those of the
    passes that are left."""
    from rlx.compiler import compile_lir
    from rlx.targets import find_target
    from rlx.targets.cpu.features import require

    if device != "cpu":
        raise UnsupportedError(f"device {device!r} starts from hir or mir, found {module.stage}")
    target = find_target(module.target or device)
    if target.name != device:
        raise UnsupportedError(f"the module is for {module.target}, the session for {device}")
    require(target.features)
    lir = module.to("lir", **options)
    artifact, report = compile_lir(lir.located, target)
    graph = _leaves(lir.name, artifact)
    graph.param_values = dict(lir.values)
    return graph, Lowered(device, backend, artifact, report)


def _leaves(name: str, artifact: Artifact) -> Graph:
    graph = Graph(name)
    for label, dt, shape in artifact.inputs:
        graph.input(label, shape, dt)
    for label, dt, shape in artifact.params:
        graph.param(label, shape, dt)
    graph.outputs = [Value(TensorType.of(s, dt), graph=graph) for _, dt, s in artifact.outputs]
    return graph
