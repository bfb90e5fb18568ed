"""``rlx run model.rlx --input x=x.npy``: an artifact, a graph or an ONNX model on arrays;
``rlx run model.gguf -p "Once upon a time"``: a language model on a prompt."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from rlx.errors import NameError, RlxError
from rlx.ir.graph import names_of_outputs
from rlx.tools.arrays import Once, add_overwrite, check_free, named_arrays, pair, save_array
from rlx.tools.graphs import (
    add_graph_options,
    add_params,
    graph_from,
    is_graph,
    params_from,
    refuse_graph_options,
)
from rlx.tools.language import (
    add_answer_options,
    add_model_options,
    answer_options,
    is_language_model,
    load,
    refuse_language_options,
    show,
)
from rlx.tools.options import add_device, add_threads

__all__ = ["add_arguments", "run"]


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    p.add_argument(
        "file",
        help="an artifact that rlx compile wrote, a graph (.mlir), a model (.onnx), or a language"
        " model (.gguf, or a folder)",
    )
    add_graph_options(p)
    add_params(p)
    p.add_argument(
        "--input", action=Once, type=pair, default=[], metavar="NAME=FILE.npy", help="an input"
    )
    p.add_argument(
        "--output", action="append", default=[], metavar="[NAME=]FILE.npy",
        help="where an output goes, by its name or once for each in order; by default they are"
        " printed",
    )  # fmt: skip
    add_overwrite(p)
    add_device(p)
    add_threads(p)
    language = p.add_argument_group("language models")
    language.add_argument("-p", "--prompt", metavar="TEXT", help="a text to go on with, as it is")
    add_model_options(language)
    add_answer_options(language)


def run(args: argparse.Namespace) -> int:
    """Run once; outputs go to their files, or to stdout as text."""
    if is_language_model(args.file) or args.prompt is not None:
        return _language(args)
    refuse_language_options(args.file, args)
    from rlx.runtime.artifact import Artifact
    from rlx.runtime.session import Session

    if is_graph(args.file):
        graph = graph_from(args.file, args)
        f, carried = Session(args.device, threads=args.threads).compile(graph), graph.param_values
    else:
        refuse_graph_options(args.file, args)
        artifact = Artifact.load(args.file)
        session = Session(args.device or artifact.target, threads=args.threads)
        f, carried = session.load(artifact), artifact.values
    inputs, _ = f.signature
    files = _files(args, names_of_outputs(f.graph))
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
    for index, path in files.items():
        save_array(path, results[index], args.overwrite)
    if not files:
        heads = [f"{name}:\n" for name in f.graph.output_names] or [""] * len(results)
        print("\n".join(f"{head}{value}" for head, value in zip(heads, results, strict=True)))
    return 0


def _language(args: argparse.Namespace) -> int:
    """Go on with a prompt."""
    if args.prompt is None:
        raise RlxError(
            f'{args.file} is a language model, which goes on with a text; give -p "TEXT"'
        )
    arrays = (args.input, args.output, args.param, args.params, args.constant, args.dim)
    if any(arrays) or args.overwrite:
        raise RlxError("a language model goes on with -p, and takes no arrays, files and dims")
    args.model = args.file
    show(load(args), args.prompt, answer_options(args))
    return 0


def _files(args: argparse.Namespace, names: Sequence[str]) -> dict[int, str]:
    """The files that outputs go to, by position; RlxError for a wrong number of them, an unknown
    name, and one that is there already."""
    halves = [text.partition("=") for text in args.output]
    if any(equals for _, equals, _ in halves):
        found: dict[int, str] = {}
        for name, equals, path in halves:
            if not equals or name not in names:
                listed = ", ".join(map(repr, names))
                text = f"{name}{equals}{path}"
                raise RlxError(f"--output {text} names no output; write NAME=FILE.npy for {listed}")
            if names.index(name) in found:
                raise RlxError(f"--output {name}=... is given twice")
            found[names.index(name)] = path
    else:
        found = dict(enumerate(args.output))
        if found and len(found) != len(names):
            raise RlxError(f"{args.file} has {len(names)} outputs, found {len(found)} --output")
    for path in found.values():
        check_free(path, args.overwrite)
    return found
