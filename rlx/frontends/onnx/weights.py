"""The weights of a model's file, read past the protocol buffer.

A parser of protocol buffers copies each field, and Python copies it again where it is looked at, so
that weights would be in memory several times. They are read here to where they stay, and the parser
gets what is left: the fields of the model, its graph and its initialisers are walked over for that
(https://protobuf.dev/programming-guides/encoding). What is not as exporters write it is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import SEEK_END, BufferedIOBase
from typing import Any

import numpy as np

__all__ = ["LEAST_BYTES", "without_weights"]

Array = np.ndarray[Any, Any]

LEAST_BYTES = 1024
"""Smaller weights stay in the message."""

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_GRAPH, _INITIALISER, _RAW_DATA = 7, 5, 9  # of ModelProto, GraphProto and TensorProto
_ELSEWHERE = frozenset([3, 13, 14])  # of a TensorProto: it is a segment, or its data is in a file


class _Unlike(Exception):
    """A message that is not as exporters write it."""


def without_weights(file: BufferedIOBase) -> tuple[bytes, dict[int, Array]]:
    """The serialised model of a file without the bytes of its large initialisers, and these by
    their numbers."""
    try:
        return _model(file, file.seek(0, SEEK_END))
    except _Unlike:
        file.seek(0)
        return file.read(), {}


def _model(file: BufferedIOBase, end: int) -> tuple[bytes, dict[int, Array]]:
    file.seek(0)
    parts: list[bytes] = []
    weights: dict[int, Array] | None = None
    for number, head, size in _fields(file, end, _GRAPH):
        if number != _GRAPH:
            parts += head, file.read(size)
            continue
        if weights is not None:
            raise _Unlike
        graph, weights = _graph(file, file.tell() + size)
        parts += _field(_GRAPH, graph), graph
    return b"".join(parts), weights or {}


def _graph(file: BufferedIOBase, end: int) -> tuple[bytes, dict[int, Array]]:
    parts: list[bytes] = []
    weights: dict[int, Array] = {}
    count = 0
    for number, head, size in _fields(file, end, _INITIALISER):
        if number != _INITIALISER or size < LEAST_BYTES:
            parts += head, file.read(size)
        else:
            tensor, data = _tensor(file, file.tell() + size)
            parts += _field(_INITIALISER, tensor), tensor
            if data is not None:
                weights[count] = data
        count += number == _INITIALISER
    return b"".join(parts), weights


def _tensor(file: BufferedIOBase, end: int) -> tuple[bytes, Array | None]:
    parts: list[bytes] = []
    data: Array | None = None
    for number, head, size in _fields(file, end, _RAW_DATA):
        if number in _ELSEWHERE or (number == _RAW_DATA and data is not None):
            raise _Unlike
        if number != _RAW_DATA or size < LEAST_BYTES:
            parts += head, file.read(size)
            continue
        data = np.frombuffer(file.read(size), np.uint8)  # bytes, which are nobody's to write
    return b"".join(parts), data


def _fields(file: BufferedIOBase, end: int, wanted: int) -> Iterator[tuple[int, bytes, int]]:
    """The fields of the message that goes on to ``end``: number, what stands before the contents,
    and how many bytes those are, which the caller reads. ``wanted`` is a field that has bytes."""
    while (at := file.tell()) < end:
        tag, head = _varint(file)
        kind, size = tag & 7, 0
        if kind == _BYTES:
            size, more = _varint(file)
            head += more
        elif kind == _VARINT:
            head += _varint(file)[1]
        elif kind in (_FIXED_64, _FIXED_32):
            size = 8 if kind == _FIXED_64 else 4
        else:
            raise _Unlike
        if at + len(head) + size > end or (tag >> 3 == wanted and kind != _BYTES):
            raise _Unlike
        yield tag >> 3, head, size


def _varint(file: BufferedIOBase) -> tuple[int, bytes]:
    found, read = 0, b""
    while len(read) < 10:
        byte = file.read(1)
        if not byte:
            break
        found |= (byte[0] & 0x7F) << 7 * len(read)
        read += byte
        if byte[0] < 0x80:
            return found, read
    raise _Unlike


def _field(number: int, contents: bytes) -> bytes:
    """What stands before the contents of a field."""
    written = bytearray([number << 3 | _BYTES])
    size = len(contents)
    while size >= 0x80:
        written.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*written, size])
