"""One compile: what the user may choose, what it carries from pass to pass, and what it reports.

Nothing here needs MLIR: a compile that the cache has spared is reported in the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from rlx import knobs
from rlx.base.cached import cached_property
from rlx.base.clock import Tick
from rlx.base.frozen import frozen, record
from rlx.base.giving_way import checkpoint
from rlx.base.printed import Printed
from rlx.errors import GraphError, PassError, did_you_mean
from rlx.ir.builders import located, public
from rlx.lowering.report import ArenaBuffer, DispatchReport, FusionReport, times_text
from rlx.ops import OP_MODULES
from rlx.tracing import span

if TYPE_CHECKING:
    from rlx.lowering.region import Regions
    from rlx.targets.base import Target

__all__ = ["REPORTING", "Compilation", "CompileReport", "OptionArgs", "Options", "Record"]


def _dispatch() -> Any:
    return knobs.kernel_dispatch.get()


def _mir_ops(option: str, given: Any) -> tuple[str, ...]:
    """The full names of mir ops, which may be given without their dialect, sorted."""
    if isinstance(given, str) or not all(isinstance(name, str) for name in given):
        raise GraphError(f"{option} is a sequence of names of ops, found {given!r}")
    known = [name for name in OP_MODULES if name.startswith("mir.")]
    found = {name if "." in name else f"mir.{name}" for name in given}
    for name in sorted(found):
        if name not in known:
            hint = did_you_mean(name, known)
            raise GraphError(
                f"{option}: {name!r} is no op of mir{hint}; blocks have expanded there"
            )
    return tuple(sorted(found))


class OptionArgs(TypedDict, total=False):
    """The options of a compile as keywords: those of ``Options``, as a user gives them."""

    dispatch: Literal["native", "common"]
    fuse: bool
    force_common: Iterable[str]
    force_native: Iterable[str]
    donate: Sequence[tuple[int, int]]
    most_rounds: int | None
    constant_folding: bool
    assert_fusion_clean: bool
    verbose: bool


@public
@frozen
class Options:
    """What a user may choose about a compile.

    ``dispatch`` is "native" (kernel families where they claim an op, else the common way) or
    "common" (every op by its own loop nest, unfused), by default what RLX_KERNEL_DISPATCH says;
    ``force_common`` and ``force_native`` name mir ops that go one way whatever ``dispatch`` says:
    the first stay unfused, and of the second one that no kernel family claims is an
    UnsupportedError with the families' reasons. ``fuse`` False keeps ops apart. ``donate`` pairs
    positions of inputs with those of outputs, of one type each, that may be written over them
    (``CompiledGraph.run_in_place``). ``constant_folding`` False leaves what is computed of literals
    alone to kernels, which compute it as the graph is loaded, or in each run. With
    ``assert_fusion_clean`` a missed fusion is a PassError, and with ``verbose`` the reports of
    fusion and dispatch are printed. ``most_rounds`` says that a GPU's driver ends loops after so
    many rounds (``rlx.targets.gpu.loop_limit``); a session knows it of its device.
    """

    dispatch: Literal["native", "common"] = field(default_factory=_dispatch)
    fuse: bool = True
    force_common: tuple[str, ...] = ()
    force_native: tuple[str, ...] = ()
    donate: tuple[tuple[int, int], ...] = ()
    most_rounds: int | None = None
    constant_folding: bool = True
    assert_fusion_clean: bool = False
    verbose: bool = False

    def __post_init__(self) -> None:
        if self.dispatch not in knobs.DISPATCH:
            raise GraphError(f"dispatch is 'native' or 'common', found {self.dispatch!r}")
        for name in ("fuse", "constant_folding", "assert_fusion_clean", "verbose"):
            if not isinstance(getattr(self, name), bool):
                raise GraphError(f"{name} is True or False, found {getattr(self, name)!r}")
        if self.most_rounds is not None and self.most_rounds < 1:
            raise GraphError(f"most_rounds is None or a number from 1 on, found {self.most_rounds}")
        for name in ("force_common", "force_native"):
            object.__setattr__(self, name, _mir_ops(name, getattr(self, name)))
        if both := sorted({*self.force_common} & {*self.force_native}):
            raise GraphError(f"force_common and force_native both name {', '.join(both)}")

    def native(self, op: str) -> bool:
        """Whether kernel families are asked for an op, by its full name ("mir.gelu")."""
        if op in self.force_native:
            return True
        return self.dispatch == "native" and op not in self.force_common

    @staticmethod
    @located
    def of(given: Mapping[str, Any]) -> Options:
        """Options by name, as a user gives them; GraphError for one that there is not."""
        known = [f.name for f in fields(Options)]
        for name in given:
            if name not in known:
                from rlx.ir.spellings import option_hint

                raise GraphError(
                    f"no option is called {name!r}{option_hint(name, known)};"
                    f" there are {', '.join(known)}"
                )
        return Options(**given)


REPORTING = ("assert_fusion_clean", "verbose")
"""The options that change nothing of what a compile gives."""


@record
class Record:
    """The record of a compile: options, reports of passes, and the seconds of each stage."""

    options: Options = field(default_factory=Options)
    fusion: FusionReport = field(default_factory=FusionReport)
    dispatch: DispatchReport = field(default_factory=DispatchReport)
    seconds: dict[str, float] = field(default_factory=dict)

    def check_clean(self) -> None:
        """PassError where fusions were missed and the options ask for none."""
        missed = self.fusion.missed
        if self.options.assert_fusion_clean and missed:
            listed = "".join(f"\n  {m}" for m in missed)
            raise PassError(f"{len(missed)} fusions were missed:{listed}")

    @contextmanager
    def timed(self, stage: str) -> Generator[None]:
        """Add the time of the block to ``seconds[stage]``, and trace it. GaveWayError if the block
        must not begin (``rlx.base.giving_way``)."""
        checkpoint()
        start = Tick.now()
        try:
            with span(stage):
                yield
        finally:
            took = Tick.now().elapsed_ns(start) * 1e-9
            self.seconds[stage] = self.seconds.get(stage, 0.0) + took


class Compilation(Record):
    """One compile for a target, as it goes from pass to pass. ``hits`` counts by pass how often
    each of its rules applied; ``arena`` is where the buffers lie in the end."""

    def __init__(
        self,
        target: Target,
        options: Options | None = None,
        *,
        seconds: dict[str, float] | None = None,
        hits: dict[str, Counter[str]] | None = None,
    ) -> None:
        super().__init__(options or Options(), seconds={} if seconds is None else seconds)
        self.target, self.hits = target, {} if hits is None else hits
        self.arena: list[ArenaBuffer] = []

    def hit(self, name: str, rule: str) -> None:
        """Count that a rule of the pass called ``name`` applied."""
        if name not in self.hits:
            self.hits[name] = Counter()
        self.hits[name][rule] += 1

    @cached_property
    def regions(self) -> Regions:
        """What the passes share while they run."""
        from rlx.lowering.region import Regions

        return Regions()


@record
class CompileReport(Printed):
    """What a compile says of itself: times, fusions and dispatch, kernels made and reused.

    ``cache`` says whether the compile cache had the artifact, or why not. On a hit the fusions and
    the dispatch are those that were recorded as the artifact was made, and the times are the hit's.
    ``general`` is a variant of a graph with symbolic dims that serves as many sizes as it can, and
    ``hasty`` one of these that did without kernels whose code takes long to make.
    """

    compilation: Record
    kernels_made: int = 0
    kernels_reused: int = 0
    cache: str = "off"
    general: bool = False
    hasty: bool = False

    def __str__(self) -> str:
        c = self.compilation
        made = f"kernels: {self.kernels_made} compiled, {self.kernels_reused} found in the cache"
        said = f"compile cache: {self.cache}"
        return "\n".join([said, times_text(c.seconds), made, str(c.fusion), str(c.dispatch)])
