"""Elements by index: NumPy's take and take_along_axis for every mode, type, layout and length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import FaultError
from rlx.types import DTYPES

Array = np.ndarray[Any, Any]
NAMES = (
    "f32", "f64", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "u16", "u64", "bool", "c64",
    "c128",
)  # fmt: skip
SIZES = (1, 7, 8, 9, 31, 32, 33, 100, 4097)


def numbers(name: str, *shape: int) -> Array:
    rng = np.random.default_rng(7)
    dt = DTYPES[name]
    if dt.is_complex:
        x: Array = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    else:
        x = rng.integers(0, 120, shape)
    return x.astype(dt.numpy)


def run(x: Array, i: Array, say: Any, **options: Any) -> Array:
    """The result of ``say(x, i)`` on inputs like these."""
    g = rlx.Graph("taken")
    names = {d.numpy: n for n, d in DTYPES.items()}
    a = g.input("x", x.shape, names[x.dtype])
    b = g.input("i", i.shape, names[i.dtype])
    g.set_outputs([say(a, b)])
    return rlx.Session("cpu", **options).compile(g).run_slots(x, i)[0]


def bits(a: Array) -> Array:
    return np.ascontiguousarray(a).view(np.uint8)


@pytest.mark.parametrize("name", NAMES)
def test_every_type(name: str) -> None:
    x = numbers(name, 3, 50)
    i = np.random.default_rng(0).integers(-50, 50, (3, 37))
    got = run(x, i, lambda x, i: x.take_along_axis(i, 1))
    np.testing.assert_array_equal(bits(got), bits(np.take_along_axis(x, i, 1)))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["i8", "u8", "i32", "u64", "i64"])
def test_every_length_and_index_type(name: str, size: int) -> None:
    x = numbers("f32", 90)
    i = np.random.default_rng(size).integers(0, 90, size).astype(DTYPES[name].numpy)
    np.testing.assert_array_equal(run(x, i, lambda x, i: x.gather(i, 0)), x[i.astype(np.int64)])


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (0, 2, 1)])
def test_layouts(order: tuple[int, ...], axis: int) -> None:
    """Transposed tables and indices, and results that are transposed again."""
    shape = (19, 5, 23)
    x = numbers("f32", *(shape[a] for a in np.argsort(order)))
    i = np.random.default_rng(1).integers(-shape[axis], shape[axis], shape)
    want = np.take_along_axis(x.transpose(order), i, axis)
    got = run(x, i, lambda x, i: x.transpose(order).take_along_axis(i, axis))
    np.testing.assert_array_equal(got, want)
    back = np.argsort(order)
    turned = np.ascontiguousarray(i.transpose(back))
    got = run(x, turned, lambda x, i: x.transpose(order).take_along_axis(i.transpose(order), axis))
    np.testing.assert_array_equal(got, want)
    got = run(x, i, lambda x, i: x.transpose(order).take_along_axis(i, axis).transpose((2, 0, 1)))
    np.testing.assert_array_equal(got, want.transpose(2, 0, 1))


def test_slices_and_broadcasts() -> None:
    x, i = numbers("i16", 40, 60), np.random.default_rng(2).integers(0, 20, (17, 33))
    got = run(x, i, lambda x, i: x[3:36:2, 1::3].take_along_axis(i[:, ::2], 1))
    np.testing.assert_array_equal(got, np.take_along_axis(x[3:36:2, 1::3], i[:, ::2], 1))
    got = run(x, i, lambda x, i: x[:1, :20].take_along_axis(i, 1))
    np.testing.assert_array_equal(got, np.take_along_axis(x[:1, :20], i, 1))
    got = run(x, i, lambda x, i: x.gather(i.transpose((1, 0)), 1))
    np.testing.assert_array_equal(got, x[:, i.T])


@pytest.mark.parametrize("size", [1, 8, 33, 500])
def test_indices_out_of_range(size: int) -> None:
    """Also one among many that are not, in the first and in the last vector."""
    x = numbers("f32", 11)
    for at in {0, size - 1}:
        for bad in (11, -12, 1 << 40, -(1 << 63), (1 << 63) - 1):
            i = np.arange(size) % 11
            i[at] = bad
            with pytest.raises(FaultError, match="out of range"):
                run(x, i, lambda x, i: x.gather(i, 0))
            clipped = run(x, i, lambda x, i: x.gather(i, 0, "clip"))
            np.testing.assert_array_equal(clipped, x[np.clip(i, 0, 10)])
            wrapped = run(x, i, lambda x, i: x.gather(i, 0, "wrap"))
            np.testing.assert_array_equal(wrapped, x[i % 11])
            filled, want = run(x, i, lambda x, i: x.gather(i, 0, "fill")), x[i % 11]
            want[at] = 0
            np.testing.assert_array_equal(filled, want)


def test_huge_unsigned_indices_do_not_count_from_the_end() -> None:
    x, i = numbers("f32", 11), np.full(40, 3, np.uint64)
    i[20] = 2**64 - 1
    with pytest.raises(FaultError, match="out of range"):
        run(x, i, lambda x, i: x.gather(i, 0))
    assert run(x, i, lambda x, i: x.gather(i, 0, "clip"))[20] == x[10]


def test_nothing_to_take() -> None:
    x, i = numbers("f32", 5, 0), np.zeros((5, 3), np.int64)
    assert not run(x, i, lambda x, i: x.take_along_axis(i, 1, "fill")).any()
    assert run(x, i[:, :0], lambda x, i: x.take_along_axis(i, 1)).shape == (5, 0)
    assert run(x[:0], i[:0], lambda x, i: x.take_along_axis(i, 1, "fill")).shape == (0, 3)


@pytest.mark.parametrize("threads", [1, 2])
def test_threads(threads: int) -> None:
    x, i = numbers("f32", 300, 411), np.random.default_rng(3).integers(-411, 411, (300, 411))
    got = run(x, i, lambda x, i: x.take_along_axis(i, 1), threads=threads)
    np.testing.assert_array_equal(got, np.take_along_axis(x, i, 1))
    j = np.random.default_rng(3).integers(-300, 300, (300, 411))
    got = run(x, j, lambda x, i: x.take_along_axis(i, 0), threads=threads)
    np.testing.assert_array_equal(got, np.take_along_axis(x, j, 0))
