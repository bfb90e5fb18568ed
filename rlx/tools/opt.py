"""rlx-opt: reads HIR, MIR or LIR text, runs passes, prints a stage.

    rlx-opt model.mlir --hir-to-mir --simplify
    rlx-opt model.mlir --emit=lir --target=cpu:x86-64-v4
    rlx-opt bad.mlir --split-input-file --verify-diagnostics

It mirrors mlir-opt: IR goes to stdout and nothing else does; diagnostics go to stderr. Exit codes:
0 done, 1 the input was refused, 2 wrong usage, 70 an error inside RLX.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rlx.errors import DeviceError, IRError, RlxError, did_you_mean

if TYPE_CHECKING:
    from rlx._mlir import ir
    from rlx.lowering.base import Compilation
    from rlx.targets.base import Target
    from rlx.tools.diagnostics import Collector

__all__ = ["main"]

PASS_NAMES = (
    "hir-to-mir", "simplify", "legalize", "share-inputs", "hoist", "fuse", "mir-to-lir",
)  # fmt: skip
"""RLX's passes by name; a test holds it equal to the pipeline, which would be slow to import."""

UPSTREAM = ("canonicalize", "cse")
LEVELS = ("hir", "mir", "fused", "lir")
EMIT = (*LEVELS, "llvm", "asm", "ptx", "spirv")
SPLIT = "// -----"
REFUSED, USAGE, INTERNAL = 1, 2, 70


@dataclass(frozen=True)
class Job:
    """What happens to every part of the input. The parts share a context, which takes a while to
    make."""

    passes: list[str]
    target: Target
    context: ir.Context
    args: argparse.Namespace


class UsageError(Exception):
    """The command line asks for something that there is not."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser("rlx-opt", description="Run RLX's passes on IR text.")
    add = p.add_argument
    add("input", nargs="?", default="-", help="a file, or - for standard input (the default)")
    add("-o", dest="output", default="-", metavar="FILE", help="where the result goes")
    add("--emit", choices=EMIT, help="run the pipeline up to a stage and print it")
    add("--target", default="cpu", help="target, such as cpu or cpu:x86-64-v4")
    add("--dispatch", choices=("native", "common"), default="native", help="which kernels run ops")
    add("--no-fuse", action="store_true", help="keep ops apart")
    add(
        "--pass-pipeline",
        default="",
        metavar="A,B",
        help="passes by name: a,b or builtin.module(a,b)",
    )
    add("--split-input-file", action="store_true", help=f"take parts between lines {SPLIT} apart")
    add(
        "--verify-diagnostics",
        action="store_true",
        help="check // expected-error {{text}} comments",
    )
    add("--verify-roundtrip", action="store_true", help="print, parse and compare")
    add("--report", action="store_true", help="fusion and dispatch reports, to stderr")
    add("--timing", action="store_true", help="milliseconds a pass, to stderr")
    add("--mlir-print-debuginfo", action="store_true", help="print locations")
    add("--list-passes", action="store_true", help="name the passes and stop")
    add("--version", action="store_true", help="print the version and stop")
    add("--debug", action="store_true", help="show Python tracebacks")
    for name in (*PASS_NAMES, *UPSTREAM):
        add(f"--{name}", dest="passes", action="append_const", const=name, help=f"run {name}")
    return p


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code (argparse exits with 2 by itself)."""
    args = parser().parse_args(argv)
    if args.version:
        import rlx

        print(f"rlx-opt {rlx.__version__}")
        return 0
    if args.list_passes:
        return _list_passes()
    try:
        passes = [*parse_pipeline(args.pass_pipeline), *(args.passes or [])]
        target = _target(args)
    except UsageError as e:
        print(f"rlx-opt: {e}", file=sys.stderr)
        return USAGE
    try:
        text = read_text(args.input)
        parts = split_parts(text) if args.split_input_file else [text]
        return _run(parts, passes, target, args)
    except RlxError as e:
        print(f"rlx-opt: {e}", file=sys.stderr)
    except BrokenPipeError:
        # The reader has what it wants; Python would complain once more as it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as e:
        print(f"rlx-opt: {e.filename or args.input}: {e.strerror}", file=sys.stderr)
    return REFUSED


def _list_passes() -> int:
    from rlx.lowering.pipeline import PIPELINE

    for p in PIPELINE:
        print(f"{p.name:14s}{(p.__doc__ or '').strip().splitlines()[0]}")
    for name in UPSTREAM:
        print(f"{name:14s}Upstream's pass of that name.")
    return 0


def parse_pipeline(text: str) -> list[str]:
    """The passes of ``a,b`` or ``builtin.module(a,b)``; those of upstream may have options."""
    inner = re.fullmatch(r"\s*builtin\.module\((.*)\)\s*", text, re.DOTALL)
    found = re.findall(r"(?:[^,{}]|\{[^{}]*\})+", inner[1] if inner else text)
    names = [n.strip() for n in found if n.strip()]
    for n in names:
        head = n.split("{")[0]
        if n not in PASS_NAMES and head not in UPSTREAM:
            known = (*PASS_NAMES, *UPSTREAM)
            hint = did_you_mean(head, known)
            raise UsageError(f"no pass is called {n!r}{hint}; there are {', '.join(known)}")
    return names


