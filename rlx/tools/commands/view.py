"""``rlx view MODEL -o out.html``: the compile of a model, or of any level's text, as a page."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rlx.errors import IRError
from rlx.tools.arrays import check_free
from rlx.tools.graphs import MODEL, add_constants, check_sizes, graph_from
from rlx.tools.kinds import Kind, kind_of
from rlx.tools.options import add_compile_options, add_force, add_precision, add_threads

if TYPE_CHECKING:
    from rlx._mlir import ir
    from rlx.ir.graph import Graph
    from rlx.lowering.compilation import Compilation
    from rlx.runtime.profile import Profile
    from rlx.targets.base import Target

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add(
        "file",
        metavar="MODEL",
        help=f"{MODEL}; or MIR or LIR text, such as rlx-opt prints; - for standard input",
    )
    add("-o", dest="output", metavar="OUT.html", help="the page; by default beside MODEL")
    add(
        "--run", action="store_true", help="run it too, on random arrays: the picture has the times"
    )
    add_force(parser)
    add_constants(parser)
    add_compile_options(parser)
    add_precision(parser)
    add_threads(parser)


def run(args: argparse.Namespace) -> int:
    """Write the page and say where it is."""
    from rlx.dialects.context import make_context
    from rlx.dialects.export import to_mlir
    from rlx.lowering.compilation import Compilation, Options
    from rlx.lowering.levels import level_of
    from rlx.targets import default_target, find_target
    from rlx.text.files import decode
    from rlx.view.compile import watch
    from rlx.view.graph import names_of_nodes
    from rlx.view.page import page

    standard = args.file == "-"
    name = "<stdin>" if standard else args.file
    options = Options(dispatch=args.dispatch, fuse=not args.no_fuse)
    compilation = Compilation(find_target(args.target or default_target()), options)
    output = args.output or ("out.html" if standard else f"{os.path.normpath(name)}.html")
    check_free(output, args.force)
    context = make_context()
    with context:
        parsed, texts = None, dict[str, str]()
        if not standard and (kind_of(name) is not Kind.TEXT or args.dim or args.precision):
            graph = _graph(name, args, compilation.target)
            module, texts = to_mlir(graph, context), names_of_nodes(graph)
        else:
            text = decode(sys.stdin.buffer.read() if standard else _read(name), name)
            module, parsed = _parsed(text, name, context), (name, text)
        level = level_of(module)
        if level != "lir":
            check_sizes(name, _symbols(module))
        title = Path(name).name
        profile = _profile(name, args, compilation) if args.run else None
        view = watch(
            module, level, compilation, title=title, parsed=parsed, texts=texts, profile=profile
        )
    Path(output).write_text(page(view), encoding="utf-8")
    print(output)
    return 0


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as e:
        raise IRError(f"cannot read {path}: {e.strerror}") from None


def _graph(name: str, args: argparse.Namespace, target: Target) -> Graph:
    """The graph of a file, in the precision that the command line asks for."""
    from rlx.precision import check_precision, types_of
    from rlx.precision.rewrite import with_precision

    graph = graph_from(name, args)
    types = types_of(check_precision(args.precision or "f32"), target.features.has)
    return with_precision(graph, types)[0] if types.changes else graph


def _profile(name: str, args: argparse.Namespace, compilation: Compilation) -> Profile:
    """What the launches of a graph take on random arrays, by the same options."""
    from rlx.runtime.session import Session
    from rlx.tools.feeds import random_arrays

    if name == "<stdin>":
        raise IRError("--run needs a file, found standard input")
    graph = graph_from(name, args)
    session = Session(compilation.target.name, args.precision or "f32", threads=args.threads)
    options = compilation.options
    f = session.compile(graph, dispatch=options.dispatch, fuse=options.fuse)
    arrays = random_arrays(graph)
    for v in graph.params:
        if str(v.name) in arrays:
            f.set_param(str(v.name), arrays.pop(str(v.name)))
    return f.profile(arrays)


def _parsed(text: str, name: str, context: ir.Context) -> ir.Module:
    """The module of a file's text; IRError with the file's name for what is none."""
    from rlx.dialects.context import parse
    from rlx.tools.opt.nesting import check_nesting

    check_nesting(text)
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
