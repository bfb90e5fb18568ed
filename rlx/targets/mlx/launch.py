"""The device ``mlx``: functions that MLX imports, on a Mac's GPU or else on the processor."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlx import knobs
from rlx.schedule.plan import Signature
from rlx.targets.mlx.emit import EXTRA
from rlx.types import DTYPES

__all__ = ["MlxDriver", "missing", "open_driver", "software"]

Array = np.ndarray[Any, Any]


def missing() -> str:
    """Why there is no device: no package."""
    return "" if importlib.util.find_spec("mlx") else f"it needs MLX: {EXTRA}"


def software() -> bool:
    """Whether the device is the processor: MLX has GPUs on Macs alone."""
    return sys.platform != "darwin"


def open_driver() -> MlxDriver:
    """The driver."""
    return MlxDriver()


class MlxDriver:
    """MLX's default device."""

    features = frozenset[str]()

    def load(self, code: bytes) -> Any:
        """A function; compiled by MLX too where RLX_MLX_MODE says so."""
        from rlx.targets.mlx.words import mlx

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "program.mlxfn"
            path.write_bytes(code)
            found = mlx().import_function(str(path))
        return mlx().compile(found) if knobs.mlx_mode.get() == "compiled" else found

    def put(self, a: Array) -> Any:
        """An array of MLX's."""
        from rlx.targets.mlx.words import to_mlx

        return to_mlx(a)

    def run(
        self, loaded: Any, arguments: Sequence[Any], outputs: Sequence[Signature]
    ) -> list[Array]:
        """The outputs of a function."""
        from rlx.targets.mlx.words import from_mlx

        found = loaded(*arguments)
        return [from_mlx(a, DTYPES[dt]) for a, (_, dt, _) in zip(found, outputs, strict=True)]
