"""Sources of ONNX models: a model proto, and the folder of its external data."""

from __future__ import annotations

from collections.abc import Mapping
from io import SEEK_END, BufferedIOBase, BytesIO
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from onnx import ModelProto

from rlx.base.frozen import frozen
from rlx.errors import ModelError, a_type
from rlx.frontends.onnx.weights import without_weights

__all__ = ["Source", "read"]

Array = np.ndarray[Any, Any]


@frozen
class Source:
    """A model, the name that errors have for it, and the folder that its external data lies in;
    None if the model does not come from a file. ``weights`` are the bytes of the initialisers of
    these numbers, which the model does not hold."""

    model: ModelProto
    name: str
    folder: Path | None
    weights: Mapping[int, Array]


def read(given: str | PathLike[str] | bytes | Any) -> Source:
    """The model; ModelError for a file that cannot be read, and bytes that are no model."""
    if isinstance(given, ModelProto):
        return _checked(given, given.graph.name or "<onnx>", None, {})
    if isinstance(given, bytes | bytearray | memoryview):
        return _parsed(BytesIO(given), "<onnx>", None)
    if not isinstance(given, str | PathLike):
        kind = a_type(given)
        raise ModelError(f"from_onnx takes a path, bytes or an onnx.ModelProto, found {kind}")
    path = Path(given)
    try:
        with open(path, "rb") as f:
            return _parsed(f, str(path), path.parent)
    except (OSError, ValueError) as e:
        raise ModelError(f"cannot read {path}: {getattr(e, 'strerror', None) or e}") from None


def _parsed(file: BufferedIOBase, name: str, folder: Path | None) -> Source:
    if not file.seekable():  # a pipe
        file = BytesIO(file.read())
    data, weights = without_weights(file)
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        raise ModelError(
            f"{name} is no ONNX model: its {file.seek(0, SEEK_END)} bytes are not such a protocol"
            " buffer, or were cut short"
        ) from None
    return _checked(model, name, folder, weights)


def _checked(
    model: ModelProto, name: str, folder: Path | None, weights: Mapping[int, Array]
) -> Source:
    if not model.HasField("graph") or not model.opset_import:
        raise ModelError(
            f"{name} is no ONNX model: it has no graph or no opset_import; export it again"
        )
    return Source(model, name, folder, weights)
