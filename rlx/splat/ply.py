"""PLY files: elements with properties, in text or binary of either byte order.

The format is Greg Turk's of 1994: a header in text, then the rows of each element.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlx.base.frozen import frozen
from rlx.errors import GraphError, ModelError
from rlx.splat.reading import Bytes, Lines, content

__all__ = ["FORMATS", "read_table", "write_table"]

Array = np.ndarray[Any, Any]
Tables = dict[str, dict[str, Array]]

FORMATS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
"""The byte order of each."""

_TYPES = {
    "char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4",
    "float": "f4", "double": "f8", "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2",
    "int32": "i4", "uint32": "u4", "float32": "f4", "float64": "f8",
}  # fmt: skip
_NAMES = {code: name for name, code in reversed(_TYPES.items())}

_HEADER_LIMIT = 1 << 20
"""Bytes."""


@frozen
class _Property:
    name: str
    type: str
    length: str = ""
    """The type of its length, if it is a list."""


@frozen
class _Element:
    name: str
    count: int
    properties: tuple[_Property, ...]

    @property
    def lists(self) -> bool:
        return any(p.length for p in self.properties)


def read_table(path: str | os.PathLike[str]) -> Tables:
    """The properties of each element as arrays by name; a list is left out. ModelError says what is
    wrong with a file, and where."""
    file, data = os.fspath(path), content(path)
    end = data.find(b"end_header", 0, _HEADER_LIMIT)
    stop = data.find(b"\n", end) + 1 if end >= 0 else 0
    if not stop:
        raise ModelError(f"{file} is no PLY file: it has no line end_header")
    header = Lines(file, data[:stop])
    form, elements = _header(header)
    if form == "ascii":
        rows = Lines(file, data[stop:], header.number)
        tables = {e.name: _text_rows(rows, e) for e in elements}
        while (line := rows.line()) is not None:
            if line.strip():
                raise rows.fail("this is behind the last row")
        return tables
    cursor = Bytes(file, data, stop)
    tables = {e.name: _binary_rows(cursor, e, FORMATS[form]) for e in elements}
    cursor.end()
    return tables


def _header(lines: Lines) -> tuple[str, list[_Element]]:
    if lines.line() != "ply":
        raise lines.fail("a PLY file begins with the line ply")
    form, found = "", list[tuple[str, int, list[_Property]]]()
    while True:
        line = lines.line()
        assert line is not None, "end_header is there"
        match line.split():
            case ["end_header"]:
                break
            case ["comment" | "obj_info", *_] | []:
                pass
            case ["format", kind, "1.0"] if kind in FORMATS and not form:
                form = kind
            case ["element", name, count]:
                number = lines.whole(count, f"the count of {name!r}")
                if number < 0 or name in [e[0] for e in found]:
                    raise lines.fail(f"the element {name!r} has {number} rows, or is there twice")
                found.append((name, number, []))
            case ["property", *words] if found:
                found[-1][2].append(_property(lines, words, found[-1][2]))
            case _:
                raise lines.fail(f"{line[:60]!r} is no line of a header at this place")
    if not form:
        raise lines.fail(f"there is no line format, of {', '.join(FORMATS)} 1.0")
    return form, [_Element(name, n, tuple(ps)) for name, n, ps in found]


def _property(lines: Lines, words: list[str], others: list[_Property]) -> _Property:
    match words:
        case [kind, name] if kind in _TYPES:
            made = _Property(name, _TYPES[kind])
        case ["list", length, kind, name] if kind in _TYPES and _TYPES.get(length, "f")[0] in "iu":
            made = _Property(name, _TYPES[kind], _TYPES[length])
        case _:
            raise lines.fail(f"the property {' '.join(words)[:60]!r} has no type of PLY")
    if made.name in [p.name for p in others]:
        raise lines.fail(f"the property {made.name!r} is there twice")
    return made


# -- rows -----------------------------------------------------------------------------------------


def _text_rows(lines: Lines, e: _Element) -> dict[str, Array]:
    if e.count > len(lines.lines) - lines.next:
        raise lines.fail(f"the element {e.name!r} has {e.count} rows, and fewer lines are left")
    columns: dict[str, list[Any]] = {p.name: [] for p in e.properties if not p.length}
    for _ in range(e.count):
        words = (lines.line() or "").split()
        for p in e.properties:
            value = _text_value(lines, words, p, f"{e.name} {p.name}")
            if value is not None:
                columns[p.name].append(value)
        if words:
            raise lines.fail(f"a row of {e.name!r} has {len(words)} words too many")
    out: dict[str, Array] = {}
    for p in e.properties:
        if not p.length:
            try:
                out[p.name] = np.array(columns[p.name], p.type)
            except OverflowError:
                raise lines.fail(f"{e.name} {p.name} is beyond {_NAMES[p.type]}") from None
    return out


def _text_value(lines: Lines, words: list[str], p: _Property, what: str) -> float | None:
    """The next of ``words``, which it takes away; None for a list."""
    word = words.pop(0) if words else ""
    if not p.length:
        return lines.real(word, what) if p.type[0] == "f" else lines.whole(word, what)
    size = lines.whole(word, f"the length of {what}")
    if not 0 <= size <= len(words):
        raise lines.fail(f"the list {what} has {size} of {len(words)} words")
    del words[:size]
    return None


def _binary_rows(cursor: Bytes, e: _Element, order: str) -> dict[str, Array]:
    plain = [(p.name, order + p.type) for p in e.properties if not p.length]
    what = f"the element {e.name!r} of {e.count} rows"
    if not e.lists:
        if not plain:
            return {}
        rows = cursor.rows(np.dtype(plain), e.count, what)
        return {n: rows[n].astype(kind[1:]) for n, kind in plain}
    least = sum(np.dtype(p.length or p.type).itemsize for p in e.properties)
    if e.count * least > cursor.left:
        raise cursor.fail(
            f"{what} takes {e.count * least} bytes or more, and {cursor.left} are left"
        )
    columns: dict[str, list[Any]] = {name: [] for name, _ in plain}
    for _ in range(e.count):
        for p in e.properties:
            value = cursor.rows(np.dtype(order + (p.length or p.type)), 1, f"{e.name} {p.name}")[0]
            if p.length and value < 0:
                raise cursor.fail(f"the list {p.name} has {value} elements")
            if p.length:
                cursor.take(int(value) * np.dtype(p.type).itemsize, f"the list {p.name}")
            else:
                columns[p.name].append(value)
    kinds = {p.name: p.type for p in e.properties}
    return {name: np.array(values, kinds[name]) for name, values in columns.items()}


# -- writing --------------------------------------------------------------------------------------


def write_table(
    path: str | os.PathLike[str], tables: Mapping[str, Mapping[str, Array]], form: str
) -> None:
    """Elements of vectors of one length; GraphError for another format."""
    if form not in FORMATS:
        raise GraphError(f"the format of PLY is {', '.join(FORMATS)}; found {form!r}")
    header = ["ply", f"format {form} 1.0"]
    body = b""
    for name, columns in tables.items():
        kinds = [(n, FORMATS[form] + a.dtype.str[1:]) for n, a in columns.items()]
        rows = np.zeros(len(next(iter(columns.values()))), kinds)
        header.append(f"element {name} {len(rows)}")
        for n, a in columns.items():
            rows[n] = a
            header.append(f"property {_NAMES[a.dtype.str[1:]]} {n}")
        if form == "ascii":
            body += b"".join(_line(row) for row in rows)
        else:
            body += rows.tobytes()
    Path(path).write_bytes("\n".join([*header, "end_header\n"]).encode() + body)


def _line(row: Any) -> bytes:
    return (" ".join(str(v) for v in row) + "\n").encode()
