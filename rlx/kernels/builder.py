"""The builder of one kernel's text: scf, arith, math, memref and vector ops on flat buffers.

A kernel computes the indices ``[begin, end)`` of a parallel range. Constants are hoisted to the
top and kept once. 16-bit floats are memory formats: ``load`` widens them to f32 and ``store``
rounds once, so that an op written in f32 has the result that IEEE rounding of the exact value
gives. What differs between targets (vector widths, math functions, the frame of the function)
is in the ``KernelTarget``.

``Kernel`` is built up in layers, a module each: emitter (lines, constants, conversions),
arithmetic, memory, control.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from rlx.kernels.control import Control
from rlx.kernels.reg import Reg
from rlx.types import DType, f32

__all__ = ["Kernel", "KernelTarget", "KernelText"]


@dataclass(frozen=True)
class KernelTarget:
    """What kernels may know of the machine.

    ``math`` maps a function's name ("exp") to an emitter over registers; ``frame`` is "cpu" (a
    function over a range) or "gpu" (a gpu.func, one thread an index); ``buffer_space`` is put
    into the memref types of arguments.
    """

    name: str
    vector_bytes: int
    registers: int
    math: dict[str, Callable[..., Reg]] = field(repr=False)
    frame: Literal["cpu", "gpu"] = "cpu"
    buffer_space: str = ""
    block: int = 128

    def lanes(self, dt: DType = f32) -> int:
        """Lanes of one vector register for elements as they are computed with (16 bit as f32)."""
        width = 4 if dt.is_float and dt.bits == 16 else dt.bytes
        return max(1, self.vector_bytes // width) if self.vector_bytes else 1


@dataclass(frozen=True)
class KernelText:
    """A finished kernel: MLIR text of one function, and the arguments after begin and end.

    ``buffers`` then ``sizes`` is the order of the arguments; ``scratch`` says whether a scratch
    pointer follows them.
    """

    name: str
    text: str
    buffers: tuple[DType, ...]
    sizes: tuple[str, ...]
    scratch: bool
    frame: str


class Kernel(Control):
    """Builds one kernel. Declare buffers and sizes first, then call ``parallel`` once."""

    def text(self) -> KernelText:
        """The finished function."""
        args = [f"{b.name}: {b.mlir}" for b in self._buffers]
        if self.target.frame == "gpu":
            args += [f"{s.name}_i32: i32" for s in self._sizes]
            casts = [
                f"    {s.name} = arith.index_cast {s.name}_i32 : i32 to index" for s in self._sizes
            ]
            start = f"  gpu.func @{self.name}({', '.join(args)}) kernel"
            start += f" attributes {{known_block_size = array<i32: {self.target.block}, 1, 1>}} {{"
            body = [start, *casts, *self._head, *self._lines, "    gpu.return", "  }"]
        else:
            args = ["%begin: index", "%end: index", *args]
            args += [f"{s.name}: index" for s in self._sizes]
            if self._scratch:
                args.append(f"{self._scratch.name}: {self._scratch.mlir}")
            start = f"  func.func @{self.name}({', '.join(args)}) {{"
            body = [start, *self._head, *self._lines, "    return", "  }"]
        return KernelText(
            self.name,
            "\n".join(body),
            tuple(b.dtype for b in self._buffers),
            tuple(s.name[1:] for s in self._sizes),
            self._scratch is not None,
            self.target.frame,
        )
