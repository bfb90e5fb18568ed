"""``rlx run model.rlx --input x=x.npy``: an artifact, a graph or an ONNX model on arrays."""

from __future__ import annotations

import argparse

from rlx.errors import RlxError
from rlx.tools.arrays import named_arrays, pair, save_array
from rlx.tools.graphs import add_graph_options, graph_from, is_graph

__all__ = ["add_arguments", "run"]


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    p.add_argument(
        "file", help="an artifact that rlx compile wrote, a graph (.mlir) or a model (.onnx)"
    )
    add_graph_options(p)
    for option, what in (("--input", "an input"), ("--param", "a param that it does not carry")):
        p.add_argument(
            option, action="append", type=pair, default=[], metavar="NAME=FILE.npy", help=what
        )
    p.add_argument(
        "--output", action="append", default=[], metavar="FILE.npy",
        help="where an output goes, once for each in order; by default they are printed",
    )  # fmt: skip
    p.add_argument("--threads", type=int, help="number of threads; by default what is allowed")


def run(args: argparse.Namespace) -> int:
    """Run once; outputs go to their files, or to stdout as text."""
    from rlx.runtime.artifact import Artifact
    from rlx.runtime.session import Session

    if is_graph(args.file):
        f = Session("cpu", threads=args.threads).compile(graph_from(args.file, args))
    else:
        artifact = Artifact.load(args.file)
        f = Session(artifact.target, threads=args.threads).load(artifact)
    inputs, outputs = f.signature
    if args.output and len(args.output) != len(outputs):
        raise RlxError(f"{args.file} has {len(outputs)} outputs, found {len(args.output)} --output")
    params = {str(v.name): v.dtype.name for v in f.graph.params}
    for name, value in named_arrays(args.param, params).items():
        f.set_param(name, value)
    results = f.run(named_arrays(args.input, {name: t.dtype.name for name, t in inputs}))
    for path, value in zip(args.output, results, strict=False):
        save_array(path, value)
    if not args.output:
        print("\n".join(str(value) for value in results))
    return 0
