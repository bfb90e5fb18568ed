"""Operands that may be absent: how a list of those that are there says which ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from rlx.errors import IRError
from rlx.ir.op import Op

__all__ = ["SEGMENTS", "needs_segments", "present_slots", "takes_optional"]

SEGMENTS = "operandSegmentSizes"
"""The attribute that says 0 or 1 for each operand field, where the number of operands does not."""


@cache
def takes_optional(cls: type[Op]) -> bool:
    """Whether an operand may be absent."""
    return any(f.optional for f in cls.operand_fields)


@cache
def needs_segments(cls: type[Op]) -> bool:
    """Whether more than one operand is optional, so that their number does not say which."""
    return sum(f.optional for f in cls.operand_fields) > 1


def present_slots(cls: type[Op], given: int, segments: Sequence[int] | None) -> list[bool]:
    """For each operand field whether it is there, of ``given`` operands; IRError if none fits."""
    fields = cls.operand_fields
    if segments is None:
        spare = given - sum(not f.optional for f in fields)
        present: list[bool] = []
        for f in fields:
            present.append(not f.optional or spare > 0)
            spare -= f.optional and spare > 0
    else:
        present = [n == 1 for n in segments]
    if len(present) != len(fields) or sum(present) != given:
        raise IRError(f"it takes {len(fields)} operands, found {given}")
    return present
