"""Graphs as ONNX models: ``rlx.to_onnx``.

writer.py    nodes, names and constants of a model under construction
sizes.py     dims that are symbolic, as tensors of a model
walk.py      the walk over a graph, and all ops that have no form, before anything is written
formulas.py  ops that are written as other ops of ours first
rows/        a row an op: the nodes that it is, a file per family
model.py     inputs, params and outputs
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from os import PathLike
from typing import Any

from rlx.errors import ToolchainError
from rlx.ir.builders import located
from rlx.ir.graph import Graph

__all__ = ["to_onnx"]


@located
def to_onnx(
    graph: Graph,
    path: str | PathLike[str] | None = None,
    params: Mapping[str, Any] | None = None,
) -> Any:
    """Write a graph as an ONNX model of opset 20: an ``onnx.ModelProto``, and the file ``path``.

    Inputs, outputs and params keep their names, symbolic dims too; an output that is known by
    its place alone is ``output_0`` and so on, or a longer name where an input has that one.
    ``params`` are values by name, such as those of a trained model, in the place of the graph's
    own. A model of more than 2 GB has its weights in a file beside it, and needs a path.

    UnsupportedError that lists all ops without a form in ONNX; GraphError for a param without a
    value, and for an output that was given the name of an input or param; NameError, DTypeError
    and ShapeError for values that do not fit; ToolchainError if the onnx package is not installed.
    """
    if importlib.util.find_spec("onnx") is None:
        raise ToolchainError("writing ONNX models needs the onnx package: pip install 'rlx[onnx]'")
    from rlx.frontends.onnx.export.model import model_of, save

    model = model_of(graph, params or {})
    if path is not None:
        save(model, path)
    return model
