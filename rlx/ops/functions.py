"""The functions of one operand that may be given by name: to ``activation``, and to blocks."""

from __future__ import annotations

from rlx.ops import activation, elementary, rectifiers, unary
from rlx.ops.elementwise import Unary

__all__ = ["ACTIVATIONS"]

ACTIVATIONS: dict[str, type[Unary]] = {
    cls.name.split(".")[1]: cls
    for module in (activation, unary, elementary, rectifiers)
    for cls in map(vars(module).get, module.__all__)
    if isinstance(cls, type) and issubclass(cls, Unary)
}
"""Every function by the name of its method, with its attributes as they are by default."""
