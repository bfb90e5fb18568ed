"""Profiles: what each launch of a compiled graph takes, beside what it has to do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Protocol

from rlx.base.clock import time_ns
from rlx.base.frozen import frozen
from rlx.base.printed import Printed
from rlx.base.units import bytes_text
from rlx.runtime.launches import LaunchInfo

__all__ = ["Profile", "Roof", "Row", "measure"]


DISTURBED = 1.5
"""A fastest run that takes so many times what its parts take at their fastest was interrupted."""


class Roof(Protocol):
    """What a machine reaches at most (``rlx.roofline.Roofline``)."""

    @property
    def flops(self) -> float:
        """Flops a second."""
        ...

    @property
    def bytes(self) -> float:
        """Bytes a second."""
        ...


@frozen
class Row:
    """Launches that belong together: of one kernel, for the same ops at the same line.

    Everything counts one run of the graph: ``calls``, ``seconds`` (of each launch its fastest
    run), ``flops`` and ``bytes`` (see ``rlx.runtime.launches.LaunchInfo``).
    """

    kernel: str
    ops: str
    at: str
    calls: int
    seconds: float
    flops: int
    bytes: int

    def rates(self) -> tuple[float, float]:
        """Flops and bytes a second."""
        took = max(self.seconds, 1e-12)
        return self.flops / took, self.bytes / took

    def of_roof(self, roof: Roof) -> tuple[float, str]:
        """How near it comes to what the machine allows, as a fraction, and what bounds it.

        Above 1 its data came from caches, which are faster than the memory that was measured.
        """
        compute, memory = self.flops / roof.flops, self.bytes / roof.bytes
        least = max(compute, memory)
        return least / max(self.seconds, 1e-12), "compute" if compute > memory else "memory"


@frozen
class Profile(Printed):
    """What ``CompiledGraph.profile`` found. ``str`` is a table, the slowest rows first.

    ``seconds`` are those of the fastest run and ``median`` of the one in the middle, the call from
    Python included; ``around`` is the least that a run took outside its launches; ``memory`` has
    the bytes of params, of what the prologue makes of them, and between kernels. The rows add up to
    no more than ``seconds``: to less where other programs interrupt every run somewhere. ``whole``
    is the device where that is not a CPU: its launches are not timed one by one, and there are no
    rows.
    """

    rows: list[Row]
    runs: int
    seconds: float
    median: float
    around: float
    threads: int
    roof: Roof | None = None
    memory: Mapping[str, int] = field(default_factory=dict[str, int])
    whole: str = ""

    @property
    def launched(self) -> float:
        """Seconds of all rows."""
        return sum(r.seconds for r in self.rows)

    def against(self, roof: Roof) -> Profile:
        """The profile with a column of what each row reaches of a roof."""
        return replace(self, roof=roof)

    def to_json(self) -> dict[str, Any]:
        """The profile as plain data; seconds, flops and bytes without prefixes."""
        rows: list[dict[str, Any]] = []
        for r in self.rows:
            row = {**vars(r), "share": _share(r.seconds, self.launched)}
            if self.roof is not None:
                row["of_roof"], row["bound"] = r.of_roof(self.roof)
            rows.append(row)
        roof = None if self.roof is None else {"flops": self.roof.flops, "bytes": self.roof.bytes}
        return {
            "runs": self.runs, "threads": self.threads, "seconds": self.seconds,
            "median_seconds": self.median, "around_seconds": self.around, "roof": roof,
            "memory": dict(self.memory), "whole": self.whole, "rows": rows,
        }  # fmt: skip

    def __str__(self) -> str:
        if self.whole:
            return "\n".join(self.sums())
        table = self.table()
        return "\n".join([*_aligned(table, len(table[0]) - 3), "", *self.sums()])

    def _repr_html_(self) -> str:
        from rlx.view.notebook import profile_html

        return profile_html(self)

    def slowest(self) -> list[Row]:
        """The rows, the slowest first."""
        return sorted(self.rows, key=lambda r: -r.seconds)

    def table(self) -> list[list[str]]:
        """The head and the rows of the table, the slowest first; the last three columns are the
        kernel, its ops and their place."""
        head = ["calls", self._unit[0], "share", "GFLOP/s", "GB/s"]
        head += ["of roof", "bound"] if self.roof is not None else []
        return [[*head, "kernel", "ops", "at"], *map(self._cells, self.slowest())]

    @property
    def _unit(self) -> tuple[str, float]:
        """What times are shown in: microseconds, where no row takes a millisecond."""
        longest = max((r.seconds for r in self.rows), default=self.median)
        return ("us", 1e6) if longest < 1e-3 else ("ms", 1e3)

    def _time(self, seconds: float) -> str:
        name, each = self._unit
        return f"{seconds * each:.{1 if name == 'us' else 3}f}"

    def _cells(self, r: Row) -> list[str]:
        flops, moved = r.rates()
        cells = [str(r.calls), self._time(r.seconds)]
        cells += [f"{_share(r.seconds, self.launched):.1%}", f"{flops / 1e9:.1f}"]
        cells.append(f"{moved / 1e9:.1f}")
        if self.roof is not None:
            part, bound = r.of_roof(self.roof)
            cells += [f"{part:.0%}", bound]
        return [*cells, r.kernel, r.ops or "-", _shown(r.at)]

    def sums(self) -> list[str]:
        """The lines below the table."""
        unit = self._unit[0]
        if self.whole:
            return [
                f"{self._time(self.seconds):>9s} {unit}  the fastest of {self.runs} runs on"
                f" {self.whole} (median {self._time(self.median)} {unit})",
                "its launches are not timed one by one; compile for 'cpu' to see those of a CPU",
            ]
        lines = [
            f"{self._time(self.launched):>9s} {unit}  in launches, each at its fastest",
            f"{self._time(self.around):>9s} {unit}  around them, at the least",
            f"{self._time(self.seconds):>9s} {unit}  the fastest of {self.runs} runs on"
            f" {self.threads} thread{'s' * (self.threads > 1)} (median {self._time(self.median)}"
            f" {unit})",
        ]
        if self.memory:
            held = ", ".join(f"{bytes_text(n)} of {what}" for what, n in self.memory.items())
            lines.append(f"memory: {held}")
        if self.roof is not None:
            lines.append(f"roof: {self.roof}")
        if self.seconds > DISTURBED * (self.launched + self.around):
            lines.append("note: other programs interrupted every run, and the roof perhaps too")
        return lines


def measure(
    run: Callable[[], object],
    times: Callable[[], Sequence[tuple[int, int]]],
    launches: Sequence[LaunchInfo],
    runs: int,
    threads: int,
    memory: Mapping[str, int] | None = None,
) -> Profile:
    """Profile ``run``, called so often; ``times`` gives nanoseconds and calls of each launch up to
    now."""
    walls: list[int] = []
    spent: list[list[int]] = []
    calls: list[int] = []
    before = times()
    for _ in range(runs):
        _, wall = time_ns(run)
        after = times()
        spent.append([b[0] - a[0] for a, b in zip(before, after, strict=True)])
        calls = [b[1] - a[1] for a, b in zip(before, after, strict=True)]
        walls.append(wall)
        before = after
    fastest = [min(of_launch) for of_launch in zip(*spent, strict=True)]
    around = min(wall - sum(row) for wall, row in zip(walls, spent, strict=True))
    walls.sort()
    rows = _grouped(zip(launches, calls, fastest, strict=True))
    least, median = walls[0] * 1e-9, walls[runs // 2] * 1e-9
    return Profile(rows, runs, least, median, max(0, around) * 1e-9, threads, memory=memory or {})


def _grouped(times: Iterable[tuple[LaunchInfo, int, int]]) -> list[Row]:
    rows: dict[tuple[str, str, str], Row] = {}
    for launch, calls, ns in times:
        if not calls:
            continue  # a branch that was not taken
        at = f"{launch.file}:{launch.line}"
        key = (launch.kernel, launch.ops, at)
        old = rows.get(key, Row(*key, 0, 0.0, 0, 0))
        rows[key] = Row(
            *key,
            old.calls + calls,
            old.seconds + ns * 1e-9,
            old.flops + calls * launch.flops,
            old.bytes + calls * launch.bytes,
        )
    return list(rows.values())


def _shown(at: str) -> str:
    """A place as short as it can be clicked: from the current directory, if it is below that; of an
    installed library, from its name."""
    here = os.getcwd() + os.sep
    return at.removeprefix(here).split("/site-packages/")[-1]


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _aligned(table: list[list[str]], numbers: int) -> list[str]:
    """Rows of cells as lines; the first columns are numbers, which end alike."""
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    lines: list[str] = []
    for row in table:
        cells = [
            c.rjust(w) if i < numbers else c.ljust(w)
            for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
