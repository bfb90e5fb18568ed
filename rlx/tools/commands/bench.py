"""``rlx bench GRAPH``: what each kernel of a graph takes, against what the machine allows."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from rlx.errors import ShapeError
from rlx.tools.feeds import add_feed_arguments, feeds

if TYPE_CHECKING:
    from rlx.runtime.session import CompiledGraph, Session

__all__ = ["add_arguments", "run"]


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    p.add_argument("graph", help="a graph's text, as rlx.save writes it")
    add_feed_arguments(p)
    p.add_argument("--threads", type=int, help="number of threads; by default what is allowed")
    p.add_argument("--repeat", type=int, default=20, help="number of runs (20)")
    p.add_argument("--json", action="store_true", help="print plain data in place of a table")


def run(args: argparse.Namespace) -> int:
    """Run the graph on the given arrays, and random ones, and print its profile."""
    import rlx
    from rlx.roofline import measure

    compiled = _compiled(rlx.Session("cpu", threads=args.threads), args)
    arrays = feeds(compiled.graph, args.input)
    inputs = {str(v.name) for v in compiled.graph.inputs}
    for name in arrays.keys() - inputs:
        compiled.set_param(name, arrays[name])
    profile = compiled.profile({n: a for n, a in arrays.items() if n in inputs}, args.repeat)
    found = profile.against(measure())
    print(json.dumps(found.to_json(), indent=2) if args.json else found)
    return 0


def _compiled(session: Session, args: argparse.Namespace) -> CompiledGraph:
    """The graph of the file, compiled."""
    import rlx

    graph = rlx.load(args.graph)
    if args.dim:
        graph = graph.bind(dict(args.dim))
    if graph.symbols:
        names = sorted(graph.symbols)
        listed = " ".join(f"--dim {n}=SIZE" for n in names)
        raise ShapeError(f"{args.graph} has dims without a size: {', '.join(names)}; give {listed}")
    return session.compile(graph)
