"""What is decided of a graph before it is quantised: scales by value, and schemes by weight."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from rlx.base.frozen import frozen
from rlx.errors import DTypeError, FaultError, ShapeError
from rlx.ir.builders import public
from rlx.ir.value import Value
from rlx.ops.quant.scales import numbers
from rlx.quant.scheme import BlockScheme
from rlx.quant.table import scheme_named
from rlx.types import f32, i8

__all__ = ["INT8", "CalibrationEntry", "CalibrationRecord", "QuantMap"]

INT8 = "int8"
"""Integers of 8 bits with a scale for each output of a product, which rounds its rows too."""


@public
class CalibrationEntry:
    """The scales of a value: one number, or one for each place along ``axis``; and the zero points,
    by default 0. DTypeError, ShapeError or FaultError for scales that are none."""

    def __init__(self, scales: Any, zero_points: Any = None, axis: int | None = None) -> None:
        self.scales = numbers("scales", scales, f32)
        self.zero_points = None if zero_points is None else numbers("zero points", zero_points, i8)
        self.axis = axis
        if self.scales.ndim > 1 or (self.scales.ndim == 1) != (axis is not None):
            raise ShapeError(
                "a calibration entry has one scale, or a list of them and the axis that they are"
                f" along; found scales of shape {list(self.scales.shape)} and axis {axis}"
            )
        if not (np.isfinite(self.scales).all() and (self.scales > 0).all()):
            raise FaultError(f"scales are positive and finite, found {self.scales}")

    def __repr__(self) -> str:
        return f"CalibrationEntry({self.scales}, {self.zero_points}, {self.axis})"


@public
class CalibrationRecord(Mapping[Value, CalibrationEntry]):
    """The entries of values of a graph. DTypeError for what is no value or no entry."""

    def __init__(self, entries: Mapping[Value, CalibrationEntry]) -> None:
        self._entries = dict(entries)
        for value, entry in self._entries.items():
            if not isinstance(value, Value) or not isinstance(entry, CalibrationEntry):
                raise DTypeError(
                    "a calibration record maps values of a graph to CalibrationEntry, found"
                    f" {value!r}: {entry!r}"
                )

    def __getitem__(self, value: Value) -> CalibrationEntry:
        return self._entries[value]

    def __iter__(self) -> Iterator[Value]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"CalibrationRecord({self._entries})"


@public
class QuantMap(Mapping[str, str | None]):
    """Schemes by the names of weights: the first pattern that fits a name (``*`` and ``?`` as in
    file names) says its scheme, and None leaves it.

        QuantMap({"*embeddings*": None, "*.0.*": "int8", "*": "q4_k"})

    Schemes are "int8", and those of blocks of ``rlx.quant.schemes()``; DTypeError for others.
    """

    def __init__(self, schemes: Mapping[str, str | None]) -> None:
        self._schemes = {pattern: _checked(s) for pattern, s in dict(schemes).items()}

    @classmethod
    def of(cls, schemes: QuantMap | Mapping[str, str | None] | str) -> QuantMap:
        """A map, or one scheme for all weights."""
        if isinstance(schemes, QuantMap):
            return schemes
        return cls({"*": schemes} if isinstance(schemes, str) else schemes)

    def scheme_of(self, name: str) -> str | None:
        """The scheme of a weight."""
        found = (s for pattern, s in self._schemes.items() if fnmatchcase(name, pattern))
        return next(found, None)

    def __getitem__(self, pattern: str) -> str | None:
        return self._schemes[pattern]

    def __iter__(self) -> Iterator[str]:
        return iter(self._schemes)

    def __len__(self) -> int:
        return len(self._schemes)

    def __repr__(self) -> str:
        return f"QuantMap({self._schemes})"


def _checked(scheme: Any) -> str | None:
    if scheme is None or scheme == INT8:
        return scheme
    found = scheme_named(scheme)
    if not isinstance(found, BlockScheme):
        raise DTypeError(f'weights of a graph are "int8" or of a scheme of blocks, found {found}')
    return found.name


@frozen
class Row:
    """What became of a weight: its scheme, or why it was left; the relative error (nan if it was
    left), and its bytes before and after, with those of the param itself where it is still read."""

    name: str
    scheme: str
    error: float = math.nan
    before: int = 0
    after: int = 0
