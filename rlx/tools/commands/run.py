"""``rlx run model.rlx --input x=x.npy``: an artifact, a graph or an ONNX model on arrays."""

from __future__ import annotations

import argparse

from rlx.errors import NameError, RlxError
from rlx.tools.arrays import Once, named_arrays, pair, save_array
from rlx.tools.graphs import (
    add_graph_options,
    add_params,
    graph_from,
    is_graph,
    params_from,
    refuse_graph_options,
)

__all__ = ["add_arguments", "run"]


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    p.add_argument(
        "file", help="an artifact that rlx compile wrote, a graph (.mlir) or a model (.onnx)"
    )
    add_graph_options(p)
    add_params(p)
    p.add_argument(
        "--input", action=Once, type=pair, default=[], metavar="NAME=FILE.npy", help="an input"
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
        graph = graph_from(args.file, args)
        f, carried = Session("cpu", threads=args.threads).compile(graph), graph.param_values
    else:
        refuse_graph_options(args.file, args)
        artifact = Artifact.load(args.file)
        f, carried = Session(artifact.target, threads=args.threads).load(artifact), artifact.values
    inputs, outputs = f.signature
    if args.output and len(args.output) != len(outputs):
        raise RlxError(f"{args.file} has {len(outputs)} outputs, found {len(args.output)} --output")
    values = params_from(args, f.graph)
    for name, value in values.items():
        f.set_param(name, value)
    names = [str(v.name) for v in f.graph.params]
    if unset := [name for name in names if name not in values and name not in carried]:
        raise NameError(
            f"no value was set for param{'s' * (len(unset) > 1)} {', '.join(map(repr, unset))} of"
            f" {args.file}; give --param {unset[0]}=FILE.npy"
        )
    results = f.run(named_arrays(args.input, {name: t.dtype.name for name, t in inputs}))
    for path, value in zip(args.output, results, strict=False):
        save_array(path, value)
    if not args.output:
        print("\n".join(str(value) for value in results))
    return 0
