"""Tensors and element types of torch as arrays and types of ours."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from rlx.errors import UnsupportedError
from rlx.frontends.torch.library import torch
from rlx.types import AS_BITS, DTYPES, DType

__all__ = ["array_of", "dtype_of", "tensor_of"]

Array = np.ndarray[Any, Any]

_OURS = {
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "bool": "bool",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
    "complex64": "c64", "complex128": "c128",
    "float8_e4m3fn": "f8e4m3fn", "float8_e5m2": "f8e5m2",
}  # fmt: skip
"""Our names of torch's element types."""


@cache
def _types() -> dict[Any, DType]:
    return {getattr(torch, theirs): DTYPES[ours] for theirs, ours in _OURS.items()}


def dtype_of(theirs: Any, what: str) -> DType:
    """Our element type; UnsupportedError naming ``what`` has one that we lack."""
    if theirs not in _types():
        raise UnsupportedError(
            f"{what} has the element type {theirs}, which RLX lacks; cast it to a standard type"
            " first"
        )
    return _types()[theirs]


def array_of(t: Any) -> Array:
    """The elements of a tensor, in its own memory where they lie row by row on the CPU."""
    t = t.detach().resolve_conj().resolve_neg().cpu().contiguous()
    ours = _types().get(t.dtype)
    if ours is not None and ours.name in AS_BITS:
        bits = torch.uint16 if ours.bytes == 2 else torch.uint8
        return t.view(bits).numpy().view(ours.numpy)
    return t.numpy()


def tensor_of(a: Array) -> Any:
    """An array as a tensor, in its memory; it is no view of another tensor."""
    if a.dtype.isbuiltin == 1:
        return torch.from_numpy(a)
    bits = torch.from_numpy(a.view(f"u{a.dtype.itemsize}"))
    found = torch.empty(0, dtype=getattr(torch, a.dtype.name))
    return found.set_(bits.untyped_storage(), bits.storage_offset(), bits.shape, bits.stride())
