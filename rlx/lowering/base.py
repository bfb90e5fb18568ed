"""What a pass is, and what one compile carries from pass to pass."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

from rlx._mlir import ir
from rlx.errors import GraphError, did_you_mean
from rlx.lowering.region import Regions
from rlx.lowering.report import DispatchReport, FusionReport
from rlx.ops.builders import located
from rlx.targets.base import Target

__all__ = ["Compilation", "Options", "Pass", "RulePass", "functions"]


@dataclass(frozen=True)
class Options:
    """What a user may choose about a compile.

    ``dispatch`` is "native" (kernel families where they claim an op, else the common way) or
    "common" (every op by its own loop nest, unfused); ``fuse`` False keeps ops apart.
    """

    dispatch: Literal["native", "common"] = "native"
    fuse: bool = True

    def __post_init__(self) -> None:
        if self.dispatch not in ("native", "common"):
            raise GraphError(f"dispatch is 'native' or 'common', found {self.dispatch!r}")
        if not isinstance(self.fuse, bool):
            raise GraphError(f"fuse is True or False, found {self.fuse!r}")

    @staticmethod
    @located
    def of(given: Mapping[str, Any]) -> Options:
        """Options by name, as a user gives them; GraphError for one that there is not."""
        known = [f.name for f in fields(Options)]
        for name in given:
            if name not in known:
                listed = ", ".join(known)
                hint = did_you_mean(name, known)
                raise GraphError(f"no option is called {name!r}{hint}; there are {listed}")
        return Options(**given)


@dataclass
class Compilation:
    """One compile: its target and options, what the passes report, and ``regions``, which they
    share while they run. ``hits`` counts by pass how often each of its rules applied."""

    target: Target
    options: Options = field(default_factory=Options)
    fusion: FusionReport = field(default_factory=FusionReport)
    dispatch: DispatchReport = field(default_factory=DispatchReport)
    seconds: dict[str, float] = field(default_factory=dict)
    hits: dict[str, Counter[str]] = field(default_factory=dict)
    regions: Regions = field(default_factory=Regions)

    @contextmanager
    def timed(self, stage: str) -> Generator[None]:
        """Add the time of the block to ``seconds[stage]``."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - start

    def hit(self, name: str, rule: str) -> None:
        """Count that a rule of the pass called ``name`` applied."""
        self.hits.setdefault(name, Counter())[rule] += 1


class Pass(ABC):
    """A step of the pipeline on a module, in place or giving a new one.

    ``name`` is its command-line name; the docstring's first line is its help. ``verifies`` says
    that the module it returns has been verified already, as one that was parsed has. A pass with
    options is a frozen dataclass, whose fields they are (see ``pass_options``).
    """

    name: ClassVar[str]
    verifies: ClassVar[bool] = False

    @abstractmethod
    def run(self, module: ir.Module, compilation: Compilation) -> ir.Module:
        """Rewrite the module (in place, returning it) or return a new one.

        It is called with the module's context, and an unknown location, as the current ones.
        """


@dataclass(frozen=True)
class RulePass(Pass):
    """A pass made of rules, each of which improves a module and is right to leave out."""

    rules: ClassVar[tuple[str, ...]]
    disable_rules: tuple[str, ...] = ()

    def applies(self, rule: str) -> bool:
        """Whether a rule is on."""
        return rule not in self.disable_rules


def functions(module: ir.Module) -> dict[str, ir.Operation]:
    """The functions of a module by name."""
    ops = [view.operation for view in module.body.operations]
    return {ir.StringAttr(o.attributes["sym_name"]).value: o for o in ops if o.name == "func.func"}
