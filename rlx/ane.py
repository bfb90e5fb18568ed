"""Graphs as packages of Core ML, which gives work to Apple's neural engine.

    package = rlx.ane.export_ane(graph, "model.mlpackage", params, weights="palette4")
    print(package.bytes, package.residency)

``rlx.compile_artifact(graph, "ane")`` makes an artifact instead, whose params are inputs.
"""

from __future__ import annotations

from rlx.compiler.core_ml import Package, export_ane
from rlx.targets.ane.compress import WEIGHTS

__all__ = ["WEIGHTS", "Package", "export_ane"]
