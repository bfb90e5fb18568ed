"""``rlx compile GRAPH -o model.rlx``: a graph's text or an ONNX model to an artifact."""

from __future__ import annotations

import argparse
import sys

from rlx.tools.graphs import add_graph_options, add_params, params_from, sized_graph_from

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
    add_graph_options(p)
    add_params(p)


def run(args: argparse.Namespace) -> int:
    """Compile and write the file; what was made goes to stderr."""
    import rlx

    graph = sized_graph_from(args.graph, args)
    made = rlx.compile_artifact(graph, args.target, params=params_from(args, graph))
    made.save(args.output)
    machines = ", ".join(v.features for v in made.variants)
    carried = f"{len(made.values)} of {len(made.params)} params"
    print(f"{args.output}: for {made.target} {machines}; carries {carried}", file=sys.stderr)
    return 0
