"""``rlx compile GRAPH -o model.rlx``: a graph's text or an ONNX model to an artifact."""

from __future__ import annotations

import argparse
import sys

from rlx.tools.arrays import Once, dim_or_range
from rlx.tools.graphs import add_constants, add_params, graph_from, params_from

__all__ = ["add_arguments", "run"]


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    p.add_argument("graph", help="a graph's text, as rlx.save writes it, or an ONNX model (.onnx)")
    p.add_argument("-o", dest="output", required=True, metavar="FILE", help="the artifact")
    p.add_argument(
        "--target", "--device", action="append", metavar="TARGET",
        help="what to compile for, such as cpu:x86-64-v3, cuda:sm_90 or vulkan, which need not be"
        " here; may be given again for others of its kind; default: RLX_DEVICE, else this CPU",
    )  # fmt: skip
    p.add_argument(
        "--dim", action=Once, type=dim_or_range, default=[], metavar="NAME=SIZE",
        help="the size of a symbolic dim, or its range as LEAST..MOST; without one it may have any"
        " size where the artifact is run",
    )  # fmt: skip
    add_constants(p)
    add_params(p)


def run(args: argparse.Namespace) -> int:
    """Compile and write the file; what was made goes to stderr."""
    import rlx

    ranges = {name: size for name, size in args.dim if isinstance(size, tuple)}
    args.dim = [given for given in args.dim if given[0] not in ranges]
    graph = graph_from(args.graph, args)
    made = rlx.compile_artifact(graph, args.target, dims=ranges, params=params_from(args, graph))
    made.save(args.output)
    machines = ", ".join(dict.fromkeys(v.features for v in made.variants))
    if made.symbols:
        named = ", ".join(s.name for s in made.symbols)
        machines += f" and all sizes of {named} (variants: {len(made.variants)})"
    carried = f"{len(made.values)} of {len(made.params)} params"
    print(f"{args.output}: for {made.target} {machines}; carries {carried}", file=sys.stderr)
    return 0
