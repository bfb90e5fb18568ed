"""What blocks of threads compute on the software devices, against the interpreter: ragged sizes,
every type of storage, nan, and each variant of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.compiler.driver import compile_program
from rlx.ir.interpreter import interpret
from rlx.kernels.matmul import gpu as contraction
from rlx.targets import find_target
from rlx.types import dtype
from support.device import compiled
from support.samples import least
from support.tolerances import assert_close

APIS = pytest.mark.parametrize("api", ("opencl", "gpu", "vulkan"))

SLOW = pytest.mark.slow

Build = Callable[..., rlx.Value | Sequence[rlx.Value]]


def numbers(*shape: int, dt: str = "f32", nan: bool = False) -> np.ndarray[Any, Any]:
    found = np.random.default_rng(shape).standard_normal(shape).astype(dtype(dt).numpy)
    if nan:
        found.flat[found.size // 2] = np.nan
    return found


def agrees(api: str, build: Build, *arrays: np.ndarray[Any, Any], by: str) -> None:
    """Check a graph of inputs like these against the interpreter: all of it, but for views, is
    run by these families."""
    g = rlx.Graph("g")
    out = build(*(g.input(f"x{n}", list(a.shape), a.dtype.name) for n, a in enumerate(arrays)))
    g.set_outputs(list(out) if isinstance(out, Sequence) else [out])
    dispatch = compile_program(g, find_target(api))[1].compilation.dispatch
    assert not dispatch.common
    assert {name.split(":")[0] for name in dispatch.native} <= {*by.split()}
    feeds = {f"x{n}": a for n, a in enumerate(arrays)}
    found = compiled(api, g).run(feeds)
    for a, b in zip(found, interpret(g, feeds), strict=True):
        assert_close(a, b)


# -- products ------------------------------------------------------------------------------


@APIS
@pytest.mark.parametrize("dt", ["f32", "f16", pytest.param("bf16", marks=SLOW)])
def test_ragged_products(api: str, dt: str) -> None:
    """Tiles that hang over every edge, with an epilogue; few rows, and few columns."""

    def build(*x: rlx.Value) -> list[rlx.Value]:
        a, b, row, rest, few, thin = x
        return [(a @ b + row).relu() + rest, (few @ b).tanh(), b.transpose([1, 0]) @ thin]

    shapes = ((33, 7), (7, 131), (131,), (33, 131), (3, 7), (7, 1))
    agrees(api, build, *(numbers(*s, dt=dt) for s in shapes), by="contraction")


@APIS
def test_a_batch_with_broadcasts(api: str) -> None:
    def build(a: rlx.Value, b: rlx.Value, column: rlx.Value) -> list[rlx.Value]:
        turned = a.transpose([0, 1, 3, 2]), b.transpose([0, 1, 3, 2])
        return [(a @ b) * column, turned[0] @ turned[1]]

    arrays = numbers(2, 1, 9, 9), numbers(1, 3, 9, 9), numbers(2, 3, 9, 1)
    agrees(api, build, *arrays, by="contraction")


@APIS
@pytest.mark.parametrize("steep", [False, True])
def test_the_largest_tiles(api: str, steep: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What only large products take: eight rows and columns a thread; the epilogue is written out
    for each sum, or runs through them in a loop."""
    monkeypatch.setattr(contraction, "ENOUGH_BLOCKS", 1)
    arrays = numbers(150, 19), numbers(19, 140)
    agrees(api, lambda a, b: (a @ b).gelu() if steep else a @ b, *arrays, by="contraction")


@APIS
def test_products_of_small_integers(api: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-99, 99, s).astype(np.int8) for s in ((9, 33), (33, 7)))
    agrees(api, lambda a, b: a.cast("i32") @ b.cast("i32"), a, b, by="contraction")


@APIS
def test_a_nan_stays_in_its_row_and_column(api: str) -> None:
    """What is beyond the edge of a tile is no part of a sum, whatever it meets."""
    a, b = numbers(33, 33), numbers(33, 33)
    a[5, 32], b[31, 7] = np.inf, np.nan
    agrees(api, lambda a, b: a @ b, a, b, by="contraction")


# -- rows and columns ----------------------------------------------------------------------


@APIS
@pytest.mark.parametrize(
    "columns", [1, 7, pytest.param(33, marks=SLOW), pytest.param(131, marks=SLOW), 1001]
)
def test_rows(api: str, columns: int) -> None:
    """One thread a row, several rows a block, a block a row; rows that do not fill a block."""

    def build(x: rlx.Value, w: rlx.Value) -> list[rlx.Value]:
        return [x.softmax(axis=-1), x.layer_norm(w, w), x * x.mean(axis=-1, keepdims=True)]

    x, w = numbers(33, columns, nan=True), numbers(columns)
    agrees(api, build, x, w, by="rowwise elementwise")


