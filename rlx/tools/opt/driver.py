"""A run of rlx-opt: every part of the input is parsed, transformed and printed."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from shlex import quote
from typing import TYPE_CHECKING, Any

from rlx._mlir import ir, mlir_errors
from rlx.base.clock import Tick
from rlx.dialects.context import make_context, parse
from rlx.errors import DeviceError, IRError, RlxError
from rlx.tools.diagnostics import Collector
from rlx.tools.opt.codes import DONE, INTERNAL, REFUSED
from rlx.tools.opt.flags import LEVELS, UsageError
from rlx.tools.opt.inputs import STDIN, check_bytecode, read_input, split_parts
from rlx.tools.opt.nesting import check_nesting
from rlx.tools.opt.output import check_roundtrip, joined, result, write
from rlx.tools.opt.pipeline_text import ROOT
from rlx.tools.opt.reports import statistics_report, timing_report
from rlx.tools.opt.reproducer import IGNORED, Settings, find_reproducer
from rlx.tracing import span

if TYPE_CHECKING:
    from rlx.tools.opt.execute import Execution, Shared

__all__ = ["Driver"]


class Driver:
    """One call of rlx-opt. The parts of its input share a context, which takes a while to make."""

    def __init__(self, args: Namespace) -> None:
        """Raises UsageError for what the command line asks for and there is not."""
        self.args = args
        self.name = STDIN if args.input == "-" else args.input
        self.start = Tick.now()
        self.seconds: dict[str, float] = {}
        self.hits: dict[str, Counter[str]] = {}
        self.settings = _settings(args)
        self.context = make_context()
        self.context.allow_unregistered_dialects = args.allow_unregistered_dialect
        if args.target != "cpu" or args.emit:
            _check_target(args)
        self.shared = self._shared() if self._has_work() else None

    def _has_work(self) -> bool:
        """Whether anything is to be done but to parse and print, which needs fewer modules."""
        args, s = self.args, self.settings
        return bool(
            s.pipeline
            or s.emit
            or s.disabled
            or args.run_reproducer
            or args.mlir_generate_reproducer
            or args.dump_pass_pipeline
            or args.report
        )

    def _shared(self) -> Shared:
        from rlx.tools.opt.execute import Shared

        shared = Shared(self.args, self.context, self.seconds, self.hits)
        if not self.args.no_implicit_module:
            with self.context:
                shared.passes(self.settings)
        return shared

    def run(self) -> int:
        """Transform the input and write the result; returns the exit code."""
        outputs: list[str | bytes] = []
        code = DONE
        for part in self._parts():
            found = self._part(part, outputs)
            if found == INTERNAL:
                return found
            code = code or found
        if outputs and (code == DONE or self.args.output == "-"):
            with self._timed("write"):
                write(joined(outputs, self.args.output_split_marker), self.args.output)
        self._report()
        return code

    def _part(self, part: str | bytes, outputs: list[str | bytes]) -> int:
        """Transform a part, adding what it gives to ``outputs``, and show its diagnostics."""
        collector = Collector(
            part if isinstance(part, str) else "",
            self.name,
            print_op=self.args.mlir_print_op_on_diagnostic,
            ignored=IGNORED if self.args.run_reproducer else None,
        )
        try:
            outputs.append(self._transform(part, collector))
        except UsageError:
            raise
        except Exception as e:
            if self.args.debug:
                raise
            if not isinstance(e, RlxError):
                return self._defect(e, collector.doing)
            collector.add_error(e)
        mode = self.args.verify_diagnostics
        well = collector.check_expected(mode == "all") if mode else collector.report()
        self._tell_reproducer()
        return DONE if well else REFUSED

    def _defect(self, e: Exception, doing: str) -> int:
        """A defect of ours, or IR that a pass does not expect: one line, not a traceback."""
        message = str(e).splitlines()[0][:200] if str(e) else "no message"
        kind = type(e).__name__
        print(f"rlx-opt: internal error in {doing}: {kind}: {message}", file=sys.stderr)
        self._tell_reproducer()
        print("rlx-opt: --debug shows where; please report it with the input", file=sys.stderr)
        return INTERNAL

    def _parts(self) -> list[str] | list[bytes]:
        data = read_input(self.args.input)
        marker = self.args.split_input_file
        if isinstance(data, bytes):
            return [data]
        return [data] if marker is None else split_parts(data, marker, self.name)

    def _transform(self, part: str | bytes, collector: Collector) -> str | bytes:
        """One part of the input through the passes and to the stage that is printed."""
        args = self.args
        collector.doing = "the parser"
        settings = self.settings
        if args.run_reproducer:
            settings = find_reproducer(part if isinstance(part, str) else "", settings)
        if isinstance(part, str):
            check_nesting(part)
        with self.context, collector.listening(self.context):
            with self._timed("parse"):
                root = self._parse(part)
            execution: Execution | None = None
            if self.shared is not None:
                from rlx.tools.opt.execute import Execution

                execution = Execution(self.shared, settings, collector)
                root = execution.passes(root)
            collector.doing = "the printer"
            if args.verify_roundtrip:
                check_roundtrip(root, self.context)
            out = execution.emit(root) if execution else None
            if out is None:
                with self._timed("print"):
                    out = result(root, args)
        if execution and args.report:
            execution.report()
        return out

    def _parse(self, part: str | bytes) -> Any:
        """The top op: the module of the text, or for --no-implicit-module the op that is there."""
        if self.args.no_implicit_module:
            if isinstance(part, bytes):
                raise IRError("--no-implicit-module takes text, found bytecode")
            with mlir_errors("cannot parse the MLIR text", IRError):
                root = ir.Operation.parse(part, source_name="-", context=self.context)
            if root.operation.name != ROOT:
                return root
        if isinstance(part, bytes):
            check_bytecode(part)
        return parse(part, self.context)

    @contextmanager
    def _timed(self, name: str) -> Generator[None]:
        start = Tick.now()
        try:
            with span(name):
                yield
        finally:
            took = Tick.now().seconds_since(start)
            self.seconds[name] = self.seconds.get(name, 0.0) + took

    def _tell_reproducer(self) -> None:
        """Say where the IR before a failing pass is, and how to repeat the failure."""
        for path in self.shared.reproducers if self.shared else ():
            print("rlx-opt: this repeats the failure:", file=sys.stderr)
            print(f"    rlx-opt {quote(path)} --run-reproducer", file=sys.stderr)
        if self.shared:
            self.shared.reproducers.clear()

    def _report(self) -> None:
        if self.args.mlir_pass_statistics:
            print(statistics_report(self.hits), file=sys.stderr)
        if self.args.mlir_timing:
            total = Tick.now().seconds_since(self.start)
            print(timing_report(self.seconds, total), file=sys.stderr)


def _settings(args: Namespace) -> Settings:
    """What the flags say of the compile."""
    if args.pass_pipeline is not None and args.passes:
        raise UsageError(f"give --pass-pipeline or --{args.passes[0][0]}, not both")
    if args.run_reproducer and (args.pass_pipeline or args.passes or args.emit):
        raise UsageError("--run-reproducer runs the passes that the input names, and no others")
    if args.split_input_file == "":
        raise UsageError("--split-input-file= needs a marker")
    if args.emit_bytecode and args.emit not in (None, *LEVELS):
        raise UsageError(f"--emit-bytecode writes IR, and --emit={args.emit} is none")
    if args.emit_bytecode and args.split_input_file:
        raise UsageError("--emit-bytecode gives a file that is no text: take one input a call")
    flags = ",".join(f"{name}{{{options}}}" if options else name for name, options in args.passes)
    pipeline = args.pass_pipeline if args.pass_pipeline is not None else flags
    disabled = tuple(r for text in args.disable_rule for r in text.split(",") if r)
    return Settings(
        pipeline, args.verify_each, args.target, args.dispatch, not args.no_fuse, args.emit or "",
        disabled,
    )  # fmt: skip


def _check_target(args: Namespace) -> None:
    from rlx.targets import find_target
    from rlx.targets.base import BINARY_STAGES

    try:
        target = find_target(args.target)
    except DeviceError as e:
        raise UsageError(f"--target={args.target}: {e.message}") from None
    stages = (*LEVELS, *target.stages)
    if args.emit and args.emit not in stages:
        raise UsageError(
            f"target {target.name} has no stage {args.emit!r}; it has {', '.join(stages)}"
        )
    if args.emit in BINARY_STAGES and args.split_input_file:
        raise UsageError(f"--emit={args.emit} gives a file that is no text: take one input a call")
