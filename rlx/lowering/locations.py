"""Locations during a compile: numbers instead of the user's files and lines.

A compile depends on the structure of a graph alone, so graphs of one structure share its result,
wherever they were written. Ops are therefore located by number; the files and lines of the graph at
hand are filled in afterwards, in an artifact, a report or an error.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from rlx.errors import RlxError
from rlx.ir.graph import Graph
from rlx.ir.location import NamedLocation
from rlx.ir.op import Location, Op, caller, located
from rlx.ir.value import Value
from rlx.lowering.report import FusionReport

__all__ = ["WHOLE", "Places", "numbered"]

_FILE = "<graph>"

WHOLE: Location = (_FILE, 0)
"""The place of what no node of the graph stands for."""

_TEXT = rf"{_FILE}:(\d+)"


def numbered(graph: Graph) -> dict[Value | Op, Location]:
    """A number for each place of ``graph.places()``."""
    return {made: (_FILE, i + 1) for i, (made, _) in enumerate(graph.places())}


class Places:
    """The user's places behind the numbers of one graph."""

    def __init__(self, graph: Graph) -> None:
        self._places = [caller(), *(place for _, place in graph.places())]

    def of(self, place: Location) -> Location:
        """The user's place for a number; any other place stays."""
        return self._places[place[1]] if place[0] == _FILE else place

    def named(self, ops: str, place: Location) -> str:
        """The ops of a launch with the node of an imported model that they come from."""
        found = self.of(place)
        return f"{ops} of {found.name}" if isinstance(found, NamedLocation) else ops

    def text(self, text: str) -> str:
        """A text in which places are named."""
        if _FILE not in text:
            return text
        return re.sub(_TEXT, lambda m: "{}:{}".format(*self._places[int(m[1])]), text)

    def sites(self, sites: Sequence[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
        """Fault sites (message, file, line) at the user's places."""
        return [(self.text(m), *self.of((file, line))) for m, file, line in sites]

    def fusion(self, report: FusionReport) -> FusionReport:
        """A report of fusions at the user's places."""
        missed = [
            m._replace(location=self.of(m.location), reason=self.text(m.reason))
            for m in report.missed
        ]
        return replace(report, missed=missed)

    @contextmanager
    def errors(self) -> Generator[None]:
        """Inside the block, nodes are made without a location of the user's; errors that leave it
        get one."""
        try:
            with located(WHOLE):
                yield
        except RlxError as e:
            place = self.of(e.location) if e.location else None
            if place == e.location and self.text(e.message) == e.message:
                raise
            raise type(e)(self.text(e.message), place) from e.__cause__
