"""``rlx export-web MODEL -o DIR``: a folder that a web page loads and runs on WebGPU."""

from __future__ import annotations

import argparse
import os
import sys

from rlx.errors import DeviceError
from rlx.tools.arrays import check_free
from rlx.tools.graphs import MODEL, add_graph_options, add_params, params_from, sized_graph_from
from rlx.tools.options import add_force, add_precision

__all__ = ["add_arguments", "run"]


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    p.add_argument("graph", metavar="MODEL", help=MODEL)
    p.add_argument("-o", dest="output", required=True, metavar="DIR", help="the folder")
    p.add_argument(
        "--profile",
        default="webgpu",
        help="what pages need: webgpu, which every device has, or webgpu+buffers10, +buffers16, ..."
        " for kernels of more buffers",
    )
    p.add_argument("--device", default="webgpu", help="webgpu, which is the one that pages have")
    add_graph_options(p)
    add_params(p)
    add_precision(p)
    add_force(p)


def run(args: argparse.Namespace) -> int:
    """Compile for WebGPU and write the folder; what was made goes to stderr."""
    import rlx
    from rlx.runtime.backend import device_name
    from rlx.runtime.web import write_bundle

    if device_name(args.device) != "webgpu":
        raise DeviceError(
            f"pages run on webgpu, found {args.device!r}; rlx compile --target {args.device} makes"
            " an artifact for it"
        )
    check_free(os.path.join(args.output, "program.json"), args.force)
    graph = sized_graph_from(args.graph, args)
    made = rlx.compile_artifact(
        graph, f"webgpu:{args.profile}", params=params_from(args, graph),
        precision=args.precision or "f32",
    )  # fmt: skip
    names = write_bundle(made, args.output)
    print(f"{args.output}: {', '.join(names)}; serve it and open index.html", file=sys.stderr)
    return 0
