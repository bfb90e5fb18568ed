"""StableHLO's spelling of types and literals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rlx.types import DType, bool_

__all__ = ["dense", "integers", "rows_of", "tensor"]

Array = np.ndarray[Any, Any]

_ELEMENTS = {
    "bool": "i1", "c64": "complex<f32>", "c128": "complex<f64>",
    **{f"u{n}": f"ui{n}" for n in (8, 16, 32, 64)},
}  # fmt: skip

_HEX_FROM = 16
"""Elements from which a literal is written as the hexadecimal digits of its bytes."""


def tensor(dt: DType, shape: Sequence[int]) -> str:
    """A type: ``tensor<2x3xf32>``."""
    return f"tensor<{''.join(f'{n}x' for n in shape)}{_ELEMENTS.get(dt.name, dt.name)}>"


def integers(values: Iterable[int]) -> str:
    """An attribute of integers."""
    listed = ", ".join(str(int(v)) for v in values)
    return f"array<i64: {listed}>" if listed else "array<i64>"


def rows_of(low: Sequence[int], high: Sequence[int]) -> str:
    """Padding, a row of two numbers an axis."""
    if not low:
        return "dense<> : tensor<0x2xi64>"
    rows = ", ".join(f"[{a}, {b}]" for a, b in zip(low, high, strict=True))
    return f"dense<[{rows}]> : tensor<{len(low)}x2xi64>"


def dense(a: Array, dt: DType, shape: Sequence[int]) -> str:
    """A literal of a type; an array of no axes fills it."""
    given = np.ascontiguousarray(a, dt.numpy).reshape(np.shape(a))
    return f"dense<{_elements(given, dt)}> : {tensor(dt, shape)}"


def _elements(a: Array, dt: DType) -> str:
    if a.ndim == 0:
        return _number(a[()], dt)
    if not a.size:
        return ""
    if a.size >= _HEX_FROM and dt is not bool_:
        return f'"0x{a.tobytes().hex().upper()}"'
    return _nested(a, dt)


def _nested(a: Array, dt: DType) -> str:
    if a.ndim == 0:
        return _number(a[()], dt)
    return f"[{', '.join(_nested(np.asarray(row), dt) for row in a)}]"


def _number(value: Any, dt: DType) -> str:
    if dt.is_complex:
        return f"({_number(value.real, dt.part)}, {_number(value.imag, dt.part)})"
    if dt is bool_:
        return "true" if value else "false"
    if dt.is_float:
        # The bits: decimal digits have no nan, and may round.
        bits = int(np.asarray(value, dt.numpy).view(f"u{dt.bytes}"))
        return f"0x{bits:0{dt.bytes * 2}X}"
    return str(int(value))
