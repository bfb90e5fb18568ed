"""Files of text."""

from __future__ import annotations

from typing import Any

from rlx.errors import IRError

__all__ = ["decode", "other_kind"]


_KINDS = (
    (b"\x89RLX\r\n\x1a\n", "an RLX artifact", "rlx.Session().load(path), or rlx run, takes it"),
    (b"GGUF", "a GGUF file", "rlx.LLM(path), or rlx chat, takes a language model"),
    (b"\x93NUMPY", "a NumPy array", "numpy.load reads it"),
    (b"PK", "an archive, as of .npz or a PyTorch checkpoint", "numpy.load or torch.load reads it"),
)
"""Files of other kinds by what they begin with, and what reads them."""


def other_kind(data: Any, source: str) -> str:
    """What a file with these bytes is that was taken for another, and what reads it; "" if that is
    not known. ``source`` is its name."""
    for start, what, how in _KINDS:
        if data[: len(start)] == start:
            return f"the file is {what}: {how}"
    if data[8:9] == b"{" and int.from_bytes(data[:8], "little") < len(data):
        return "the file is safetensors: rlx.models.SafeTensors(path), or --params, reads it"
    if source.endswith(".onnx"):
        return "the file is an ONNX model: rlx.from_onnx(path), rlx run and rlx compile take it"
    return ""


def decode(data: bytes, source: str) -> str:
    """Bytes of a file as text; IRError for what is not text."""
    try:
        text = data.decode()
        zero = text.find("\0")
        at = None if zero < 0 else len(text[:zero].encode())
    except UnicodeDecodeError as e:
        text, at = "", e.start
    if at is not None:
        if other := other_kind(data, source):
            raise IRError(f"expected a graph as text, which rlx.save writes; {other}", (source, 1))
        raise IRError(
            f"byte 0x{data[at]:02x} at offset {at} is not text; "
            "expected MLIR's text form in UTF-8, which rlx.save writes",
            (source, data[:at].count(b"\n") + 1),
        )
    return text
