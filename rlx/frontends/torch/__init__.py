"""PyTorch modules as graphs: ``rlx.from_torch``.

library.py   the torch package, imported there alone
export.py    a module as a program of core ATen ops, with what RLX has whole left whole
sizes.py     torch's symbolic sizes as dims
tensors.py   tensors as arrays
node.py      an op as its row sees it
calls.py     the arguments of an op as the parameters of its row
rows/        a row an op: what it is in ops of ours, a file per family
walk.py      the walk over the ops
importer.py  inputs, weights and outputs, and the check against torch
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from os import PathLike
from typing import Any

from rlx.errors import ToolchainError
from rlx.ir.builders import located
from rlx.ir.graph import Graph

__all__ = ["from_torch"]


@located
def from_torch(
    module: Any,
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    check: bool = True,
    key: str | None = None,
) -> Graph:
    """Build the graph of a PyTorch module on example arguments, of a
    ``torch.export.ExportedProgram``, or of the file (.pt2) that ``torch.export.save`` wrote of one.

    Params and buffers become params that lie in torch's memory; inputs have the names of the
    arguments of ``forward``, outputs those of the keys that lead to them. ``dynamic_shapes`` is
    that of ``torch.export.export``: these dims stay symbolic, by the names of its Dims. ``check``
    compiles the graph and compares it with torch on the example arguments.

    Dropout and what else draws random numbers takes a key: an input u32[2] of the name ``key``,
    which says what is drawn (``rlx.random``, ``compile_training(..., key=...)``). The numbers are
    others than torch's, so that there is nothing to compare with and no ``check``.

    ModelError where torch cannot export the module, or where the check fails; UnsupportedError
    with all ops that are missing, how often each is used and where; ToolchainError if torch is not
    installed.
    """
    if importlib.util.find_spec("torch") is None:
        raise ToolchainError("reading modules needs PyTorch: pip install 'rlx[torch]'")
    from rlx.frontends.torch import export
    from rlx.frontends.torch.importer import check_graph, import_program

    if isinstance(module, str | PathLike):
        module = export.saved(os.fspath(module))
    program, names = export.program_of(module, args, dict(kwargs or {}), dynamic_shapes)
    graph, drawn = import_program(program, names, key)
    if check and not drawn:
        check_graph(graph, program)
    return graph
