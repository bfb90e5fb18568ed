"""The command line of rlx-opt. It loads no MLIR, so that --help answers at once.

Flags are those of mlir-opt: ``--flag``, ``-flag``, ``--flag=value`` and ``--flag value`` all work,
and a flag that is no option names a pass: ``--simplify``, ``--canonicalize='max-iterations=3'``.
"""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from rlx import knobs
from rlx.lowering.registry import PASSES

__all__ = ["LEVELS", "SPLIT", "UsageError", "parser", "read_flags"]

LEVELS = ("hir", "mir", "fused", "lir")
SPLIT = "// -----"

DEFAULTS = {"split-input-file": SPLIT, "verify-diagnostics": "all", "verify-each": "true"}
"""The options whose value may be left out, and what it is then."""

SHORT = ("-o", "-p", "-h")
TRUTH = {"true": True, "1": True, "false": False, "0": False}


class UsageError(Exception):
    """The command line asks for something that there is not."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; rlx-opt --help lists the flags")


def parser() -> argparse.ArgumentParser:
    """The options; passes are read apart, since their order counts."""
    p = _Parser(
        "rlx-opt",
        description="Run passes on IR text, in the manner of mlir-opt.",
        usage="rlx-opt [FILE] [--PASS[='option=value']]... [flags]",
        epilog=f"Passes of RLX, each also a flag: {', '.join(PASSES)}. Those of MLIR work too, "
        "such as --canonicalize and --cse. --explain=NAME describes a pass.",
        allow_abbrev=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=32),
    )
    _input_and_output(p.add_argument_group("input and output"))
    _passes(p.add_argument_group("passes"))
    _checking(p.add_argument_group("checking"))
    _printing(p.add_argument_group("printing IR to stderr, and how IR is printed"))
    _measuring(p.add_argument_group("measuring, to stderr"))
    _failing(p.add_argument_group("when a pass fails"))
    _ours(p.add_argument_group("compiling"))
    _about(p.add_argument_group("about"))
    return p


def _input_and_output(group: Any) -> None:
    add = group.add_argument
    add("input", nargs="?", default="-", metavar="FILE", help="IR text or bytecode; - is stdin")
    add("-o", dest="output", default="-", metavar="FILE", help="the result, if all went well")
    add("--split-input-file", metavar="MARKER", help=f"take parts apart at lines {SPLIT}")
    add("--output-split-marker", default=SPLIT, metavar="MARKER", help="between printed parts")
    add("--no-implicit-module", action="store_true", help="take the top op of the text as it is")
    add("--allow-unregistered-dialect", action="store_true", help="take ops of any dialect")
    add("--emit-bytecode", action="store_true", help="write MLIR bytecode and not text")


def _passes(group: Any) -> None:
    add = group.add_argument
    add("-p", "--pass-pipeline", metavar="TEXT", help="builtin.module(a{option=1},b), or a,b")
    add("--dump-pass-pipeline", action="store_true", help="print the pipeline to stderr")
    add("--disable-rule", action="append", default=[], metavar="A,B", help="leave rules out")
    add("--list-passes", action="store_true", help="name the passes, and stop")
    add("--show-dialects", action="store_true", help="name the dialects, and stop")


def _checking(group: Any) -> None:
    add = group.add_argument
    add("--verify-each", choices=TRUTH, default="true", metavar="BOOL", help="after every pass")
    add(
        "--verify-diagnostics",
        choices=("all", "only-expected"),
        metavar="all|only-expected",
        help="check // expected-error {{text}} comments",
    )
    add("--verify-roundtrip", action="store_true", help="print, parse and compare the result")


def _printing(group: Any) -> None:
    add = group.add_argument
    for when in ("before", "after"):
        add(
            f"--mlir-print-ir-{when}",
            action="append",
            default=[],
            metavar="A,B",
            help=f"{when} these passes",
        )
        add(f"--mlir-print-ir-{when}-all", action="store_true", help=f"{when} every pass")
    add("--mlir-print-ir-after-change", action="store_true", help="after: only if the IR changed")
    add("--mlir-print-ir-after-failure", action="store_true", help="after: only if the pass failed")
    add("--mlir-print-ir-module-scope", action="store_true", help="the module, for nested passes")
    add("--mlir-print-ir-tree-dir", metavar="FOLDER", help="to files in a tree, not to stderr")
    add("--mlir-print-debuginfo", action="store_true", help="with locations")
    add("--mlir-print-op-generic", action="store_true", help="in the generic form")
    add(
        "--mlir-elide-elementsattrs-if-larger",
        type=int,
        metavar="N",
        help="without literals of more than N elements",
    )


def _measuring(group: Any) -> None:
    add = group.add_argument
    add("--mlir-timing", action="store_true", help="seconds by pass")
    add("--mlir-pass-statistics", action="store_true", help="how often each rule applied")
    add("--trace", metavar="FILE", help="the passes as a trace, for Perfetto or chrome://tracing")
    add("--report", action="store_true", help="what was fused, what was not, and which kernels run")


def _failing(group: Any) -> None:
    add = group.add_argument
    add(
        "--mlir-pass-pipeline-crash-reproducer",
        metavar="FILE",
        help="where the IR before a failing pass goes; without it, to the temporary folder",
    )
    add("--mlir-generate-reproducer", metavar="FILE", help="write one for the whole run, first")
    add("--run-reproducer", action="store_true", help="run the pipeline that the input holds")
    add("--mlir-print-op-on-diagnostic", action="store_true", help="show the op of a diagnostic")


def _ours(group: Any) -> None:
    add = group.add_argument
    add(
        "--emit",
        metavar="STAGE",
        help=f"run the pipeline up to a stage and print it: {', '.join(LEVELS)}, and those of the "
        "target, such as llvm, asm, ptx, spirv",
    )
    add("--target", default="cpu", help="such as cpu or cpu:x86-64-v4 (default: this machine)")
    add("--dispatch", choices=knobs.DISPATCH, default="native", help="which kernels run ops")
    add("--no-fuse", action="store_true", help="keep ops apart")


def _about(group: Any) -> None:
    add = group.add_argument
    add("--explain", metavar="NAME", help="describe an op, a pass or a class of errors, and stop")
    add("--version", action="store_true", help="print the versions, and stop")
    add("--debug", action="store_true", help="show Python tracebacks")


def read_flags(argv: list[str]) -> argparse.Namespace:
    """The arguments, with ``passes``: (name, options) of the flags that name passes, in order.

    Raises UsageError for what the options do not allow. Whether a pass exists shows later.
    """
    p = parser()
    known = {s: a for a in p._actions for s in a.option_strings}
    passes: list[tuple[str, str]] = []
    rest: list[str] = []
    for i, word in enumerate(argv):
        if not word.startswith("-") or word == "-":
            rest.append(word)
            continue
        if word == "--":
            rest += argv[i:]
            break
        flag, equals, value = _long(word).partition("=")
        action = known.get(flag)
        if action is None:
            passes.append((flag.lstrip("-"), value))
        elif isinstance(action, argparse._StoreTrueAction) and equals:
            if value not in TRUTH:
                raise UsageError(f"{flag}={value}: expected true or false")
            rest += [flag] if TRUTH[value] else []
        elif not equals and flag[2:] in DEFAULTS:
            rest.append(f"{flag}={DEFAULTS[flag[2:]]}")
        else:
            rest += [flag, value] if equals and flag in SHORT else [flag + equals + value]
    args = p.parse_args(rest)
    args.passes = passes
    args.verify_each = TRUTH[args.verify_each]
    return args


def _long(word: str) -> str:
    """A flag with two dashes, as mlir-opt also takes it with one."""
    if word.startswith("--") or word.split("=", maxsplit=1)[0] in SHORT:
        return word
    return "-" + word
