"""The results of a run: JSON, and Markdown made of it.

    python -m bench report results.json [--docs FILE] [--plot FILE]

``--docs`` replaces what stands in a page between the lines ``<!-- bench -->`` and
``<!-- /bench -->``.
A ratio is a peer's time over RLX's: above 1, RLX is faster.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.measure import ALSO_OURS, OURS, Failure, Row

FIRSTS = ("zoo",)
"""The families that show how long a first call takes."""
LIMITS = ("limits", "gpu_limits")
"""The families that find what the machine or a device reaches."""

Key = tuple[str, str, int]
"""Family, case, and threads."""


@dataclass
class Results:
    """Everything that a run found."""

    machine: dict[str, Any]
    options: dict[str, Any]
    starts: list[dict[str, Any]] = field(default_factory=list)
    """Of each family: the time of day, and the load average then."""
    rows: list[Row] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def add(self, found: Row | Failure) -> None:
        """Keep a row or a failure."""
        (self.rows if isinstance(found, Row) else self.failures).append(found)  # type: ignore[arg-type]

    def replace(self, other: Results) -> None:
        """Take what another run found of a family by some number of threads in place of what is
        here."""

        def is_here(x: Row | Failure) -> bool:
            return (x.family, x.threads) not in found

        found = {(x.family, x.threads) for x in (*other.rows, *other.failures)}
        self.rows = [r for r in self.rows if is_here(r)] + other.rows
        self.failures = [f for f in self.failures if is_here(f)] + other.failures
        families = {family for family, _, _ in self.cases()}
        self.starts = [s for s in self.starts if s["family"] in families] + other.starts
        self.options["commands"] += other.options["commands"]

    def write(self, file: Path) -> None:
        """Write all as JSON."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @staticmethod
    def read(file: Path) -> Results:
        """What ``write`` wrote."""
        raw = json.loads(file.read_text())
        rows = [Row(**r) for r in raw.pop("rows")]
        failures = [Failure(**f) for f in raw.pop("failures")]
        return Results(**raw, rows=rows, failures=failures)

    def cases(self, family: str | None = None) -> dict[Key, dict[str, Row]]:
        """The rows of each case by library."""
        found: dict[Key, dict[str, Row]] = {}
        for row in self.rows:
            if family in (None, row.family):
                key = (row.family, row.case, row.threads)
                found.setdefault(key, {})[row.runtime] = row
        return found


@dataclass(frozen=True)
class Comparison:
    """The best peer of a case, by the least times, and RLX against it."""

    peer: str
    least: float
    median: float


def comparison(rows: dict[str, Row]) -> Comparison | None:
    """None if RLX or every peer has no row."""
    peers = [row for name, row in rows.items() if name not in (OURS, *ALSO_OURS)]
    if OURS not in rows or not peers:
        return None
    best, ours = min(peers, key=lambda row: row.least), rows[OURS]
    middle = min(row.median for row in peers)
    return Comparison(best.runtime, best.least / ours.least, middle / ours.median)


class Rates:
    """The columns that say how much is done in a second, and what part that is of what was reached
    in the family ``LIMITS`` of the same run, if it has that: by as many threads, in bytes, and in
    work by element type. On a device any library may have reached it.
    """

    def __init__(self, results: Results, family: str) -> None:
        self.device = "device" in results.machine
        ours = [r for r in results.rows if r.runtime == OURS and r.family == family]
        self.works = any(r.flops for r in ours)
        self.moves = any(r.moved for r in ours)
        self.most_moved: dict[int, float] = {}
        self.most_work: dict[tuple[int, str], float] = {}
        for r in results.rows:
            if r.family in LIMITS and r.flops:
                _raise(self.most_work, (r.threads, r.dtype), r.flops / r.least)
            elif r.family in LIMITS:
                _raise(self.most_moved, r.threads, r.moved / r.least)

    @property
    def head(self) -> list[str]:
        """The names of the columns."""
        work, moved = "TFLOP/s" if self.device else "GFLOP/s", "GB/s"
        if self.most_work:
            work += " (of the product)" if self.device else " (of the peak)"
        if self.most_moved:
            moved += " (of the copy)" if self.device else " (of memory)"
        return [work] * self.works + [moved] * self.moves

    def cells(self, row: Row | None) -> list[str]:
        """Those of a case."""
        if row is None:
            return ["-"] * len(self.head)
        cells = []
        if self.works:
            unit = 1e12 if self.device else 1e9
            most = self.most_work.get((row.threads, row.dtype), 0)
            cells.append(_rate(row.flops / row.least, unit, most))
        if self.moves:
            most = self.most_moved.get(row.threads, 0)
            cells.append(_rate(row.moved / row.least, 1e9, most))
        return cells


