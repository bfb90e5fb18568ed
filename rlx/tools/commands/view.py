"""``rlx view FILE -o out.html``: the compile of a graph's text, or of any level's, as a page."""

from __future__ import annotations

import argparse
from pathlib import Path

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add("file", help="HIR, MIR or LIR text, such as rlx-opt prints; - for standard input")
    add("-o", dest="output", metavar="OUT.html", help="the page; by default beside FILE")
    add("--dims", default="", metavar="A=8,B=32", help="sizes for the symbolic dims of a graph")
    add("--target", default="cpu", help="target, such as cpu or cpu:x86-64-v4")
    add("--dispatch", choices=("native", "common"), default="native", help="which kernels run ops")
    add("--no-fuse", action="store_true", help="keep ops apart")


def run(args: argparse.Namespace) -> int:
    """Write the page and say where it is."""
    from rlx.dialects.context import make_context, parse
    from rlx.dialects.export import to_mlir
    from rlx.inspect import compilation_for
    from rlx.text import parse_graph
    from rlx.tools.diagnostics import check_nesting
    from rlx.tools.dims import parse_dims
    from rlx.tools.opt import read_text
    from rlx.tools.stages import level_of, passes_to
    from rlx.view.compile import watch
    from rlx.view.page import page

    text = read_text(args.file)
    check_nesting(text)
    compilation = compilation_for(
        args.target, {"dispatch": args.dispatch, "fuse": not args.no_fuse}
    )
    name = "<stdin>" if args.file == "-" else args.file
    context = make_context()
    with context:
        dims = parse_dims(args.dims)
        graph = parse_graph(text, name).bind(dims) if dims else None
        module = parse(text, context) if graph is None else to_mlir(graph, context)
        level, passes = level_of(module), passes_to(module, "lir")
        title = Path(name).name
        view = watch(module, level, passes, compilation, title=title, parsed=(name, text))
    output = Path(args.output or ("out.html" if args.file == "-" else f"{args.file}.html"))
    output.write_text(page(view), encoding="utf-8")
    print(output)
    return 0
