"""Run kernel families on numpy arrays, for tests and tuning."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from rlx.codegen.family import Launch
from rlx.targets.cpu.features import Features, preset
from rlx.targets.cpu.target import kernel_target
from support.jit import Call, host, jit

__all__ = ["compiled", "element_strides", "features_of", "guarded", "run_launch"]

Array = np.ndarray[Any, Any]


@cache
def compiled(family: ModuleType, config: Any, features: Features | None = None) -> Call:
    """The kernel of a config, compiled once a process."""
    target = kernel_target(features or host())
    return jit(
        family.emit(f"{family.__name__.rsplit('.', 1)[-1]}_kernel", config, target), features
    )


def run_launch(
    family: ModuleType,
    config: Any,
    launch: Launch,
    arrays: Sequence[Array],
    pieces: int = 1,
    features: Features | None = None,
) -> None:
    """Run a launch on arrays in place: inputs, then outputs. Strided views are fine: a kernel gets
    the address of their first element. ``pieces`` cuts the range into that many calls; the code is
    for this machine, or for ``features``."""
    call = compiled(family, config, features)
    cuts = [launch.range * i // pieces for i in range(pieces + 1)]
    for begin, end in pairwise(cuts):
        call(begin, end, arrays, launch.sizes, launch.scratch)


def element_strides(a: Array, shape: Sequence[int] | None = None) -> tuple[int, ...]:
    """The strides of an array in elements, broadcast to ``shape``."""
    wide = a if shape is None or a.shape == tuple(shape) else np.broadcast_to(a, tuple(shape))
    return tuple(s // a.itemsize for s in wide.strides)


def guarded(values: Array) -> Array:
    """A copy that ends where a page without access begins."""
    page = mmap.PAGESIZE
    size = -(-values.nbytes // page) * page
    memory = mmap.mmap(-1, size + page)
    base = np.frombuffer(memory, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    where = ctypes.c_void_p(base.ctypes.data + size)
    assert libc.mprotect(where, ctypes.c_size_t(page), 0) == 0
    copy = base[size - values.nbytes : size].view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


def features_of(isa: str) -> Features:
    """A preset that this machine has."""
    wanted = preset(isa)
    if wanted.arch != host().arch or not wanted.has <= host().has:
        pytest.skip(f"this machine has no {isa}")
    return wanted
