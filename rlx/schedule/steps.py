"""The steps of a schedule: launches, branches and loops over numbered memories.

There is one set of classes from the lowering to the runtimes, and one table of their fields,
``KINDS``. While values are being placed, a step names its memory by views
(``rlx.lowering.select.views``), afterwards by a ``Place``: ``map`` is the way from one to the
other, and ``children`` the way into a step. What walks over steps uses these two and ``launches``,
or the table, so that it need not know which kinds there are: ``rlx.schedule.codec`` writes and
reads words by it, and ``tools/make_stubs.py`` writes it for the native runtime and for browsers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from rlx.base.frozen import frozen
from rlx.types import DTYPES

__all__ = [
    "COLLECTIVES", "KINDS", "MOST_BYTES", "REDUCTIONS", "UNITS", "VERSION", "Await", "Collective",
    "Control", "Extent", "Field", "FieldKind", "For", "Grid", "If", "Launch", "Layout", "Origin",
    "Place", "Size", "Step", "Unit", "While", "axis_name", "axis_words", "bytes_at", "collectives",
    "launches", "map_each", "memories_of",
]  # fmt: skip

VERSION = 3
"""The number that stands before the words of steps. A change of ``KINDS``, or of what a step means,
is a new one: the native runtime refuses words of any other."""

P = TypeVar("P")
Q = TypeVar("Q")

Size: TypeAlias = int
"""A number that follows from the shapes of a graph: an extent, a stride, an offset, a count. While
dims have no sizes it may be an expression (``rlx.base.dims.SymDim``), computed with like an int."""

Grid: TypeAlias = tuple[Size, Size, Size]
"""How a kernel is launched: on a CPU its parallel range, its grain and the bytes of scratch that a
worker needs; on a GPU the work groups in x, y and z."""


@frozen
class Origin:
    """What a step is for: the user's file and line, and ``trail``, the locations of all the ops
    that it came from as MLIR text. Of a launch also the ops, their flops, and the bytes moved."""

    place: tuple[str, int] = ("<unknown>", 0)
    trail: str = "unknown"
    ops: str = ""
    flops: Size = 0
    bytes: Size = 0


@frozen
class Layout:
    """What lies at a place: a strided tensor, whose strides count elements of ``dtype`` (by name);
    ``trail`` has the locations of the ops that moved nothing and became a view."""

    dtype: str
    shape: tuple[Size, ...]
    strides: tuple[Size, ...]
    trail: tuple[str, ...] = ()


@frozen
class Place:
    """A byte of a memory, by the number of the memory.

    ``moves`` are (depth of a ``For``, the outermost 0; bytes): the place lies so much further on in
    each round of the loops around it. ``layout`` is known to lir text alone.
    """

    base: int
    offset: Size
    moves: tuple[tuple[int, Size], ...] = ()
    layout: Layout | None = field(default=None, compare=False, repr=False)

    def at(self, rounds: Sequence[int]) -> int:
        """The offset in the given rounds of the loops around, the outermost first."""
        return self.offset + sum(rounds[depth] * step for depth, step in self.moves)


@frozen
class Launch(Generic[P]):
    """A kernel, by its number, on a grid. ``places`` are those of its buffers, and ``sizes`` its
    numbers, in the kernel's order."""

    kernel: int
    grid: Grid
    places: tuple[P, ...]
    sizes: tuple[Size, ...]
    origin: Origin = field(default=Origin(), compare=False, repr=False)

    def children(self) -> tuple[Step[P], ...]:
        """None."""
        return ()

    def map(
        self,
        launch: Callable[[Launch[P]], Launch[Q]],
        place: Callable[[P], Q],
        word: Callable[[Size], Size] | None = None,
    ) -> Launch[Q]:
        """What ``launch`` makes of it."""
        return launch(self)

    def placed(self, place: Callable[[P], Q]) -> Launch[Q]:
        """The launch on other places."""
        moved: Any = replace(self, places=tuple([place(p) for p in self.places]))  # pyright: ignore
        return moved


class Control(Generic[P]):
    """What all kinds of steps but launches have in common, by their rows of ``KINDS``."""

    def children(self) -> tuple[Step[P], ...]:
        """The steps inside, in the order of the row."""
        lists = [getattr(self, f.name) for f in KINDS[type(self)] if f.kind == "steps"]
        return tuple([step for steps in lists for step in steps])

    def map(
        self,
        launch: Callable[[Launch[P]], Launch[Q]],
        place: Callable[[P], Q],
        word: Callable[[Size], Size] | None = None,
    ) -> Any:
        """The same step with other launches, places and words."""
        made: dict[str, Any] = {}
        for f in KINDS[type(self)]:
            value = getattr(self, f.name)
            if f.kind == "steps":
                made[f.name] = map_each(value, launch, place, word)
            elif f.kind in ("place", "place?"):
                made[f.name] = None if value is None else place(value)
            elif f.kind == "word" and word is not None:
                made[f.name] = word(value)
        return replace(self, **made)  # pyright: ignore


