"""``rlx bench GRAPH``: what each kernel of a graph takes, against what the machine allows."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from rlx.tools.arrays import Once, named_arrays, pair
from rlx.tools.feeds import random_arrays
from rlx.tools.graphs import add_graph_options, refuse_graph_options, sized_graph_from
from rlx.tools.options import add_device, add_threads

if TYPE_CHECKING:
    from rlx.runtime.session import CompiledGraph

__all__ = ["add_arguments", "run"]


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    p.add_argument("graph", help="a graph's text, an ONNX model (.onnx) or an artifact (.rlx)")
    add_graph_options(p)
    for option, what in (("--input", "an input"), ("--param", "a param without a value")):
        p.add_argument(
            option, action=Once, type=pair, default=[], metavar="NAME=FILE.npy",
            help=f"{what}; by default it is random",
        )  # fmt: skip
    add_device(p)
    add_threads(p)
    p.add_argument("--repeat", type=int, default=20, help="number of runs (20)")
    p.add_argument("--json", action="store_true", help="print plain data in place of a table")


def run(args: argparse.Namespace) -> int:
    """Run the graph on the given arrays, and random ones, and print its profile."""
    from rlx.roofline import measure

    compiled = _compiled(args)
    graph = compiled.graph
    types = {str(v.name): v.dtype.name for v in (*graph.inputs, *graph.params)}
    arrays = random_arrays(graph)
    inputs = {str(v.name): arrays.pop(str(v.name)) for v in graph.inputs}
    for name, value in {**arrays, **named_arrays(args.param, types)}.items():
        compiled.set_param(name, value)
    profile = compiled.profile({**inputs, **named_arrays(args.input, types)}, args.repeat)
    found = profile.against(measure())
    print(json.dumps(found.to_json(), indent=2) if args.json else found)
    return 0


def _compiled(args: argparse.Namespace) -> CompiledGraph:
    """The file, compiled if it is not yet; an artifact for the device that it was made for."""
    from rlx import Artifact, Session

    if args.graph.endswith(".rlx"):
        refuse_graph_options(args.graph, args)
        artifact = Artifact.load(args.graph)
        return Session(args.device or artifact.target, threads=args.threads).load(artifact)
    graph = sized_graph_from(args.graph, args)
    return Session(args.device, threads=args.threads).compile(graph)
