"""``rlx run MODEL --input x=x.npy``: a model on arrays; ``rlx run model.gguf -p "Once"``: a
language model on a prompt."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rlx.errors import NameError, RlxError
from rlx.inspect.facts import typed
from rlx.ir.given import unknown
from rlx.ir.graph import Graph, names_of_outputs
from rlx.tools.arrays import Once, check_free, named_arrays, pair, save_array
from rlx.tools.feeds import random_arrays
from rlx.tools.graphs import MODEL, add_graph_options, add_params, compiled_from, params_from
from rlx.tools.kinds import LANGUAGE, kind_of
from rlx.tools.language import (
    add_answer_options,
    add_model_options,
    answer_options,
    load,
    refuse_language_options,
    show,
)
from rlx.tools.options import add_device, add_force, add_precision, add_threads
from rlx.types import TensorType, dtype

__all__ = ["add_arguments", "run"]


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    p.add_argument(
        "file",
        metavar="MODEL",
        help=f"{MODEL}; an artifact of rlx compile; or a language model (.gguf, or a folder)",
    )
    add_graph_options(p)
    add_params(p)
    p.add_argument(
        "--input", action=Once, type=pair, default=[], metavar="NAME=FILE.npy", help="an input"
    )
    p.add_argument(
        "--random", action="store_true",
        help="random arrays for inputs, and params without a value, that are not given",
    )  # fmt: skip
    p.add_argument(
        "--output", action="append", default=[], metavar="[NAME=]FILE.npy",
        help="where an output goes, by its name or once for each in order; by default they are"
        " printed",
    )  # fmt: skip
    add_force(p)
    add_device(p)
    add_precision(
        p, "what products compute in: f32, bf16, f16 or high; rows of a language model: q8"
    )
    add_threads(p)
    language = p.add_argument_group("language models")
    language.add_argument("-p", "--prompt", metavar="TEXT", help="a text to go on with, as it is")
    add_model_options(language)
    add_answer_options(language)


def run(args: argparse.Namespace) -> int:
    """Run once; outputs go to their files, or to stdout as text."""
    if kind_of(args.file) in LANGUAGE or args.prompt is not None:
        return _language(args)
    refuse_language_options(args.file, args)
    f, carried = compiled_from(args.file, args)
    graph = f.graph
    files = _files(args, names_of_outputs(graph))
    types = {str(v.name): v.dtype.name for v in graph.inputs}
    values, given = params_from(args, graph), named_arrays(args.input, types)
    for name in given:
        if name not in types:
            raise unknown(name, list(types), "input")
    if args.random:
        made = random_arrays(graph, {**values, **given}, dict(args.dim), carried)
        values |= {str(v.name): made[str(v.name)] for v in graph.params if str(v.name) in made}
        given |= {name: made[name] for name in types if name in made}
    _check_given(args.file, graph, {*values, *carried}, given)
    for name, value in values.items():
        f.set_param(name, value)
    results = f.run(given)
    for index, path in files.items():
        save_array(path, results[index], args.force)
    if not files:
        for name, value in zip(names_of_outputs(graph), results, strict=True):
            print(f"{typed(name, TensorType(value.shape, dtype(value.dtype)))}\n{value}")
    return 0


def _check_given(
    path: str, graph: Graph, params: Collection[str], inputs: Mapping[str, Any]
) -> None:
    """NameError with the types of the inputs and params that have no array."""
    for kind, leaves, there in (("param", graph.params, params), ("input", graph.inputs, inputs)):
        left = [v for v in leaves if str(v.name) not in there]
        if not left:
            continue
        listed = ", ".join(typed(str(v.name), v.type) for v in left)
        said = "no value was set for the" if kind == "param" else "nothing was given for the"
        raise NameError(
            f"{path}: {said} {kind}{'s' * (len(left) > 1)} {listed}; give --{kind}"
            f" {left[0].name}=FILE.npy, or --random for random arrays"
        )


def _language(args: argparse.Namespace) -> int:
    """Go on with a prompt."""
    if args.prompt is None:
        raise RlxError(
            f'{args.file} is a language model, which goes on with a text; give -p "TEXT"'
        )
    arrays = (args.input, args.output, args.param, args.params, args.constant, args.dim)
    if any(arrays) or args.force or args.random:
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
        if not path.endswith(".npy"):
            raise RlxError(f"--output {path}: outputs are written as .npy files; name it so")
        check_free(path, args.force)
    return found
