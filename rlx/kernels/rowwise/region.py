"""Row-wise regions: a program over rows, and the shapes in which it reads and writes tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlx.base.frozen import frozen
from rlx.codegen.family import Launch
from rlx.codegen.strides import Strides, broadcast_strides, row_major
from rlx.errors import PassError
from rlx.ir.value import Value
from rlx.kernels.rowwise import config as rowwise
from rlx.kernels.rowwise.plan import RowProgram, RowwiseConfig

__all__ = ["Dims", "NotRowwise", "RowInput", "RowRegion"]

Dims = tuple[int, ...]


@frozen
class RowInput:
    """An outer value and the shape in which the region reads it.

    It takes the shapes of ``through`` on the way, from each to the next by a reshape if they have
    as many elements, else by a broadcast.
    """

    value: Value
    shape: Dims
    through: tuple[Dims, ...] = ()


@frozen
class RowRegion:
    """A row-wise region. Its rows run along the last ``trailing`` axes of ``shape``.

    ``inputs`` broadcast to ``shape``; ``outputs`` are the shapes of the results, with size 1 along
    the trailing axes for one value a row.
    """

    program: RowProgram
    shape: Dims
    trailing: int
    inputs: tuple[RowInput, ...]
    outputs: tuple[Dims, ...]

    def dense_strides(self) -> tuple[list[Strides], list[Strides]]:
        """The strides along ``shape`` of inputs and outputs that are dense and row-major in the
        shapes in which they are read and written."""
        return (
            [broadcast_strides(i.shape, self.shape) for i in self.inputs],
            [broadcast_strides(o, self.shape) for o in self.outputs],
        )

    def launch(
        self,
        inputs: Sequence[Strides],
        outputs: Sequence[Strides],
        *,
        blocks: bool = False,
        serial: bool = True,
    ) -> tuple[RowwiseConfig, Launch]:
        """The kernel and its arguments, for operands with these strides along ``shape``; ``blocks``
        and ``serial`` are as for ``rowwise.launch``.

        PassError if an operand does not step through the trailing axes as through one: it must be
        copied first.
        """
        cut = len(self.shape) - self.trailing
        columns = math.prod(self.shape[cut:])
        strides = [(*s[:cut], self._along_row(s[cut:])) for s in (*inputs, *outputs)]
        n = len(inputs)
        shape = (*self.shape[:cut], columns)
        given = strides[:n], strides[n:]
        return rowwise.launch(self.program, shape, *given, blocks=blocks, serial=serial)

    def merges(self, strides: Strides) -> bool:
        """Whether an operand steps through the trailing axes as through one."""
        return self._step(strides[len(self.shape) - self.trailing :]) is not None

    def _along_row(self, strides: Strides) -> int:
        step = self._step(strides)
        if step is None:
            dims = self.shape[len(self.shape) - self.trailing :]
            raise PassError(f"strides {list(strides)} do not merge along the axes {list(dims)}")
        return step

    def _step(self, strides: Strides) -> int | None:
        dims = self.shape[len(self.shape) - self.trailing :]
        real = [(d, s) for d, s in zip(dims, strides, strict=True) if d != 1]
        if not real:
            return strides[-1]
        step = real[-1][1]
        dense = [n * step for n in row_major([d for d, _ in real])]
        return step if [s for _, s in real] == dense else None


@frozen
class NotRowwise:
    """Why a region is not row-wise."""

    reason: str
