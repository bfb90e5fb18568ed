"""Files of text."""

from __future__ import annotations

from rlx.errors import IRError

__all__ = ["decode"]


def decode(data: bytes, source: str) -> str:
    """Bytes of a file as text; IRError for what is not text."""
    try:
        text = data.decode()
        zero = text.find("\0")
        at = None if zero < 0 else len(text[:zero].encode())
    except UnicodeDecodeError as e:
        text, at = "", e.start
    if at is not None:
        raise IRError(
            f"byte 0x{data[at]:02x} at offset {at} is not text; "
            "expected MLIR's text form in UTF-8, which rlx.save writes",
            (source, data[:at].count(b"\n") + 1),
        )
    return text
