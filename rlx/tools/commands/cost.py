"""``rlx cost --mesh data=128,model=8 MODEL``: what a step takes on many ranks."""

from __future__ import annotations

import argparse
import fnmatch
import json
from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any

from rlx.base.dims import SymDim
from rlx.errors import GraphError, RlxError, did_you_mean
from rlx.tools.arrays import Once, dim
from rlx.tools.graphs import MODEL, add_graph_options, graph_from

if TYPE_CHECKING:
    from rlx.base.mesh import Mesh
    from rlx.distributed.cost import Network
    from rlx.distributed.spec import P
    from rlx.ir.graph import Graph
    from rlx.roofline import Roofline

__all__ = ["add_arguments", "run"]


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    p.add_argument("graph", metavar="MODEL", help=MODEL)
    add_graph_options(p)
    p.add_argument(
        "--mesh", action="append", required=True, metavar="AXIS=RANKS,...",
        help="the axes of the ranks, such as data=128,model=8; again for another row",
    )  # fmt: skip
    p.add_argument(
        "--spec", action="append", default=[], metavar="NAME=AXIS,...",
        help="how an input or param is cut: an axis or - for each dim; * in a name stands for any"
        " letters",
    )  # fmt: skip
    p.add_argument(
        "--each", action=Once, type=dim, default=[], metavar="NAME=SIZE",
        help="a symbolic dim that specs cut: its size on a rank, the same on each mesh",
    )  # fmt: skip
    p.add_argument(
        "--grad", action="store_true", help="the gradients of the output by all params and floats"
    )
    p.add_argument("--times", type=int, default=1, help="how often the graph is there, as a layer")
    p.add_argument("--flops", type=float, help="operations a second of a rank; measured if not")
    p.add_argument("--memory", type=float, help="bytes a second of its memory; measured if not")
    p.add_argument(
        "--network", action="append", default=[], metavar="AXIS=SECONDS,BYTES",
        help="latency, and bytes a second that a rank sends, along an axis; measured between two"
        " processes here if not; two numbers more say beyond how many bytes the rate is another",
    )  # fmt: skip
    p.add_argument("--beside", action="append", default=[], metavar="AXIS",
                   help="an axis whose collectives run while ranks compute")  # fmt: skip
    p.add_argument("--report", action="store_true", help="every collective too")
    p.add_argument("--json", action="store_true", help="print plain data in place of a table")


def run(args: argparse.Namespace) -> int:
    """Shard the model on each mesh, and print what a step takes."""
    from rlx.distributed.cost import cost
    from rlx.distributed.sharding import shard

    if args.times < 1:
        raise RlxError(f"cost: found --times {args.times}, expected 1 or more")
    meshes = [_mesh(text) for text in args.mesh]
    graph = graph_from(args.graph, args)
    specs = _specs(args.spec, graph)
    roofline, networks = _roofline(args), _networks(args.network, meshes)
    rows: list[dict[str, Any]] = []
    for mesh in meshes:
        sized = _sized(graph, mesh, specs, dict(args.each))
        whole, out = _gradients(sized, specs) if args.grad else (sized, [])
        sharded = shard(whole, mesh, specs, out=out)
        found = cost(sharded, roofline, networks, args.times, beside=args.beside)
        rows.append({**found._asdict(), "mesh": mesh.shape, "step": found.step})
        if not args.json:
            print(found)
            if args.report:
                print(sharded.report)
    if args.json:
        print(json.dumps(rows, indent=1))
    return 0


def _sized(graph: Graph, mesh: Mesh, specs: Mapping[str, P], each: Mapping[str, int]) -> Graph:
    """The graph where a symbol has so many elements on each of the ranks that cut it."""
    axes: dict[str, set[str]] = {name: set() for name in each}
    for v in (*graph.inputs, *graph.params):
        spec = specs.get(str(v.name), ())
        for size, axis in zip(v.shape, spec, strict=False):
            if axis and isinstance(size, SymDim) and size.lone and size.lone.name in axes:
                axes[size.lone.name].add(axis)
    whole = {n: each[n] * prod(mesh[a].ranks for a in cut) for n, cut in axes.items()}
    return graph.bind(whole) if whole else graph


def _gradients(graph: Graph, specs: Mapping[str, P]) -> tuple[Graph, list[P]]:
    """The gradients by all params and inputs of floats, each of which lies as what it is of."""
    from rlx.distributed.spec import P
    from rlx.functions import grad

    leaves = (*graph.inputs, *graph.params)
    names = [str(v.name) for v in leaves if v.dtype.is_float]
    return grad(graph, names), [specs.get(n, P()) for n in names]


def _mesh(text: str) -> Mesh:
    from rlx.base.mesh import Mesh

    axes: dict[str, int] = {}
    for part in text.split(","):
        name, equals, ranks = part.partition("=")
        if not equals or not ranks.isdecimal():
            raise RlxError(f"cost: found --mesh {text}, expected axes such as data=8,model=2")
        axes[name] = int(ranks)
    return Mesh(**axes)


def _specs(given: list[str], graph: Graph) -> dict[str, P]:
    from rlx.distributed.spec import P

    names = [str(v.name) for v in (*graph.inputs, *graph.params)]
    found: dict[str, P] = {}
    for text in given:
        name, equals, axes = text.partition("=")
        meant = fnmatch.filter(names, name)
        if not equals:
            raise RlxError(f"cost: found --spec {text}, expected NAME=AXIS,...")
        if not meant:
            raise RlxError(f"cost: no input or param is called {name!r}{did_you_mean(name, names)}")
        spec = P(*[None if a in ("", "-") else a for a in axes.split(",")])
        found |= dict.fromkeys(meant, spec)
    return found


def _roofline(args: argparse.Namespace) -> Roofline:
    from rlx.roofline import Roofline, measure

    if args.flops and args.memory:
        return Roofline(args.flops, args.memory, 1)
    here = measure()
    return Roofline(args.flops or here.flops, args.memory or here.bytes, here.threads)


def _networks(given: list[str], meshes: list[Mesh]) -> dict[str, Network]:
    from rlx.distributed.cost import Network
    from rlx.distributed.measure import measured

    found: dict[str, Network] = {}
    for text in given:
        name, _, numbers = text.partition("=")
        try:
            latency, rate, *beyond = map(float, numbers.split(","))
            least, slow = beyond or (0.0, 0.0)
        except ValueError:
            raise RlxError(
                f"cost: found --network {text}, expected AXIS=SECONDS,BYTES as data=5e-6,12.5e9"
            ) from None
        found[name] = Network(latency, rate, (least, slow) if beyond else None)
    axes = {name for mesh in meshes for name in mesh.shape}
    unknown = set(found) - axes
    if unknown:
        raise GraphError(f"cost: --network is for {min(unknown)!r}, an axis of no mesh")
    missing = axes - set(found)
    return found | (dict.fromkeys(missing, measured(2).network) if missing else {})
