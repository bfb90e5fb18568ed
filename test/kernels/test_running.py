"""Running folds on CPUs against NumPy: across columns, along lines and beside them, cut anyhow."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.kernels.fallback import emit as common
from rlx.kernels.fallback.emit import CommonConfig
from rlx.types import DTYPES, TensorType
from support.runkernel import features_of, guarded, run_launch
from support.sweeps import covering

Array = np.ndarray[Any, Any]
NAMES = (
    "f32", "f64", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "c64",
    "c128",
)  # fmt: skip
ISAS = ("x86-64-v3", "x86-64-v4")
UFUNCS: dict[str, Any] = {
    "cumsum": np.add, "cumprod": np.multiply, "cummax": np.maximum, "cummin": np.minimum,
    "logcumsumexp": np.logaddexp,
}  # fmt: skip


def numbers(op: str, name: str, *shape: int) -> Array:
    """Of which sums and products have no rounding error."""
    rng, dt = np.random.default_rng(5), DTYPES[name]
    if op == "cumprod" and dt.kind not in ("int", "uint"):
        x: Array = rng.choice([1.0, -1.0, 2.0, 0.5], shape)
    else:
        x = rng.integers(0 if dt.kind == "uint" else -3, 4, shape)
    return (x * (1 + 1j) if dt.is_complex and op == "cumsum" else x).astype(dt.numpy)


def expected(op: str, x: Array, axis: int, reverse: bool, exclusive: bool) -> Array:
    exact = x if x.dtype.kind in "iu" else x.astype(complex if x.dtype.kind == "c" else float)
    exact = np.flip(exact, axis) if reverse else exact
    out = UFUNCS[op].accumulate(exact, axis, dtype=exact.dtype)
    if exclusive:
        out = np.roll(out, 1, axis)
        out[(slice(None),) * axis + (slice(0, 1),)] = op == "cumprod"
    return (np.flip(out, axis) if reverse else out).astype(x.dtype)


def found(
    op: str, x: Array, axis: int, reverse: bool, exclusive: bool, pieces: int = 1, isa: str = ""
) -> Array:
    """By the kernel alone, in memory that ends with the arrays."""
    name = next(n for n, d in DTYPES.items() if d.numpy == x.dtype)
    attrs = {"axis": axis, "reverse": reverse}
    attrs |= {"exclusive": exclusive} if op in ("cumsum", "cumprod") else {}
    types = (TensorType(x.shape, DTYPES[name]),)
    config = CommonConfig(f"mir.{op}", tuple(sorted(attrs.items())), types)
    out = guarded(np.zeros_like(x))
    features = features_of(isa) if isa else None
    run_launch(common, config, common.launch(config), [guarded(x), out], pieces, features)
    return out


FORMS = [(False, False), (True, True)]
"""Reverse and exclusive: neither, or both."""


SHAPES = [(2, 13, 37), (3, 150), (2, 9, 200), (21, 37)]


@pytest.mark.parametrize(
    ("op", "name", "shape", "form"),
    covering(
        (
            (op, name, shape, form)
            for op, name, shape, form in itertools.product(UFUNCS, NAMES, SHAPES, FORMS)
            if op != "logcumsumexp" and not (name.startswith("c") and op in ("cummax", "cummin"))
        ),
        lambda case: itertools.combinations(case, 2),
    ),
)
def test_every_type(op: str, name: str, shape: tuple[int, ...], form: tuple[bool, bool]) -> None:
    x = numbers(op, name, *shape)
    reverse, both = form
    exclusive = both and op in ("cumsum", "cumprod")
    with np.errstate(over="ignore"):
        want = expected(op, x, 1, reverse, exclusive)
    np.testing.assert_array_equal(found(op, x, 1, reverse, exclusive), want)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("first", range(1, 71, 10))
def test_every_number_of_columns(first: int, isa: str) -> None:
    for columns in range(first, first + 10):
        for name in ("f32", "i8") if columns % 3 == 0 else ("f32",):
            x = numbers("cumsum", name, 2, 5, columns)
            want = expected("cumsum", x, 1, False, False)
            got = found("cumsum", x, 1, False, False, 2, isa)
            np.testing.assert_array_equal(got, want, str(columns))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("length", [0, 1, 15, 16, 31, 32, 33, 64, 100, 2049])
def test_every_length_of_a_line(length: int, isa: str) -> None:
    for reverse, exclusive in FORMS:
        for name in ("f32", "i8", "c64"):
            x = numbers("cumsum", name, 2, length)
            want = expected("cumsum", x, 1, reverse, exclusive)
            got = found("cumsum", x, 1, reverse, exclusive, 2, isa)
            np.testing.assert_array_equal(got, want, str((name, reverse, exclusive)))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("op", ["cumsum", "cumprod", "cummin", "logcumsumexp"])
@pytest.mark.parametrize("shape", [(3, 7, 333), (1, 5, 5000), (40, 300, 1), (5, 9, 3)])
def test_the_bits_are_the_same_however_it_is_cut(shape: tuple[int, ...], op: str, isa: str) -> None:
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    whole = found(op, x, 1, True, False, 1, isa)
    np.testing.assert_allclose(whole, expected(op, x, 1, True, False), rtol=2e-5, atol=1e-5)
    for pieces in (2, 3, 7, 64):
        again = found(op, x, 1, True, False, pieces, isa)
        np.testing.assert_array_equal(again.view(np.uint32), whole.view(np.uint32))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("lines", [1, 2, 3, 15, 16, 17, 33])
def test_lines_side_by_side(lines: int, isa: str) -> None:
    """What cannot be grouped, of every number and length of lines."""
    for length in (5, 39):
        for name in ("f32", "c64"):
            x = numbers("cumprod", name, lines, length)
            for reverse, exclusive in FORMS:
                want = expected("cumprod", x, 1, reverse, exclusive)
                got = found("cumprod", x, 1, reverse, exclusive, 2, isa)
                np.testing.assert_array_equal(got, want, str((length, name, reverse, exclusive)))


@pytest.mark.parametrize("shape", [(2, 50, 23), (1, 50, 1), (19, 50, 1)])
@pytest.mark.parametrize("reverse", [False, True])
def test_linear_recurrence(reverse: bool, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(4)
    a, x = rng.standard_normal(shape), rng.standard_normal(shape)
    types = (TensorType(shape, DTYPES["f64"]),) * 2
    config = CommonConfig("mir.linear_recurrence", (("axis", 1), ("reverse", reverse)), types)
    out, want, last = np.zeros(shape), np.zeros(shape), np.zeros((shape[0], shape[2]))
    run_launch(common, config, common.launch(config), [guarded(a), guarded(x), out], 2)
    for i in reversed(range(50)) if reverse else range(50):
        want[:, i] = last = a[:, i] * last + x[:, i]
    np.testing.assert_allclose(out, want, rtol=1e-12, atol=1e-12)


def test_infinities_and_nan() -> None:
    inf, nan = np.inf, np.nan
    for shape, axis in (((4, 70), 1), ((70, 33), 0)):
        x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        lines = x if axis else x.T
        lines[0, 3], lines[1, 20], lines[1, 50], lines[2, 40], lines[3, 0] = (
            inf,
            inf,
            -inf,
            nan,
            -inf,
        )
        for op in UFUNCS:
            for reverse in (False, True):
                with np.errstate(invalid="ignore"):
                    want = expected(op, x, axis, reverse, False)
                got = found(op, x, axis, reverse, False)
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_product_overflows_only_where_it_is_too_large() -> None:
    """Along a line as down columns: its groups alone would."""
    x = np.tile(np.array([0, 1e30, 1e30, 1e30], np.float32), 20)
    tiny = np.where(np.arange(80) % 2, 1e30, 1e-30).astype(np.float32)
    for values, want in ((x, np.zeros(80)), (tiny, np.where(np.arange(80) % 2, 1, 1e-30))):
        for shape, axis in (((1, 80), 1), ((80, 1), 0)):
            lines = np.ascontiguousarray(np.broadcast_to(values.reshape(shape), (80, 80)))
            wide = np.broadcast_to(want.reshape(shape), (80, 80))
            np.testing.assert_allclose(found("cumprod", lines, axis, False, False), wide, rtol=1e-5)


@pytest.mark.parametrize("length", [5000, 3_000_000])
def test_a_long_line_loses_little(length: int) -> None:
    """One chain of additions would be off by 1e-4 of three million."""
    x = np.random.default_rng(2).random((1, length)).astype(np.float32)
    want = np.cumsum(x, 1, dtype=np.float64)
    np.testing.assert_allclose(found("cumsum", x, 1, False, False), want, rtol=6e-7)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
def test_forms(exclusive: bool, reverse: bool) -> None:
    for op in ("cumsum", "cumprod"):
        for shape in ((2, 20, 9), (2, 70, 1), (20, 35, 1)):
            x = numbers(op, "f32", *shape)
            want = expected(op, x, 1, reverse, exclusive)
            np.testing.assert_array_equal(found(op, x, 1, reverse, exclusive), want)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_views(axis: int, threads: int) -> None:
    """Strided, transposed and broadcast operands."""
    x = numbers("cumsum", "f32", 18, 40, 21)

    def run(say: Any) -> Array:
        g = rlx.Graph("views")
        g.set_outputs([say(g.input("x", x.shape, "f32"))])
        return rlx.Session("cpu", threads=threads).compile(g).run_slots(x)[0]

    for view in (
        lambda v: v[::2, 1::3, 2:], lambda v: v.transpose((2, 0, 1)), lambda v: v[:, :, :1],
    ):  # fmt: skip
        want = np.cumsum(view(x), axis)
        np.testing.assert_array_equal(run(lambda v, view=view: view(v).cumsum(axis)), want)


def test_tasks_on_gpus_are_lines() -> None:
    types = (TensorType((6, 40, 17), DTYPES["f32"]),)
    config = CommonConfig("mir.cummax", (("axis", 1), ("reverse", False)), types)
    assert common.launch(config, frame="gpu").range == 6 * 17
    assert common.launch(config).range == 6
