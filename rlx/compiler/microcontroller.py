"""Graphs as projects for microcontrollers: networks of integers, and programs of floats."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, overload

from rlx.ir.builders import located
from rlx.ir.graph import Graph
from rlx.targets.cortexm.features import DEFAULT, preset
from rlx.targets.cortexm.firmware import Firmware, FloatFirmware, network
from rlx.targets.cortexm.project import float_project, project
from rlx.targets.integer.network import Network
from rlx.targets.integer.read import is_network

__all__ = ["export_cortexm"]


@overload
def export_cortexm(
    graph: Network, folder: str | os.PathLike[str], *, target: str = "cortexm:m4"
) -> Firmware: ...
@overload
def export_cortexm(
    graph: Graph,
    folder: str | os.PathLike[str],
    params: Mapping[str, Any] | None = None,
    *,
    target: str = "cortexm:m4",
) -> Firmware | FloatFirmware: ...
@located
def export_cortexm(
    graph: Graph | Network,
    folder: str | os.PathLike[str],
    params: Mapping[str, Any] | None = None,
    *,
    target: str = "cortexm:m4",
) -> Firmware | FloatFirmware:
    """Write a project of C for a graph into a folder, which is made: ``model.h`` and ``model.c``,
    the kernels, and a start, an example and a link script for a board of QEMU's.

    A network, or a graph that ``network`` takes, becomes a program of integers; any other graph,
    whose sizes are all known, one of the element types that it has, with kernels in an object.
    ``params`` are values by name, beside those that the graph has.

    ``target`` is a core: "cortexm:m0", "m3", "m4", "m7", "m33" or "m55". DeviceError for another
    target, ShapeError for a dim without a size, UnsupportedError for a param without a value and
    what a core cannot compute, and what ``network`` raises.
    """
    core = preset(DEFAULT if target == "cortexm" else target.removeprefix("cortexm:"))
    at = Path(folder)
    if isinstance(graph, Network) or is_network(graph):
        found = graph if isinstance(graph, Network) else network(graph, params)
        files = {name: text.encode() for name, text in project(found, core).items()}
        made: Firmware | FloatFirmware = Firmware(found, core, at)
    else:
        # Imported here: networks of integers need no compiler.
        from rlx.compiler.float_program import float_program

        program, code = float_program(graph, params or {}, core)
        files = float_project(program, code)
        made = FloatFirmware(program, core, at)
    at.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (at / name).write_bytes(data)
    return made
