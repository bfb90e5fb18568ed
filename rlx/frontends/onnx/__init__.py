"""ONNX models as graphs: ``rlx.from_onnx``.

    files.py      what was given, as a model proto
    tensors.py    tensors of the file, as arrays
    edges.py      a value: what it is in the graph, and what is known of it while importing
    node.py       a node as its row sees it
    rows/         a row an op type: what it is in ops of ours, a file per family
    folding.py    integer arithmetic on symbolic dims
    checks.py     a node against ONNX's own schema of its op type
    functions.py  op types without a row: the functions that define them
    missing.py    all op types that are neither, before anything is built
    importer.py   the walk over the nodes
    export/       the other way: ``rlx.to_onnx``

The ``onnx`` package is imported here and nowhere else in RLX.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from os import PathLike
from typing import Any

from rlx.base.gc_pause import importing, paused
from rlx.errors import ToolchainError
from rlx.ir.builders import located
from rlx.ir.graph import Graph

__all__ = ["from_onnx"]


@located
def from_onnx(
    model: str | PathLike[str] | bytes | Any,
    constants: Mapping[str, Any] | None = None,
    dims: Mapping[str, Any] | None = None,
) -> Graph:
    """Build the graph of an ONNX model: a path, a file's bytes, or an ``onnx.ModelProto``.

    Initialisers become params that carry their values (scalars become constants), named dims stay
    symbolic, and inputs and outputs keep their order. ``constants`` fixes inputs by name: a model
    whose shapes depend on what an input holds needs it, and the error says for which. ``dims``
    binds symbolic dims by name, to sizes or to others: ``{"height": 32 * rlx.Dim("rows", 1, 20)}``.

    ModelError for a file that is damaged or breaks ONNX's rules, UnsupportedError for what has no
    counterpart here, with all op types that are missing and how often each is used; ToolchainError
    if the onnx package is not installed.
    """
    if importlib.util.find_spec("onnx") is None:
        raise ToolchainError("reading ONNX models needs the onnx package: pip install 'rlx[onnx]'")
    with importing():
        from rlx.frontends.onnx.files import read
        from rlx.frontends.onnx.importer import import_model

    with paused():  # a graph is many objects, and few of them go before its end
        return import_model(read(model), constants or {}, dims or {})
