"""Kernels from outside: what the ``kernel`` of an op class gives, in C, in MLIR or in Python.

    class Saxpy(rlx.Op, name="mine.saxpy"):
        ...
        def kernel(self):
            n = self.out.type.size
            return rlx.CKernel(SOURCE, range=n, grain=4096)

A kernel sees its operands and results as dense row-major memory of static shape, and computes the
part ``[begin, end)`` of its parallel range, on several threads at once where the range allows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx.base.frozen import frozen
from rlx.errors import GraphError, a_type, shown

__all__ = ["CKernel", "CustomKernel", "MlirKernel", "PythonKernel"]


@frozen
class _Compiled:
    """What kernels that are compiled have in common.

    ``range`` is how many independent parts the work has, ``grain`` the fewest that are worth a
    thread of their own, and ``sizes`` are numbers that the kernel is called with. ``faults`` are
    messages: a kernel that records fault n (from 1) makes the run raise FaultError with the n-th.
    """

    source: str
    range: int = 1
    grain: int = 1
    sizes: tuple[int, ...] = ()
    faults: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.source, str):
            kind = a_type(self.source)
            raise GraphError(f"a kernel's source is text, found {kind}")
        if self.range < 0 or self.grain < 1:
            raise GraphError(
                f"a kernel has a range of 0 or more and a grain of 1 or more, found {self.range}"
                f" and {self.grain}"
            )


@frozen
class CKernel(_Compiled):
    """A kernel in C, which a C compiler translates while the graph is compiled.

    ``source`` defines ``static void kernel(int64_t begin, int64_t end, ...)``, which takes further
    a ``const`` pointer an operand that is there, a pointer a result, an ``int64_t`` a size, and, if
    there are faults, a ``const rlx_faults *`` to give to ``rlx_fault(faults, n)``. Elements are
    ``float``, ``double``, ``int8_t`` and so on, ``bool``, the bits of ``rlx_f16``, ``rlx_bf16``,
    ``rlx_f8e4m3fn`` and ``rlx_f8e5m2``, and ``rlx_c64`` and ``rlx_c128`` with their parts ``re``
    and ``im``. The code stands alone: it cannot call a library, not even for mathematics.
    """


@frozen
class MlirKernel(_Compiled):
    """A kernel in MLIR's scf, arith, math, memref and vector dialects.

    ``source`` is one function ``func.func @kernel(%begin: index, %end: index, ...)`` without
    results, which takes further a ``memref<?xT>`` an operand that is there and a result, an
    ``index`` a size, and, if there are faults, a ``memref<?xi64>`` and an ``index``: to record
    fault n it stores the index as i64 in element 1, and n in element 0. Integers are signless, and
    a bool is an i8.
    """


@frozen
class PythonKernel:
    """A kernel in Python: ``function`` takes an array an operand, which it must not write, and an
    array a result, which it fills in place. One call computes all, with the GIL held.

    What it raises becomes a FaultError at the op's line. A graph with such a kernel runs in the
    process that compiled it, and cannot be saved as an artifact.
    """

    function: Callable[..., Any]

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise GraphError(f"a Python kernel is a function, found {shown(self.function)}")


CustomKernel = CKernel | MlirKernel | PythonKernel
