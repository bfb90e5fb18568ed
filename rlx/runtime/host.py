"""Kernels that are Python functions of this process, under the calling convention of compiled ones.

A run calls them without the GIL; ctypes takes it for as long as the function runs.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from rlx.base.frozen import frozen
from rlx.errors import FaultError
from rlx.ir.foreign_kernel import PythonKernel
from rlx.ir.op import Op
from rlx.types import TensorType

__all__ = ["address_of", "explained", "function"]

Array = np.ndarray[Any, Any]

_KERNEL = ctypes.CFUNCTYPE(
    None, ctypes.c_int64, ctypes.c_int64, ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_int64), ctypes.c_void_p,
)  # fmt: skip

_raised = threading.local()
"""What a kernel has raised on this thread, until the run's fault is explained."""


@frozen
class _Function:
    """A Python kernel on operands and results of these types."""

    call: Callable[..., Any]
    operands: tuple[TensorType, ...]
    results: tuple[TensorType, ...]

    def __call__(self, begin: int, end: int, buffers: Any, sizes: Any, scratch: Any) -> None:
        count = len(self.operands) + len(self.results)
        try:
            # Copies both: who keeps one, as a traceback does, must not read memory that is gone.
            operands = [_copied(buffers[n], t) for n, t in enumerate(self.operands)]
            results = [np.empty(t.static_shape, t.dtype.numpy) for t in self.results]
            self.call(*operands, *results)
            for n, (a, t) in enumerate(zip(results, self.results, strict=True), len(operands)):
                np.copyto(_memory(buffers[n], t), a)
        except BaseException as e:
            record = (ctypes.c_int64 * 2).from_address(buffers[count])
            if record[0] == 0:  # else another kernel's fault is told, and this one followed from it
                _raised.error = e
                record[1], record[0] = sizes[0], 1


def function(op: Op) -> Callable[..., Any]:
    """The Python kernel of a node, with its types."""
    kernel = op.kernel()
    assert isinstance(kernel, PythonKernel)
    return _Function(
        kernel.function, tuple(v.type for v in op.present), tuple(v.type for v in op.results)
    )


def address_of(kernel: Callable[..., Any]) -> int:
    """The address under which native code calls a function that ``function`` gave. It stays
    callable as long as the process lives."""
    return ctypes.cast(_thunk(kernel), ctypes.c_void_p).value or 0


@cache
def _thunk(kernel: Callable[..., Any]) -> Any:
    return _KERNEL(kernel)


def explained(error: FaultError) -> BaseException:
    """The error of a fault, with what a Python kernel has raised on this thread. What is no error
    of the kernel, such as an interrupt, is raised as it is."""
    cause, _raised.error = getattr(_raised, "error", None), None
    if cause is None:
        return error
    if not isinstance(cause, Exception):
        return cause
    what = cause.message if isinstance(cause, FaultError) else f"{type(cause).__name__}: {cause}"
    told = FaultError(f"{error.message}: {what}", error.location)
    told.__cause__ = cause
    return told


def _copied(address: int | None, t: TensorType) -> Array:
    """A read-only array of what lies at an address."""
    a = _memory(address, t).copy()
    a.flags.writeable = False
    return a


def _memory(address: int | None, t: TensorType) -> Array:
    shape, dt = t.static_shape, t.dtype
    size = int(np.prod(shape, dtype=np.int64)) * dt.bytes
    if not size:
        return np.empty(shape, dt.numpy)
    data = memoryview((ctypes.c_char * size).from_address(address or 0))
    return np.frombuffer(data, dt.numpy).reshape(shape)
