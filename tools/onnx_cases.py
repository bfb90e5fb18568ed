"""Write what becomes of each of ONNX's own test cases of op types.

    python tools/onnx_cases.py            # all: minutes
    python tools/onnx_cases.py det lstm   # those with one of these in their names; the rest stays

writes ``test/frontends/onnx_node_cases.txt``, and prints how many cases pass.

    python tools/onnx_cases.py --names 2000

makes random models of nested bodies with few names instead, and ``--nodes 2000`` nodes with random
attributes; those that go wrong are printed.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / part) for part in ("test", "")]

from support.onnx_cases import TABLE, all_cases, listed, outcomes  # noqa: E402 -- found by the path above
from support.random_onnx import wrong as wrong_names  # noqa: E402
from support.random_onnx_nodes import wrong as wrong_node  # noqa: E402

RANDOM = {"--names": wrong_names, "--nodes": wrong_node}


def drawn(wrong: Callable[[int], str], count: int) -> int:
    """Make random models, and print those that go wrong."""
    found = {seed: what for seed in range(count) if (what := wrong(seed))}
    for seed, what in found.items():
        print(f"seed {seed}: {what}")
    print(f"{len(found)} of {count} random models go wrong")
    return 1 if found else 0


def main(texts: list[str]) -> int:
    """Run the cases that are asked for, and write the table."""
    if texts and texts[0] in RANDOM:
        return drawn(RANDOM[texts[0]], int(texts[1]))
    cases = [c for c in all_cases() if not texts or any(t in c.name for t in texts)]
    if not cases:
        print(f"no case has {' or '.join(texts)} in its name", file=sys.stderr)
        return 2
    ran = {o.name: o for o in outcomes(cases)}
    found = [ran.get(o.name, o) for o in listed()] if texts else [*ran.values()]
    counts = Counter(o.verdict for o in found)
    eligible = len(found) - counts["excluded"]
    head = (
        "# What becomes of ONNX's test cases of op types; tools/onnx_cases.py writes this file.\n"
        f"# {counts['pass']} of {eligible} pass; {counts['excluded']} have values that are no"
        " tensors of our element types.\n"
    )
    TABLE.write_text(head + "".join(f"{o}\n" for o in found), encoding="utf-8")
    print(f"{counts['pass']} of {eligible} cases pass")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