@frozen
class If(Control[P]):
    """Steps of which the bool at ``flag`` chooses the first or the second."""

    flag: P
    then: tuple[Step[P], ...]
    otherwise: tuple[Step[P], ...]
    origin: Origin = field(default=Origin(), compare=False, repr=False)


@frozen
class While(Control[P]):
    """Steps that run as long as the bool at ``flag`` is true after those of ``test``. One round
    more than ``limit`` (-1: no limit) is the fault of ``site``."""

    test: tuple[Step[P], ...]
    flag: P
    body: tuple[Step[P], ...]
    limit: Size
    site: int
    origin: Origin = field(default=Origin(), compare=False, repr=False)


@frozen
class For(Control[P]):
    """Steps that run ``rounds`` times, the last round first if ``reverse``; before each the number
    of the round is written to ``counter``, as 8 bytes."""

    rounds: Size
    body: tuple[Step[P], ...]
    counter: P | None
    reverse: bool
    origin: Origin = field(default=Origin(), compare=False, repr=False)


COLLECTIVES = (
    "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "permute", "broadcast",
    "axis_index",
)  # fmt: skip
REDUCTIONS = ("sum", "prod", "min", "max")
"""What a ``Collective`` does, and how an ``all_reduce`` combines, by number."""


@frozen
class Collective(Control[P]):
    """What the ranks along an axis do together, ``kind`` being a number of ``COLLECTIVES``.

    A block is ``count`` elements of the type number ``dtype``. At ``source`` and ``target`` is one
    each, but a block for each of ``ranks`` at the source of reduce_scatter, at the target of
    all_gather, and at both of all_to_all. An axis_index has no source, and writes 8 bytes. ``axis``
    are the words of the axis' name (``axis_words``). ``peers`` are the sources and targets of a
    permute, in pairs, or the root of a broadcast. Where a rank does not come is the fault of
    ``site``.

    One that is ``apart`` may run beside the steps behind it, up to the next ``Await`` or the next
    that is not: these touch none of its memory. Collectives run in their order.
    """

    kind: int
    reduction: int
    dtype: int
    count: Size
    ranks: int
    axis: tuple[int, ...]
    peers: tuple[int, ...]
    site: int
    apart: bool
    source: P | None
    target: P
    origin: Origin = field(default=Origin(), compare=False, repr=False)


@frozen
class Await(Control[P]):
    """The end of all collectives that are apart and came before."""

    origin: Origin = field(default=Origin(), compare=False, repr=False)


def axis_words(name: str) -> tuple[int, ...]:
    """The name of an axis, which is ASCII, in words: eight letters each, the first the lowest."""
    data = name.encode("ascii")
    words = range(0, len(data), 8)
    return tuple([int.from_bytes(data[at : at + 8], "little") for at in words])


def axis_name(words: Sequence[int]) -> str:
    """The name in words."""
    return b"".join(w.to_bytes(8, "little") for w in words).rstrip(b"\0").decode("ascii")


Step: TypeAlias = Launch[P] | If[P] | While[P] | For[P] | Collective[P] | Await[P]

FieldKind: TypeAlias = Literal[
    "kernel", "word", "flag", "grid", "words", "place", "place?", "places", "steps"
]
"""What a field of a step is: the number of a kernel; a word; 0 or 1; three words; the count of
words and the words; a place; 0 or 1 and a place; the counts and the items of places and steps. A
place is the number of its memory, the offset, and its moves: their count, then the depth and the
bytes of each."""

Unit: TypeAlias = Literal[
    "bytes", "elements", "element type", "rounds", "ranks", "rank", "site", "choice", "letters",
    "argument",
]  # fmt: skip

MOST_BYTES = 2**56
"""No memory has more: there is room for a kernel's over-read behind any, without overflow."""

UNITS: dict[Unit, tuple[int, int | None]] = {
    "bytes": (0, MOST_BYTES), "elements": (0, MOST_BYTES), "element type": (0, len(DTYPES) - 1),
    "rounds": (0, None), "ranks": (1, 2**20), "rank": (0, 2**20 - 1), "site": (0, MOST_BYTES - 1),
    "choice": (0, None), "letters": (-(2**63), None), "argument": (-(2**63), None),
}  # fmt: skip
"""What a word counts, with the least and the most that it may be. An element type is its number in
``DTYPES``, a site one of the faults of a graph; letters are eight, and an argument is the kernel's
own."""


@frozen
class Extent:
    """The bytes that lie at a place: ``bytes`` times each of the words named in ``by``, where a
    count of elements stands for their bytes. ``where`` are the name of a word and the values of it
    for which this is said."""

    bytes: int = 1
    by: tuple[str, ...] = ()
    where: tuple[str, tuple[int, ...]] | None = None


