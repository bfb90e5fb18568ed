"""Graphs as packages that Core ML takes as they are, with their weights in them.

A program of Core ML's is written for one size of each dim: its masks, reshapes and counters are
numbers, and the neural engine takes no others. A package of several sizes has a function for each,
as Apple's own ``materialize_dynamic_shape_mlmodel`` makes them, and the weights once.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
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
from rlx.targets.ane.package import MODEL, joined, operations, unpacked
from rlx.targets.ane.residency import report
from rlx.targets.base import Target

__all__ = ["MAIN", "Package", "export_ane"]

MAIN = "main"
"""The function of a package of one size."""

MOST_SIZES = 128
"""Of a package: as many as an input of Core ML's has enumerated shapes."""

Sizes = Mapping[str, int]


@frozen
class Package:
    """A .mlpackage at ``path``: the bytes of its files; how many of its weights of 2048 elements or
    more are in few bits (``few``), and how many as they are (``whole``); which of its ops would
    leave the neural engine, by Apple's guidance, unverified; and its functions by name, each with
    the sizes of its dims. The first runs where none is named."""

    path: Path
    bytes: int
    few: int
    whole: int
    residency: str
    functions: Mapping[str, Sizes]


@located
def export_ane(
    graph: Graph,
    path: str | os.PathLike[str],
    params: Mapping[str, Any] | None = None,
    *,
    target: str = "ane",
    weights: str = "",
    sizes: Sequence[Mapping[str, int]] = (),
) -> Package:
    """Write a graph as a .mlpackage with its weights in it, as Xcode and Core ML take it; a package
    that is there is replaced.

    ``params`` are values by name, beside those that the graph has. ``weights`` of 2048 elements or
    more are stored as "int8" (a scale for each output), "int4" (one for 32 elements; iOS18), or
    "palette1", 2, 3 (iOS18), 4, 6 or 8: so many bits of each pick one of the tensor's numbers.
    ``target`` is a system, "ane:iOS16" to "ane:iOS18".

    A graph with dims is written for each of ``sizes``, as ``[{"tokens": 16}, {"tokens": 64}]`` are.
    Of several (iOS18), the package has a function each, here ``tokens_16`` and ``tokens_64``, and
    the weights once.

    DeviceError for another target; ShapeError for a dim without a size, sizes that a dim cannot
    have or that come twice, and more than 128 of them; NameError for a dim that there is not;
    UnsupportedError for several sizes before iOS18, a param without a value and what Core ML cannot
    compute; ToolchainError without coremltools; RlxError for a path where something else is, or
    that cannot be written.
    """
    features = _features(target)
    if weights:
        check_weights(weights, features)
    functions = _functions(graph, sizes, features)
    values = _values(graph, params or {})
    graphs = {name: graph.bind(own) if own else graph for name, own in functions.items()}
    for each in graphs.values():
        param_arrays(each, values)  # a param's size may be that of a dim
    at = Path(path)
    _check_place(at)
    with tempfile.TemporaryDirectory() as folder:
        made = _written(graphs, target_with(features, values, weights), Path(folder))
        try:
            if at.exists():
                shutil.rmtree(at)
            shutil.copytree(made, at)
        except OSError as e:
            raise RlxError(f"cannot write {at}: {e.strerror or e}") from None
        ops = operations(made)
    size = sum(f.stat().st_size for f in at.rglob("*") if f.is_file())
    in_order = {name: ops[name] for name in functions}
    few, whole = counted(next(iter(in_order.values())))
    return Package(at, size, few, whole, report(in_order), functions)


def _features(target: str) -> AneFeatures:
    """What a target is; DeviceError for one that is not Core ML's."""
    name, features = parse_target(target)
    if name != "ane":
        raise DeviceError(
            f"a package is for 'ane' or a system such as 'ane:iOS18', found {target!r}"
        )
    assert isinstance(features, AneFeatures)
    return features


def _values(graph: Graph, params: Mapping[str, Any]) -> dict[str, Any]:
    """The values of all params; UnsupportedError for those that have none."""
    given = param_arrays(graph, {**graph.param_values, **params})
    if missing := sorted(str(p.name) for p in graph.params if str(p.name) not in given):
        raise UnsupportedError(
            f"ane: the params {', '.join(missing)} have no values, which lie in the package; give"
            " params"
        )
    return {name: fixed(a) for name, a in given.items()}


def _functions(graph: Graph, sizes: Any, features: AneFeatures) -> dict[str, Sizes]:
    """The functions of a package by name, and the sizes of each."""
    symbols = sorted(graph.symbols)
    if isinstance(sizes, Mapping | str) or not isinstance(sizes, Sequence):
        raise ShapeError(f"sizes is a list with a mapping of dims to sizes each, found {sizes!r}")
    listed: list[Any] = list(sizes)
    if symbols and not listed:
        raise ShapeError(
            f"ane: {graph.name!r} has dims without sizes: {', '.join(symbols)}; bind them, as"
            " graph.bind({name: size}) or rlx compile --dim name=size does, or give sizes"
        )
    _check_sizes(graph, symbols, listed)
    if len(listed) < 2:
        return {MAIN: dict(*listed)}
    if features.system != "iOS18":
        raise UnsupportedError(
            f"a package of {len(listed)} sizes has a function for each, which need iOS18, found"
            f" {features.system}; give target='ane:iOS18', or write a package for each size"
        )
    return {
        "_".join(f"{s}_{own[s]}" for s in symbols): {s: own[s] for s in symbols} for own in listed
    }


def _check_sizes(graph: Graph, symbols: Sequence[str], listed: Sequence[Any]) -> None:
    """An error for a size that no dim can have, that lacks a dim, or that is there already."""
    if len(listed) > MOST_SIZES:
        raise ShapeError(f"a package has {MOST_SIZES} sizes at most, found {len(listed)}")
    for i, own in enumerate(listed):
        if not isinstance(own, Mapping):
            raise ShapeError(f"sizes[{i}] is a mapping of dims to sizes, found {own!r}")
        for name, size in own.items():
            graph.check_size(name, size)
        if lacking := [s for s in symbols if s not in own]:
            raise ShapeError(
                f"sizes[{i}] has no size of {', '.join(lacking)}; give one of each dim"
            )
        if own in listed[:i]:
            raise ShapeError(f"sizes[{i}] is sizes[{listed.index(own)}] again; leave it out")


def _written(graphs: Mapping[str, Graph], target: Target, folder: Path) -> Path:
    """The package of graphs, in a folder."""
    parts: dict[str, Path] = {}
    for name, graph in graphs.items():
        program, _ = compile_program(graph, target)
        parts[name] = unpacked(program.kernels[0].code, folder / f"{name}.mlpackage")
    return joined(parts, folder / "joined.mlpackage") if len(parts) > 1 else parts[MAIN]


def _check_place(path: Path) -> None:
    """RlxError if something is there that is no package: it would be lost."""
    if os.path.lexists(path) and (path.is_symlink() or not (path / MODEL).is_dir()):
        raise RlxError(f"{path} is there already, and is no package of Core ML; give another name")
