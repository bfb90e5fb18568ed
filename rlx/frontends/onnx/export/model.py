"""A graph as an ONNX model: its inputs, params and outputs around the nodes."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, helper

from rlx.errors import GraphError
from rlx.frontends.onnx.export import sizes
from rlx.frontends.onnx.export.rows.control import info
from rlx.frontends.onnx.export.walk import Walk
from rlx.frontends.onnx.export.writer import OPSET, Name, Writer, tensor
from rlx.ir.given import param_arrays
from rlx.ir.graph import Graph
from rlx.ir.value import Value

__all__ = ["model_of", "save"]

Array = np.ndarray[Any, Any]

LARGEST = 2**31 - 2**20
"""The most bytes of one file."""


def model_of(graph: Graph, params: Mapping[str, Array]) -> ModelProto:
    """The model; see ``rlx.to_onnx``."""
    walk = Walk()
    walk.refuse_missing(graph)
    w = Writer(body=walk.body)
    leaves = [*graph.inputs, *graph.params]
    named = _reserved(w, graph)
    env: dict[Value, Name] = {v: str(v.name) for v in leaves}
    inputs = [info(str(v.name), v.type) for v in graph.inputs]
    for v in graph.inputs:
        sizes.declare(w, str(v.name), v.type)
    w.initializers += [tensor(n, a) for n, a in _values(graph, params).items()]
    walk.write(w, graph.nodes(), env)
    results = []
    for name, v in zip(named, graph.outputs, strict=True):
        w.nodes.append(helper.make_node("Identity", [env[v]], [name], name=f"give_{name}"))
        results.append(info(name, v.type))
    proto = w.graph(graph.name, inputs, results)
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(proto, opset_imports=opsets, ir_version=9, producer_name="rlx")
    return model


def _reserved(w: Writer, graph: Graph) -> list[Name]:
    """The names of the outputs, which are kept free, as are those of leaves; GraphError for a name
    that a model cannot have, since its values have one name each."""
    leaves = {str(v.name) for v in (*graph.inputs, *graph.params)}
    for name in graph.output_names:
        if name in leaves:
            raise GraphError(
                f"an output and an input or param are called {name!r}; the values of an ONNX model"
                " have a name each: give the output another one in set_outputs"
            )
    for name in (*leaves, *graph.output_names):
        w.reserve(name)
    return list(graph.output_names) or [w.free(f"output_{i}") for i in range(len(graph.outputs))]


def _values(graph: Graph, params: Mapping[str, Array]) -> dict[str, Array]:
    """The elements of params; GraphError for those that have none, and see ``param_arrays``."""
    given = {**graph.param_values, **param_arrays(graph, params)}
    missing = [str(v.name) for v in graph.params if str(v.name) not in given]
    if missing:
        raise GraphError(
            f"the params {', '.join(map(repr, missing[:5]))} have no values; give to_onnx"
            " params={name: array}"
        )
    return given


def save(model: ModelProto, path: str | PathLike[str]) -> None:
    """Write a model's file, with large ones' weights beside it."""
    name = Path(path)
    large = model.ByteSize() > LARGEST
    onnx.save(
        model,
        str(name),
        save_as_external_data=large,
        location=f"{name.name}.data" if large else None,
    )
