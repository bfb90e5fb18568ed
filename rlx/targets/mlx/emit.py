"""The stages of a program for MLX: its graph as text, and the file that MLX imports."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlx.errors import ToolchainError
from rlx.targets.graph.rows import ROWS, Rows
from rlx.targets.graph.system import Asked
from rlx.targets.graph.tensor import Tensor

__all__ = ["STAGES", "Mlx", "function"]

STAGES = ("dot", "mlxfn")
"""The graph of arrays, in the language of Graphviz; and what ``mlx.core.export_function`` writes,
which ``import_function`` reads in Python, C++ and Swift."""

EXTRA = "pip install 'rlx[mlx]'"


def function(asked: Asked) -> Any:
    """A function of arrays: params, then inputs."""
    from rlx.targets.mlx.words import Words

    def call(*arrays: Any) -> list[Any]:
        k = Words(asked.kernels)
        given = zip(arrays, asked.arguments, strict=True)
        found = asked.walk(k, [Tensor(k, a, dt, shape) for a, (_, dt, shape) in given])
        return [t.handle for t in found]

    return call


class Mlx:
    """MLX, which traces functions of arrays."""

    object_stage = "mlxfn"

    @property
    def rows(self) -> Rows:
        """Those of all systems, and what MLX has whole."""
        from rlx.targets.mlx.rows import OWN

        return {**ROWS, **OWN}

    def write(self, asked: Asked, stage: str) -> bytes:
        """The file of a stage; ToolchainError without the package mlx."""
        if importlib.util.find_spec("mlx") is None:
            raise ToolchainError(f"the stage {stage} needs MLX; {EXTRA}")
        from rlx.targets.mlx.words import kind_of, mlx

        call = function(asked)
        zeros = [mlx().zeros(s, kind_of(dt)) for _, dt, s in asked.arguments]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"program.{stage}"
            if stage == "dot":
                mlx().export_to_dot(str(path), *call(*zeros))
            else:
                mlx().export_function(str(path), call, *zeros)
            return path.read_bytes()

    def ahead(self, code: bytes) -> Mapping[str, bytes]:
        """Nothing: MLX compiles as it runs."""
        return {}