@frozen
class Field:
    """A field of a step: of words what they count, the least and the most (None: no bound), of a
    choice what it is between, and of places what lies there: of ``holds`` the first whose condition
    is met."""

    name: str
    kind: FieldKind
    unit: Unit | None = None
    least: int = 0
    most: int | None = None
    holds: tuple[Extent, ...] = ()
    names: tuple[str, ...] = ()


def _word(name: str, unit: Unit, least: int | None = None, most: int | None = None) -> Field:
    return _counted(name, "word", unit, least, most)


def _words(name: str, unit: Unit) -> Field:
    return _counted(name, "words", unit, None, None)


def _counted(name: str, kind: FieldKind, unit: Unit, least: int | None, most: int | None) -> Field:
    low, high = UNITS[unit]
    return Field(name, kind, unit, low if least is None else least, high if most is None else most)


def _choice(name: str, names: tuple[str, ...]) -> Field:
    return Field(name, "word", "choice", 0, len(names) - 1, names=names)


def _place(name: str, *holds: Extent) -> Field:
    return Field(name, "place", holds=holds)


def _optional_place(name: str, *holds: Extent) -> Field:
    return Field(name, "place?", holds=holds)


def _kinds(*names: str) -> tuple[str, tuple[int, ...]]:
    """Where a collective is one of these."""
    return "kind", tuple([COLLECTIVES.index(name) for name in names])


_BLOCK, _EVERY_BLOCK = ("count",), ("count", "ranks")

KINDS: dict[type, tuple[Field, ...]] = {
    Launch: (
        Field("kernel", "kernel"), Field("grid", "grid"), Field("places", "places"),
        _words("sizes", "argument"),
    ),
    If: (_place("flag", Extent(1)), Field("then", "steps"), Field("otherwise", "steps")),
    While: (
        _place("flag", Extent(1)), _word("limit", "rounds", least=-1), _word("site", "site"),
        Field("test", "steps"), Field("body", "steps"),
    ),
    For: (
        _word("rounds", "rounds"), Field("reverse", "flag"), _optional_place("counter", Extent(8)),
        Field("body", "steps"),
    ),
    Collective: (
        _choice("kind", COLLECTIVES), _choice("reduction", REDUCTIONS),
        _word("dtype", "element type"), _word("count", "elements"), _word("ranks", "ranks"),
        _words("axis", "letters"), _words("peers", "rank"), _word("site", "site"),
        Field("apart", "flag"),
        _optional_place(
            "source",
            Extent(by=_EVERY_BLOCK, where=_kinds("reduce_scatter", "all_to_all")),
            Extent(by=_BLOCK),
        ),
        _place(
            "target",
            Extent(8, where=_kinds("axis_index")),
            Extent(by=_EVERY_BLOCK, where=_kinds("all_gather", "all_to_all")),
            Extent(by=_BLOCK),
        ),
    ),
    Await: (),
}  # fmt: skip
"""The kinds of steps, and their fields in the order in which they are written; the number of a kind
is its place here. The readers in C++ and JavaScript hold words against their bounds and places
against their memories by it. What a kernel does at the places of a launch is known to the kernel
alone."""


def bytes_at(step: Any, name: str) -> int:
    """The bytes that lie at a place of a step with known sizes, by the name of its field."""
    fields = {f.name: f for f in KINDS[type(step)]}
    for extent in fields[name].holds:
        if extent.where is None or getattr(step, extent.where[0]) in extent.where[1]:
            break
    else:
        raise AssertionError(f"nothing is said of {name}")
    total = extent.bytes
    for word in extent.by:
        total *= getattr(step, word)
        if fields[word].unit == "elements":
            total *= tuple(DTYPES.values())[step.dtype].bytes
    return total


def map_each(
    steps: Iterable[Step[P]],
    launch: Callable[[Launch[P]], Launch[Q]],
    place: Callable[[P], Q],
    word: Callable[[Size], Size] | None = None,
) -> tuple[Step[Q], ...]:
    """``map`` of each step, in order."""
    return tuple([step.map(launch, place, word) for step in steps])


def launches(steps: Iterable[Step[P]]) -> Iterator[Launch[P]]:
    """The launches among steps and inside them, in the order in which a reader meets them."""
    for step in steps:
        if isinstance(step, Launch):
            yield step
        else:
            yield from launches(step.children())


def collectives(steps: Iterable[Step[P]]) -> Iterator[Collective[P]]:
    """As ``launches``, of collectives."""
    for step in steps:
        if isinstance(step, Collective):
            yield step
        else:
            yield from collectives(step.children())


def memories_of(steps: Iterable[Step[Place]]) -> set[int]:
    """The numbers of the memories that steps touch, and launches among them and inside them."""
    found: set[int] = set()

    def place(p: Place) -> Place:
        found.add(p.base)
        return p

    map_each(steps, lambda launch: launch.placed(place), place)
    return found
