"""``rlx export-web MODEL -o DIR``: a folder that a web page loads and runs on WebGPU
or as WebAssembly."""

from __future__ import annotations

import argparse
import os
import sys

from rlx.errors import DeviceError
from rlx.tools.arrays import Once, check_free, dim_or_range
from rlx.tools.graphs import MODEL, add_constants, add_params, graph_from, params_from
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
    p.add_argument(
        "--device", default="webgpu", help="webgpu, or wasm for WebAssembly on the processor alone"
    )
    p.add_argument(
        "--fallback",
        choices=["wasm"],
        help="put WebAssembly kernels beside it, which pages run where there is no WebGPU",
    )
    p.add_argument(
        "--dim", action=Once, type=dim_or_range, default=[], metavar="NAME=SIZE",
        help="the size of a symbolic dim, or its range as LEAST..MOST; without one a page gives any"
        " size",
    )  # fmt: skip
    add_constants(p)
    add_params(p)
    add_precision(p)
    add_force(p)


def run(args: argparse.Namespace) -> int:
    """Compile for WebGPU or WebAssembly and write the folder; what was made goes to stderr."""
    import rlx
    from rlx.runtime.web import write_bundle
    from rlx.targets import parse_target

    device, _ = parse_target(args.device)
    if device not in ("webgpu", "wasm"):
        raise DeviceError(
            f"pages run on webgpu or wasm, found {args.device!r}; rlx compile --target"
            f" {args.device} makes an artifact for it"
        )
    check_free(os.path.join(args.output, "program.json"), args.force)
    ranges = {name: size for name, size in args.dim if isinstance(size, tuple)}
    args.dim = [given for given in args.dim if given[0] not in ranges]
    graph = graph_from(args.graph, args)
    params, precision = params_from(args, graph), args.precision or "f32"
    targets = [f"webgpu:{args.profile}" if device == "webgpu" else device]
    if args.fallback and device != args.fallback:
        targets.append(args.fallback)
    made = [
        rlx.compile_artifact(graph, t, dims=ranges, params=params, precision=precision)
        for t in targets
    ]
    names = write_bundle(made[0], args.output, *made[1:])
    serve = f"python -m http.server -d {args.output}"
    print(f"{args.output}: {', '.join(names)}; serve it ({serve}) and open it", file=sys.stderr)
    return 0
