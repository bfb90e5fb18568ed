"""``rlx view FILE -o out.html``: the compile of a graph's text, or of any level's, as a page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rlx.errors import IRError
from rlx.tools.graphs import add_constants, check_sizes, graph_from, is_model
from rlx.tools.options import add_compile_options

if TYPE_CHECKING:
    from rlx._mlir import ir

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add(
        "file",
        help="HIR, MIR or LIR text, such as rlx-opt prints, or an ONNX model; - for standard input",
    )
    add("-o", dest="output", metavar="OUT.html", help="the page; by default beside FILE")
    add_constants(parser)
    add_compile_options(parser)


def run(args: argparse.Namespace) -> int:
    """Write the page and say where it is."""
    from rlx.dialects.context import make_context
    from rlx.dialects.export import to_mlir
    from rlx.lowering.compilation import Compilation, Options
    from rlx.lowering.levels import level_of
    from rlx.targets import default_target, find_target
    from rlx.text.files import decode
    from rlx.view.compile import watch
    from rlx.view.page import page

    standard = args.file == "-"
    name = "<stdin>" if standard else args.file
    options = Options(dispatch=args.dispatch, fuse=not args.no_fuse)
    compilation = Compilation(find_target(args.target or default_target()), options)
    context = make_context()
    with context:
        parsed = None
        if is_model(name):
            module = to_mlir(graph_from(name, args), context)
        else:
            text = decode(sys.stdin.buffer.read() if standard else _read(name), name)
            module, parsed = _parsed(text, name, args, context), (name, text)
        level = level_of(module)
        if level != "lir":
            check_sizes(name, _symbols(module))
        title = Path(name).name
        view = watch(module, level, compilation, title=title, parsed=parsed)
    output = Path(args.output or ("out.html" if standard else f"{name}.html"))
    output.write_text(page(view), encoding="utf-8")
    print(output)
    return 0


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as e:
        raise IRError(f"cannot read {path}: {e.strerror}") from None


def _parsed(text: str, name: str, args: argparse.Namespace, context: ir.Context) -> ir.Module:
    """The module of a file's text; IRError with the file's name for what is none."""
    from rlx.dialects.context import parse
    from rlx.dialects.export import to_mlir
    from rlx.text import parse_graph
    from rlx.tools.opt.nesting import check_nesting

    check_nesting(text)
    if args.dim:
        return to_mlir(parse_graph(text, name).bind(dict(args.dim)), context)
    try:
        return parse(text, context)
    except IRError as e:
        raise IRError(e.message, (name, e.location[1]) if e.location else None) from None


def _symbols(module: ir.Module) -> set[str]:
    """The symbolic dims of what @main takes."""
    from rlx.base.dims import SymDim
    from rlx.dialects.convert import from_type
    from rlx.lowering.functions import functions

    main = functions(module).get("main")
    arguments = [] if main is None else main.regions[0].blocks[0].arguments
    dims = [d for a in arguments for d in from_type(a.type).shape]
    return {s for d in dims if isinstance(d, SymDim) for s in d.symbols}
