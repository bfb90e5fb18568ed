"""A tensor of a GGUF file: bytes, and the scheme that says what they mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.base.frozen import frozen
from rlx.errors import DTypeError, ModelError
from rlx.ir.builders import public
from rlx.quant import dequantize, quantize
from rlx.quant.scheme import BlockScheme
from rlx.quant.table import by_ggml, scheme_named
from rlx.types import dtype

__all__ = ["Tensor", "row_bytes", "type_named", "type_number"]

Array = np.ndarray[Any, Any]

_WHOLE = {24: "i8", 25: "i16", 26: "i32", 27: "i64", 28: "f64"}
"""GGML's types of plain numbers that are no schemes."""

_PLAIN = {*_WHOLE.values(), "f32", "f16", "bf16"}

_GONE = {
    4: "q4_2", 5: "q4_3", 9: "q8_1", 31: "q4_0_4_4", 32: "q4_0_4_8", 33: "q4_0_8_8",
    36: "iq4_nl_4_4", 37: "iq4_nl_4_8", 38: "iq4_nl_8_8",
}  # fmt: skip
"""Types that GGML had, or has for rows in flight, and that no file should hold."""


def type_named(number: int) -> str:
    """The name of a GGML type. ModelError if it is none that files hold."""
    if number in _WHOLE:
        return _WHOLE[number]
    if number in by_ggml():
        return by_ggml()[number].name
    known = _GONE.get(number)
    raise ModelError(
        f"type {number} ({known}), which GGML reads no more; make the file anew"
        if known
        else f"type {number}, which is no type of GGML that RLX knows"
    )


def type_number(name: str) -> int:
    """The number of a type."""
    for number, found in _WHOLE.items():
        if found == name:
            return number
    found = scheme_named(name)
    if isinstance(found, BlockScheme) and found.ggml is not None:
        return found.ggml
    raise ModelError(f"GGUF has no type for the scheme {found}")


def row_bytes(name: str, elements: int) -> int:
    """The bytes of a row. ModelError if it is no whole number of blocks."""
    if name in _PLAIN:
        return elements * dtype(name).bytes
    found = scheme_named(name)
    assert isinstance(found, BlockScheme)
    if elements % found.block:
        raise ModelError(f"{name} has blocks of {found.block} elements, and its rows {elements}")
    return elements // found.block * found.bytes


@public
@frozen
class Tensor:
    """A tensor as a file has it: its scheme (``"q4_k"``) or element type (``"i32"``), its shape,
    the outermost dim first, and its bytes, u8 ``[..., bytes of a row]``."""

    scheme: str
    shape: tuple[int, ...]
    data: Array
    byteorder: str = "little"

    @staticmethod
    def of(array: Any, scheme: str | None = None) -> Tensor:
        """A tensor of an array, in its own element type or quantised by a scheme."""
        x = np.asarray(array)
        if scheme is not None and scheme not in _WHOLE.values():
            raw = quantize(x, scheme)
            return Tensor(scheme_named(scheme).name, x.shape, raw)
        names = {dtype(name).numpy: name for name in sorted(_PLAIN)}
        if x.dtype not in names:
            raise DTypeError(f"GGUF has no type for {x.dtype}: cast it, or give a scheme")
        flat = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
        width = x.itemsize * (x.shape[-1] if x.ndim else 1)
        return Tensor(names[x.dtype], x.shape, flat.reshape(*x.shape[:-1], width))

    @property
    def nbytes(self) -> int:
        """Of its data."""
        return self.data.nbytes

    def numpy(self) -> Array:
        """A view in the tensor's own element type. DTypeError: it is in blocks."""
        if self.scheme not in _PLAIN:
            raise DTypeError(f"{self.scheme} has no element type: dequantize() gives f32")
        dt = dtype(self.scheme).numpy
        if self.byteorder == "big":
            if dt.kind == "V":  # bf16, which NumPy swaps no bytes of
                words = self.data.reshape(-1).view(">u2").astype("<u2")
                return words.view(dt).reshape(self.shape)
            dt = dt.newbyteorder(">")
        return self.data.reshape(-1).view(dt).reshape(self.shape)

    def dequantize(self) -> Array:
        """The numbers as f32."""
        if self.scheme in _WHOLE.values():
            return self.numpy().astype(np.float32)
        shape: Sequence[int] = self.shape or (1,)
        out = dequantize(self.data, self.scheme, shape, byteorder=self.byteorder)
        return out.reshape(self.shape)

    def __repr__(self) -> str:
        sizes = "x".join(map(str, self.shape))
        return f"<{self.scheme} [{sizes}], {math.prod(self.data.shape)} bytes>"
