"""Encoding of what all variants of an artifact have: constants, signatures, and the sites of
launches and faults. docs/artifact.md lists the words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.base.stored import elements_digest, elements_of
from rlx.schedule.words import Reader, Writer
from rlx.types import DTYPES

if TYPE_CHECKING:
    from rlx.schedule.plan import LaunchInfo, Signature, Site

__all__ = [
    "Array", "Parts", "array_of", "read_constants", "read_facts", "read_signature",
    "write_constants", "write_facts", "write_signature",
]  # fmt: skip

Array = np.ndarray[Any, Any]

Parts = list[tuple[str, memoryview]]
"""The parts of an artifact by number."""


def write_constants(w: Writer, constants: Sequence[Array], part: Callable[[str, Any], int]) -> None:
    """Add constants; ``part`` keeps the bytes of one under a name, and numbers them."""
    w.words(len(constants))
    for c in constants:
        data, name = elements_of(c), elements_digest(c)
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


def read_signature(r: Reader) -> Signature:
    """The next signature."""
    return r.text(), r.text(), r.list()


def array_of(signature: Signature, data: memoryview) -> Array:
    """The array that a part holds; it shares the part's memory."""
    _, dt, shape = signature
    kind = DTYPES[dt].numpy
    return np.frombuffer(data, kind).reshape(shape) if len(data) else np.empty(shape, kind)
