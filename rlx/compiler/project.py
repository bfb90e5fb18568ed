"""Programs that are folders of sources, which other tools build."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlx.errors import ArtifactError, UnsupportedError
from rlx.ir.builders import public
from rlx.ir.graph import Graph
from rlx.runtime.artifact import Artifact

__all__ = ["Project", "project_of"]


@public
class Project(Artifact):
    """What ``compile_artifact`` gives for "cortexm" and "fpga": ``extras`` are the files by name,
    its inputs and outputs those of one run. It has no variants, for no device of RLX runs it.
    ``report`` says what it takes."""

    report: str

    def save(self, path: str | Path) -> None:
        """Write the files into a folder, which is made; ArtifactError if that cannot be."""
        try:
            Path(path).mkdir(parents=True, exist_ok=True)
            for name, data in self.extras.items():
                (Path(path) / name).write_bytes(data)
        except OSError as e:
            raise ArtifactError(f"cannot write {path}: {e.strerror or e}") from None

    @property
    def files(self) -> dict[str, Any]:
        """The files by name."""
        return dict(self.extras)

    def __bytes__(self) -> bytes:
        raise UnsupportedError(f"a project for {self.target} is a folder; write it by save(folder)")


def project_of(graph: Graph, params: Mapping[str, Any], name: str, own: Any, of: Any) -> Project:
    """The project of a graph for ``of``, features of a target, by its module: of integers, or for a
    target that has ``float_project`` of what else the graph computes with."""
    from rlx.targets.integer.read import is_network

    if hasattr(own, "float_project") and not is_network(graph):
        from rlx.compiler.float_program import float_program

        program, code = float_program(graph, params, of)
        schedule, files = program.schedule, own.float_project(program, code)
        inputs, outputs, report = schedule.inputs, schedule.outputs, program.report
    else:
        network, texts, report = own.files(graph, params, of)
        last = network.layers[-1]
        inputs = [(str(graph.inputs[0].name), "i8", network.source)]
        outputs = [("results", f"i{last.bits}", last.size)]
        files = {n: text.encode() for n, text in texts.items()}
    made = Project(name, [], inputs, outputs, (), extras=files)
    object.__setattr__(made, "report", report)
    return made
