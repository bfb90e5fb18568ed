"""Strided views of named memories: where a value is.

Transposes, slices, broadcasts and most reshapes move nothing: they change a view. A kernel family
reads views by their strides where it can, and asks for a dense copy where it can't.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from rlx.base.dims import same_shape
from rlx.base.frozen import frozen
from rlx.base.guards import is_one, prefers
from rlx.codegen.strides import row_major
from rlx.schedule.plan import Role
from rlx.schedule.steps import Size
from rlx.types import DTYPES, DType

__all__ = ["Memory", "Rounds", "View"]


@dataclass(eq=False)
class Memory:
    """A memory that a schedule names. ``index`` tells params, inputs and outputs apart.

    A buffer of the arena has a size and a life (first and last step that touches it); its offset
    is planned at the end, as are the offsets in the packed memory as they are asked for.
    """

    role: Role
    index: int = 0
    size: Size = 0
    offset: Size = 0
    first: int = -1
    last: int = -1

    def touch(self, step: int) -> None:
        """Note that a step reads or writes the memory."""
        self.first = step if self.first < 0 else self.first
        self.last = step


@dataclass(eq=False)
class Rounds:
    """The rounds of a loop in a schedule, with which views may move. ``depth`` is the number of
    such loops around it."""

    count: Size
    depth: int


@frozen
class View:
    """A strided tensor: ``start`` and ``strides`` count elements of ``dtype``.

    ``moves`` says how many elements further on the view lies in each round of the loops around it;
    ``trail`` holds the locations of the ops that moved nothing and became this view.
    """

    memory: Memory
    dtype: DType
    shape: tuple[Size, ...]
    strides: tuple[Size, ...]
    start: Size = 0
    moves: tuple[tuple[Rounds, Size], ...] = ()
    trail: tuple[str, ...] = field(default=(), compare=False)

    @staticmethod
    def dense(memory: Memory, dtype: DType, shape: Sequence[int]) -> View:
        """A row-major view of the whole memory."""
        return View(memory, dtype, tuple(shape), row_major(shape))

    @property
    def place(self) -> tuple[Role, int]:
        """The memory, by which views of one are known."""
        return self.memory.role, self.memory.index

    @property
    def size(self) -> int:
        """Number of elements."""
        n = 1
        for d in self.shape:
            n *= d
        return n

    @property
    def last(self) -> int:
        """The element of the memory that the view reaches at most."""
        moved = sum([(rounds.count - 1) * step for rounds, step in self.moves])
        own = sum([(d - 1) * s for d, s in zip(self.shape, self.strides, strict=True)])
        return self.start + moved + own

    @property
    def bytes(self) -> int:
        """The bytes of the elements that are there: what is broadcast counts once."""
        own = [d for d, s in zip(self.shape, self.strides, strict=True) if s or d == 0]
        return math.prod(own) * self.dtype.bytes

    @property
    def is_dense(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        dims = zip(self.shape, self.strides, row_major(self.shape), strict=True)
        return all(_steps_by(s, t) or is_one(d) for d, s, t in dims)

    def laid(self, shape: tuple[Size, ...], strides: tuple[Size, ...], at: Size = 0) -> View:
        """Elements of the same memory, ``at`` so many behind the first, in other dims."""
        start = self.start + at
        return View(self.memory, self.dtype, shape, strides, start, self.moves, self.trail)

    def as_bits(self, widest: int = 64) -> View:
        """The same elements as unsigned integers of their width, for kernels that only move;
        complex ones that are wider than ``widest`` as two integers each, along one more dim."""
        if self.dtype.bits <= widest or not self.dtype.is_complex:
            return replace(self, dtype=DTYPES[f"u{self.dtype.bits}"])
        halves = self.parts()
        return replace(halves, dtype=DTYPES[f"u{halves.dtype.bits}"])

    def parts(self) -> View:
        """Complex elements as reals: one more dim, of a real and an imaginary part."""
        return replace(
            self,
            dtype=self.dtype.part,
            shape=(*self.shape, 2),
            strides=(*(2 * s for s in self.strides), 1),
            start=2 * self.start,
            moves=tuple((rounds, 2 * step) for rounds, step in self.moves),
        )

    def transpose(self, perm: Sequence[int]) -> View:
        """The view with its axes in another order."""
        return self.laid(
            tuple([self.shape[p] for p in perm]), tuple([self.strides[p] for p in perm])
        )

    def slice(self, starts: Sequence[int], sizes: Sequence[int], steps: Sequence[int]) -> View:
        """The part from ``starts``, of ``sizes`` elements ``steps`` apart."""
        at = sum(b * s for b, s in zip(starts, self.strides, strict=True)) if all(sizes) else 0
        strides = tuple([s * t for s, t in zip(self.strides, steps, strict=True)])
        return self.laid(tuple(sizes), strides, at)

    def element(self, rounds: Rounds) -> View:
        """The part along the first axis that has the number of the round."""
        moves = (*self.moves, (rounds, self.strides[0]))
        return replace(self, moves=moves, shape=self.shape[1:], strides=self.strides[1:])

    def expand(self, shape: Sequence[int]) -> View:
        """The NumPy broadcast to ``shape``: stride 0 along new and stretched dims."""
        if same_shape(self.shape, shape):
            return self
        extra = len(shape) - len(self.shape)
        own = [
            s if same_shape((d,), (n,)) or d != 1 else 0
            for d, s, n in zip(self.shape, self.strides, shape[extra:], strict=True)
        ]
        return self.laid(tuple(shape), (*[0] * extra, *own))

    def reshape(self, shape: Sequence[int]) -> View | None:
        """The view in another shape, or None where that needs a copy."""
        if self.is_dense or 0 in self.shape:
            return self.laid(tuple(shape), row_major(shape))
        strides = _reshaped(self.shape, self.strides, shape)
        return None if strides is None else self.laid(tuple(shape), strides)


def _steps_by(stride: int, wanted: int) -> bool:
    return prefers(lambda: stride == wanted, otherwise=False)


def _lie_in_a_row(axes: Sequence[tuple[int, int]]) -> bool:
    """Whether axes, of sizes and strides, are one of all their elements; for a general schedule,
    whether they surely are."""
    return prefers(
        lambda: all(a[1] == b[0] * b[1] for a, b in pairwise(axes)),
        otherwise=False,
    )


def _reshaped(
    old: Sequence[int], strides: Sequence[int], new: Sequence[int]
) -> tuple[int, ...] | None:
    """Strides for ``new`` over the same elements, matching groups of dims of equal product."""
    dims = [(d, s) for d, s in zip(old, strides, strict=True) if not is_one(d)]
    out: list[int] = []
    at, i = 0, 0
    while i < len(new):
        if is_one(new[i]):
            out.append(0)
            i += 1
            continue
        if at == len(dims):
            return None
        group, have = [dims[at]], dims[at][0]
        at += 1
        want, j = new[i], i + 1
        while have != want:
            if have < want:
                if at == len(dims):
                    return None
                group.append(dims[at])
                have *= dims[at][0]
                at += 1
            elif j < len(new):
                want *= new[j]
                j += 1
            else:
                return None
        if not _lie_in_a_row(group):
            return None
        step = group[-1][1]
        inner = list(row_major(new[i:j]))
        out += [n * step for n in inner]
        i = j
    return tuple(out) if at == len(dims) else None
