"""``rlx compile MODEL -o model.rlx``: a model to an artifact, which runs without a compiler."""

from __future__ import annotations

import argparse
import sys

from rlx.tools.arrays import Once, check_free, dim_or_range
from rlx.tools.graphs import MODEL, add_constants, add_params, graph_from, params_from
from rlx.tools.options import add_force, add_precision

__all__ = ["add_arguments", "run"]


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    p.add_argument("graph", metavar="MODEL", help=MODEL)
    p.add_argument(
        "-o", dest="output", required=True, metavar="FILE",
        help="the artifact; for cortexm and fpga a folder, which is made",
    )  # fmt: skip
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
    add_precision(p)
    add_force(p)


def run(args: argparse.Namespace) -> int:
    """Compile and write the file; what was made goes to stderr."""
    import rlx
    from rlx.compiler.project import Project

    check_free(args.output, args.force)
    ranges = {name: size for name, size in args.dim if isinstance(size, tuple)}
    args.dim = [given for given in args.dim if given[0] not in ranges]
    graph = graph_from(args.graph, args)
    made = rlx.compile_artifact(
        graph, args.target, dims=ranges, params=params_from(args, graph),
        precision=args.precision or "f32",
    )  # fmt: skip
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