def _raise(most: dict[Any, float], key: Any, rate: float) -> None:
    most[key] = max(most.get(key, 0), rate)


def _rate(rate: float, unit: float, most: float) -> str:
    share = f" ({rate / most:.0%})" if most else ""
    return f"{rate / unit:.3g}{share}" if rate else "-"


def section(results: Results, family: str) -> str:
    """A table of a family: RLX's times, and the ratio of each peer."""
    found = results.cases(family)
    peers = list(dict.fromkeys(n for rows in found.values() for n in rows if n != OURS))
    rates = Rates(results, family)
    head = ["case", "threads", "RLX least", "median", *rates.head, *peers]
    head += ["best peer / RLX (by medians)"] if peers else []
    lines = [_line(head), _line(["---"] * len(head))]
    for (_, case, threads), rows in found.items():
        ours = rows.get(OURS)
        cells = [case, str(threads)]
        cells += (
            [_amount(ours.least, ours.unit), _amount(ours.median, ours.unit)]
            if ours
            else ["-", "-"]
        )
        cells += rates.cells(ours)
        for peer in peers:
            cells.append(_ratio(rows[peer].least / ours.least) if ours and peer in rows else "-")
        best = comparison(rows)
        if peers:
            cells.append(f"{_ratio(best.least)} ({best.median:.2f}) {best.peer}" if best else "-")
        lines.append(_line(cells))
    failures = [f for f in results.failures if f.family == family]
    notes = [f"- {f.runtime} did not run {f.case} ({f.threads} T): {f.reason}" for f in failures]
    more = [*ragged(results, family), *(firsts(results, family) if family in FIRSTS else [])]
    return "\n".join([*lines, *([""] if notes else []), *notes, *more])


def firsts(results: Results, family: str) -> list[str]:
    """Lines of a table: seconds of the first call, from the module or the file to the first
    result."""
    found = results.cases(family)
    names = list(dict.fromkeys(n for rows in found.values() for n in rows))
    lines = ["", _line(["first call", "threads", *names]), _line(["---"] * (2 + len(names)))]
    for (_, case, threads), rows in found.items():
        times = [rows[n].first if n in rows else None for n in names]
        cells = ["-" if t is None else _amount(t, "s") for t in times]
        lines.append(_line([case, str(threads), *cells]))
    return lines


def ragged(results: Results, family: str) -> list[str]:
    """Lines of a table: how much longer each library takes for as much work where sizes are
    ragged, beside the padded neighbour; none if no case has one."""
    found = results.cases(family)
    by_library = {
        key: _ragged_cost(rows, found.get((family, next(iter(rows.values())).padded, key[2]), {}))
        for key, rows in found.items()
    }
    names = list(dict.fromkeys(name for costs in by_library.values() for name in costs))
    if not names:
        return []
    head = _line(["ragged case", "threads", "beside", *(f"time of {name}" for name in names)])
    lines = ["", head, _line(["---"] * (3 + len(names)))]
    for key, costs in by_library.items():
        if costs:
            beside = next(iter(found[key].values())).padded
            cells = [costs.get(name, "-") for name in names]
            lines.append(_line([key[1], str(key[2]), beside, *cells]))
    return lines


def _ragged_cost(rows: dict[str, Row], padded: dict[str, Row]) -> dict[str, str]:
    """By library: the least time of an equal share of work, and in brackets the median."""

    def cost(row: Row, beside: Row) -> str:
        least, median = row.least / beside.least, row.median / beside.median
        return f"{least / row.part - 1:+.0%} ({median / row.part - 1:+.0%})"

    return {name: cost(row, padded[name]) for name, row in rows.items() if name in padded}


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |"


def _ratio(value: float) -> str:
    """Losses stand out."""
    return f"**{value:.2f}**" if value < 1 else f"{value:.2f}"


def _amount(value: float, unit: str) -> str:
    if unit != "s":
        return f"{value:.0f} {unit}" if value >= 10 else f"{value:.2f} {unit}"
    for factor, name in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if value * factor >= 1 or name == "us":
            return f"{value * factor:.3g} {name}"
    raise AssertionError


