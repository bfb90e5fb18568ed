"""``rlx reduce MODEL -o small.mlir``: the part of a graph that makes it fail, as a lit test."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlx.errors import GraphError
from rlx.tools.arrays import check_free
from rlx.tools.graphs import MODEL, add_constants, sized_graph_from
from rlx.tools.options import add_compile_options, add_force

if TYPE_CHECKING:
    from rlx.tools.reduce import Subject
    from rlx.tools.reduce.failures import Failure

__all__ = ["add_arguments", "run"]

SEEDS = 8
"""Seeds that are tried before a test gets a file of arrays."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add("file", metavar="MODEL", help=MODEL)
    add("-o", dest="output", metavar="OUT.mlir", help="the test; by default FILE.reduced.mlir")
    add_force(parser)
    add("--check", metavar="COMMAND", help="shrink while this fails; {} is the file's place in it")
    add("--match", metavar="REGEX", help="with --check: what its output must hold")
    add(
        "--mismatch", action="store_true", help="shrink while results differ from the interpreter's"
    )
    add("--test", action="store_true", help="shrink nothing: exit with 1 if the graph fails")
    add("--arrays", metavar="FILE.npz", help="arrays of inputs and params; else random ones")
    add("--seed", type=int, default=0, help="of the random arrays")
    add_constants(parser)
    add_compile_options(parser)
    add("--tolerance", type=float, help="of a mismatch: part of an output's largest element")
    add("--tries", type=int, default=2000, help="graphs to try at most")
    add("--seconds", type=float, default=600.0, help="time to take at most")


def run(args: argparse.Namespace) -> int:
    """Reduce, write the test and say what it holds."""
    from rlx.tools.reduce import reduce_graph

    subject = _subject(args)
    if args.test:
        return _test(subject, args)
    output = Path(args.output or f"{args.file}.reduced.mlir")
    check_free(os.fspath(output), args.force)
    failure = _failure(subject, args)
    before = len(subject.graph)
    small = reduce_graph(
        subject, failure.holds, tries=args.tries, seconds=args.seconds, progress=_progress
    )
    for path in _write(small, failure, output, args.file):
        print(path)
    print(f"{before} nodes became {len(small.graph)}", file=sys.stderr)
    return 0


def _options(args: argparse.Namespace) -> dict[str, Any]:
    chosen = {"dispatch": "common"} if args.dispatch == "common" else {}
    return {**chosen, "fuse": False} if args.no_fuse else chosen


def _subject(args: argparse.Namespace) -> Subject:
    from rlx.tools.reduce import Subject
    from rlx.tools.reduce.arrays import arrays_for, read_arrays

    graph = sized_graph_from(args.file, args)
    if args.check:
        return Subject(graph)
    given = arrays_for(graph, args.seed)
    if args.arrays:
        given |= read_arrays(args.arrays, graph)
    return Subject(graph, given)


def _failure(subject: Subject, args: argparse.Namespace) -> Failure:
    from rlx.targets import default_target
    from rlx.tools.reduce.failures import Command, Mismatch, find_failure

    if args.check:
        command = Command(args.check, args.match)
        command.status, _ = command.outcome(subject)
        if not command.holds(subject):
            raise GraphError(
                f"the command does not fail on the whole graph: exit status {command.status}"
                + (f", and its output must match {args.match!r}" if args.match else "")
            )
        return command
    target = args.target or default_target()
    mismatch = Mismatch(_options(args), args.tolerance)
    if args.mismatch and mismatch.found(subject) is None:
        raise GraphError("the results are those of the interpreter: nothing to reduce")
    return mismatch if args.mismatch else find_failure(subject, target, _options(args), mismatch)


def _test(subject: Subject, args: argparse.Namespace) -> int:
    from rlx.tools.reduce.failures import Mismatch

    wrong = Mismatch(_options(args), args.tolerance).found(subject)
    if wrong is not None:
        print(f"rlx: {args.file}: {wrong}", file=sys.stderr)
    return int(wrong is not None)


def _progress(subject: Subject, tried: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{len(subject.graph)} nodes after {tried} tries ", end="", file=sys.stderr)


def _write(small: Subject, failure: Failure, output: Path, source: str) -> list[Path]:
    """The test; beside it the arrays, where the failure needs other ones than random ones."""
    from rlx.text import graph_text
    from rlx.tools.reduce.arrays import write_arrays

    path = output.with_suffix(".npz")
    seed = _seed(small, failure)
    given = f" --arrays %S/{path.name}" if seed is None else f" --seed {seed}"
    head = [*failure.run_lines(given), f"// Reduced from {Path(source).name}."]
    text = graph_text(small.graph, values=False, places=False)
    output.write_text("\n".join([*head, failure.says(small), "", text]), encoding="utf-8")
    if seed is not None or small.arrays is None:
        return [output]
    write_arrays(path, small.arrays)
    return [output, path]


def _seed(small: Subject, failure: Failure) -> int | None:
    """A seed whose random arrays make the graph fail too, so that a test needs no others."""
    from rlx.tools.reduce import Subject
    from rlx.tools.reduce.arrays import arrays_for

    if small.arrays is None:
        return None
    made = (Subject(small.graph, arrays_for(small.graph, seed)) for seed in range(SEEDS))
    return next((seed for seed, trial in enumerate(made) if failure.holds(trial)), None)
