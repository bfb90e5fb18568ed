"""ONNX models from ONNX's text form, for tests."""

from __future__ import annotations

from onnx import ModelProto
from onnx.parser import parse_model

__all__ = ["model"]


def model(graph: str, opset: int = 21, more: str = "") -> ModelProto:
    """A model of a graph such as ``g (float[2] x) => (float[2] y) { y = Relu (x) }``; ``more``
    follows it, such as functions, and the domains of these are imported at version 1."""
    domains = "".join(f', "{d}" : 1' for d in ("own",) if d in graph + more)
    return parse_model(f'<ir_version: 10, opset_import: ["" : {opset}{domains}]>\n{graph}\n{more}')
