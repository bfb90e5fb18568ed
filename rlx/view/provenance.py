"""Provenance: which line of a level came from which line of another, by MLIR locations.

Each op that a level shows gets a number of its own, as a name around its location. Passes hand
locations on, so an op of a later level holds the numbers of all the ops that it came from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rlx._mlir import ir
from rlx.dialects.bridge import trail_of

__all__ = ["Provenance"]

_NAME = "rlx:"
# A string of a location: the place of a file, or the name around another location.
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"(?::(\d+):\d+)?')
_OWN = re.compile(rf'"{_NAME}(\d+)"(?!:)')
_ESCAPE = re.compile(rb"\\([0-9A-Fa-f]{2}|\\)")

# Ops whose line has no history: they frame others.
_FRAMES = frozenset(
    [
        "builtin.module", "func.func", "func.return", "mir.yield", "arith.constant",
        "scf.yield", "scf.condition",
    ]
)  # fmt: skip


class Provenance:
    """The numbered nodes of a view; ``origins[n]`` are the nodes that node n came from.

    ``parsed`` is the name of the text that the module was parsed from, which MLIR calls "-".
    """

    def __init__(self, parsed: str = "-") -> None:
        self.parsed = parsed
        self.origins: list[tuple[int, ...]] = []
        self.sources: dict[tuple[str, int], int] = {}

    def node(self, origins: Iterable[int]) -> int:
        """The number of a new node that came from others."""
        self.origins.append(tuple(sorted(set(origins))))
        return len(self.origins) - 1

    def source(self, file: str, line: int) -> int:
        """The node of a line of the user's."""
        file = self.parsed if file == "-" else file
        if (file, line) not in self.sources:
            self.sources[file, line] = self.node(())
        return self.sources[file, line]

    @staticmethod
    def own(location: str) -> int:
        """The number that a location begins with: that of its op, or -1."""
        found = _OWN.match(location)
        return int(found[1]) if found else -1

    def own_of(self, op: ir.Operation) -> int:
        """The number of an op of a level that has been numbered."""
        return self.own(trail_of(op.location))

    def read(self, location: str) -> list[int]:
        """The nodes that a location names, outermost first, and those of the places in it."""
        found: list[int] = []
        for text, line in _STRING.findall(location):
            number = text.removeprefix(_NAME)
            if line:
                found.append(self.source(_unescaped(text), int(line)))
            elif number != text and number.isdecimal() and int(number) < len(self.origins):
                found.append(int(number))
        return found

    def number(self, module: ir.Module) -> int:
        """Number the ops and arguments of a module, and return the first number that it has."""
        first = len(self.origins)

        def visit(op: ir.Operation) -> ir.WalkResult:
            for region in op.regions:
                for block in region.blocks:
                    for argument in block.arguments:
                        argument.set_location(self._named(argument.location))
            if op.name not in _FRAMES:
                # A region is its body. A launch came from the views that it reads too, which may be
                # all that is left of an op.
                body = [o.operation for r in op.regions for b in r.blocks for o in b.operations]
                views = [v.owner for v in op.operands if _is_view(v)]
                parts = [o.location for o in (op, *body, *views) if o.name not in _FRAMES]
                op.location = self._named(ir.Location.fused(parts))
            return ir.WalkResult.ADVANCE

        with module.context:
            # Bodies before what they are in.
            module.operation.walk(visit, ir.WalkOrder.POST_ORDER)
        return first

    def _named(self, location: ir.Location) -> ir.Location:
        number = self.node(self.read(trail_of(location)))
        return ir.Location.name(f"{_NAME}{number}", location)


def _is_view(v: ir.Value) -> bool:
    return not isinstance(v.owner, ir.Block) and v.owner.name == "lir.view"


def _unescaped(text: str) -> str:
    r"""A string of MLIR's text: ``\22`` is the byte of that number."""
    raw = _ESCAPE.sub(lambda m: b"\\" if m[1] == b"\\" else bytes([int(m[1], 16)]), text.encode())
    return raw.decode(errors="replace")