def geometric_mean(values: list[float]) -> float:
    """That of positive numbers; nan of none."""
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan


def summary(results: Results) -> str:
    """A line a family: the geometric means of the ratios to each peer and to the best one."""
    found = results.cases()
    peers = list(dict.fromkeys(row.runtime for row in results.rows if row.runtime != OURS))
    head = ["family", "threads", "cases", "faster than all", *peers, "best peer", "worst case"]
    lines = [_line(head), _line(["---"] * len(head))]
    for family, threads in dict.fromkeys((f, t) for f, _, t in found):
        of = {k: rows for k, rows in found.items() if k[0] == family and k[2] == threads}
        best = {k[1]: c for k, rows in of.items() if (c := comparison(rows))}
        if not best:
            continue
        cells = [
            family,
            str(threads),
            str(len(best)),
            str(sum(c.least >= 1 for c in best.values())),
        ]
        for peer in peers:
            values = [r[peer].least / r[OURS].least for r in of.values() if peer in r and OURS in r]
            cells.append(_ratio(geometric_mean(values)) if values else "-")
        worst = min(best, key=lambda case: best[case].least)
        cells.append(_ratio(geometric_mean([c.least for c in best.values()])))
        cells.append(f"{worst}: {best[worst].least:.2f} ({best[worst].peer})")
        lines.append(_line(cells))
    return "\n".join(lines)


def losses(results: Results) -> str:
    """The cases in which a peer is faster, the worst first."""
    found = {k: c for k, rows in results.cases().items() if (c := comparison(rows))}
    lost = sorted((c.least, k, c) for k, c in found.items() if c.least < 1)
    if not lost:
        return "none"
    lines = [
        _line(["case", "threads", "best peer / RLX", "by medians", "peer"]),
        _line(["---"] * 5),
    ]
    for least, (family, case, threads), c in lost:
        lines.append(
            _line([f"{family}: {case}", str(threads), f"{least:.2f}", f"{c.median:.2f}", c.peer])
        )
    return "\n".join(lines)


def setting(results: Results) -> str:
    """The machine, versions and load of a run."""
    m = results.machine
    versions = ", ".join(f"{name} {v}" for name, v in m["versions"].items())
    loads = [s["load"] for s in results.starts]
    device = f"{m['device']}; " if "device" in m else ""
    return (
        f"{device}{m['cpu']}, {m['cpus']} CPUs; {versions}. Load"
        f" average as the families began: {min(loads, default=0):.1f} to"
        f" {max(loads, default=0):.1f}."
    )


def page(results: Results) -> str:
    """All tables."""
    shown = ["```sh"]
    for c in results.options["commands"]:
        command = shlex.join(["python", "-m", "bench", *c["arguments"]])
        shown.append(f"{command}  # RLX at revision {c['revision']}")
    parts = [
        "\n".join([*shown, "```"]),
        setting(results),
        "Geometric means over the cases of a family:", summary(results),
        "## Losses", losses(results),
    ]  # fmt: skip
    for name in dict.fromkeys(start["family"] for start in results.starts):
        parts += [f"## {name}", section(results, name)]
    return "\n\n".join(parts)


def insert(text: str, generated: str) -> str:
    """A page whose part between the marks is replaced."""
    before, mark, rest = text.partition("<!-- bench -->\n")
    _, end, after = rest.partition("<!-- /bench -->")
    if not (mark and end):
        raise SystemExit("the page has no lines <!-- bench --> and <!-- /bench -->")
    return f"{before}{mark}\n{generated}\n\n{end}{after}"


def main(argv: list[str]) -> int:
    """Print the page, or write it and the plot."""
    p = argparse.ArgumentParser("bench report", description=__doc__)
    p.add_argument(
        "results",
        type=Path,
        nargs="+",
        help="JSON files; what a later one has of a family, by threads, replaces what is before",
    )
    p.add_argument("--docs", type=Path, help="the page to write into")
    p.add_argument("--plot", type=Path, help="an SVG to draw; needs matplotlib")
    args = p.parse_args(argv)
    if absent := [str(file) for file in args.results if not file.is_file()]:
        p.error(f"no such file: {', '.join(absent)}")
    results, *more = [Results.read(file) for file in args.results]
    for other in more:
        results.replace(other)
    if args.docs:
        args.docs.write_text(insert(args.docs.read_text(), page(results)))
    else:
        print(page(results))
    if args.plot:
        from bench.plot import draw

        draw(results, args.plot)
    return 0
