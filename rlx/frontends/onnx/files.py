"""Sources of ONNX models: a model proto, and the folder of its external data."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from onnx import ModelProto

from rlx.base.frozen import frozen
from rlx.errors import ModelError

__all__ = ["Source", "read"]


@frozen
class Source:
    """A model, the name that errors have for it, and the folder that its external data lies in;
    None if the model does not come from a file."""

    model: ModelProto
    name: str
    folder: Path | None


def read(given: str | PathLike[str] | bytes | Any) -> Source:
    """The model; ModelError for a file that cannot be read, and bytes that are no model."""
    if isinstance(given, ModelProto):
        return _checked(given, given.graph.name or "<onnx>", None)
    if isinstance(given, bytes | bytearray | memoryview):
        return _checked(_parsed(bytes(given), "<onnx>"), "<onnx>", None)
    if not isinstance(given, str | PathLike):
        kind = type(given).__name__
        raise ModelError(f"from_onnx takes a path, bytes or an onnx.ModelProto, found a {kind}")
    path = Path(given)
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as e:
        raise ModelError(f"cannot read {path}: {getattr(e, 'strerror', None) or e}") from None
    return _checked(_parsed(data, str(path)), str(path), path.parent)


def _parsed(data: bytes, name: str) -> ModelProto:
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        raise ModelError(
            f"{name} is no ONNX model: its {len(data)} bytes are not such a protocol buffer, or"
            " were cut short"
        ) from None
    return model


def _checked(model: ModelProto, name: str, folder: Path | None) -> Source:
    if not model.HasField("graph") or not model.opset_import:
        raise ModelError(
            f"{name} is no ONNX model: it has no graph or no opset_import; export it again"
        )
    return Source(model, name, folder)
