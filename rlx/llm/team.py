"""Ranks that run one model together: each takes the same steps, and the first says which."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import numpy as np

from rlx.base.mesh import Axis, Mesh
from rlx.distributed.connections import current_rank
from rlx.errors import GraphError, shown
from rlx.ir.graph import Graph
from rlx.llm.engine import StepRows

__all__ = ["Team"]

Array = np.ndarray[Any, Any]

WORDS = 1024
"""The numbers of a message; a longer one is several."""

NUMBER, HIDDEN, LOGITS, IDLE, END = range(5)
"""What a message says: a number, a step to hidden states or to logits, that there is none yet, and
that there will be none."""


def _axis_of(mesh: Mesh) -> Axis:
    """The axis along which a model is cut: the only one, or "model"."""
    if not isinstance(mesh, Mesh):
        raise GraphError(f"mesh is {shown(mesh)}, expected a Mesh")
    (first, *others) = mesh.axes
    if others and "model" not in mesh.shape:
        raise GraphError(
            f"{mesh} has no axis 'model'; a model is cut along it where there are several axes"
        )
    return mesh["model"] if others else first


class Team:
    """The ranks along the axis of a mesh that have parts of a model. This thread or process is one
    of them. GraphError for a mesh without such an axis, and where it is no rank."""

    def __init__(self, mesh: Mesh) -> None:
        from rlx.runtime.session import Session

        self.axis = _axis_of(mesh)
        self.rank = mesh.coordinates(current_rank(mesh))[self.axis.name]
        g = Graph("team")
        g.set_outputs(g.input("words", [WORDS], "i32").collective_broadcast(self.axis))
        self._compiled = Session("cpu", threads=1).compile(g)

    @property
    def first(self) -> bool:
        """Whether this rank says what is done."""
        return self.rank == 0

    def number(self) -> int:
        """A random number, the same on all ranks."""
        return int(self._meet(NUMBER, np.array([secrets.randbits(31)], np.int32))[1][0])

    def idle(self) -> None:
        """Let ranks that follow wait on."""
        self._meet(IDLE, np.empty(0, np.int32))

    def end(self) -> None:
        """Let ranks that follow end."""
        self._meet(END, np.empty(0, np.int32))

    def agree(self, rows: StepRows, *, logits: bool) -> None:
        """Take a step that all ranks take. GraphError on a rank that was to take another than the
        first."""
        kind, words = LOGITS if logits else HIDDEN, _words_of(rows)
        told = self._meet(kind, words)
        if told[0] != kind or not np.array_equal(told[1], words):
            raise GraphError(
                f"rank {self.rank} of {self.axis.ranks} along {self.axis.name!r} was to take"
                " another step than rank 0; all ranks call the model alike, in the same order"
            )

    def steps(self) -> Iterator[tuple[StepRows, bool]]:
        """The steps of the first rank until it ends, and whether logits are wanted."""
        while (told := self._meet(IDLE, np.empty(0, np.int32)))[0] != END:
            if told[0] in (HIDDEN, LOGITS):
                yield _rows_of(told[1]), told[0] == LOGITS

    def _meet(self, kind: int, words: Array) -> tuple[int, Array]:
        """What the first rank says."""
        said = np.concatenate([np.array([kind, len(words)], np.int32), words])
        first = self._part(said[:WORDS])
        kind, size = (int(n) for n in first[:2])
        parts = [first[2:]]
        for at in range(WORDS, size + 2, WORDS):
            parts.append(self._part(said[at : at + WORDS]))
        return kind, np.concatenate(parts)[:size]

    def _part(self, words: Array) -> Array:
        message = np.zeros(WORDS, np.int32)
        message[: len(words)] = words
        return self._compiled.run({"words": message})[0]


def _words_of(rows: StepRows) -> Array:
    """The numbers of a step, with their counts before them."""
    tables = [np.asarray(t, np.int32) for t in rows.tables]
    adapters = np.asarray(rows.adapters, np.int32)
    parts = [rows.ids, rows.positions, rows.sequence, rows.wanted, adapters, *tables]
    counts = np.array([len(tables), *map(len, parts)], np.int32)
    return np.concatenate([counts, *(p.astype(np.int32, copy=False) for p in parts)])


def _rows_of(words: Array) -> StepRows:
    """What ``_words_of`` wrote."""
    count = 5 + int(words[0])
    ends = np.cumsum(words[1 : 1 + count])[:-1]
    ids, positions, sequence, wanted, adapters, *tables = np.split(words[1 + count :], ends)
    pages = [t.tolist() for t in tables]
    return StepRows(ids, positions, sequence, pages, wanted, adapters.tolist())
