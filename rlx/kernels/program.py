"""Elementwise programs: what a chain of pointwise ops computes, as data.

A program is the part of a fused region that has one scalar meaning per element. The elementwise
family, contraction epilogues and the row-wise family all emit it by the same function, so an op's
``scalar`` is the only place that says what it computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlx.kernels.reg import Reg
from rlx.ops.base import op_class, placeholders
from rlx.types import DType, TensorType

if TYPE_CHECKING:
    from rlx.kernels.builder import Kernel

__all__ = ["Program", "Step"]


@dataclass(frozen=True)
class Step:
    """One pointwise op. ``args`` are value numbers: the program's inputs first, then its steps.

    ``dtypes`` are the element types of the operands, ``dtype`` that of the result.
    """

    op: str
    args: tuple[int, ...]
    dtypes: tuple[DType, ...]
    dtype: DType
    attrs: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
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

    def emit(self, k: Kernel, values: Sequence[Reg]) -> list[Reg]:
        """Emit the steps on registers, one an input (16-bit floats as f32), and return the outputs.

        Every step rounds its result to its own element type, as the unfused ops would.
        """
        regs = list(values)
        for s in self.steps:
            types = placeholders([TensorType((), dt) for dt in s.dtypes])
            node = op_class(s.op)(*types, **dict(s.attrs))
            regs.append(k.round_to(node.scalar(k, *(regs[i] for i in s.args)), s.dtype))
        return [regs[i] for i in self.outputs]
