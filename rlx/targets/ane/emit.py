"""The stages of a Core ML program: its MIL as text, and the package that Xcode and Core ML take."""

from __future__ import annotations

import importlib.util
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlx.errors import ToolchainError
from rlx.targets.ane.features import AneFeatures
from rlx.targets.ane.package import operations, packed, unpacked
from rlx.targets.graph.rows import ROWS, Rows
from rlx.targets.graph.system import Asked
from rlx.targets.graph.tensor import Tensor
from rlx.types import bool_, i32

__all__ = ["EXTRA", "RECORD", "STAGES", "Ane", "input_names", "output_names"]

STAGES = ("mil", "mlpackage")
"""MIL as text; and the package, as a ZIP of its folder: ``unzip model.zip -d model.mlpackage``."""

EXTRA = "pip install 'rlx[ane]'"
RECORD = "error_record"
"""The output that says which fault a run had."""
NOTHING = "nothing"
"""The output, a 0, of a program that has no other: all of its results are empty."""


def input_names(names: Sequence[str]) -> list[str]:
    """What the inputs of the program are called, for params and inputs of a graph."""
    found: list[str] = []
    for name in names:
        plain = re.sub(r"\W", "_", name)
        plain = plain if re.match(r"[A-Za-z_]", plain) else f"in_{plain}"
        found.append(f"{plain}_{len(found)}" if plain in found else plain)
    return found


def output_names(names: Sequence[str]) -> list[str]:
    """What the outputs are called: behind "out_", so that none is an input's name."""
    return [f"out_{name}" for name in input_names(names)]


class Ane:
    """Core ML's converter, for one system. Params with ``values`` lie in the package, in the few
    bits that ``weights`` names (``compress.py``), and are no inputs of the program."""

    object_stage = "mlpackage"

    def __init__(
        self,
        features: AneFeatures,
        values: Mapping[str, np.ndarray[Any, Any]] | None = None,
        weights: str = "",
    ) -> None:
        self.features, self.values, self.weights = features, values or {}, weights

    @property
    def rows(self) -> Rows:
        """Those of all systems, and what Core ML has whole."""
        from rlx.targets.ane.rows import OWN

        return {**ROWS, **OWN}

    def write(self, asked: Asked, stage: str) -> bytes:
        """The file of a stage; ToolchainError without the package coremltools."""
        if importlib.util.find_spec("coremltools") is None:
            raise ToolchainError(f"the stage {stage} needs coremltools; {EXTRA}")
        program = self._program(asked)
        return str(program).encode() if stage == "mil" else self._package(program)

    def _program(self, asked: Asked) -> Any:
        from rlx.targets.ane.words import Words, coremltools, kind_of

        mil = importlib.import_module("coremltools.converters.mil.mil")
        names = input_names([name for name, _, _ in asked.arguments])
        holders = {
            name: mil.Builder.placeholder(
                shape=shape or (1,), dtype=kind_of(i32 if dt is bool_ else dt)
            )
            for name, (given, dt, shape) in zip(names, asked.arguments, strict=True)
            if 0 not in shape and given not in self.values
        }
        program = mil.Program()
        opset = getattr(coremltools().target, self.features.system)
        with mil.Function(holders, opset_version=opset) as f:
            k = Words(asked.kernels)
            args: list[Tensor] = []
            for name, (given, dt, shape) in zip(names, asked.arguments, strict=True):
                if given in self.values:
                    args.append(k.array(self.values[given], dt))
                    continue
                if none := k.empty(dt, shape):
                    args.append(none)
                    continue
                held = k.tensor(f.inputs[name], i32 if dt is bool_ else dt, shape)
                args.append(k.compare("ne", held, 0) if dt is bool_ else held)
            outs = asked.walk(k, args)
            wanted = output_names(asked.outputs) + [RECORD] * (len(outs) - len(asked.outputs))
            given = [(n, t) for n, t in zip(wanted, outs, strict=True) if 0 not in t.shape]
            f.set_outputs([
                k.mb.identity(x=k.full(k.converted(t, i32) if t.dtype is bool_ else t), name=n)
                for n, t in given or [(NOTHING, k.literal(0, i32))]
            ])  # fmt: skip
        program.add_function("main", f)
        return program

    def _package(self, program: Any) -> bytes:
        from rlx.targets.ane.compress import compressed
        from rlx.targets.ane.words import coremltools, quietly

        ct = coremltools()
        wide = ct.precision.FLOAT32 if self.features.wide else ct.precision.FLOAT16
        with quietly(), tempfile.TemporaryDirectory() as folder:
            model = ct.convert(
                program, source="milinternal", convert_to="mlprogram",
                minimum_deployment_target=getattr(ct.target, self.features.system),
                compute_precision=wide, compute_units=ct.ComputeUnit.CPU_AND_NE,
                skip_model_load=True,
            )  # fmt: skip
            if self.weights:
                model = compressed(model, self.weights)
            path = Path(folder) / "model.mlpackage"
            model.save(str(path))
            return packed(path)

    def ahead(self, code: bytes) -> Mapping[str, bytes]:
        """What would leave the engine."""
        from rlx.targets.ane.residency import report

        with tempfile.TemporaryDirectory() as folder:
            ops = operations(unpacked(code, Path(folder) / "model.mlpackage"))
            return {"residency": report(ops).encode()}
