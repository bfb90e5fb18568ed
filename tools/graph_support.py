"""Write ``docs/graph_support.md``, which says of every op how it goes on the targets that take
whole graphs, from what ``support.graph_conformance`` found:

    python -m support.graph_conformance mlx mlx --cases full --out mlx.json
    python tools/graph_support.py mlx.json ...

A run takes the place of the column of its target and stand; the others stay as the page has them.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

PAGE = Path(__file__).resolve().parents[1] / "docs" / "graph_support.md"

HEAD = """\
<!-- Written by tools/graph_support.py; do not edit. -->

# Ops on targets of whole graphs

The samples of every op on [tpu](tpu.md), [mlx](mlx.md) and [ane](ane.md), of the element types
that the target has, against the reference interpreter, on plain numbers and on numbers with nan,
infinities and zeros of both signs among them (`python -m support.graph_conformance TARGET STAND
--cases SET`). None of these runs was on the device itself: the stands are StableHLO's reference
interpreter (real numbers), XLA's CPU client, MLX's processor device, and Core ML's rules for
NumPy. XLA makes one convolution of grouped ones, whose zeros times an infinity are nan: these are
compared on finite numbers.

A cell has the samples that agree; behind a slash how many there are, where some are refused, for
the reason of that number.

"""


class Column(NamedTuple):
    """What a run found: its row of the first table, and of every op how many samples agree, how
    many there are, and the reasons of those that are refused."""

    row: str
    cells: dict[str, tuple[int, int, tuple[str, ...]]]


def column_of(run: dict[str, Any]) -> tuple[str, Column]:
    """The column of a run, and its head."""
    findings = run["findings"]
    counts = Counter(f["verdict"] for f in findings)
    wrong = sum(n for v, n in counts.items() if v not in ("agrees", "refused"))
    numbers = (len(findings), counts["agrees"], counts["refused"], wrong)
    row = (
        f"| `{run['target']}` | {run['stand']} | {run['cases']} | {' | '.join(map(str, numbers))} |"
    )
    cells: dict[str, tuple[int, int, tuple[str, ...]]] = {}
    for op in {f["op"] for f in findings}:
        found = [f for f in findings if f["op"] == op]
        good = sum(f["verdict"] == "agrees" for f in found)
        said = (_reason(f["text"]) for f in found if f["verdict"] == "refused")
        cells[op] = good, len(found), tuple(dict.fromkeys(said))
    return f"{run['target']} ({run['stand']})", Column(row, cells)


def _reason(text: str) -> str:
    short = re.sub(r"^.*?does not run: ", "", text)
    return re.sub(r" x \d+ \(first at [^)]*\)|; mir\..*", "", short)


def columns_of(page: str) -> dict[str, Column]:
    """The columns of a page that was written before."""
    reasons = dict(re.findall(r"^(\d+)\. (.*)$", page, re.MULTILINE))
    rows = re.findall(r"^\| `\S+` \| \S+ \| (?:turning|covering|full) \|.*$", page, re.MULTILINE)
    found: dict[str, Column] = {}
    for row in rows:
        target, stand = (w.strip(" `") for w in row.split("|")[1:3])
        found[f"{target} ({stand})"] = Column(row, {})
    for line in re.findall(r"^\| `(?:hir|mir)\..*$", page, re.MULTILINE):
        op, *cells = (w.strip() for w in line.strip("|").split("|"))
        for column, cell in zip(found.values(), cells, strict=True):
            numbers = [int(n) for n in re.findall(r"\d+", cell)]
            if numbers:
                good, total, *why = numbers if "/" in cell else [numbers[0], numbers[0]]
                said = tuple(reasons[str(n)] for n in why)
                column.cells[op.strip("`")] = good, total, said
    return found


def main(paths: list[str]) -> None:
    """Write the page."""
    runs = [json.loads(Path(p).read_text(encoding="utf-8")) for p in paths]
    columns = columns_of(PAGE.read_text("utf-8")) | dict(map(column_of, runs))
    said = (r for c in columns.values() for op in sorted(c.cells) for r in c.cells[op][2])
    reasons = list(dict.fromkeys(said))
    lines = ["| target | by | set | samples | agree | refused | wrong |", "|---" * 7 + "|"]
    lines += [c.row for c in columns.values()]
    lines += ["", "## Reasons", ""]
    lines += [f"{n}. {reason}" for n, reason in enumerate(reasons, 1)]
    head = "|---" * (1 + len(columns)) + "|"
    lines += ["", "## Ops", "", f"| op | {' | '.join(columns)} |", head]
    for op in sorted({op for c in columns.values() for op in c.cells}):
        row = (_cell(c.cells.get(op), reasons) for c in columns.values())
        lines.append(f"| `{op}` | {' | '.join(row)} |")
    PAGE.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")


def _cell(found: tuple[int, int, tuple[str, ...]] | None, reasons: list[str]) -> str:
    if found is None:
        return ""
    good, total, said = found
    if not said:
        return str(good)
    numbers = sorted(reasons.index(r) + 1 for r in said)
    return f"{good}/{total} ({', '.join(map(str, numbers))})"


if __name__ == "__main__":
    main(sys.argv[1:])
