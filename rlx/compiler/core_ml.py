"""Graphs as packages that Core ML takes as they are, with their weights in them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlx.base.frozen import frozen
from rlx.compiler.driver import compile_program
from rlx.errors import DeviceError, RlxError, ShapeError, UnsupportedError
from rlx.ir.arrays import fixed
from rlx.ir.builders import located
from rlx.ir.given import param_arrays
from rlx.ir.graph import Graph
from rlx.targets import parse_target
from rlx.targets.ane import target_with
from rlx.targets.ane.compress import check_weights, counted
from rlx.targets.ane.features import AneFeatures
from rlx.targets.ane.package import MODEL, unpacked
from rlx.targets.ane.residency import report

__all__ = ["Package", "export_ane"]


@frozen
class Package:
    """A .mlpackage at ``path``: the bytes of its files; how many of its weights of 2048 elements or
    more are in few bits (``few``), and how many as they are (``whole``); and which of its ops would
    leave the neural engine, by Apple's guidance, unverified."""

    path: Path
    bytes: int
    few: int
    whole: int
    residency: str


@located
def export_ane(
    graph: Graph,
    path: str | os.PathLike[str],
    params: Mapping[str, Any] | None = None,
    *,
    target: str = "ane",
    weights: str = "",
) -> Package:
    """Write a graph as a .mlpackage with its weights in it, as Xcode and Core ML take it; a package
    that is there is replaced.

    ``params`` are values by name, beside those that the graph has. ``weights`` of 2048 elements or
    more are stored as "int8" (a scale for each output), "int4" (one for 32 elements; iOS18), or
    "palette1", 2, 3 (iOS18), 4, 6 or 8: so many bits of each pick one of the tensor's numbers.
    ``target`` is a system, "ane:iOS16" to "ane:iOS18".

    DeviceError for another target, ShapeError for a dim without a size, UnsupportedError for a
    param without a value and what Core ML cannot compute, ToolchainError without coremltools,
    RlxError for a path where something else is, or that cannot be written.
    """
    name, features = parse_target(target)
    if name != "ane":
        raise DeviceError(
            f"a package is for 'ane' or a system such as 'ane:iOS18', found {target!r}"
        )
    assert isinstance(features, AneFeatures)
    if weights:
        check_weights(weights, features)
    if graph.symbols:
        raise ShapeError(
            f"ane: {graph.name!r} has dims without sizes: {', '.join(graph.symbols)}; bind them, as"
            " graph.bind({name: size}) or rlx compile --dim name=size does"
        )
    given = param_arrays(graph, {**graph.param_values, **(params or {})})
    values = {name: fixed(a) for name, a in given.items()}
    if missing := sorted(str(p.name) for p in graph.params if str(p.name) not in values):
        raise UnsupportedError(
            f"ane: the params {', '.join(missing)} have no values, which lie in the package; give"
            " params"
        )
    at = Path(path)
    _check_place(at)
    program, _ = compile_program(graph, target_with(features, values, weights))
    code = program.kernels[0].code
    try:
        if at.exists():
            shutil.rmtree(at)
        unpacked(code, at)
    except OSError as e:
        raise RlxError(f"cannot write {at}: {e.strerror or e}") from None
    size = sum(f.stat().st_size for f in at.rglob("*") if f.is_file())
    return Package(at, size, *counted(code), report(code))


def _check_place(path: Path) -> None:
    """RlxError if something is there that is no package: it would be lost."""
    if os.path.lexists(path) and (path.is_symlink() or not (path / MODEL).is_dir()):
        raise RlxError(f"{path} is there already, and is no package of Core ML; give another name")
