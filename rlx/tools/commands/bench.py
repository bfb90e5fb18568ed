"""``rlx bench MODEL``: what each kernel of a model takes, against what the machine allows; with
``--comm`` what ranks take to exchange."""

from __future__ import annotations

import argparse
import json

from rlx.errors import RlxError
from rlx.tools.arrays import Once, named_arrays, pair
from rlx.tools.feeds import random_arrays
from rlx.tools.graphs import MODEL, add_graph_options, compiled_from
from rlx.tools.options import add_session_options

__all__ = ["add_arguments", "run"]


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    p.add_argument(
        "graph", metavar="MODEL", nargs="?", help=f"{MODEL}; or an artifact of rlx compile"
    )
    p.add_argument(
        "--comm", type=int, metavar="RANKS",
        help="in place of a model: all-reduces between so many processes of this machine",
    )  # fmt: skip
    add_graph_options(p)
    for option, what in (("--input", "an input"), ("--param", "a param without a value")):
        p.add_argument(
            option, action=Once, type=pair, default=[], metavar="NAME=FILE.npy",
            help=f"{what}; by default it is random",
        )  # fmt: skip
    add_session_options(p)
    p.add_argument("--repeat", type=int, default=20, help="number of runs (20)")
    p.add_argument("--json", action="store_true", help="print plain data in place of a table")


def run(args: argparse.Namespace) -> int:
    """Run the model on the given arrays, and random ones, and print its profile; or time ranks."""
    if (args.graph is None) == (args.comm is None):
        raise RlxError("bench: name a model, or pass --comm RANKS")
    return _profile(args) if args.comm is None else _comm(args)


def _comm(args: argparse.Namespace) -> int:
    from rlx.distributed.measure import measured

    if args.comm < 2:
        raise RlxError(f"bench: found --comm {args.comm}, expected 2 ranks or more")
    found = measured(args.comm, args.repeat)
    print(json.dumps(found.to_json(), indent=2) if args.json else found)
    return 0


def _profile(args: argparse.Namespace) -> int:
    from rlx.roofline import measure

    compiled, carried = compiled_from(args.graph, args)
    graph = compiled.graph
    types = {str(v.name): v.dtype.name for v in (*graph.inputs, *graph.params)}
    params, inputs = named_arrays(args.param, types), named_arrays(args.input, types)
    made = random_arrays(graph, {**params, **inputs}, dict(args.dim), carried)
    names = {str(v.name) for v in graph.params}
    for name, value in {**{n: a for n, a in made.items() if n in names}, **params}.items():
        compiled.set_param(name, value)
    feeds = {**{n: a for n, a in made.items() if n not in names}, **inputs}
    found = compiled.profile(feeds, args.repeat)
    if not found.whole:
        found = found.against(measure())
    print(json.dumps(found.to_json(), indent=2) if args.json else found)
    return 0
