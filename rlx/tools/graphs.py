"""Graphs that a command line names, of any kind of model that has one."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from rlx.errors import RlxError, ShapeError
from rlx.tools.arrays import Once, many_arrays, named_arrays, pair
from rlx.tools.kinds import Kind, kind_of
from rlx.tools.options import add_dims

if TYPE_CHECKING:
    from rlx.ir.graph import Graph
    from rlx.runtime.session import CompiledGraph

__all__ = [
    "MODEL", "add_constants", "add_graph_options", "add_params", "check_sizes", "compiled_from",
    "graph_from", "params_from", "sized_graph_from",
]  # fmt: skip

MODEL = (
    "a graph's text, an ONNX model, a program of StableHLO or torch.export (.pt2), or the folder of"
    " a sentence encoder"
)
"""What a command says of a model of which a graph is made."""


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


def graph_from(path: str, args: argparse.Namespace) -> Graph:
    """The graph of a model, with the dims that the command line binds; RlxError for one that cannot
    be read, or has no graph."""
    dims: dict[str, int] = dict(args.dim)
    kind = kind_of(path)
    if args.constant and kind is not Kind.ONNX:
        raise RlxError(f"--constant fixes inputs of an ONNX model, and {path} is {kind}")
    if kind is Kind.ONNX:
        from rlx.frontends.onnx import from_onnx

        constants: dict[str, Any] = named_arrays(args.constant, {})
        return from_onnx(path, constants=constants, dims=dims)
    graph = _read(path, kind)
    return graph.bind(dims) if dims else graph


def _read(path: str, kind: Kind) -> Graph:
    if kind is Kind.STABLEHLO:
        from pathlib import Path

        from rlx.frontends.stablehlo import from_stablehlo

        return from_stablehlo(Path(path))
    if kind is Kind.TORCH:
        from rlx.frontends.torch import from_torch

        return from_torch(path, check=False)
    if kind is Kind.ENCODER:
        from rlx.models.embed import encoder_graph

        return encoder_graph(path)
    if kind is Kind.DECODER:
        raise RlxError(
            f"{path} is {kind}, whose steps have a state: rlx chat, rlx run -p and rlx serve"
            " take it"
        )
    # An artifact and weights alone are no text, and what reads text says what takes them.
    from rlx.text import load

    return load(path)


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


def compiled_from(path: str, args: argparse.Namespace) -> tuple[CompiledGraph, Collection[str]]:
    """A model, compiled by the session that the command line asks for, and the params that it
    carries; an artifact for the device that it was made for."""
    from rlx.runtime.artifact import Artifact
    from rlx.runtime.session import Session

    precision = args.precision or "f32"
    if kind_of(path) is not Kind.ARTIFACT:
        graph = graph_from(path, args)
        session = Session(args.device, precision, threads=args.threads)
        return session.compile(graph), graph.param_values
    given = [f"--{name}" for name in ("constant", "precision") if getattr(args, name)]
    # What runs on random arrays needs their sizes.
    given += ["--dim"] if args.dim and not getattr(args, "random", True) else []
    if given:
        raise RlxError(
            f"{path} is an artifact, and rlx compile decided all of that; leave"
            f" {' and '.join(given)} out, or compile it anew"
        )
    artifact = Artifact.load(path)
    session = Session(args.device or artifact.target, threads=args.threads)
    return session.load(artifact), {*artifact.values, *artifact.packed_params}
