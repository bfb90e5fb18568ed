"""Boxes at run-time starts: every width and start type, strides, batches, what is clamped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlx.ir.op import placeholders
from rlx.kernels.index import box
from rlx.kernels.index.box import Axis
from rlx.ops.movement.dynamic import DynamicUpdateSlice
from rlx.types import DTYPES, TensorType
from support.runkernel import element_strides, run_launch

Array = np.ndarray[Any, Any]


def numbers(width: int, shape: tuple[int, ...]) -> Array:
    rng = np.random.default_rng(width + len(shape))
    return rng.integers(0, 1 << width, shape, f"u{width // 8}", endpoint=False)


def expected(tensor: Array, part: Array, starts: Array, lead: int) -> Array:
    """What the op's reference says of the tensor with the part written to it."""
    types = [TensorType.of(a.shape, a.dtype) for a in (tensor, part, starts)]
    return DynamicUpdateSlice(*placeholders(types), lead).reference(tensor, part, starts)


def moved(
    tensor: Array, part: Array, starts: Array, lead: int = 0, *, writes: bool, pieces: int = 1,
    block: int = 4096,
) -> None:  # fmt: skip
    """Write the part to the tensor's box, or read it from there."""
    strides = zip(element_strides(tensor), element_strides(part), strict=True)
    axes = [
        Axis(n, *both, *(() if d < lead or n == tensor.shape[d] else (tensor.shape[d], d - lead)))
        for d, (n, both) in enumerate(zip(part.shape, strides, strict=True))
    ]
    index = DTYPES[f"{starts.dtype.kind}{starts.itemsize * 8}"]
    config, launch = box.launch(
        tensor.itemsize * 8, index, axes[:lead], axes[lead:], starts.shape[-1], writes=writes,
        block=block,
    )  # fmt: skip
    ends = (part, tensor) if writes else (tensor, part)
    run_launch(box, config, launch, [ends[0], np.ascontiguousarray(starts), ends[1]], pieces)


@pytest.mark.parametrize("width", [8, 16, 32, 64])
@pytest.mark.parametrize("row", [1, 3, 16, 37, 700])
def test_widths_and_rows(row: int, width: int) -> None:
    tensor, part = numbers(width, (5, 9, row)), numbers(width, (2, 3, row))
    for at in ([0, 0, 0], [2, 4, 1], [-1, -4, 0], [99, -99, 3]):
        starts = np.array(at)
        want = expected(tensor, part, starts, 0)
        for how in ({}, {"pieces": 3, "block": 16}, {"block": 1}):
            out = tensor.copy()
            moved(out, part, starts, writes=True, **how)
            np.testing.assert_array_equal(out, want)
            back = np.zeros_like(part)
            moved(out, back, starts, writes=False, **how)
            np.testing.assert_array_equal(back, part)


@pytest.mark.parametrize("name", ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"])
def test_start_types(name: str) -> None:
    tensor, part = numbers(32, (200, 2)), numbers(32, (3, 2))
    info = np.iinfo(DTYPES[name].numpy)
    for at in (0, info.min, info.max, 100, info.max - 1):
        starts = np.array([at, 0], DTYPES[name].numpy)
        out = tensor.copy()
        moved(out, part, starts, writes=True)
        np.testing.assert_array_equal(out, expected(tensor, part, starts, 0))


@given(st.data())
def test_any_box(data: st.DataObject) -> None:
    """Any rank, batch, order of axes in memory, box and starts."""
    rank = data.draw(st.integers(0, 4))
    lead = data.draw(st.integers(0, rank))
    dims = [data.draw(st.integers(1, 5)) for _ in range(rank)]
    sizes = [n if d < lead else data.draw(st.integers(0, n)) for d, n in enumerate(dims)]
    tensor, part = (
        numbers(16, tuple(shape[a] for a in order)).transpose(np.argsort(order))
        for shape in (dims, sizes)
        for order in [data.draw(st.permutations(range(rank)))]
    )
    shape = (*dims[:lead], rank - lead)
    count = int(np.prod(shape))
    given_starts = data.draw(st.lists(st.integers(-8, 8), min_size=count, max_size=count))
    starts = np.array(given_starts, np.int64).reshape(shape)
    out, back = tensor.copy(order="K"), part.copy(order="K")
    moved(out, part, starts, lead, writes=True)
    np.testing.assert_array_equal(out, expected(tensor, part, starts, lead))
    moved(out, back, starts, lead, writes=False)
    np.testing.assert_array_equal(back, part)
