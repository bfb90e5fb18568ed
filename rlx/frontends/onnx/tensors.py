"""Tensors of an ONNX file as arrays. All that the file says of sizes and places is checked first.

External data is mapped and not copied.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, TypeProto, numpy_helper

from rlx.errors import ModelError, ShapeError, UnsupportedError
from rlx.quant.bits import nibbles
from rlx.types import DTYPES, DType, TensorType, i8, u8

__all__ = ["ELEM_TYPES", "FOUR_BITS", "array_of", "dtype_of", "tensor_type", "type_text"]

Array = np.ndarray[Any, Any]

_NAMES = {
    "f32": "FLOAT", "f64": "DOUBLE", "f8e4m3fn": "FLOAT8E4M3FN", "f8e5m2": "FLOAT8E5M2",
}  # fmt: skip

ELEM_TYPES: dict[str, int] = {
    name: TensorProto.DataType.Value(_NAMES.get(name, dt.long_name.upper()))
    for name, dt in DTYPES.items()
    if not dt.is_complex
}
"""ONNX's numbers of the element types that we have, by our names."""

_OURS = {number: name for name, number in ELEM_TYPES.items()}


def type_text(elem_type: int) -> str:
    """ONNX's name of an element type, in capitals as in ``onnx.TensorProto``."""
    known = TensorProto.DataType.DESCRIPTOR.values_by_number
    return str(known[elem_type].name) if elem_type in known else f"number {elem_type}"


def dtype_of(elem_type: int, what: str) -> DType:
    """Our element type; UnsupportedError naming ``what`` has one that we lack."""
    if elem_type not in _OURS:
        known = ", ".join(type_text(n) for n in _OURS)
        raise UnsupportedError(
            f"{what} has the element type {type_text(elem_type)}, which RLX lacks; cast it to one"
            f" of {known} before the export"
        )
    return DTYPES[_OURS[elem_type]]


def tensor_type(t: TypeProto, what: str) -> TypeProto.Tensor:
    """The tensor that a type says; UnsupportedError for a sequence, map, optional or the like."""
    kind = t.WhichOneof("value")
    if kind != "tensor_type":
        found = (kind or "nothing").removesuffix("_type").replace("_", " ")
        raise UnsupportedError(
            f"{what} is declared as {found}, and RLX has tensors alone; export a model whose"
            " values are tensors"
        )
    return t.tensor_type


FOUR_BITS: dict[int, DType] = {TensorProto.INT4: i8, TensorProto.UINT4: u8}
"""Element types of 4 bits, two to a byte, and what holds their elements here."""


def array_of(
    t: TensorProto, folder: Path | None, what: str, *, narrow: bool = False,
    data: Array | None = None,
) -> Array:  # fmt: skip
    """The elements of a tensor; ModelError for sizes that do not fit and files that do not lie in
    ``folder``. With ``narrow``, those of 4 bits become bytes. ``data`` is its ``raw_data``, if that
    was read already."""
    four = FOUR_BITS.get(t.data_type) if narrow else None
    dt, shape = four or dtype_of(t.data_type, what), tuple(t.dims)
    try:
        nbytes = TensorType.of(shape, dt).nbytes
    except ShapeError as e:
        raise ModelError(f"{what} has the dims {list(shape)}: {e.message}") from None
    nbytes = nbytes if four is None else -(-nbytes // 2)
    if t.data_location == TensorProto.EXTERNAL:
        found = _external(t, folder, what, nbytes)
        return found.view(dt.numpy).reshape(shape) if four is None else _bytes_of(found, t, four)
    if t.HasField("segment"):
        raise ModelError(f"{what} is a segment of a tensor; write it as a whole")
    if data is None and t.HasField("raw_data"):
        data = np.frombuffer(t.raw_data, np.uint8)
    if data is not None:
        found, expected = len(data), nbytes
    else:
        found = len(getattr(t, _FIELDS.get(t.data_type, "int32_data")))
        expected = math.prod(shape) if four is None else nbytes
    if found != expected:
        unit = "elements" if data is None else "bytes"
        raise ModelError(
            f"{what} has the dims {list(shape)}, which take {expected} {unit} of {dt}, and holds"
            f" {found}; the file is damaged, export it again"
        )
    if four is not None:
        packed = np.array(t.int32_data, np.int32).astype(np.uint8) if data is None else data
        return _bytes_of(packed, t, four)
    if data is not None:
        return data.view(dt.numpy).reshape(shape)
    return np.asarray(numpy_helper.to_array(t)).reshape(shape)


def _bytes_of(packed: Array, t: TensorProto, dt: DType) -> Array:
    """The elements of 4 bits of a tensor, the low ones of a byte first, a byte each."""
    codes = nibbles(packed)[: math.prod(t.dims)].reshape(tuple(t.dims))
    return codes if dt is u8 else (codes ^ 8).astype(np.int8) - np.int8(8)


_FIELDS: dict[int, str] = {
    TensorProto.FLOAT: "float_data", TensorProto.DOUBLE: "double_data",
    TensorProto.INT64: "int64_data", TensorProto.UINT32: "uint64_data",
    TensorProto.UINT64: "uint64_data",
}  # fmt: skip
"""Where the elements of a type are; those of the others are in ``int32_data``."""


def _external(t: TensorProto, folder: Path | None, what: str, nbytes: int) -> Array:
    """The bytes of a tensor in a file beside the model."""
    said = {e.key: e.value for e in t.external_data}
    location = said.get("location", "")
    if folder is None:
        raise ModelError(
            f"{what} lies in the file {location!r}, and the model was given without a folder;"
            " give from_onnx the path of the model"
        )
    path = _beside(folder, location)
    if path is None:
        raise ModelError(
            f"{what} lies in {location!r}, which is no file in the model's folder {folder};"
            " external data must lie beside the model"
        )
    try:
        offset, length = int(said.get("offset", 0)), int(said.get("length", nbytes))
        size = path.stat().st_size
    except (OSError, ValueError) as e:
        raise ModelError(f"{what}: cannot read {path}: {e}") from None
    if length != nbytes or offset < 0 or offset + length > size:
        raise ModelError(
            f"{what} needs {nbytes} bytes, its place in {location!r} is {length} bytes from"
            f" {offset} on, and the file has {size}"
        )
    if not nbytes:
        return np.empty(0, np.uint8)
    return np.memmap(path, np.uint8, "r", offset, (nbytes,))


def _beside(folder: Path, location: str) -> Path | None:
    """The file of that name in a folder, links followed; None for what lies elsewhere, and for
    what is there but no plain file."""
    try:
        root = folder.resolve()
        path = (root / location).resolve()
        return path if path.is_relative_to(root) and (path.is_file() or not path.exists()) else None
    except (OSError, RuntimeError, ValueError):  # a loop of links, or no name of a file
        return None
