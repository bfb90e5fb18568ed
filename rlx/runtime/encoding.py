"""The words of an artifact's structured parts: its manifest and its schedules.

A structured part is a row of 64-bit words. A text is its length in bytes, then UTF-8 padded with
zeros to whole words. docs/artifact.md lists what follows what. The reader here takes what
``_native.check_artifact`` has found sound: what is refused is decided once, in ``native/``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from rlx.digest import digest
from rlx.types import DTYPES

__all__ = [
    "Array", "LaunchInfo", "Parts", "Reader", "Signature", "Site", "Writer", "array_of", "bytes_of",
    "read_constants", "read_facts", "read_signature", "read_step", "write_constants", "write_facts",
    "write_signature", "write_step",
]  # fmt: skip

T = TypeVar("T")
Array = np.ndarray[Any, Any]
Step = tuple[Any, ...]

Signature = tuple[str, str, tuple[int, ...]]
"""Name, element type and shape of a param, input or output."""

LaunchInfo = tuple[str, str, int, int, int]
"""What a launch is for: its ops, the user's file and line; its flops, and the bytes it moves."""

Site = tuple[str, str, int]
"""What a fault means, and the user's file and line."""

Parts = list[tuple[str, memoryview]]
"""The parts of an artifact by number."""


class Writer:
    """Makes a structured part."""

    def __init__(self) -> None:
        self.data = bytearray()

    def words(self, *values: int) -> None:
        """Add integers of 64 bits."""
        self.data += struct.pack(f"<{len(values)}q", *values)

    def text(self, text: str) -> None:
        """Add a text."""
        assert "\0" not in text, "names and messages have no zero byte"
        encoded = text.encode("utf-8", "backslashreplace")
        self.words(len(encoded))
        self.data += encoded + bytes(-len(encoded) % 8)

    def each(self, items: Sequence[T], write: Callable[[Writer, T], None]) -> None:
        """Add the number of the items, then each by ``write``."""
        self.words(len(items))
        for item in items:
            write(self, item)


class Reader:
    """Reads a structured part."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._words: tuple[int, ...] = struct.unpack(f"<{len(data) // 8}q", data)
        self._at = 0

    def words(self, count: int) -> tuple[int, ...]:
        """The next words."""
        self._at += count
        return self._words[self._at - count : self._at]

    def word(self) -> int:
        """The next word."""
        self._at += 1
        return self._words[self._at - 1]

    def text(self) -> str:
        """The next text."""
        size, begin = self.word(), 8 * self._at
        self._at += -(-size // 8)
        return bytes(self._data[begin : begin + size]).decode()

    def each(self, read: Callable[[Reader], T]) -> list[T]:
        """The items that a count announces."""
        return [read(self) for _ in range(self.word())]

    def list(self) -> tuple[int, ...]:
        """The words that a count announces."""
        return self.words(self.word())


LAUNCH, IF, WHILE, FOR = range(4)


def write_step(w: Writer, step: Step, kernels: dict[str, int]) -> None:
    """Add a step (of the form in ``rlx/runtime/_native.pyi``); ``kernels`` numbers their names."""

    def inner(steps: Sequence[Step]) -> None:
        w.each(steps, lambda w, s: write_step(w, s, kernels))

    match step:
        case ("launch", name, count, grain, scratch, refs, sizes):
            w.words(LAUNCH, kernels[name], count, grain, scratch)
            w.each(refs, _write_ref)
            w.each(sizes, lambda w, n: w.words(n))
        case ("if", flag, then, otherwise):
            w.words(IF)
            _write_ref(w, flag)
            inner(then)
            inner(otherwise)
        case ("while", conditions, flag, body, limit, site):
            w.words(WHILE)
            _write_ref(w, flag)
            w.words(limit, site)
            inner(conditions)
            inner(body)
        case ("for", count, body, counter, reverse):
            w.words(FOR, count, reverse, counter is not None)
            _write_ref(w, counter or (0, 0))
            inner(body)
        case _:
            raise AssertionError(f"no step of an artifact is called {step[0]!r}")


def read_step(r: Reader, kernels: Sequence[str]) -> Step:
    """The next step."""

    def inner() -> list[Step]:
        return r.each(lambda r: read_step(r, kernels))

    kind = r.word()
    if kind == LAUNCH:
        name = kernels[r.word()]
        count, grain, scratch = r.words(3)
        return ("launch", name, count, grain, scratch, tuple(r.each(_read_ref)), r.list())
    if kind == IF:
        return ("if", _read_ref(r), inner(), inner())
    if kind == WHILE:
        flag = _read_ref(r)
        limit, site = r.words(2)
        return ("while", inner(), flag, inner(), limit, site)
    count, reverse, counts = r.words(3)
    counter = _read_ref(r)
    return ("for", count, inner(), counter if counts else None, bool(reverse))


def _write_ref(w: Writer, ref: Sequence[Any]) -> None:
    base, offset, *moves = ref
    w.words(base, offset)
    w.each(moves, lambda w, move: w.words(*move))


def _read_ref(r: Reader) -> tuple[Any, ...]:
    return (*r.words(2), *r.each(lambda r: r.words(2)))


# -- what every schedule has ---------------------------------------------------------------


def write_constants(w: Writer, constants: Sequence[Array], part: Callable[[str, Any], int]) -> None:
    """Add constants; ``part`` keeps the bytes of one under a name, and numbers them."""
    w.words(len(constants))
    for c in constants:
        data = bytes_of(c)
        name = digest(data)
        dt = next(name for name, dt in DTYPES.items() if dt.numpy == c.dtype)
        write_signature(w, (name, dt, c.shape))
        w.words(part(f"constants/{name}", data))


def read_constants(r: Reader, parts: Parts) -> list[Array]:
    """The next constants, which share the memory of their parts."""
    return r.each(lambda r: array_of(read_signature(r), parts[r.word()][1]))


def write_facts(w: Writer, launches: Sequence[LaunchInfo], sites: Sequence[Site]) -> None:
    """Add what launches are for, and what faults mean."""
    texts = [t for ops, file, *_ in launches for t in (ops, file)]
    texts += [file for _, file, _ in sites]
    number_of = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    w.each(list(number_of), Writer.text)
    w.words(len(launches))
    for ops, file, line, flops, moved in launches:
        w.words(number_of[ops], number_of[file], line, flops, moved)
    w.words(len(sites))
    for message, file, line in sites:
        w.text(message)
        w.words(number_of[file], line)


def read_facts(r: Reader) -> tuple[list[LaunchInfo], list[Site]]:
    """The next launches and sites."""
    texts = r.each(Reader.text)
    launches = r.each(lambda r: (texts[r.word()], texts[r.word()], r.word(), r.word(), r.word()))
    return launches, r.each(lambda r: (r.text(), texts[r.word()], r.word()))


def write_signature(w: Writer, signature: Signature) -> None:
    """Add a signature."""
    name, dt, shape = signature
    w.text(name)
    w.text(dt)
    w.each(shape, lambda w, n: w.words(n))


def bytes_of(a: Array) -> memoryview:
    """The elements of an array, row-major."""
    # numpy exports no buffer for bfloat16.
    return np.ascontiguousarray(a).reshape(-1).view(np.uint8).data


def read_signature(r: Reader) -> Signature:
    """The next signature."""
    return r.text(), r.text(), r.list()


def array_of(signature: Signature, data: memoryview) -> Array:
    """The array that a part holds; it shares the part's memory."""
    _, dt, shape = signature
    kind = DTYPES[dt].numpy
    return np.frombuffer(data, kind).reshape(shape) if len(data) else np.empty(shape, kind)
