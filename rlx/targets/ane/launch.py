"""The device ``ane``: Core ML on a Mac, which gives ops to the neural engine as it sees fit."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlx.schedule.plan import Signature
from rlx.targets.ane.emit import EXTRA
from rlx.targets.ane.package import unpacked
from rlx.types import DTYPES

__all__ = ["AneDriver", "missing", "open_driver", "software"]

Array = np.ndarray[Any, Any]
Predict = Callable[[dict[str, Array]], dict[str, Array]]


def missing() -> str:
    """Why there is no device: no Mac, or no package."""
    if str(sys.platform) != "darwin":  # no branch is dead to a type checker
        return (
            "it needs a Mac, whose Core ML runs programs; rlx compile --target ane writes packages"
            " for one that is elsewhere"
        )
    found = importlib.util.find_spec("coremltools")
    return "" if found else f"it needs coremltools: {EXTRA}"


def software() -> bool:
    """False: Core ML is on Macs alone, which have the engine."""
    return False


def open_driver() -> AneDriver:
    """The driver."""
    return AneDriver(_model)


def _model(package: Path) -> Predict:
    from rlx.targets.ane.words import coremltools

    ct = coremltools()
    return ct.models.MLModel(str(package), compute_units=ct.ComputeUnit.CPU_AND_NE).predict


class AneDriver:
    """Core ML; ``model`` makes of a package what runs it on arrays by name."""

    features = frozenset[str]()

    def __init__(self, model: Callable[[Path], Predict]) -> None:
        self.model = model

    def load(self, code: bytes) -> tuple[Predict, list[str], list[str]]:
        """A package, and the names of its inputs and outputs in order."""
        from rlx.targets.ane.words import coremltools

        with tempfile.TemporaryDirectory() as folder:
            path = unpacked(code, Path(folder) / "model.mlpackage")
            told = coremltools().utils.load_spec(str(path)).description
            inputs, outputs = ([v.name for v in row] for row in (told.input, told.output))
            return self.model(path), inputs, outputs

    def put(self, a: Array) -> Array:
        """The array as models take it: no bools, and an axis at least."""
        return np.atleast_1d(a.astype(np.int32) if a.dtype == np.bool_ else a)

    def run(
        self, loaded: Any, arguments: Sequence[Array], outputs: Sequence[Signature]
    ) -> list[Array]:
        """The outputs of a model."""
        predict, names, given = loaded
        held = [a for a in arguments if a.size]  # models take and give nothing that is empty
        found = predict(dict(zip(names, held, strict=True)))
        rest = iter(given)
        return [
            np.empty(shape, DTYPES[dt].numpy)
            if 0 in shape
            else np.asarray(found[next(rest)]).astype(DTYPES[dt].numpy).reshape(shape)
            for _, dt, shape in outputs
        ]
