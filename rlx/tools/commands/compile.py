"""``rlx compile MODEL -o model.rlx``: a model to an artifact, which runs without a compiler."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlx.errors import RlxError
from rlx.tools.arrays import Once, check_free, dim_or_sizes
from rlx.tools.graphs import MODEL, add_constants, add_params, graph_from, params_from
from rlx.tools.kinds import LANGUAGE, kind_of
from rlx.tools.options import add_force, add_precision

if TYPE_CHECKING:
    from rlx.ir.graph import Graph

__all__ = ["add_arguments", "run"]

CONTEXT = 512
ROWS = 64
"""Rows of a step of a language model at most; a longer prompt takes several."""


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    p.add_argument(
        "graph", metavar="MODEL", help=f"{MODEL}; or a language model (.gguf, or a folder)"
    )
    p.add_argument(
        "-o", dest="output", required=True, metavar="FILE",
        help="the artifact; for cortexm and fpga a folder, which is made; for ane it may be a"
        " .mlpackage, which has the weights in it",
    )  # fmt: skip
    p.add_argument(
        "--target", "--device", action="append", metavar="TARGET",
        help="what to compile for, such as cpu:x86-64-v3, cuda:sm_90 or vulkan, which need not be"
        " here; may be given again for others of its kind; default: RLX_DEVICE, else this CPU",
    )  # fmt: skip
    p.add_argument(
        "--dim", action=Once, type=dim_or_sizes, default=[], metavar="NAME=SIZE",
        help="the size of a symbolic dim, or its range as LEAST..MOST, or of a .mlpackage the"
        " sizes SIZE,SIZE,...; without one it may have any size where the artifact is run",
    )  # fmt: skip
    add_constants(p)
    add_params(p)
    p.add_argument(
        "--context", type=int, metavar="TOKENS",
        help="of a language model: how many tokens its keys and values have room for (default:"
        f" {CONTEXT})",
    )  # fmt: skip
    p.add_argument(
        "--weights", default="", metavar="BITS",
        help="of a .mlpackage: int8, int4, or palette with 1, 2, 3, 4, 6 or 8 behind it, for"
        " elements of so many bits",
    )  # fmt: skip
    add_precision(p)
    add_force(p)


def run(args: argparse.Namespace) -> int:
    """Compile and write the file; what was made goes to stderr."""
    import rlx
    from rlx.compiler.project import Project

    check_free(args.output, args.force)
    ranges = {name: size for name, size in args.dim if isinstance(size, tuple)}
    listed = {name: size for name, size in args.dim if isinstance(size, list)}
    args.dim = [given for given in args.dim if isinstance(given[1], int)]
    package = Path(args.output).suffix == ".mlpackage"
    if listed and not package:
        raise RlxError(
            f"a list of sizes, as {next(iter(listed))} has, is of packages of Core ML: give -o a"
            " name such as model.mlpackage, or a range as LEAST..MOST"
        )
    precision = args.precision or "f32"
    if kind_of(args.graph) in LANGUAGE:
        precision = args.precision or "q8"
        graph, params = _language(args, ranges, precision)
    elif args.context is not None:
        raise RlxError(f"--context is of language models, and {args.graph} is none")
    else:
        graph = graph_from(args.graph, args)
        params = params_from(args, graph)
    if package:
        return _package(args, graph, params, ranges, listed, precision)
    if args.weights:
        raise RlxError(
            "--weights is of packages of Core ML: give -o a name such as model.mlpackage"
        )
    made = rlx.compile_artifact(graph, args.target, dims=ranges, params=params, precision=precision)
    made.save(args.output)
    if isinstance(made, Project):
        print(f"{args.output}: {len(made.files)} files for {made.report}", file=sys.stderr)
        return 0
    machines = ", ".join(dict.fromkeys(v.features for v in made.variants))
    if made.symbols:
        named = ", ".join(s.name for s in made.symbols)
        machines += f" and all sizes of {named} (variants: {len(made.variants)})"
    carried = f"{len(made.params) - len(made.without_value)} of {len(made.params)} params"
    print(f"{args.output}: for {made.target} {machines}; carries {carried}", file=sys.stderr)
    for name, data in made.extras.items():
        if name.endswith(("/report", "/residency")):
            print(data.decode().rstrip(), file=sys.stderr)
    return 0


def _package(
    args: argparse.Namespace,
    graph: Graph,
    params: Mapping[str, Any],
    ranges: Mapping[str, Any],
    listed: Mapping[str, list[int]],
    precision: str,
) -> int:
    """Write a package of Core ML, which is for one system, and has every combination of sizes."""
    from rlx.ane import export_ane

    target, *others = args.target or ["ane"]
    if others or ranges or precision != "f32":
        what = "target" if others else "dim of a range" if ranges else "precision"
        raise RlxError(f"a .mlpackage takes no further {what}: leave it out, or write an artifact")
    sizes = [dict(zip(listed, each, strict=True)) for each in product(*listed.values())]
    made = export_ane(
        graph,
        args.output,
        params,
        target=target,
        weights=args.weights,
        sizes=sizes if listed else (),
    )
    bits = f", {made.few} weights in few bits, {made.whole} as they are" if args.weights else ""
    print(f"{args.output}: for {target}, {made.bytes} bytes{bits}", file=sys.stderr)
    if listed:
        print(f"functions: {', '.join(made.functions)}", file=sys.stderr)
    print(made.residency.rstrip(), file=sys.stderr)
    return 0


def _language(
    args: argparse.Namespace, ranges: dict[str, tuple[int, int]], precision: str
) -> tuple[Graph, Mapping[str, Any]]:
    """The graph of a step of a language model and its weights; a step has up to ``ROWS`` rows
    unless ``ranges`` say how many."""
    from rlx.llm.artifact import graph_of_model

    given = [f"--{name}" for name in ("constant", "params", "param") if getattr(args, name)]
    if given:
        raise RlxError(f"{args.graph} has its weights, and no inputs to fix: leave {given[0]} out")
    context = CONTEXT if args.context is None else args.context
    if context < 1:
        raise RlxError(f"--context is 1 token or more, found {context}")
    made = graph_of_model(args.graph, context, precision)
    dims = dict(args.dim)
    if not dims:
        ranges.setdefault("rows", (1, ROWS))
    return (made.graph.bind(dims) if dims else made.graph), made.params
