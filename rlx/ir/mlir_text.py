"""Spellings of element types, tensor types, strings and locations in the text of a graph.

The spelling is MLIR's, so that rlx-opt reads what is written here; nothing here needs MLIR.
"""

from __future__ import annotations

import re

from rlx.types import COMPLEX, DTYPES, FLOAT8, DType, TensorType

__all__ = [
    "CONTROL",
    "ELEMENTS",
    "OUTPUT",
    "element_text",
    "place_text",
    "quoted",
    "type_text",
    "unquoted",
]

ELEMENTS: dict[str, DType] = {
    **{d.name: d for d in DTYPES.values() if d.is_float},
    "i1": DTYPES["bool"],
    **{f"i{n}": DTYPES[f"i{n}"] for n in (8, 16, 32, 64)},
    **{f"ui{n}": DTYPES[f"u{n}"] for n in (8, 16, 32, 64)},
    **{f"complex<{d.part}>": d for d in COMPLEX},
    **{d.name.upper().replace("F8", "f8", 1): d for d in FLOAT8},  # f8E4M3FN
}
"""Element types by MLIR's names: signed integers are signless, a bool is i1."""

CONTROL = "rlx.control"
"""The attribute of a declaration that says which control op its calls are."""

OUTPUT = "rlx.output"
"""The attribute of a result of @main that is the output's name: all results have it, or none."""

_TEXTS = {dt: name for name, dt in ELEMENTS.items()}


def element_text(dt: DType) -> str:
    """The name of an element type in the text."""
    return _TEXTS[dt]


def type_text(t: TensorType) -> str:
    """A tensor type: ``tensor<2x3xf32>``, or ``tensor<?x3xf32, ["n", "3"]>`` with symbols."""
    dims = "".join(f"{d if isinstance(d, int) else '?'}x" for d in t.shape)
    names = "" if t.is_static else f", {dims_text(t.shape)}"
    return f"tensor<{dims}{element_text(t.dtype)}{names}>"


def dims_text(shape: tuple[object, ...]) -> str:
    """Dims of which some are symbols, as an array of strings."""
    return f"[{', '.join(quoted(str(d)) for d in shape)}]"


def quoted(text: str) -> str:
    """A string in quotes: what is not printable ASCII is escaped byte by byte."""
    return '"' + "".join(map(_escaped, text.encode())) + '"'


def _escaped(byte: int) -> str:
    if byte == ord("\\"):
        return "\\\\"
    return chr(byte) if 32 <= byte < 127 and byte != ord('"') else f"\\{byte:02X}"


def unquoted(text: str) -> str:
    """The inverse of ``quoted``; ValueError for an escape that there is not."""
    if "\\" not in text:
        return text[1:-1]
    return re.sub(rb'\\([\\"nt]|[0-9A-Fa-f]{2}|.?)', _byte, text[1:-1].encode()).decode()


def _byte(found: re.Match[bytes]) -> bytes:
    code = found[1]
    return _ESCAPES[code] if code in _ESCAPES else bytes([int(code, 16)])


_ESCAPES = {b"\\": b"\\", b'"': b'"', b"n": b"\n", b"t": b"\t"}


def place_text(place: tuple[str, int]) -> str:
    """A file and line as a location."""
    return f"loc({quoted(place[0])}:{place[1]}:1)"
