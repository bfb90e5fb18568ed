"""``rlx compare MODEL --targets cpu,vulkan``: where a device's results leave the interpreter's."""

from __future__ import annotations

import argparse

from rlx import knobs
from rlx.tools.graphs import MODEL, add_graph_options, sized_graph_from

__all__ = ["add_arguments", "run"]


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    p.add_argument("file", metavar="MODEL", help=MODEL)
    p.add_argument(
        "--targets", default="", metavar="A,B",
        help="devices to compare with the interpreter; by default all that are available",
    )  # fmt: skip
    add_graph_options(p)
    p.add_argument("--arrays", metavar="FILE.npz", help="inputs and params; else random ones")
    p.add_argument("--seed", type=int, default=0, help="of the random arrays")
    p.add_argument("--tolerance", type=float, help="part of an output's largest element")
    p.add_argument("--dispatch", choices=knobs.DISPATCH, help="which kernels run ops")
    p.add_argument("--no-fuse", action="store_true", help="keep ops apart")


def run(args: argparse.Namespace) -> int:
    """A line for each device; 1 if one of them differs."""
    from rlx.runtime.devices.available import available_devices
    from rlx.tools.compare import compare
    from rlx.tools.reduce import Subject
    from rlx.tools.reduce.arrays import arrays_for, read_arrays

    graph = sized_graph_from(args.file, args)
    arrays = arrays_for(graph, args.seed)
    if args.arrays:
        arrays |= read_arrays(args.arrays, graph)
    subject = Subject(graph, arrays)
    options = {"dispatch": args.dispatch} if args.dispatch else {}
    options |= {"fuse": False} if args.no_fuse else {}
    given = [t.strip() for t in args.targets.split(",") if t.strip()]
    status = 0
    for device in given or [d for d in available_devices() if d != "interpret"]:
        found = compare(subject, device, options, args.tolerance)
        print(found)
        status |= found.divergence is not None
    return status
