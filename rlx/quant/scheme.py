"""Quantisation schemes: the fields of a block of bytes, and how numbers are encoded and decoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlx.base.frozen import frozen
from rlx.ir.builders import public
from rlx.quant.bits import Array

__all__ = ["BlockScheme", "PartsScheme", "QuantScheme"]


class QuantScheme:
    """How the elements of a weight are packed: a row of ``rlx.quant.schemes()``."""

    name: str
    encode: Callable[..., Any] | None

    def __str__(self) -> str:
        return self.name


@public
@frozen
class BlockScheme(QuantScheme):
    """Blocks of bytes, one after the other along the last dim, each with scales of its own."""

    name: str
    block: int
    """Elements of a block."""
    fields: np.dtype[np.void]
    """The bytes of a block."""
    decode: Callable[[Array], Array]
    """f32 ``[n, block]`` of n blocks, an array of ``fields``."""
    encode: Callable[..., Array] | None = None
    """n blocks of f32 ``[n, block]``."""
    ggml: int | None = None
    """GGML's number of the type."""
    weighs: bool = False
    """Whether ``encode`` minimises an error that can be weighted."""
    whole: bool = True
    """Whether its codes stand for whole numbers, before they are scaled."""

    @property
    def bytes(self) -> int:
        """Of a block."""
        return self.fields.itemsize

    @property
    def bits(self) -> float:
        """Of an element, on average."""
        return 8 * self.bytes / self.block

    def __repr__(self) -> str:
        return f"<{self.name}: {self.block} elements in {self.bytes} bytes>"


@public
@frozen
class PartsScheme(QuantScheme):
    """Several arrays by name: packed integers, and their scales and zero points beside them."""

    name: str
    parts: tuple[str, ...]
    decode: Callable[[Mapping[str, Array], tuple[int, ...]], Array]
    """f32 of that shape."""
    encode: Callable[[Array, int], dict[str, Array]] | None = None
    """The parts of an array, with scales for so many elements each."""
    group: int = 0
    """For how many elements there is a scale, unless said otherwise."""

    def __repr__(self) -> str:
        return f"<{self.name}: {', '.join(self.parts)}>"
