"""Sorting by keys and words: NumPy's stable order for every type, length, axis and direction,
whatever of the results is read."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx
from rlx.ir.op import op_class, placeholders
from rlx.kernels.fallback import emit as common
from rlx.kernels.fallback.emit import CommonConfig
from rlx.kernels.sort.network import _network
from rlx.types import DTYPES, TensorType, i64
from support.sweeps import covering, pairwise, seeds, turn

Array = np.ndarray[Any, Any]
NAMES = ("f32", "f16", "bf16", "i8", "i16", "i32", "u8", "u16", "u32", "bool", "f64", "i64", "u64")
SIZES = (1, 7, 8, 9, 16, 17, 33, 127, 128, 129, 255, 257, 768, 1000, 1280, 4099)


def run(x: Array, axis: int, descending: bool, only: str = "") -> tuple[Array, ...]:
    """Values and indices, or one of them: then nothing reads the other."""
    names = {d.numpy: n for n, d in DTYPES.items()}
    g = rlx.Graph("sort")
    a = g.input("x", x.shape, names[x.dtype])
    outputs = {"values": a.sort(axis, descending), "indices": a.argsort(axis, descending)}
    g.set_outputs([outputs[only]] if only else list(outputs.values()))
    return tuple(rlx.Session("cpu").compile(g).run_slots(x))


def same(found: Array, wanted: Array) -> None:
    """Equal in every bit: zeros keep their signs, and nans what is in them."""
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    wanted = np.ascontiguousarray(wanted)
    np.testing.assert_array_equal(found.view(np.uint8), wanted.view(np.uint8))


def stable(x: Array, axis: int, descending: bool) -> Array:
    """The indices by NumPy's stable order."""
    with np.errstate(invalid="ignore"):  # of signalling nans
        wide = x.astype(np.float64) if x.dtype.kind in "fV" else x
    if not descending:
        return np.argsort(wide, axis, kind="stable")
    back = np.argsort(np.flip(wide, axis), axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(back, axis)


def check(x: Array, axis: int = -1, descending: bool = False) -> None:
    want = stable(x, axis, descending)
    whole = np.take_along_axis(x, want, axis)
    values, indices = run(x, axis, descending)
    same(values, whole)
    same(indices, want)
    same(run(x, axis, descending, "values")[0], whole)


def test_a_gpu_sorts_a_line_a_point() -> None:
    """CPUs take some lines side by side, and need no other memory than scratch."""
    x = TensorType.of((7, 40), "f32")
    config = CommonConfig.of(op_class("mir.sort")(*placeholders([x]), axis=0))
    assert common.launch(config, frame="gpu").range == 40
    assert common.workspaces(config, "gpu") == [x, x.with_dtype(i64)]
    assert common.launch(config).range == 5 and not common.workspaces(config)


def test_indices_alone() -> None:
    for name in ("f32", "u8", "i64"):
        x = drawn(name, 2, 300)
        same(run(x, -1, False, "indices")[0], stable(x, -1, False))


def drawn(name: str, *shape: int) -> Array:
    """Numbers with many equal ones, the greatest and the least, and nan."""
    rng = np.random.default_rng(len(shape) + shape[-1])
    dt = DTYPES[name]
    x = rng.integers(-60, 60, shape)
    if dt.is_float:
        y = (x / 8).astype(np.float64)
        y[rng.random(shape) < 0.05] = np.nan
        y[rng.random(shape) < 0.05] = np.inf
        y[rng.random(shape) < 0.05] = -np.inf
        y[rng.random(shape) < 0.1] = -0.0
        return y.astype(dt.numpy)
    if name == "bool":
        return x > 0
    info = np.iinfo(dt.numpy)
    y = x.astype(dt.numpy)
    y[rng.random(shape) < 0.1] = info.max
    y[rng.random(shape) < 0.1] = info.min
    return y


PLACES = [((3, 300), 0), ((3, 300), 1), ((2, 40, 3), 0), ((2, 40, 3), 1), ((2, 40, 3), 2)]


@pytest.mark.parametrize(
    ("name", "place", "descending"),
    covering(
        itertools.product(NAMES, PLACES, [False, True]),
        # Along the last axis lines lie dense, along others side by side: other kernels.
        lambda c: [(c[0], c[1] == PLACES[1]), (c[0], c[2]), (c[1], c[2])],
    ),
)
def test_types(name: str, place: tuple[tuple[int, ...], int], descending: bool) -> None:
    shape, axis = place
    check(drawn(name, *shape), axis, descending)


@pytest.mark.parametrize("size", SIZES)
def test_lengths(size: int) -> None:
    rng = np.random.default_rng(size)
    x = rng.standard_normal((2, size)).astype(np.float32)
    for descending in turn([False, True], SIZES.index(size), 2):
        for lines in (x, np.sort(x), np.sort(x)[:, ::-1].copy()):
            check(lines, descending=descending)
    if size > 200:
        check(rng.integers(0, 3, (2, size)).astype(np.int32), descending=True)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("shape", [(1, 16), (7, 3), (40, 16), (33, 19), (300, 8), (20, 3, 5, 4)])
def test_lines_side_by_side(shape: tuple[int, ...], descending: bool) -> None:
    name = "bf16" if descending else "f32"
    check(drawn(name, *shape), 0, descending)
    x = drawn("f64", *shape)
    axis = len(shape) - 2
    want = np.take_along_axis(x, stable(x, axis, descending), axis)
    same(run(x, axis, descending, "values")[0], want)


PAYLOADS = [0x7FC00001, 0xFFC00002, 0x7FFFFFFF, 0x3F800000, 0xFFFFFFFF, 0x80000000, 0, 0x80000001]


@pytest.mark.parametrize("descending", [False, True])
def test_nans_with_a_payload_are_alike(descending: bool) -> None:
    x = np.tile(np.array([*PAYLOADS, 0x7F800001], np.uint32), 60).view(np.float32)
    check(x, descending=descending)
    check(np.array([p << 32 | 5 for p in PAYLOADS] * 9, np.uint64).view(np.float64), 0, descending)
    check(np.tile(x[:, None], 17), 0, descending)


@st.composite
def lines(draw: st.DrawFn) -> tuple[Array, bool]:
    """Lines of few different numbers, of some types and shapes: each is compiled once."""
    kinds = (np.float32, np.float64, np.float16, np.int32)
    kind = np.dtype(draw(st.sampled_from(kinds)))
    rows, n = draw(st.sampled_from([(2, 40), (1, 700)]))
    some = draw(st.lists(st.binary(min_size=kind.itemsize, max_size=kind.itemsize), min_size=1))
    if kind.kind == "f":
        extra = draw(st.lists(st.sampled_from([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan])))
        some += [np.array(x, kind).tobytes() for x in extra]
    numbers = np.frombuffer(b"".join(some), kind)
    seed = draw(st.integers(0, 1 << 30))
    picked = np.random.default_rng(seed).integers(0, len(numbers), (rows, n))
    return numbers[picked], draw(st.booleans())


@settings(max_examples=len(seeds(60, 200)), deadline=None)
@given(lines())
def test_any_bits(drawn: tuple[Array, bool]) -> None:
    x, descending = drawn
    quiet = x
    if x.dtype == np.float16:  # which is read as f32: that makes nans quiet
        bits = x.view(np.uint16)
        quiet = np.where(np.isnan(x), bits | 0x200, bits).view(np.float16)
    want = stable(quiet, -1, descending)
    same(run(quiet, -1, descending, "values")[0], np.take_along_axis(quiet, want, -1))


@pytest.mark.parametrize("n", [1, 2, 4, 8, 16])
def test_networks_sort(n: int) -> None:
    """All lines of zeros and ones: so all lines."""
    lines = [(np.arange(1 << n) >> i) & 1 for i in range(n)]
    for low, high in _network(n):
        lines[low], lines[high] = np.minimum(lines[low], lines[high]), lines[low] | lines[high]
    assert (np.diff(np.stack(lines), axis=0) >= 0).all()


def check_topk(x: Array, k: int, largest: bool = True, axis: int = -1) -> None:
    names = {d.numpy: n for n, d in DTYPES.items()}
    want = np.take(stable(x, axis, largest), np.arange(k), axis)
    whole = np.take_along_axis(x, want, axis)
    for read in ([0, 1], [0]) if k > 1 else ([0, 1], [1]):
        g = rlx.Graph("topk")
        results = g.input("x", x.shape, names[x.dtype]).topk(k, axis, largest)
        g.set_outputs([results[n] for n in read])
        for n, found in zip(read, rlx.Session("cpu").compile(g).run_slots(x), strict=True):
            same(found, want if n else whole)


@pairwise(size=[33, 64, 129, 1001], k=[1, 3, 10, 33], name=["f32", "bf16", "i8", "u64"])
def test_topk_of_long_lines(size: int, k: int, name: str) -> None:
    check_topk(drawn(name, 3, size), k, largest=name != "bf16")


@pytest.mark.parametrize("k", [1, 64, 500])
def test_topk_whatever_comes_first(k: int) -> None:
    """Lines that rise offer every element, those that fall none; of equal ones the first stay."""
    x = np.random.default_rng(k).standard_normal(5003).astype(np.float32)
    rows = [np.sort(x), np.sort(x)[::-1], np.round(x), 0 * x, np.where(x > 0, np.nan, x)]
    check_topk(np.stack([*rows, np.full_like(x, np.nan)]), k, largest=k != 64)


def test_topk_along_another_axis() -> None:
    check_topk(drawn("f32", 300, 3), 7, axis=0)
    check_topk(drawn("i32", 2, 1000, 5), 64, False, axis=1)
