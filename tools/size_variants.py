"""Count the variants that each op needs for many sizes, and say what pins them.

    python tools/size_variants.py [--op NAME ...] [--target cpu] [--types all] [--infer | --table]

Every sample of every op is taken with each of its sizes as a symbol. General variants are lowered
until they serve SIZES; an op that needs more than LIMIT of them is printed with the guards of the
one that serves least. With ``--infer`` the samples are printed whose shapes an op's ``infer`` does
not say with a symbol, and its reason; ``--table`` writes the table of such dims in docs/sizes.md.
The exit code is 1 if any op needs more.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / part) for part in ("test", "")]

from rlx.errors import RlxError  # noqa: E402 -- found by the path above
from rlx.ir.graph import Graph  # noqa: E402
from support.samples import Case, cases, op_classes  # noqa: E402
from support.symbolic import is_bound, lower_at, sizes_of, with_symbol  # noqa: E402
from support.unsayable import HEAD, rows  # noqa: E402

PAGE = Path(__file__).resolve().parents[1] / "docs" / "sizes.md"

SIZES = (2, 3, 5, 8, 16, 20, 33, 64, 100, 257)
"""Those that are tried, beside the sample's own."""
LIMIT = 3
"""The variants that an op may need: sums of few are ordered otherwise than those of many."""


def graph_of(case: Case) -> Graph:
    """The op of a case on inputs."""
    g = Graph(case.op.name)
    leaves = [
        None if t is None else g.input(f"x{i}", t.shape, t.dtype) for i, t in enumerate(case.types)
    ]
    g.set_outputs(case.op(*leaves, **case.sample.attrs).results)
    return g


def symbolic(case: Case) -> Iterator[tuple[int, Graph | RlxError]]:
    """The graph with each of its sizes as a symbol, or why there is none."""
    graph = graph_of(case)
    for size in sizes_of(graph):
        try:
            yield size, with_symbol(graph, size)
        except RlxError as e:
            yield size, e


def variants(graph: Graph, size: int, target: str) -> list[tuple[int, str]]:
    """Of the general variants that serve all sizes how many each serves, and its guards."""
    left: list[Mapping[str, int]] = [{"n": size}]
    left += [{"n": n} for n in SIZES if n != size and is_bound(graph, {"n": n})]
    found: list[tuple[int, str]] = []
    while left:
        made = lower_at(graph, left[0], general=True, target=target)
        before, left = len(left), [sizes for sizes in left if not made.serves(sizes)]
        found.append((before - len(left), ", ".join(map(str, made.guards))))
        if before == len(left):
            raise AssertionError(f"{graph.name}: its own sizes do not meet {found[-1][1]}")
    return found


def chosen(names: list[str] | None, every_type: bool) -> Iterator[Case]:
    """The samples of ops by name, or of all, on their first element type or on every one."""
    wanted = {op for op in op_classes() if not names or op.name in names}
    seen = set[tuple[str, int]]()
    for case in cases():
        key = case.op.name, case.number
        if case.op in wanted and (every_type or key not in seen):
            seen.add(key)
            yield case


def found(graph: Graph, size: int, target: str) -> str | None:
    """What is to be said of a graph that needs many variants, or is refused."""
    try:
        made = variants(graph, size, target)
    except RlxError as e:
        return f"refused: {e.message}"
    if len(made) <= LIMIT:
        return None
    _, guards = min(made)
    return f"{len(made)} variants for {sum(n for n, _ in made)} sizes; one for {guards}"


def write_table() -> None:
    """Write the table of dims that must be numbers in its place on the page."""
    before, rest = PAGE.read_text("utf-8").split(HEAD)
    after = rest[re.match(r"(?:\n\|.*)*", rest).end() :]  # pyright: ignore
    PAGE.write_text("\n".join([before + HEAD, *rows(cases())]) + after, "utf-8")


def main() -> int:
    """Print the ops that need many variants; 1 if there are any."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--op", action="append", help="an op's name, such as mir.cumsum")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--types", choices=("first", "all"), default="first")
    parser.add_argument("--infer", action="store_true", help="what infer cannot say instead")
    parser.add_argument("--table", action="store_true", help="write the table of docs/sizes.md")
    given = parser.parse_args()
    if given.table:
        write_table()
        return 0
    many = tried = 0
    for case in chosen(given.op, given.types == "all"):
        for size, graph in symbolic(case):
            said = None
            if isinstance(graph, RlxError):
                said = graph.message if given.infer else None
            elif not given.infer:
                tried += 1
                said = found(graph, size, given.target)
                many += said is not None
            if said:
                print(f"{case} at {size}: {said}", flush=True)
    if not given.infer:
        print(f"{tried} symbolic graphs, {many} need more than {LIMIT}", file=sys.stderr)
    return 1 if many else 0


if __name__ == "__main__":
    raise SystemExit(main())
