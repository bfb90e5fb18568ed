"""Encoding of what all variants of an artifact have: constants, signatures, and the sites of
launches and faults. docs/artifact.md lists the words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.base.dim_atoms import Symbol
from rlx.base.dim_text import parse_dim
from rlx.base.dims import SymDim
from rlx.base.stored import elements_digest, elements_of
from rlx.schedule.sizes import ROWS, SizeProgram, in_order
from rlx.schedule.words import Reader, Writer
from rlx.types import DTYPES, dtype

if TYPE_CHECKING:
    from rlx.schedule.plan import LaunchInfo, Signature, Site

__all__ = [
    "Array", "Parts", "array_of", "places_of", "read_constants", "read_dims", "read_facts",
    "read_signature", "read_sizes", "write_constants", "write_dims", "write_facts",
    "write_signature", "write_sizes",
]  # fmt: skip

Array = np.ndarray[Any, Any]

Parts = list[tuple[str, memoryview]]
"""The parts of an artifact by number."""


def write_constants(w: Writer, constants: Sequence[Array], part: Callable[[str, Any], int]) -> None:
    """Add constants; ``part`` keeps the bytes of one under a name, and numbers them."""
    w.words(len(constants))
    for c in constants:
        data, name = elements_of(c), elements_digest(c)
        write_signature(w, (name, dtype(c.dtype).name, c.shape))
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


def write_sizes(w: Writer, sizes: SizeProgram) -> None:
    """Add what makes steps for sizes, but for their words."""
    w.each(sizes.conditions, Writer.text)
    for data in sizes.rows:
        w.block(data)


def read_sizes(r: Reader, words: bytes) -> SizeProgram:
    """What makes ``words`` of steps for sizes."""
    return SizeProgram(tuple(r.each(Reader.text)), words, *(r.block() for _ in ROWS))


def write_signature(w: Writer, signature: Signature, dims: Sequence[SymDim] = ()) -> None:
    """Add a signature; a dim that is no number is one of ``dims``, and written as -1 less its
    place there."""
    name, dt, shape = signature
    w.text(name)
    w.text(dt)
    w.each(shape, lambda w, n: w.words(n if isinstance(n, int) else -1 - dims.index(n)))


def read_signature(r: Reader, dims: Sequence[SymDim] = ()) -> Signature:
    """The next signature, with ``dims`` in the place of negative numbers."""
    name, dt = r.text(), r.text()
    shape: Any = tuple([n if n >= 0 else dims[-1 - n] for n in r.list()])
    return name, dt, shape


def write_dims(
    w: Writer, inputs: Sequence[Signature], outputs: Sequence[Signature]
) -> list[SymDim]:
    """Add the dims of inputs and outputs that are no numbers, and return them: first the symbols,
    by name, with what tells their sizes, then the expressions. What tells the size of each is an
    input's (see ``rlx.runtime.artifact.Artifact.symbols``)."""
    told = places_of(inputs)
    w.words(len(told))
    for symbol, (at, axis, factor, number) in told.items():
        w.text(symbol.name)
        w.words(symbol.least, -1 if symbol.most is None else symbol.most)
        w.words(at, axis, factor, number)
    known = [SymDim.symbol(s.name, s.least, s.most) for s in told]
    used = [d for _, _, shape in (*inputs, *outputs) for d in shape if isinstance(d, SymDim)]
    others = [d for d in dict.fromkeys(used) if d not in known]
    w.each([str(d) for d in others], Writer.text)
    return known + others


def read_dims(r: Reader) -> list[SymDim]:
    """What ``write_dims`` returned."""

    def symbol(r: Reader) -> SymDim:
        name, (least, most, *_) = r.text(), r.words(6)
        return SymDim.symbol(name, least, None if most < 0 else most)

    def expression(r: Reader) -> SymDim:
        found = parse_dim(r.text())
        assert isinstance(found, SymDim), "what is a number is written as one"
        return found

    return r.each(symbol) + r.each(expression)


def places_of(inputs: Sequence[Signature]) -> dict[Symbol, tuple[int, int, int, int]]:
    """Of the symbols in dims of inputs, by name, what tells the size: the input, the axis, and the
    factor and the number in the dim ``factor*size + number`` there. What no dim of this kind has is
    left out."""
    found: dict[Symbol, tuple[int, int, int, int]] = {}
    for at, (_, _, shape) in enumerate(inputs):
        for axis, d in enumerate(shape):
            line = d.line if isinstance(d, SymDim) else None
            if line is None or line[1] < 1:
                continue
            assert isinstance(d, SymDim), "it has a line"
            (symbol,) = d.leaves()
            if symbol not in found or (d.lone and found[symbol][2:] != (1, 0)):
                found[symbol] = (at, axis, line[1], line[2])
    by_name = {symbol.name: symbol for symbol in found}
    return {(s := by_name[name]): found[s] for name in in_order(by_name)}


def array_of(signature: Signature, data: memoryview) -> Array:
    """The array that a part holds; it shares the part's memory."""
    _, dt, shape = signature
    kind = DTYPES[dt].numpy
    return np.frombuffer(data, kind).reshape(shape) if len(data) else np.empty(shape, kind)
