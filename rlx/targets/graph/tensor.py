"""A tensor of another system, with the operators of a register."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlx.types import DType

if TYPE_CHECKING:
    from rlx.targets.graph.whole import Whole

__all__ = ["Number", "Tensor"]

Number = int | float | complex | bool


@dataclass(frozen=True, eq=False, slots=True)
class Tensor:
    """A value of the other system: the ``handle`` that ``k`` knows it by, its type and its shape.

    Operators write ops. A Python number takes the tensor's type, and shapes broadcast as in NumPy.
    """

    k: Whole
    handle: Any
    dtype: DType
    shape: tuple[int, ...]

    @property
    def lanes(self) -> int:
        """0: formulas see an element."""
        return 0

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def re(self) -> Tensor:
        """The real parts of a complex tensor."""
        return self.k.part("real", self)

    @property
    def im(self) -> Tensor:
        """The imaginary parts of a complex tensor."""
        return self.k.part("imag", self)

    def __add__(self, o: Tensor | Number) -> Tensor:
        return self.k.arith("add", self, o)

    def __radd__(self, o: Number) -> Tensor:
        return self.k.arith("add", o, self)

    def __sub__(self, o: Tensor | Number) -> Tensor:
        return self.k.arith("sub", self, o)

    def __rsub__(self, o: Number) -> Tensor:
        return self.k.arith("sub", o, self)

    def __mul__(self, o: Tensor | Number) -> Tensor:
        return self.k.arith("mul", self, o)

    def __rmul__(self, o: Number) -> Tensor:
        return self.k.arith("mul", o, self)

    def __truediv__(self, o: Tensor | Number) -> Tensor:
        return self.k.arith("div", self, o)

    def __rtruediv__(self, o: Number) -> Tensor:
        return self.k.arith("div", o, self)

    def __floordiv__(self, o: Tensor | Number) -> Tensor:
        return self.k.arith("div", self, o)

    def __mod__(self, o: Tensor | Number) -> Tensor:
        return self.k.arith("rem", self, o)

    def __and__(self, o: Tensor | Number) -> Tensor:
        return self.k.arith("and", self, o)

    def __or__(self, o: Tensor | Number) -> Tensor:
        return self.k.arith("or", self, o)

    def __xor__(self, o: Tensor | Number) -> Tensor:
        return self.k.arith("xor", self, o)

    def __lshift__(self, o: Tensor | Number) -> Tensor:
        return self.k.arith("shl", self, o)

    def __rshift__(self, o: Tensor | Number) -> Tensor:
        return self.k.arith("shr", self, o)

    def __neg__(self) -> Tensor:
        return self.k.neg(self)

    def __lt__(self, o: Tensor | Number) -> Tensor:
        return self.k.compare("lt", self, o)

    def __le__(self, o: Tensor | Number) -> Tensor:
        return self.k.compare("le", self, o)

    def __gt__(self, o: Tensor | Number) -> Tensor:
        return self.k.compare("gt", self, o)

    def __ge__(self, o: Tensor | Number) -> Tensor:
        return self.k.compare("ge", self, o)
