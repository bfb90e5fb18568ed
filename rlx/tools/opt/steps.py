"""The passes of a run, ready to run: those of RLX with their options, and those of MLIR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from rlx._mlir import Pipeline, ir, mlir_errors
from rlx.base.frozen import frozen
from rlx.errors import PassError, UnsupportedError, did_you_mean
from rlx.lowering.compilation import Compilation
from rlx.lowering.pass_base import Pass, RulePass
from rlx.lowering.pass_options import option_text, without_rules
from rlx.lowering.pipeline import PIPELINE, named
from rlx.lowering.registry import PASSES
from rlx.tools.opt.flags import UsageError
from rlx.tools.opt.pipeline_text import ROOT, Step, parse_pipeline, pipeline_text
from rlx.tools.stages import run_pass

__all__ = ["Prepared", "Root", "check_rules", "own", "prepare"]

Root: TypeAlias = "ir.Module | ir.OpView"
"""The top op of a part of the input."""

COMMON = ("canonicalize", "cse", "inline", "symbol-dce")
"""Passes of MLIR to suggest; it registers many more, and lists them nowhere."""


class Prepared(Protocol):
    """A pass that can run, and the steps as which it is written."""

    @property
    def steps(self) -> Sequence[Step]:
        """As which steps the pass is written."""
        ...

    @property
    def name(self) -> str:
        """The pass's name."""
        ...

    def run(self, root: Root, compilation: Compilation, verify: bool) -> Root:
        """Run it; raises what a pass raises."""
        ...


@frozen
class Own:
    """A pass of RLX."""

    steps: Sequence[Step]
    implementation: Pass

    @property
    def name(self) -> str:
        return self.implementation.name

    def run(self, root: Root, compilation: Compilation, verify: bool) -> Root:
        if not isinstance(root, ir.Module):
            raise UnsupportedError(f"{self.name} takes a {ROOT}, found {root.operation.name}")
        module = run_pass(root, self.implementation, compilation)
        if verify and not self.implementation.verifies:
            failed = mlir_errors(f"after {self.name} the module is not valid", PassError)
            with compilation.timed("verify"), failed:
                module.operation.verify()
        return module


@frozen
class Upstream:
    """A pass of MLIR, or a pipeline that it registers by a name."""

    steps: Sequence[Step]
    name: str
    pipeline: Pipeline

    def run(self, root: Root, compilation: Compilation, verify: bool) -> Root:
        with compilation.timed(self.name):
            self.pipeline.run(root)  # it was made to verify, or not to
        return root


def prepare(
    steps: Sequence[Step], root: str, context: ir.Context, disabled: Sequence[str], verify: bool
) -> list[Prepared]:
    """Look the passes up for an op called ``root``, without the rules in ``disabled``.

    Raises UsageError for a pass or an option that there is not.
    """
    return [
        own(_named(step, root), disabled)
        if step.name in PASSES
        else _upstream(step, root, context, verify)
        for step in steps
    ]


def own(p: Pass, disabled: Sequence[str]) -> Own:
    """A pass of RLX without some of its rules."""
    p = without_rules(p, disabled)
    return Own([Step(p.name, option_text(p))], p)


def check_rules(names: Sequence[str]) -> None:
    """Raise UsageError for a rule that no pass has."""
    passes = [p for p in PIPELINE if isinstance(p, RulePass)]
    known = [rule for p in passes for rule in p.rules]
    for name in names:
        if name not in known:
            raise UsageError(
                f"no rule is called {name!r}{did_you_mean(name, known)}; "
                "--explain=PASS lists those of a pass"
            )


def _named(step: Step, root: str) -> Pass:
    if step.nest:
        raise UsageError(f"{step.name} runs on the {ROOT}, and not in {'('.join(step.nest)}(...)")
    try:
        return named(step.name, step.options)
    except PassError as e:
        raise UsageError(e.message) from None


def _upstream(step: Step, root: str, context: ir.Context, verify: bool) -> Upstream:
    try:
        pipeline = Pipeline(pipeline_text([step], root), context, verify=verify)
    except PassError as e:
        if "does not refer to a registered pass" not in e.message:
            raise UsageError(f"pass {step.text}: {e.message.partition(': ')[2]}") from None
        known = (*PASSES, *COMMON)
        raise UsageError(
            f"no pass is called {step.name!r}{did_you_mean(step.name, known)}; there are "
            f"{', '.join(PASSES)}, and those of MLIR such as canonicalize and cse"
        ) from None
    return Upstream(parse_pipeline(str(pipeline), root), step.name, pipeline)
