"""Write ``docs/graph_support.md``, which says of every op how it goes on the targets that take
whole graphs, from what ``support.graph_conformance`` found:

    python -m support.graph_conformance mlx mlx --cases full --out mlx.json
    python tools/graph_support.py mlx.json ...
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

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


def main(paths: list[str]) -> None:
    """Write the page."""
    runs = [json.loads(Path(p).read_text(encoding="utf-8")) for p in paths]
    reasons: list[str] = []
    lines = ["| target | by | set | samples | agree | refused | wrong |", "|---" * 7 + "|"]
    cells: dict[str, list[str]] = {}
    for column, run in enumerate(runs):
        counts = Counter(f["verdict"] for f in run["findings"])
        wrong = sum(n for v, n in counts.items() if v not in ("agrees", "refused"))
        row = (len(run["findings"]), counts["agrees"], counts["refused"], wrong)
        numbers = " | ".join(map(str, row))
        lines.append(f"| `{run['target']}` | {run['stand']} | {run['cases']} | {numbers} |")
        for op in sorted({f["op"] for f in run["findings"]}):
            found = [f for f in run["findings"] if f["op"] == op]
            cells.setdefault(op, [""] * len(runs))[column] = _cell(found, reasons)
    head = " | ".join(f"{run['target']} ({run['stand']})" for run in runs)
    lines += ["", "## Reasons", ""]
    lines += [f"{n}. {reason}" for n, reason in enumerate(reasons, 1)]
    lines += ["", "## Ops", "", f"| op | {head} |", "|---" * (1 + len(runs)) + "|"]
    lines += [f"| `{op}` | {' | '.join(row)} |" for op, row in sorted(cells.items())]
    PAGE.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")


def _cell(found: list[dict[str, Any]], reasons: list[str]) -> str:
    good = [f for f in found if f["verdict"] == "agrees"]
    numbers: list[int] = []
    for f in found:
        if f["verdict"] == "refused":
            reason = re.sub(r"^.*?does not run: ", "", f["text"])
            reason = re.sub(r" x \d+ \(first at [^)]*\)|; mir\..*", "", reason)
            if reason not in reasons:
                reasons.append(reason)
            numbers.append(reasons.index(reason) + 1)
    if not numbers:
        return str(len(good))
    return f"{len(good)}/{len(found)} ({', '.join(map(str, sorted(set(numbers))))})"


if __name__ == "__main__":
    main(sys.argv[1:])
