"""rlx-opt: reads HIR, MIR or LIR text, runs passes, prints a stage.

    rlx-opt model.mlir --hir-to-mir --simplify
    rlx-opt model.mlir --emit=lir --target=cpu:x86-64-v4
    rlx-opt bad.mlir --split-input-file --verify-diagnostics

It mirrors mlir-opt: IR goes to stdout and nothing else does; diagnostics go to stderr. Exit codes:
0 done, 1 the input was refused, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rlx.errors import IRError, RlxError

__all__ = ["main"]

PASS_NAMES = (
    "hir-to-mir", "simplify", "legalize", "share-inputs", "hoist", "fuse", "mir-to-lir",
)  # fmt: skip
"""RLX's passes by name; a test holds it equal to the pipeline, which would be slow to import here."""

UPSTREAM = ("canonicalize", "cse")
EMIT = ("hir", "mir", "fused", "lir", "llvm", "asm", "ptx", "spirv")
SPLIT = "// -----"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser("rlx-opt", description="Run RLX's passes on IR text.")
    p.add_argument("input", nargs="?", default="-", help="a file, or - for standard input")
    p.add_argument("-o", dest="output", default="-", help="where the result goes")
    p.add_argument("--emit", choices=EMIT, help="run the pipeline up to a stage and print it")
    p.add_argument("--target", default="cpu", help="target, such as cpu or cpu:x86-64-v4")
    p.add_argument("--dispatch", choices=("native", "common"), default="native")
    p.add_argument("--no-fuse", action="store_true", help="keep ops apart")
    p.add_argument("--pass-pipeline", default="", metavar="A,B", help="passes by name, in order")
    p.add_argument("--split-input-file", action="store_true", help=f"treat parts between {SPLIT} apart")
    p.add_argument("--verify-diagnostics", action="store_true", help="check expected-error comments")
    p.add_argument("--verify-roundtrip", action="store_true", help="print, parse and compare")
    p.add_argument("--report", action="store_true", help="fusion and dispatch reports, to stderr")
    p.add_argument("--timing", action="store_true", help="milliseconds a pass, to stderr")
    p.add_argument("--mlir-print-debuginfo", action="store_true", help="print locations")
    p.add_argument("--list-passes", action="store_true", help="name the passes and stop")
    p.add_argument("--debug", action="store_true", help="show Python tracebacks")
    for name in (*PASS_NAMES, *UPSTREAM):
        p.add_argument(f"--{name}", dest="passes", action="append_const", const=name)
    return p


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    args = parser().parse_args(argv)
    if args.list_passes:
        from rlx.lowering.pipeline import PIPELINE

        for p in PIPELINE:
            print(f"{p.name:14s}{(p.__doc__ or '').strip().splitlines()[0]}")
        return 0
    try:
        text = sys.stdin.read() if args.input == "-" else Path(args.input).read_text()
    except OSError as e:
        print(f"rlx-opt: cannot read {args.input}: {e.strerror}", file=sys.stderr)
        return 1
    parts = text.split(SPLIT) if args.split_input_file else [text]
    line = 0
    results: list[str] = []
    code = 0
    for part in parts:
        out, ok = _run_part(part, line, args)
        results.append(out)
        code |= not ok
        line += part.count("\n")
    if code == 0 and not args.verify_diagnostics:
        _write(f"\n{SPLIT}\n".join(results), args.output)
    return code


def _run_part(text: str, line: int, args: argparse.Namespace) -> tuple[str, bool]:
    """One part of the input: its output, and whether all was well."""
    from rlx.tools.diagnostics import Collector

    name = "<stdin>" if args.input == "-" else args.input
    collector = Collector(text, name, line)
    try:
        with collector:
            out = _transform(text, args, collector)
    except RlxError as e:
        if args.debug:
            raise
        collector.add_error(e)
        out = ""
    if args.verify_diagnostics:
        return "", collector.check_expected()
    return out, collector.report()


def _transform(text: str, args: argparse.Namespace, collector: object) -> str:
    from rlx.dialects.context import make_context
    from rlx.lowering.base import Compilation, Options
    from rlx.lowering.pipeline import named, run_passes
    from rlx.targets import find_target
    from rlx.tools.stages import emit_stage, passes_to

    target = find_target(args.target)
    compilation = Compilation(target, Options(dispatch=args.dispatch, fuse=not args.no_fuse))
    ctx = make_context()
    collector.attach(ctx)  # type: ignore[attr-defined]
    from rlx.dialects.context import parse

    module = parse(text, ctx)
    wanted = [*(n.strip() for n in args.pass_pipeline.split(",") if n.strip()), *(args.passes or [])]
    with ctx:
        for name in wanted:
            if name in UPSTREAM:
                from rlx._mlir import run_pipeline

                run_pipeline(module, f"builtin.module({name})", verify=True)
            else:
                module = run_passes(module, [named(name)], compilation)
        if args.emit:
            module = run_passes(module, passes_to(module, args.emit), compilation)
            out = emit_stage(module, args.emit, target)
        else:
            out = _print(module, args)
        if args.verify_roundtrip and str(parse(str(module), ctx)) != str(module):
            raise IRError("the printed module does not parse back to itself")
    if args.report:
        print(compilation.fusion, compilation.dispatch, sep="\n", file=sys.stderr)
    if args.timing:
        for stage, seconds in compilation.seconds.items():
            print(f"{seconds * 1e3:9.2f} ms  {stage}", file=sys.stderr)
    return out


def _print(module: object, args: argparse.Namespace) -> str:
    return module.operation.get_asm(enable_debug_info=args.mlir_print_debuginfo)  # type: ignore[attr-defined]


def _write(text: str, output: str) -> None:
    if output == "-":
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
    else:
        Path(output).write_text(text)


if __name__ == "__main__":
    sys.exit(main())
