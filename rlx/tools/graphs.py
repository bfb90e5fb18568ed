"""Graphs that a command line names: a graph's text, or an ONNX model."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from rlx.errors import ShapeError
from rlx.tools.arrays import Once, many_arrays, named_arrays, pair
from rlx.tools.options import add_dims

if TYPE_CHECKING:
    from rlx.ir.graph import Graph

__all__ = [
    "add_constants", "add_graph_options", "add_params", "check_sizes", "graph_from", "is_graph",
    "is_model", "params_from", "refuse_graph_options", "sized_graph_from",
]  # fmt: skip


def add_graph_options(p: argparse.ArgumentParser) -> None:
    """What fixes sizes, and the inputs of an ONNX model that decide shapes."""
    add_dims(p)
    add_constants(p)


def add_constants(p: argparse.ArgumentParser) -> None:
    """The inputs of an ONNX model that decide shapes."""
    p.add_argument(
        "--constant", action=Once, type=pair, default=[], metavar="NAME=FILE.npy",
        help="an input of an ONNX model that is fixed, because shapes depend on what it holds",
    )  # fmt: skip


def add_params(p: argparse.ArgumentParser) -> None:
    """The values of params, from files."""
    p.add_argument("--params", metavar="FILE", help="params by name: .safetensors or .npz")
    p.add_argument(
        "--param", action=Once, type=pair, default=[], metavar="NAME=FILE.npy",
        help="a param",
    )  # fmt: skip


def params_from(args: argparse.Namespace, graph: Graph) -> dict[str, Any]:
    """The params that the command line gives, by name."""
    types = {str(v.name): v.dtype.name for v in graph.params}
    params: dict[str, Any] = many_arrays(args.params, types) if args.params else {}
    params.update(named_arrays(args.param, types))
    return params


def is_model(path: str) -> bool:
    """Whether a file is an ONNX model, by its name."""
    return path.endswith(".onnx")


def is_graph(path: str) -> bool:
    """Whether a file is a graph, by its name."""
    return path.endswith(".mlir") or is_model(path)


def graph_from(path: str, args: argparse.Namespace) -> Graph:
    """The graph of a file, with the dims that the command line binds; RlxError for one that cannot
    be read."""
    dims: dict[str, int] = dict(args.dim)
    if is_model(path):
        from rlx.frontends.onnx import from_onnx

        constants: dict[str, Any] = named_arrays(args.constant, {})
        return from_onnx(path, constants=constants, dims=dims)
    from rlx.text import load

    graph = load(path)
    return graph.bind(dims) if dims else graph


def sized_graph_from(path: str, args: argparse.Namespace) -> Graph:
    """The same; ShapeError if the command line leaves a dim without a size."""
    graph = graph_from(path, args)
    check_sizes(path, graph.symbols)
    return graph


def check_sizes(path: str, symbols: Collection[str]) -> None:
    """ShapeError if dims of a file's graph have no size yet."""
    if symbols:
        names = sorted(symbols)
        listed = " ".join(f"--dim {n}=SIZE" for n in names)
        raise ShapeError(f"{path} has dims without a size: {', '.join(names)}; give {listed}")


def refuse_graph_options(path: str, args: argparse.Namespace) -> None:
    """ShapeError for an artifact with options of a graph: all was decided when it was compiled."""
    given = [f"--{name}" for name in ("dim", "constant") if getattr(args, name)]
    if given:
        raise ShapeError(
            f"{path} is an artifact, whose sizes were fixed by rlx compile; leave"
            f" {' and '.join(given)} out, or compile it anew"
        )
