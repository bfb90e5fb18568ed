"""The kinds of ops as enumerations of strings, made from the tables that hold them.

A member is its own name: ``x.activation(Activation.GELU)`` is ``x.activation("gelu")``.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from rlx.ops import OP_MODULES
from rlx.ops.nn.attention_mask import MASK_KINDS
from rlx.ops.pointwise.functions import activations
from rlx.ops.sugar import BINARIES, COMPARES, REDUCTIONS

__all__ = ["Activation", "BinaryOp", "CmpOp", "MaskKind", "OpKind", "ReduceOp"]


def _kinds(name: str, values: Iterable[str]) -> Any:
    """An enumeration whose members are called as their values, in capitals."""
    members = {v.rsplit(".", 1)[-1].upper(): v for v in values if v[0].isalpha()}
    kinds = StrEnum(name, members)
    kinds.__module__ = __name__  # so that members can be pickled
    return kinds


Activation = _kinds("Activation", activations())
BinaryOp = _kinds("BinaryOp", BINARIES)
CmpOp = _kinds("CmpOp", COMPARES)
ReduceOp = _kinds("ReduceOp", REDUCTIONS)
MaskKind = _kinds("MaskKind", MASK_KINDS)
OpKind = _kinds("OpKind", OP_MODULES)
