"""Elementwise programs: what a chain of pointwise ops computes, as data.

A program is the part of a fused region that has one scalar meaning per element. The elementwise
family, contraction epilogues and the row-wise family all emit it by the same function, so an op's
``scalar`` is the only place that says what it computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlx.base.frozen import frozen
from rlx.codegen.reg import Number, Reg
from rlx.ir.op import op_class, placeholders
from rlx.ops.movement.constant import Constant
from rlx.types import DType, TensorType, bf16, f16, f32

if TYPE_CHECKING:
    from rlx.codegen.builder import Kernel

__all__ = ["Program", "Step"]

_ARGUMENT = "argument"
"""In the place of an op's name: the value is a literal that the launch brings."""


@frozen
class Step:
    """One pointwise op. ``args`` are value numbers: the program's inputs first, then its steps.

    ``dtypes`` are the element types of the operands, ``dtype`` that of the result. A number is
    the step of ``literal``, or of ``argument`` if the launch brings it.
    """

    op: str
    args: tuple[int, ...]
    dtypes: tuple[DType, ...]
    dtype: DType
    attrs: tuple[tuple[str, Any], ...] = ()

    @staticmethod
    def literal(value: Number, dt: DType) -> Step:
        """A step without operands, whose value is a number of ``dt`` (already rounded to it)."""
        return Step(Constant.name, (), (), dt, (("value", _text(value, dt)),))

    @staticmethod
    def argument(at: int, of: int, dt: DType) -> Step:
        """A step without operands, whose value the launch brings: in its words from number ``at``
        on, of ``of`` in all (``rlx.lowering.select.literals``)."""
        return Step(_ARGUMENT, (), (), dt, (("at", at), ("of", of)))

    @property
    def number(self) -> Number | None:
        """The value of a literal; None for any other step."""
        return _number(self.attrs[0][1], self.dtype) if self.op == Constant.name else None

    def emit(self, k: Kernel, *args: Reg) -> Reg:
        """Emit the step on its operands (16-bit floats as f32), rounded to its element type.

        A literal, and a step on scalars alone, gives a scalar, whatever the lanes around it.
        """
        attrs = dict(self.attrs)
        wide = f32 if self.dtype in (f16, bf16) else self.dtype
        if self.op == _ARGUMENT:
            return k.literal(attrs["at"], attrs["of"], wide)
        if (value := self.number) is not None:
            return k.const(value, wide)
        node = op_class(self.op)(*placeholders([TensorType((), dt) for dt in self.dtypes]), **attrs)
        return k.round_to(node.scalar(k, *args), self.dtype)


def _text(value: Number, dt: DType) -> str:
    """A number as text: configs are compared, and 0.0 == -0.0, while nan != nan."""
    if dt.is_complex:
        return f"{float(value.real).hex()} {float(value.imag).hex()}"
    assert not isinstance(value, complex)
    return float(value).hex() if dt.is_float or dt.is_float8 else str(int(value))


def _number(text: str, dt: DType) -> Number:
    if dt.is_complex:
        return complex(*map(float.fromhex, text.split()))
    return float.fromhex(text) if dt.is_float or dt.is_float8 else int(text)


@frozen
class Program:
    """Pointwise ops in order over ``inputs``; ``outputs`` are value numbers."""

    inputs: tuple[DType, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]

    @property
    def results(self) -> tuple[DType, ...]:
        """The element types of the outputs."""
        types = [*self.inputs, *(s.dtype for s in self.steps)]
        return tuple(types[i] for i in self.outputs)

    def behind(self, dtypes: Sequence[DType]) -> Program:
        """The same with more inputs, which it does not use, before its own."""
        n = len(dtypes)
        steps = tuple(
            Step(s.op, tuple(a + n for a in s.args), s.dtypes, s.dtype, s.attrs) for s in self.steps
        )
        return Program((*dtypes, *self.inputs), steps, tuple(a + n for a in self.outputs))

    def emit(self, k: Kernel, values: Sequence[Reg]) -> list[Reg]:
        """Emit the steps on registers, one an input (16-bit floats as f32), and return the outputs.

        Every step rounds its result to its own element type, as the unfused ops would.
        """
        regs = list(values)
        for s in self.steps:
            regs.append(s.emit(k, *(regs[i] for i in s.args)))
        return [regs[i] for i in self.outputs]