@APIS
@pytest.mark.parametrize(
    "dt", ["f16", pytest.param("bf16", marks=SLOW), pytest.param("i8", marks=SLOW), "bool"]
)
def test_reductions(api: str, dt: str) -> None:
    x = np.abs(numbers(7, 131, 33, dt="f32")) * 2
    x = x.astype(dtype(dt).numpy)

    def build(x: rlx.Value) -> list[rlx.Value]:
        most = [x.max(axis=a) for a in ([0], [1], [2], [0, 2])]
        return most if dt == "bool" else [*most, x.sum(axis=[1])]

    agrees(api, build, x, by="reduce rowwise")


@APIS
def test_reductions_of_floats(api: str) -> None:
    """Along every axis, by parts, and with a nan."""

    def build(x: rlx.Value, long: rlx.Value, tall: rlx.Value) -> list[rlx.Value]:
        columns = [x.sum(axis=[0]), x.max(axis=[0]), x.min(axis=[1])]
        return [
            *columns,
            x.transpose([1, 0]).mean(axis=[1]),
            long.sum(axis=[1]),
            tall.max(axis=[0]),
        ]

    arrays = numbers(1001, 33, nan=True), numbers(2, 20001), numbers(9001, 3, nan=True)
    agrees(api, build, *arrays, by="reduce rowwise")


@APIS
def test_gathers(api: str) -> None:
    indices = np.array([0, 32, 5, 5, -1], np.int32)

    def build(x: rlx.Value, half: rlx.Value, i: rlx.Value) -> list[rlx.Value]:
        return [x.gather(i, axis=0, mode="wrap"), half.gather(i, axis=1, mode="wrap")]

    agrees(api, build, numbers(33, 7), numbers(3, 33, 5, dt="f16"), indices, by="gather")


# -- attention -----------------------------------------------------------------------------


def attend(
    api: str, heads: tuple[int, int], queries: int, keys: int, dim: int,
    mask: np.ndarray[Any, Any] | None = None, dt: str = "f32", nan: bool = False, **attrs: Any,
) -> None:  # fmt: skip
    """Check attention of (heads, key heads) on a batch of two."""
    q = numbers(2, heads[0], queries, dim, dt=dt)
    k, v = (numbers(2, heads[1], keys, dim + n, dt=dt)[..., :dim].copy() for n in (0, 1))
    if nan:
        k[0, 0, keys // 2, 0] = np.nan

    def build(q: rlx.Value, k: rlx.Value, v: rlx.Value, *m: rlx.Value) -> rlx.Value:
        given = {"mask": m[0]} if m else {}
        return q.attention(
            k, v, num_heads=heads[0], kv_heads=heads[1], scale=dim**-0.5, layout="bhsd",
            **given, **attrs,
        )  # fmt: skip

    agrees(api, build, q, k, v, *([] if mask is None else [mask]), by="attention")


@APIS
@pytest.mark.parametrize(
    "dt", ["f32", pytest.param("f16", marks=SLOW), pytest.param("bf16", marks=SLOW)]
)
def test_attention_of_rows_that_fill_no_block(api: str, dt: str) -> None:
    attend(api, (2, 2), 33, 71, 33, dt=dt, mask_kind="causal")


@APIS
def test_heads_that_share_a_key_head_in_one_block(api: str) -> None:
    attend(api, (2, 1), 70, 131, 8, mask_kind="sliding_window", window=9, softcap=2.0)


@APIS
def test_a_step_of_decoding(api: str) -> None:
    attend(api, (4, 2), 1, 131, 33, mask_kind="causal")


@APIS
def test_a_bias_that_hides_whole_rows(api: str) -> None:
    """Of all keys, and of the first blocks of them; by -inf and by the least number."""
    bias = numbers(2, 1, 9, 71)
    bias[0, :, 3], bias[1, :, 5, :70] = -np.inf, -np.inf
    bias[0, :, 4], bias[1, :, 6, :70] = least(dtype("f32")), least(dtype("f32"))
    bias[1, :, 7] = np.where(np.arange(71) % 2, -np.inf, least(dtype("f32")))
    attend(api, (2, 2), 9, 71, 8, bias, mask_kind="bias")


@APIS
def test_a_custom_mask(api: str) -> None:
    attend(api, (1, 1), 9, 33, 8, (numbers(2, 33) > 0).astype(np.float32), mask_kind="custom")


@APIS
def test_heads_wider_than_a_block_s_span(api: str) -> None:
    attend(api, (1, 1), 9, 7, 300)


@APIS
def test_a_nan_key(api: str) -> None:
    attend(api, (1, 1), 9, 33, 8, nan=True)
