"""Index spaces with strided operands: how a shape becomes few loops, and how they address memory.

All strides count elements. A broadcast operand has stride 0 along the dims that it lacks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from rlx.base.frozen import frozen
from rlx.base.guards import is_one, prefers
from rlx.codegen.builder import Kernel
from rlx.codegen.reg import Buffer, Reg
from rlx.types import DType

__all__ = [
    "Access",
    "Counted",
    "Space",
    "Strided",
    "Strides",
    "accesses",
    "are_far",
    "broadcast_strides",
    "ceil_div",
    "collapse",
    "maskable",
    "order_for_output",
    "row_major",
    "run_time_strides",
]

Strides = tuple[int, ...]

Access = tuple[Literal["zero", "one", "any"], ...]
"""How an operand moves along each dim of a space. Code depends on it; an "any" stride is a
run-time argument. "one" is used for the innermost dim only."""


@frozen
class Space:
    """A shape, and for every operand its stride along each dim."""

    shape: tuple[int, ...]
    strides: tuple[Strides, ...]

    @property
    def size(self) -> int:
        """Number of points."""
        n = 1
        for d in self.shape:
            n *= d
        return n

    def permuted(self, order: Sequence[int]) -> Space:
        """The space with its dims in another order."""
        return Space(
            tuple(self.shape[d] for d in order),
            tuple(tuple(s[d] for d in order) for s in self.strides),
        )


FAR = 16 << 20
"""Bytes from which operands are far: below it, asking for them costs more than it saves."""


def are_far(space: Space, dtypes: Sequence[DType]) -> bool:
    """Whether operands are together so large that they are mostly in no cache that a CPU has
    alone."""
    sizes = (
        dt.bytes * math.prod(n for n, step in zip(space.shape, s, strict=True) if step)
        for dt, s in zip(dtypes, space.strides, strict=True)
    )
    total = sum(sizes)
    return prefers(lambda: total >= FAR, otherwise=False)


def row_major(shape: Sequence[int]) -> Strides:
    """The strides of a dense row-major tensor."""
    out: list[int] = []
    step = 1
    for d in reversed(shape):
        out.append(step)
        step *= d
    return tuple(reversed(out))


def broadcast_strides(shape: Sequence[int], to: Sequence[int]) -> Strides:
    """The strides by which a dense tensor of ``shape`` is read as one of ``to`` (NumPy rules)."""
    own = [0 if is_one(d) else s for d, s in zip(shape, row_major(shape), strict=True)]
    return tuple([0] * (len(to) - len(shape)) + own)


def collapse(space: Space) -> Space:
    """Drop dims of size 1 and merge neighbours that every operand steps through as one.

    The result has at least one dim; an empty space becomes the shape (0,), and one of a single
    element the shape (1,), both with stride 1 for every operand.
    """
    size = space.size
    if prefers(lambda: size <= 1, otherwise=False):
        return Space((size,), tuple((1,) for _ in space.strides))
    dims = [d for d, n in enumerate(space.shape) if not is_one(n)]
    shape = [space.shape[dims[0]]]
    strides = [[s[dims[0]]] for s in space.strides]
    for d in dims[1:]:
        n = space.shape[d]
        pairs = [(own[-1], s[d] * n) for own, s in zip(strides, space.strides, strict=True)]
        if prefers(lambda pairs=pairs: all(a == b for a, b in pairs), otherwise=False):
            shape[-1] *= n
            for own, s in zip(strides, space.strides, strict=True):
                own[-1] = s[d]
        else:
            shape.append(n)
            for own, s in zip(strides, space.strides, strict=True):
                own.append(s[d])
    return Space(tuple(shape), tuple(tuple(s) for s in strides))


def order_for_output(space: Space, output: int) -> Space:
    """The dims by falling stride of one operand, so that a transposed output is walked in order."""
    order = sorted(range(len(space.shape)), key=lambda d: -abs(space.strides[output][d]))
    return space.permuted(order)


def accesses(space: Space) -> tuple[Access, ...]:
    """How each operand moves along the dims of a collapsed space."""
    last = len(space.shape) - 1
    return tuple(
        tuple(
            "zero" if n == 0 else "one" if d == last and is_one(n) else "any"
            for d, n in enumerate(s)
        )
        for s in space.strides
    )


def run_time_strides(access: Access, strides: Strides) -> list[int]:
    """The strides that are arguments, in the order in which ``Strided`` declares them."""
    return [s for kind, s in zip(access, strides, strict=True) if kind == "any"]


def maskable(dt: DType) -> bool:
    """Whether loads and stores of an element type take a mask: no pairs."""
    return not dt.is_complex


class Walked:
    """How an operand of a kernel moves: a size argument for each "any" stride."""

    def __init__(self, k: Kernel, name: str, dt: DType, access: Access) -> None:
        self.k, self.name, self.dtype, self.access = k, name, dt, access
        self.strides: dict[int, Reg] = {}

    def declare_strides(self) -> None:
        """Declare the size arguments (apart from the buffer, as all buffers come first)."""
        for d, kind in enumerate(self.access):
            if kind == "any":
                self.strides[d] = self.k.size(f"{self.name}_stride{d}")

    @property
    def maskable(self) -> bool:
        """Whether a part of a vector can be read and written."""
        return self.inner != "any" and maskable(self.dtype)

    @property
    def inner(self) -> str:
        """How the operand moves along the innermost dim."""
        return self.access[-1]

    def offset(self, at: Sequence[Reg]) -> Reg:
        """The element offset of the indices ``at`` of the leading dims."""
        total: Reg | None = None
        for d, i in enumerate(at):
            if self.access[d] == "zero":
                continue
            part = i if self.access[d] == "one" else i * self.strides[d]
            total = part if total is None else total + part
        return self.k.index(0) if total is None else total


class Counted(Walked):
    """An operand without memory: the offset itself is the element, an integer."""

    @property
    def maskable(self) -> bool:
        """Always: there is nothing to read."""
        return True

    def load(self, base: Reg, j: Reg, lanes: int, mask: Reg | None = None) -> Reg:
        """The number(s) at inner index ``j``, from the offset ``base`` of its row."""
        k, dt = self.k, self.dtype
        if self.inner == "zero":
            return k.cast(base, dt)
        step = None if self.inner == "one" else self.strides[len(self.access) - 1]
        first = k.cast(base + (j if step is None else j * step), dt)
        if not lanes:
            return first
        numbers = k.lane_numbers(dt, lanes)
        return first + (numbers if step is None else numbers * k.cast(step, dt))


class Strided(Walked):
    """An operand in memory: its buffer beside the strides."""

    def __init__(self, k: Kernel, name: str, dt: DType, access: Access) -> None:
        super().__init__(k, name, dt, access)
        self.buffer: Buffer = k.buffer(name, dt)

    def load(self, base: Reg, j: Reg, lanes: int, mask: Reg | None = None) -> Reg:
        """The element(s) at inner index ``j``, from the offset ``base`` of its row. With a ``mask``
        the operand must be ``maskable``."""
        if self.inner == "zero":
            return self.k.load(self.buffer, base)
        if self.inner == "one":
            return self.k.load(self.buffer, base + j, lanes, mask)
        stride = self.strides[len(self.access) - 1]
        at = base + j * stride
        if lanes:
            return self.k.gather(self.buffer, at, stride, lanes)
        return self.k.load(self.buffer, at)

    def store(self, value: Reg, base: Reg, j: Reg, lanes: int, mask: Reg | None = None) -> None:
        """Write the element(s) at inner index ``j``; a scalar value fills all lanes."""
        k = self.k
        if self.inner == "zero":
            k.store(value, self.buffer, base)
        elif self.inner == "one":
            k.store(k.splat(value, lanes) if lanes else value, self.buffer, base + j, 0, mask)
        else:
            stride = self.strides[len(self.access) - 1]
            at = base + j * stride
            for n in range(lanes or 1):
                part = k.extract(value, n) if value.lanes else value
                k.store(part, self.buffer, at + stride * n if n else at)


def ceil_div(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)
