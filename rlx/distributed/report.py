"""What ``rlx.shard`` put in: every collective, and how every value lies on the mesh."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from os.path import basename
from typing import Any, NamedTuple

from rlx.base.mesh import Mesh
from rlx.distributed.spec import P
from rlx.errors import GraphError
from rlx.ir.builders import public
from rlx.ir.location import Location

__all__ = ["Exchange", "Placed", "ShardingReport"]


class Exchange(NamedTuple):
    """A collective that was put in: ``op`` over so many ``ranks`` along ``axis``.

    It moves what ``values`` says, the names of leaves or ops; several of them run as one. ``bytes``
    are those that each rank sends if it goes round a ring. ``location`` is the line of the user's
    code that asks for it, for a ``reason``. ``asked`` is false for a gather whose op then computes
    the same on all ranks, and ``joins`` is true for one that makes a result whole for the caller.
    """

    op: str
    axis: str
    ranks: int
    values: tuple[str, ...]
    bytes: int
    reason: str
    location: Location
    asked: bool = True
    joins: bool = False


class Placed(NamedTuple):
    """How a value lies where it is made: its spec, and the axes ``over`` which it is a part of a
    sum."""

    value: str
    type: str
    spec: P
    over: tuple[str, ...]
    location: Location


@public
class ShardingReport:
    """The ``collectives`` of a graph on a mesh, in the order in which they run, and its ``values``.

    ``str`` is a table. Bytes are those that a rank sends in a ring, where a symbolic size counts as
    256.
    """

    def __init__(
        self, mesh: Mesh, collectives: Iterable[Exchange], values: Iterable[Placed]
    ) -> None:
        self.mesh = mesh
        self.collectives: tuple[Exchange, ...] = tuple(collectives)
        self.values: tuple[Placed, ...] = tuple(values)

    @property
    def bytes(self) -> int:
        """What a rank sends in one run, but for joining results."""
        return sum(e.bytes for e in self.collectives if not e.joins)

    @property
    def count(self) -> int:
        """How many collectives a run has, but for those that join results."""
        return sum(not e.joins for e in self.collectives)

    @property
    def unasked(self) -> tuple[Exchange, ...]:
        """The gathers after which all ranks compute the same."""
        return tuple([e for e in self.collectives if not e.asked])

    def refuse_unasked(self) -> None:
        """GraphError if there is a gather that no spec asks for, at the line of the first."""
        if not self.unasked:
            return
        said = "; ".join(
            f"{', '.join(e.values)} along {e.axis!r} for {_place(e.location)}: {e.reason}"
            for e in self.unasked
        )
        raise GraphError(
            f"shard: strict refuses {len(self.unasked)} of the gathers: {said}. Give a spec that"
            " needs none, or leave strict away",
            self.unasked[0].location,
        )

    def to_json(self) -> str:
        """The report as JSON."""
        return json.dumps(
            {
                "mesh": self.mesh.shape,
                "bytes": self.bytes,
                "collectives": [e._asdict() for e in self.collectives],
                "values": [{**v._asdict(), "spec": list(v.spec)} for v in self.values],
            },
            indent=1,
        )

    def rows(self) -> list[tuple[str, ...]]:
        """The table: a row a collective."""
        return [
            (e.op, e.axis, str(e.bytes), _named(e.values), e.reason + _mark(e), _place(e.location))
            for e in self.collectives
        ]

    def __str__(self) -> str:
        head = f"{self.mesh}: {self.count} collectives, {self.bytes} bytes a rank"
        joins = len(self.collectives) - self.count
        head += f", and {joins} that join results" if joins else ""
        return "\n".join([head, *_aligned([HEAD, *self.rows()])] if self.collectives else [head])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(h)}</th>" for h in HEAD)
        rows = "".join(
            f"<tr>{''.join(f'<td>{escape(c)}</td>' for c in row)}</tr>" for row in self.rows()
        )
        said = escape(str(self).splitlines()[0])
        return f"<b>ShardingReport</b> {said}<table><tr>{head}</tr>{rows}</table>"

    def __repr__(self) -> str:
        return f"<ShardingReport: {self.count} collectives, {self.bytes} bytes a rank>"


HEAD = ("collective", "axis", "bytes", "value", "reason", "line")


def _named(values: Sequence[str]) -> str:
    return values[0] if len(values) == 1 else f"{values[0]} and {len(values) - 1} more"


def _mark(e: Exchange) -> str:
    return "" if e.asked else " (not asked for)"


def _place(location: Location) -> str:
    return f"{basename(location[0])}:{location[1]}"


def _aligned(rows: Sequence[Sequence[Any]]) -> list[str]:
    widths = [max(len(r[i]) for r in rows) for i in range(len(HEAD))]
    return [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
