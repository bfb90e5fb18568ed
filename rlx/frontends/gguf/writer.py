"""GGUF files, written."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.errors import ModelError
from rlx.frontends.gguf.reader import ALIGNMENT, MAGIC
from rlx.frontends.gguf.tensor import Tensor, type_number
from rlx.frontends.gguf.values import ARRAY, CODES
from rlx.ir.builders import located
from rlx.models.safetensors import replaced

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["write"]

_VERSION = 3
_NUMBERS = {np.dtype(numpy): name for name, (_, numpy) in CODES.items() if numpy and name != "bool"}


@located
def write(
    path: str | Path,
    tensors: Mapping[str, Any],
    metadata: Mapping[str, Any] | None = None,
    kinds: Mapping[str, str] | None = None,
) -> None:
    """Write a file of version 3, which appears whole or not at all.

    Tensors are arrays of f32, f16, bf16, f64 and signed integers, or ``Tensor``s, such as
    ``Tensor.of(array, "q4_k")`` and those of a file that was read. Metadata are numbers, bools,
    strings, and arrays or lists of one of them; ``kinds`` says how some are stored (``"u32"``,
    ``"i64[]"``), else an integer is an i32 where it fits, and a float an f32. ModelError says what
    cannot be written.
    """
    entries = {} if metadata is None else dict(metadata)
    alignment = entries.get("general.alignment", ALIGNMENT)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise ModelError(f"general.alignment is {alignment!r}, expected a power of two")
    stored = {"general.alignment": "u32", **({} if kinds is None else kinds)}
    if unknown := stored.keys() - entries.keys() - {"general.alignment"}:
        raise ModelError(f"kinds names {min(unknown)!r}, and no metadata has that name")
    every = {name: t if isinstance(t, Tensor) else Tensor.of(t) for name, t in tensors.items()}
    head = [MAGIC, struct.pack("<IQQ", _VERSION, len(every), len(entries))]
    for key, value in entries.items():
        head.append(_text(key) + _value(key, value, stored.get(key)))
    at = 0
    for name, t in every.items():
        if len(t.shape) > 4:
            raise ModelError(f"tensor {name!r} has {len(t.shape)} dims, and GGUF at most 4")
        if t.byteorder != "little":
            raise ModelError(f"tensor {name!r} is of a file of the other byte order")
        sizes = t.shape[::-1]
        head.append(_text(name) + struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes))
        head.append(struct.pack("<IQ", type_number(t.scheme), at))
        at += _padded(t.nbytes, alignment)
    with replaced(path) as f:
        written = sum(f.write(part) for part in head)
        f.write(bytes(_padded(written, alignment) - written))
        for t in every.values():
            f.write(np.ascontiguousarray(t.data).reshape(-1).data)
            f.write(bytes(_padded(t.nbytes, alignment) - t.nbytes))


def _padded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _text(value: str) -> bytes:
    raw = value.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(raw)) + raw


def _value(key: str, value: Any, kind: str | None) -> bytes:
    """The number of a value's kind, and its bytes."""
    listed = isinstance(value, list | tuple | np.ndarray)
    if kind is None:
        kind = _kind_of(key, value)
    name = kind.removesuffix("[]")
    if name not in CODES or name == "array" or listed != kind.endswith("[]"):
        raise ModelError(f"metadata {key!r}: {value!r} is no {kind!r}")
    code = CODES[name][0]
    if not listed:
        return struct.pack("<I", code) + _bytes(key, [value], name)
    return struct.pack("<IIQ", ARRAY, code, len(value)) + _bytes(key, value, name)


def _kind_of(key: str, value: Any) -> str:
    """How a value is stored that nobody said it of."""
    if isinstance(value, str):
        return "str"
    if isinstance(value, list | tuple) and value and all(isinstance(v, str) for v in value):
        return "str[]"
    plain = list(value) if isinstance(value, list | tuple) else [value]
    if plain and all(type(v) is int for v in plain):
        return _kind_of_integers(key, plain) + ("" if plain[0] is value else "[]")
    x = np.asarray(value)
    suffix = "[]" if x.ndim == 1 else ""
    empty = not x.size and not isinstance(value, np.ndarray)
    if x.ndim > 1 or x.dtype.kind not in "biuf" or empty:
        raise ModelError(
            f"metadata {key!r} is {value!r}; expected a number, a bool, a string, or a list or"
            " array of one of them; kinds says what an empty list holds"
        )
    if x.dtype.kind == "b":
        return f"bool{suffix}"
    if isinstance(value, np.ndarray | np.generic):
        if x.dtype not in _NUMBERS:
            raise ModelError(f"metadata {key!r} is {x.dtype}, for which GGUF has no kind")
        return _NUMBERS[x.dtype] + suffix
    if x.dtype.kind == "f":
        return f"f32{suffix}"
    return _kind_of_integers(key, x.reshape(-1).tolist()) + suffix


def _kind_of_integers(key: str, values: list[int]) -> str:
    """The first kind that holds them all."""
    for name in ("i32", "u32", "i64", "u64"):
        limits = np.iinfo(CODES[name][1])
        if limits.min <= min(values) and max(values) <= limits.max:
            return name
    raise ModelError(f"metadata {key!r}: no kind of GGUF holds {min(values)} to {max(values)}")


def _bytes(key: str, values: Any, name: str) -> bytes:
    if name == "str":
        if not all(isinstance(v, str) for v in values):
            raise ModelError(f"metadata {key!r} is no string: {values!r}")
        return b"".join(map(_text, values))
    numpy = CODES[name][1]
    x = np.asarray(values)
    if x.size and not _fits(x, name, numpy):
        raise ModelError(f"metadata {key!r}: {values!r} does not fit in {name}")
    return x.astype("<" + numpy).tobytes()


def _fits(x: Any, name: str, numpy: str) -> bool:
    if name == "bool" or x.dtype.kind not in "iuf":
        return name == "bool" and x.dtype.kind == "b"
    if name[0] == "f":
        return True
    limits = np.iinfo(numpy)
    return x.dtype.kind in "iu" and limits.min <= int(x.min()) and int(x.max()) <= limits.max
