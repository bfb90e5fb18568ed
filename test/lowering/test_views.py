"""Views against NumPy: a view addresses the elements that the same NumPy operation gives."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rlx.lowering.select.views import Memory, View
from rlx.types import f32

Array = np.ndarray[Any, Any]
DIMS = st.lists(st.integers(0, 5), max_size=4)


def read(v: View, memory: Array) -> Array:
    """The elements of a view of a memory of ``memory.size`` elements; every address is checked."""
    out = np.empty(v.shape, memory.dtype)
    for at in np.ndindex(*v.shape):
        place = v.start + sum(i * s for i, s in zip(at, v.strides, strict=True))
        assert 0 <= place < memory.size
        out[at] = memory[place]
    return out


@st.composite
def steps(draw: st.DrawFn) -> tuple[View, Array, Array]:
    """A memory, a view of it after some movement, and what NumPy makes of the same movement."""
    shape = draw(DIMS)
    memory = np.arange(int(np.prod(shape)))
    view, a = View.dense(Memory("input"), f32, shape), memory.reshape(shape)
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["transpose", "slice", "expand", "reshape"]))
        if kind == "transpose":
            perm = draw(st.permutations(range(a.ndim)))
            view, a = view.transpose(perm), a.transpose(perm)
        elif kind == "slice":
            starts = [draw(st.integers(0, d)) for d in a.shape]
            strides = [draw(st.integers(1, 3)) for _ in a.shape]
            a = a[tuple(slice(b, None, s) for b, s in zip(starts, strides, strict=True))]
            view = view.slice(starts, a.shape, strides)
        elif kind == "expand":
            to = [draw(st.integers(0, 4)) if d == 1 else d for d in a.shape]
            to = [*draw(st.lists(st.integers(0, 3), max_size=2)), *to]
            view, a = view.expand(to), np.broadcast_to(a, to)
        else:
            to = draw(factors(a.size))
            moved = view.reshape(to)
            if moved is not None:
                view, a = moved, a.reshape(to)
    return view, memory, a


@st.composite
def factors(draw: st.DrawFn, size: int) -> list[int]:
    """A shape of that many elements."""
    if size == 0:
        shape = draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
        shape[draw(st.integers(0, len(shape) - 1))] = 0
        return shape
    shape = []
    while size > 1:
        shape.append(draw(st.sampled_from([d for d in range(2, size + 1) if size % d == 0])))
        size //= shape[-1]
    for _ in range(draw(st.integers(0, 2))):
        shape.insert(draw(st.integers(0, len(shape))), 1)
    return shape


@settings(max_examples=150)
@given(steps())
def test_movement_addresses_what_numpy_does(given: tuple[View, Array, Array]) -> None:
    view, memory, expected = given
    assert view.shape == expected.shape
    np.testing.assert_array_equal(read(view, memory), expected)
    assert view.size == expected.size


@settings(max_examples=150)
@given(steps(), st.data())
def test_a_reshape_is_a_view_exactly_where_numpy_needs_no_copy(
    given: tuple[View, Array, Array], data: st.DataObject
) -> None:
    view, memory, a = given
    to = data.draw(factors(a.size))
    moved = view.reshape(to)
    strided = np.lib.stride_tricks.as_strided(
        memory[view.start :], view.shape, [s * memory.itemsize for s in view.strides]
    )
    try:
        strided.view().shape = tuple(to)  # NumPy refuses this where it would have to copy
        possible = True
    except AttributeError:
        possible = False
    if moved is None:
        assert not possible
    else:
        np.testing.assert_array_equal(read(moved, memory), a.reshape(to))


@settings(max_examples=100)
@given(steps())
def test_dense_means_row_major_without_gaps(given: tuple[View, Array, Array]) -> None:
    view, _, a = given
    found = [
        view.start + int(sum(i * s for i, s in zip(at, view.strides, strict=True)))
        for at in np.ndindex(*view.shape)
    ]
    row_major = found == list(range(view.start, view.start + a.size))
    assert view.is_dense == row_major if a.size else True


def test_a_broadcast_is_not_dense_and_moves_nothing() -> None:
    v = View.dense(Memory("param"), f32, (1, 3)).expand((4, 2, 3))
    assert (v.strides, v.start, v.is_dense) == ((0, 0, 1), 0, False)
    assert v.reshape((8, 3)) is not None and v.reshape((24,)) is None


def test_an_empty_slice_starts_inside() -> None:
    v = View.dense(Memory("input"), f32, (5, 4)).slice((5, 0), (0, 4), (1, 1))
    assert (v.shape, v.start) == ((0, 4), 0)
