"""Running the passes of the input: with dumps around them, and a reproducer of a failure."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

from rlx._mlir import ir
from rlx.errors import PassError, RlxError, UnsupportedError
from rlx.lowering.compilation import Compilation, Options
from rlx.targets import find_target
from rlx.tools.diagnostics import Collector
from rlx.tools.opt.dumps import Dumps
from rlx.tools.opt.flags import LEVELS
from rlx.tools.opt.pipeline_text import ROOT, parse_pipeline, pipeline_text
from rlx.tools.opt.reproducer import Settings, write_reproducer
from rlx.tools.opt.steps import Prepared, Root, check_rules, own, prepare
from rlx.tools.stages import emit_stage, passes_to

__all__ = ["Execution", "Shared"]


@dataclass
class Shared:
    """What the parts of the input have in common. ``reproducers`` are the files that a part has
    written."""

    args: Namespace
    context: ir.Context
    seconds: dict[str, float]
    hits: dict[str, Counter[str]]
    prepared: dict[tuple[Settings, str], list[Prepared]] = field(default_factory=dict)
    reproducers: list[str] = field(default_factory=list)
    dumps: Dumps = field(init=False)

    def __post_init__(self) -> None:
        self.dumps = Dumps(self.args)

    def passes(self, settings: Settings, root: str = ROOT) -> list[Prepared]:
        """The pipeline of the settings for an op called ``root``; UsageError for a pass, an option
        or a rule that there is not."""
        key = (settings, root)
        if key not in self.prepared:
            check_rules(settings.disabled)
            steps = parse_pipeline(settings.pipeline, root)
            self.prepared[key] = prepare(
                steps, root, self.context, settings.disabled, settings.verify_each
            )
        return self.prepared[key]


class Execution:
    """One part of the input on its way through the passes."""

    def __init__(self, shared: Shared, settings: Settings, collector: Collector) -> None:
        self.shared, self.settings, self.collector = shared, settings, collector
        self.args = shared.args
        self.target = find_target(settings.target)
        self.compilation = Compilation(
            self.target,
            Options(dispatch=settings.dispatch, fuse=settings.fuse),
            seconds=shared.seconds,
            hits=shared.hits,
        )

    def passes(self, root: Root) -> Root:
        """Run the pipeline, and then what leads to the stage that is printed."""
        emit = self.settings.emit
        first = self.shared.passes(self.settings, root.operation.name)
        if self.args.mlir_generate_reproducer:
            write_reproducer(root, self._only(first, emit), self.args.mlir_generate_reproducer)
        if not emit:
            self._print_pipeline(first, root)
        for p in first:
            root = self._step(p, root)
        if emit:
            if not isinstance(root, ir.Module):
                found = root.operation.name
                raise UnsupportedError(f"--emit={emit} takes a {ROOT}, found {found}")
            passes = passes_to(root, emit, whole=self.target.system is not None)
            rest = [own(p, self.settings.disabled) for p in passes]
            self._print_pipeline([*first, *rest], root)
            for p in rest:
                root = self._step(p, root)
        if self.args.mlir_pass_pipeline_crash_reproducer:
            Path(self.args.mlir_pass_pipeline_crash_reproducer).unlink(missing_ok=True)
        return root

    def emit(self, root: Root) -> str | bytes | None:
        """What the target makes of a schedule; None where IR itself is the result."""
        stage = self.settings.emit
        if not stage or stage in LEVELS[:-1]:
            return None
        assert isinstance(root, ir.Module)
        self.collector.doing = f"the stage {stage}"
        try:
            with self.compilation.timed(stage):
                return emit_stage(root, stage, self.target, self.compilation)
        except Exception as e:
            self._reproduce(root, [], stage, e)
            raise

    def report(self) -> None:
        """What was fused, what was not, and which kernels run, to stderr."""
        print(self.compilation.fusion, self.compilation.dispatch, sep="\n", file=sys.stderr)

    def _print_pipeline(self, passes: list[Prepared], root: Root) -> None:
        if self.args.dump_pass_pipeline:
            steps = [s for p in passes for s in p.steps]
            print(pipeline_text(steps, root.operation.name), file=sys.stderr)

    def _step(self, p: Prepared, root: Root) -> Root:
        self.collector.doing = f"pass {p.name}"
        self.shared.hits.setdefault(p.name, Counter())
        dumps = self.shared.dumps
        was = dumps.before(p, root)
        before = root.operation.clone()  # passes work in place
        path = self.args.mlir_pass_pipeline_crash_reproducer
        if path:  # now, for a pass that takes the process down
            write_reproducer(before, self._only([p], ""), path)
        try:
            after = p.run(root, self.compilation, self.settings.verify_each)
        except Exception as e:
            dumps.failed(p, root)
            self._reproduce(before, [p], "", e)
            raise
        dumps.after(p, after, was)
        return after

    def _only(self, passes: list[Prepared], emit: str) -> Settings:
        """The settings that repeat a part of this run."""
        text = pipeline_text([s for p in passes for s in p.steps])
        return replace(self.settings, pipeline=text, emit=emit)

    def _reproduce(self, root: Root, passes: list[Prepared], emit: str, error: Exception) -> None:
        """Write a reproducer where one is asked for, or where the failure is no user's fault."""
        path = self.args.mlir_pass_pipeline_crash_reproducer
        defect = isinstance(error, PassError) or not isinstance(error, RlxError)
        if path or (defect and not self.args.verify_diagnostics):
            written = write_reproducer(root, self._only(passes, emit), path)
            self.shared.reproducers.append(written)
