"""Memory of GPUs that libraries hand to each other, by DLPack's C structures."""

from __future__ import annotations

import ctypes as c
from collections.abc import Callable
from typing import Any, NamedTuple

from rlx.errors import DTypeError
from rlx.runtime import _native
from rlx.types import DTYPES

__all__ = ["ADDRESSED", "DEVICES", "OTHER", "Tensor", "exported", "imported"]

DEVICES = {"cpu": 1, "cuda": 2, "opencl": 4, "vulkan": 7, "metal": 8, "rocm": 10, "gpu": 15}
"""DLPack's numbers for kinds of devices."""

OTHER = 12
"""That of devices which DLPack does not know."""

ADDRESSED = ("cuda", "rocm")
"""Those whose memory has addresses, so that it can be handed over."""

_KINDS = {"i": 0, "u": 1, "f": 2, "bf": 4, "c": 5, "bool": 6, "f8e4m3fn": 10, "f8e5m2": 12}
_LETTERS = {code: kind for kind, code in _KINDS.items()}
_NAME, _USED = b"dltensor", b"used_dltensor"


class _Tensor(c.Structure):
    _fields_ = [
        ("data", c.c_void_p), ("device", c.c_int32), ("ordinal", c.c_int32), ("rank", c.c_int32),
        ("kind", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16),
        ("shape", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64)), ("offset", c.c_uint64),
    ]  # fmt: skip


class _Managed(c.Structure):
    pass


_Deleter = c.CFUNCTYPE(None, c.POINTER(_Managed))
_Managed._fields_ = [("tensor", _Tensor), ("context", c.c_void_p), ("deleter", _Deleter)]

_pointer = c.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = c.c_void_p, (c.py_object, c.c_char_p)
_rename = c.pythonapi.PyCapsule_SetName
_rename.restype, _rename.argtypes = c.c_int, (c.py_object, c.c_char_p)


class Tensor(NamedTuple):
    """A contiguous tensor: its address, element type and shape; ``release`` says that it is not
    used any more."""

    address: int
    dtype: str
    shape: tuple[int, ...]
    release: Callable[[], None]


def imported(capsule: Any, what: str) -> Tensor:
    """The tensor in a capsule, which is used up. DTypeError, which names ``what``, if it is not
    contiguous or has elements that RLX has not."""
    managed = c.cast(_pointer(capsule, _NAME), c.POINTER(_Managed))
    t = managed.contents.tensor
    shape = tuple(t.shape[i] for i in range(t.rank))
    kind = _LETTERS.get(t.kind, "?")
    dtype = kind if kind in DTYPES else f"{kind}{t.bits}"
    if dtype not in DTYPES or t.lanes != 1:
        raise DTypeError(f"{what} has elements of DLPack's kind {t.kind} with {t.bits} bits")
    if t.strides and not _contiguous(shape, [t.strides[i] for i in range(t.rank)]):
        raise DTypeError(f"{what} is not contiguous; give a contiguous copy")
    address = (t.data or 0) + t.offset
    if address % 16:
        raise DTypeError(f"{what} starts at an address that 16 does not divide; give a copy")
    _rename(capsule, _USED)

    def release() -> None:
        if managed.contents.deleter:
            managed.contents.deleter(managed)

    return Tensor(address, dtype, shape, release)


def _contiguous(shape: tuple[int, ...], strides: list[int]) -> bool:
    expected = 1
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n == 0:
            return True
        if n != 1 and stride != expected:
            return False
        expected *= n
    return True


_given: dict[int, Any] = {}
"""What others were given, by its address, until they release it."""


def exported(
    address: int, dtype: str, shape: tuple[int, ...], device: tuple[int, int], keep: Any
) -> Any:
    """A capsule with a tensor; ``keep`` lives as long as somebody uses it."""
    dims = (c.c_int64 * len(shape))(*shape)
    part = DTYPES[dtype]
    kind = dtype if dtype in _KINDS else dtype.rstrip("0123456789")
    bits = 8 * part.bytes
    tensor = _Tensor(address, *device, len(shape), _KINDS[kind], bits, 1, dims, None, 0)
    managed = _Managed(tensor, None, _forget)
    at = c.addressof(managed)
    _given[at] = (managed, dims, keep)
    return _native.dlpack_capsule(at)


@_Deleter
def _forget(managed: Any) -> None:
    _given.pop(c.addressof(managed.contents), None)
