"""The text of a level as lines, each with the node that it shows."""

from __future__ import annotations

import linecache
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rlx._mlir import ir
from rlx.view.provenance import Provenance

__all__ = ["Level", "level_lines", "source_level"]

LARGE = 16
"""Elements of a literal beyond which its value is left out."""

ARGUMENTS = 8
"""Arguments of a function that are shown at once."""

AROUND = 4
"""Lines shown around one of the user's that made an op."""

LONG = 2000
"""Characters of a line of the user's that are shown: a saved graph has its weights in lines."""

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"| loc\(|[()]')
_ALIAS = re.compile(r"(#loc\d*) = loc\((.*)\)$")


@dataclass
class Level:
    """A column of the page: lines, and for each the node that it shows, or -1. ``labels`` are what
    stands before the lines, by default their numbers; ``folds`` are the runs of lines, first and
    last, that the page hides until asked: arguments beyond a few.
    """

    name: str
    title: str
    lines: list[str] = field(default_factory=list[str])
    nodes: list[int] = field(default_factory=list[int])
    labels: list[str] | None = None
    folds: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def add(self, line: str, node: int = -1, label: str | None = None) -> None:
        """Append a line."""
        self.lines.append(line)
        self.nodes.append(node)
        if label is not None:
            self.labels = self.labels or [""] * (len(self.lines) - 1)
            self.labels.append(label)


def level_lines(level: Level, module: ir.Module, first: int, provenance: Provenance) -> Level:
    """Fill a level with the text of a module whose nodes are numbered from ``first`` on."""
    text = module.operation.get_asm(enable_debug_info=True, large_elements_limit=LARGE)
    raw = text.splitlines()
    places = {m[1]: m[2] for line in raw if (m := _ALIAS.match(line))}

    def node(location: str) -> int:
        own = provenance.own(places.get(location, location))
        return own if own >= first else -1

    opened: list[list[int]] = []
    for line in raw:
        if _ALIAS.match(line):
            continue
        parts = _parts(line)
        if len(parts) > ARGUMENTS + 1:
            start = len(level.lines)
            level.folds.append((start + ARGUMENTS, start + len(parts) - 2))
        for part, location in parts:
            level.add(part, -1 if location is None else node(location))
            _match_ends(level, opened)
    return level


def _match_ends(level: Level, opened: list[list[int]]) -> None:
    """The location of an op with bodies stands at its end; the lines that open them, such as
    ``} else {``, are that node too."""
    line, node = level.lines[-1].strip(), level.nodes[-1]
    heads = opened.pop() if line.startswith("}") and opened else []
    if line.endswith("{"):
        opened.append([*heads, len(level.lines) - 1])
    else:
        for head in heads:
            level.nodes[head] = node if level.nodes[head] < 0 else level.nodes[head]


def _parts(line: str) -> list[tuple[str, str | None]]:
    """The parts of a line that end in a location, without it: an op is one, and so is each argument
    of a function. Further parts are indented."""
    texts: list[str] = []
    locations: list[str] = []
    depth, start, done = 0, 0, 0
    for token in _TOKEN.finditer(line):
        if token[0] == " loc(" and not depth:
            texts.append(line[done : token.start()])
            start, depth = token.end(), 1
        elif depth and token[0] in ("(", " loc("):
            depth += 1
        elif depth and token[0] == ")":
            depth -= 1
            if not depth:
                locations.append(line[start : token.start()])
                done = token.end()
    if not texts:
        return [(line, None)]
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    for i, text in enumerate(texts[1:], 1):
        bare = text.removeprefix(", ")
        texts[i - 1] += "," if bare != text else ""
        texts[i] = indent + bare
    texts[-1] += line[done:]
    return list(zip(texts, locations, strict=True))


# -- the user's own lines ---------------------------------------------------------------------


def source_level(provenance: Provenance, texts: Mapping[str, str]) -> Level:
    """The user's lines that made something, and those around them. ``texts`` are files by name
    that need not be on disk, as what was read from standard input."""
    level = Level("source", "Source", labels=[])
    by_file: dict[str, dict[int, int]] = {}
    for (file, line), node in sorted(provenance.sources.items(), key=lambda item: item[1]):
        by_file.setdefault(file, {})[line] = node
    for file, nodes in by_file.items():
        lines = _read(file, texts)
        level.add(_display(file) + ("" if lines else " (cannot be read here)"), -1, "")
        before = 0
        for n in _shown(nodes, len(lines)):
            if n > before + 1:
                level.add("⋯", -1, "")
            text = lines[n - 1].rstrip("\n") if n <= len(lines) else ""
            text = text if len(text) <= LONG else f"{text[:LONG]}…"
            level.add(text, nodes.get(n, -1), str(n))
            before = n
    return level


def _display(file: str) -> str:
    """A file's name, from the working directory if it lies there."""
    path, here = Path(file), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else file


def _shown(nodes: Mapping[int, int], length: int) -> Sequence[int]:
    near = {k for n in nodes for k in range(n - AROUND, n + AROUND + 1) if 0 < k <= length}
    return sorted(near | set(nodes))


def _read(file: str, texts: Mapping[str, str]) -> list[str]:
    """The lines of a file. A location may name any file, and a page is for showing to others: so
    only Python files are read, and what a notebook has in memory."""
    if file in texts:
        return texts[file].splitlines()
    if Path(file).suffix == ".py" or file in linecache.cache:
        return linecache.getlines(file)
    return []
