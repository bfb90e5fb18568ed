"""The values that a kernel is written in: registers with operators, and flat buffers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from rlx.base.dims import TakesDims
from rlx.types import DType

if TYPE_CHECKING:
    from rlx.codegen.builder import Kernel

__all__ = ["INDEX", "Buffer", "Number", "Reg", "mlir_element", "mlir_type"]

INDEX = DType("index", "int", 64)
"""The type of loop counters and addresses; not an element type of tensors."""

Number = int | float | complex | bool


def mlir_element(dt: DType, *, memory: bool = False) -> str:
    """The MLIR spelling of an element: integers are signless; a bool is i1, in memory one byte. A
    complex element is two of its part, of which memory alone has any."""
    if dt.is_complex and memory:
        return dt.part.name
    if dt is INDEX or dt.is_float:
        return dt.name
    if dt.kind == "bool":
        return "i8" if memory else "i1"
    return f"i{dt.bits}"


@cache
def mlir_type(dt: DType, lanes: int) -> str:
    """``f32`` for a scalar (lanes 0), ``vector<8xf32>`` for a vector of 8."""
    return f"vector<{lanes}x{mlir_element(dt)}>" if lanes else mlir_element(dt)


@dataclass(eq=False, slots=True)  # frozen, it would take three times as long to make
class Reg(TakesDims):
    """An SSA value of a kernel: a scalar (``lanes == 0``) or a vector. It never changes.

    Operators emit instructions; a Python number or a dim takes the register's type, and a scalar
    operand is broadcast to the lanes of the other.
    """

    k: Kernel
    name: str
    dtype: DType
    lanes: int = 0

    @property
    def mlir(self) -> str:
        """The MLIR type."""
        return mlir_type(self.dtype, self.lanes)

    def __add__(self, o: Reg | Number) -> Reg:
        return self.k.arith("add", self, o)

    def __radd__(self, o: Number) -> Reg:
        return self.k.arith("add", o, self)

    def __sub__(self, o: Reg | Number) -> Reg:
        return self.k.arith("sub", self, o)

    def __rsub__(self, o: Number) -> Reg:
        return self.k.arith("sub", o, self)

    def __mul__(self, o: Reg | Number) -> Reg:
        return self.k.arith("mul", self, o)

    def __rmul__(self, o: Number) -> Reg:
        return self.k.arith("mul", o, self)

    def __truediv__(self, o: Reg | Number) -> Reg:
        return self.k.arith("div", self, o)

    def __rtruediv__(self, o: Number) -> Reg:
        return self.k.arith("div", o, self)

    def __floordiv__(self, o: Reg | Number) -> Reg:
        return self.k.arith("div", self, o)

    def __mod__(self, o: Reg | Number) -> Reg:
        return self.k.arith("rem", self, o)

    def __rfloordiv__(self, o: Number) -> Reg:
        return self.k.arith("div", o, self)

    def __rmod__(self, o: Number) -> Reg:
        return self.k.arith("rem", o, self)

    def __and__(self, o: Reg | Number) -> Reg:
        return self.k.arith("and", self, o)

    def __or__(self, o: Reg | Number) -> Reg:
        return self.k.arith("or", self, o)

    def __xor__(self, o: Reg | Number) -> Reg:
        return self.k.arith("xor", self, o)

    def __lshift__(self, o: Reg | Number) -> Reg:
        return self.k.arith("shl", self, o)

    def __rshift__(self, o: Reg | Number) -> Reg:
        return self.k.arith("shr", self, o)

    def __neg__(self) -> Reg:
        return self.k.neg(self)

    def __lt__(self, o: Reg | Number) -> Reg:
        return self.k.compare("lt", self, o)

    def __le__(self, o: Reg | Number) -> Reg:
        return self.k.compare("le", self, o)

    def __gt__(self, o: Reg | Number) -> Reg:
        return self.k.compare("gt", self, o)

    def __ge__(self, o: Reg | Number) -> Reg:
        return self.k.compare("ge", self, o)


@dataclass(frozen=True, eq=False, slots=True)
class Buffer:
    """A flat buffer of a kernel: an argument, scratch or a stack array. Addressed by element."""

    name: str
    dtype: DType
    mlir: str

    def __str__(self) -> str:
        return self.name
