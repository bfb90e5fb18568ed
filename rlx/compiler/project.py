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
    its input and output the integers of one image. It has no variants, for no device of RLX runs
    it. ``report`` says what it takes."""

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
    """The project of a graph of integers for ``of``, features of a target, by its module."""
    network, files, report = own.files(graph, params, of)
    last = network.layers[-1]
    made = Project(
        name,
        [],
        [(str(graph.inputs[0].name), "i8", network.source)],
        [("results", f"i{last.bits}", last.size)],
        (),
        extras={n: text.encode() for n, text in files.items()},
    )
    object.__setattr__(made, "report", report)
    return made