def _target(args: argparse.Namespace) -> Target:
    from rlx.targets import find_target
    from rlx.targets.base import BINARY_STAGES

    try:
        target = find_target(args.target)
    except DeviceError as e:
        raise UsageError(f"--target={args.target}: {e.message}") from None
    stages = (*LEVELS, *target.stages)
    if args.emit and args.emit not in stages:
        listed = ", ".join(s for s in stages if s in EMIT)
        raise UsageError(f"target {target.name} has no stage {args.emit!r}; it has {listed}")
    if args.emit in BINARY_STAGES and args.split_input_file:
        raise UsageError(f"--emit={args.emit} gives a file that is no text: take one input a call")
    return target


def read_text(path: str) -> str:
    """The text of a file, or of standard input for ``-``; IRError for what is not text."""
    data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    try:
        text = data.decode()
        zero = text.find("\0")
        at = None if zero < 0 else len(text[:zero].encode())
    except UnicodeDecodeError as e:
        text, at = "", e.start
    if at is not None:
        name = "<stdin>" if path == "-" else path
        line = data[:at].count(b"\n") + 1
        raise IRError(
            f"byte 0x{data[at]:02x} at offset {at} is not text; "
            "rlx-opt reads MLIR's text form in UTF-8, which Graph.to_mlir() prints",
            (name, line),
        )
    return text


def split_parts(text: str) -> list[str]:
    """The parts between split lines, each after empty lines so that its own keep their numbers."""
    parts: list[str] = []
    line = 0
    for part in re.split(rf"^{SPLIT}.*$", text, flags=re.MULTILINE):
        parts.append("\n" * line + part)
        line += part.count("\n")
    return parts


def _run(parts: list[str], passes: list[str], target: Target, args: argparse.Namespace) -> int:
    from rlx.dialects.context import make_context
    from rlx.tools.diagnostics import Collector

    job = Job(passes, target, make_context(), args)
    outputs: list[str | bytes] = []
    code = 0
    for part in parts:
        collector = Collector(part, "<stdin>" if args.input == "-" else args.input)
        try:
            outputs.append(_transform(part, job, collector))
        except RlxError as e:
            if args.debug:
                raise
            collector.add_error(e)
        except Exception as e:
            # A defect of ours, or IR that a pass does not expect: one line, not a traceback.
            if args.debug:
                raise
            print(f"rlx-opt: internal error in {collector.doing}: {_brief(e)}", file=sys.stderr)
            print("rlx-opt: --debug shows where; please report it with the input", file=sys.stderr)
            return INTERNAL
        well = collector.check_expected() if args.verify_diagnostics else collector.report()
        code |= 0 if well else REFUSED
    if outputs:
        _write(_joined(outputs), args.output)
    return code


def _joined(outputs: list[str | bytes]) -> bytes:
    """The file of all parts; what is no text has one part alone."""
    texts = [t.strip("\n") for t in outputs if isinstance(t, str)]
    if len(texts) < len(outputs):
        return b"".join(b for b in outputs if isinstance(b, bytes))
    return (f"\n{SPLIT}\n".join(texts) + "\n").encode()


def _brief(e: Exception) -> str:
    return f"{type(e).__name__}: {str(e).splitlines()[0][:200] if str(e) else 'no message'}"


def _transform(text: str, job: Job, collector: Collector) -> str | bytes:
    """One part of the input through the passes and to the stage that is printed."""
    from rlx.dialects.context import parse
    from rlx.lowering.base import Compilation, Options
    from rlx.tools.diagnostics import check_limits
    from rlx.tools.stages import emit_stage, passes_to, run_pass

    args, context = job.args, job.context
    compilation = Compilation(job.target, Options(dispatch=args.dispatch, fuse=not args.no_fuse))
    collector.doing = "the parser"
    check_limits(text)
    with context, collector.listening(context):
        module = parse(text, context)
        for name in job.passes:
            collector.doing = f"pass {name}"
            module = run_pass(module, name, compilation)
        if args.emit:
            for p in passes_to(module, args.emit):
                collector.doing = f"pass {p.name}"
                module = run_pass(module, p.name, compilation)
            collector.doing = f"the stage {args.emit}"
        out = module.operation.get_asm(enable_debug_info=args.mlir_print_debuginfo)
        if args.verify_roundtrip and str(parse(str(module), context)) != str(module):
            raise IRError("the printed module does not parse back to itself")
        if args.emit and args.emit not in ("hir", "mir", "fused"):
            emitted = emit_stage(module, args.emit, job.target)
            out = out if emitted is None else emitted
    _explain(compilation, args)
    return out


def _explain(compilation: Compilation, args: argparse.Namespace) -> None:
    if args.report:
        print(compilation.fusion, compilation.dispatch, sep="\n", file=sys.stderr)
    if args.timing:
        for stage, seconds in compilation.seconds.items():
            print(f"{seconds * 1e3:9.2f} ms  {stage}", file=sys.stderr)


def _write(data: bytes, output: str) -> None:
    if output == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        Path(output).write_bytes(data)


if __name__ == "__main__":
    sys.exit(main())
