"""What a path on a command line names: the kind of a model, by what its file begins with."""

from __future__ import annotations

import os
from enum import StrEnum

from rlx.models.bert import FAMILIES
from rlx.models.files import read_json
from rlx.models.modernbert import FAMILY
from rlx.runtime.container import MAGIC

__all__ = ["GRAPHS", "LANGUAGE", "Kind", "kind_of"]

_BYTECODE = b"ML\xefR"
_HEAD = 1 << 16
"""Bytes of a text that tell a dialect: the first op stands there."""


class Kind(StrEnum):
    """The kinds of models, in words for a message."""

    TEXT = "a graph's text"
    ONNX = "an ONNX model"
    STABLEHLO = "a program of StableHLO"
    TORCH = "a program of torch.export"
    ENCODER = "the folder of a sentence encoder"
    ARTIFACT = "an artifact"
    GGUF = "a GGUF file"
    DECODER = "the folder of a language model"
    SAFETENSORS = "a file of weights alone"


GRAPHS = (Kind.TEXT, Kind.ONNX, Kind.STABLEHLO, Kind.TORCH, Kind.ENCODER)
"""The kinds of which a graph is made."""

LANGUAGE = (Kind.GGUF, Kind.DECODER)
"""The kinds of language models."""


def kind_of(path: str) -> Kind:
    """The kind of a file or folder. One that cannot be read, or is none of them, is taken for the
    kind of its name, or a graph's text: whoever reads it says what is wrong."""
    if os.path.isdir(path):
        config = os.path.join(path, "config.json")
        found = read_json(config, dict, {}).get("model_type")
        return Kind.ENCODER if found in (*FAMILIES, FAMILY) else Kind.DECODER
    try:
        with open(path, "rb") as f:
            head = f.read(_HEAD)
            size = os.fstat(f.fileno()).st_size
    except (OSError, ValueError):
        head, size = b"", 0
    return _by_content(head, size) or _by_name(path) or Kind.TEXT


def _by_content(head: bytes, size: int) -> Kind | None:
    if head.startswith(MAGIC):
        return Kind.ARTIFACT
    if head.startswith(b"GGUF"):
        return Kind.GGUF
    if head.startswith(_BYTECODE) or (b"\0" not in head and b"stablehlo." in head):
        return Kind.STABLEHLO
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < size:
        return Kind.SAFETENSORS
    return None


def _by_name(path: str) -> Kind | None:
    endings = {
        ".onnx": Kind.ONNX, ".pt2": Kind.TORCH, ".rlx": Kind.ARTIFACT, ".gguf": Kind.GGUF,
        ".safetensors": Kind.SAFETENSORS,
    }  # fmt: skip
    return endings.get(os.path.splitext(path)[1].lower())
