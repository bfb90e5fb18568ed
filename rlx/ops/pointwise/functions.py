"""The functions of one operand that may be given by name: to ``activation``, and to blocks."""

from __future__ import annotations

from functools import cache

from rlx.ir.op import op_class
from rlx.ops import FAMILIES
from rlx.ops.pointwise.base import Unary

__all__ = ["activation_class", "activations"]

_OF = {
    name.split(".")[1]: name
    for family in ("activation", "unary", "elementary", "rectifiers")
    for name in FAMILIES[f"rlx.ops.pointwise.{family}"]
}
"""Ops of the families that hold them, which are loaded when one is asked for."""


def activation_class(name: str) -> type[Unary] | None:
    """The function called as its method is, with its attributes as they are by default; None if
    there is none of that name."""
    cls = op_class(_OF[name]) if name in _OF else None
    return cls if cls is not None and issubclass(cls, Unary) else None


@cache
def activations() -> dict[str, type[Unary]]:
    """All of them by name."""
    found = ((name, activation_class(name)) for name in _OF)
    return {name: cls for name, cls in found if cls is not None}
