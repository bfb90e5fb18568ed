"""Reports of a compile: what was fused and what was not, and which kernel runs each op."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from rlx import knobs
from rlx.base.frozen import record
from rlx.base.printed import Printed

if TYPE_CHECKING:
    from rlx.lowering.compilation import Record

__all__ = [
    "ArenaBuffer",
    "DispatchReport",
    "FusionReport",
    "MissReason",
    "MissedFusion",
    "print_reports",
    "times_text",
]


class MissReason(StrEnum):
    """Why a pattern did not apply: what else uses a value, what the kernel family cannot run, or
    that the region would be too long, or bind more buffers than a kernel of the target may."""

    SEVERAL_USES = "several uses"
    LENGTH = "longest region"
    BUFFERS = "most buffers"
    REFUSED = "refused by the kernel family"


class MissedFusion(NamedTuple):
    """A place where a pattern nearly applied: why it did not, and what would help."""

    pattern: str
    op: str
    location: tuple[str, int]
    reason: str
    hint: str = ""
    kind: MissReason = MissReason.REFUSED

    def __str__(self) -> str:
        hint = f" ({self.hint})" if self.hint else ""
        file, line = self.location
        return f"{file}:{line}: {self.pattern} of {self.op}: {self.reason}{hint}"


@record
class FusionReport(Printed):
    """Fused regions by pattern, and the misses; and the ops by name ``before`` the first pass on
    mir and ``after`` the last that fuses, where a region is one op."""

    fused: Counter[str] = field(default_factory=Counter)
    missed: list[MissedFusion] = field(default_factory=list)
    before: Counter[str] = field(default_factory=Counter, kw_only=True)
    after: Counter[str] = field(default_factory=Counter, kw_only=True)

    @property
    def nodes_before(self) -> int:
        """Ops before."""
        return self.before.total()

    @property
    def nodes_after(self) -> int:
        """Ops and regions after."""
        return self.after.total()

    @property
    def matmul_before(self) -> int:
        """Products before; fewer stand alone after where some were merged, or fused."""
        return self.before["mir.matmul"]

    @property
    def matmul_after(self) -> int:
        """Products that stand alone after."""
        return self.after["mir.matmul"]

    def __str__(self) -> str:
        lines = [f"fused {n} x {pattern}" for pattern, n in sorted(self.fused.items())]
        return "\n".join([*lines, *(f"missed {m}" for m in self.missed)]) or "nothing to fuse"


class ArenaBuffer(NamedTuple):
    """A value in the arena: its place in bytes, and the first and last launch of main that touch
    it. The first one writes it."""

    offset: int
    size: int
    first: int
    last: int


@record
class DispatchReport(Printed):
    """How many launches went each way: ``native`` by family, ``common`` and ``rewritten`` by op;
    ``triton`` says which of the native ones Triton's compiler makes, and of others why not.
    ``decoded`` are the bytes of f32 that are made of weights in packed blocks, by scheme, where no
    kernel reads the blocks, and of params in 8-bit floats, by type, where no product does.
    ``target`` is what the code is for, where that was not given.
    ``still_unsupported`` are the nodes that have no way, by number and op: those of a graph that
    was looked at and not compiled."""

    native: Counter[str] = field(default_factory=Counter)
    common: Counter[str] = field(default_factory=Counter)
    rewritten: Counter[str] = field(default_factory=Counter)
    triton: Counter[str] = field(default_factory=Counter)
    decoded: Counter[str] = field(default_factory=Counter, kw_only=True)
    target: str = field(default="", kw_only=True)
    still_unsupported: list[tuple[int, str]] = field(default_factory=list, kw_only=True)

    @property
    def compile_ready(self) -> bool:
        """Whether every node has a way."""
        return not self.still_unsupported

    def __str__(self) -> str:
        rows = [("native", self.native), ("common", self.common), ("rewritten", self.rewritten)]
        rows.append(("triton", self.triton))
        rows.append(("no way", Counter(op for _, op in self.still_unsupported)))
        lines = [f"{path:10s}{name} x {n}" for path, c in rows for name, n in sorted(c.items())]
        lines += [
            f"{'decoded':10s}{scheme} to f32: {size / 2**20:.2f} MiB"
            for scheme, size in sorted(self.decoded.items())
        ]
        return "\n".join([*([f"{'target':10s}{self.target}"] if self.target else []), *lines])


def times_text(seconds: dict[str, float]) -> str:
    """The times of stages, a line each."""
    return "\n".join(f"{s * 1e3:9.2f} ms  {name}" for name, s in seconds.items())


def print_reports(name: str, target: str, record: Record) -> None:
    """Print the reports of the compile of a graph that the environment or its options ask for."""
    where = f"of graph {name!r} for {target}"
    for knob, what, report in (
        (knobs.fusion_report, "fusion", record.fusion),
        (knobs.dispatch_report, "dispatch", record.dispatch),
    ):
        if knob.get() or record.options.verbose:
            listed = str(report).replace("\n", "\n  ")
            print(f"rlx: {what} {where}\n  {listed}", file=sys.stderr)
