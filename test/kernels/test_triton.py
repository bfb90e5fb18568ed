"""Kernels in TTIR: what they compute, by running the text in NumPy. Triton need not be here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlx.codegen.builder import Kernel, KernelTarget
from rlx.codegen.program import Program, Step
from rlx.codegen.reg import Reg
from rlx.codegen.strides import ceil_div, row_major
from rlx.codegen.triton import pointwise
from rlx.codegen.triton.machine import TritonMachine
from rlx.codegen.triton.text import Text
from rlx.errors import UnsupportedError
from rlx.kernels.attention import triton as attention
from rlx.kernels.attention.args import AttentionConfig, AttentionSizes, MaskKind, Strides
from rlx.kernels.matmul import triton as contraction
from rlx.kernels.matmul.triton import ProductTile
from rlx.kernels.registry import emit_kernel
from rlx.targets import find_target
from rlx.types import DType, bf16, bool_, f16, f32, f64, i32, u8
from support.samples import Case, additive_mask, cases, least, run
from support.tolerances import assert_close
from support.ttir import OutOfBounds, run_programs

Array = np.ndarray[Any, Any]

NUMPY: dict[DType, Any] = {
    f16: np.float16, bf16: ml_dtypes.bfloat16, f32: np.float32, bool_: np.bool_, u8: np.uint8,
    i32: np.int32,
}  # fmt: skip
ERROR = {f16: 2e-3, bf16: 2e-2, f32: 1e-5}

MACHINE = TritonMachine("3.9", "cuda", 80, 32, 99 << 10, 3, (f16, bf16, f32))
TARGET = replace(find_target("cuda:sm_80").kernels, triton=MACHINE)


def plain(dt: DType) -> Program:
    """The product, as it is."""
    return Program((dt,), (), (0,))


def layer(dt: DType) -> Program:
    """gelu(product + operand0) + operand1."""
    steps = (
        Step("mir.add", (0, 1), (dt, dt), dt),
        Step("mir.gelu", (3,), (dt,), dt),
        Step("mir.add", (4, 2), (dt, dt), dt),
    )
    return Program((dt, dt, dt), steps, (5,))


def memory(shape: Sequence[int], strides: Sequence[int], start: int, dtype: Any) -> Array:
    """A flat buffer for a view; what the view does not show is nan."""
    last = start + sum((d - 1) * s for d, s in zip(shape, strides, strict=True))
    return np.full(last + 1, np.nan if np.dtype(dtype).kind == "f" else 0, dtype)


def seen(flat: Array, shape: Sequence[int], strides: Sequence[int], start: int) -> Array:
    """The view of a flat buffer."""
    return np.lib.stride_tricks.as_strided(
        flat[start:], shape, [s * flat.itemsize for s in strides]
    )


class Product:
    """A product of random operands that lie by given strides, run and compared."""

    def __init__(
        self, dt: DType, shape: Sequence[int], program: Program | None = None, *, seed: int = 0
    ) -> None:
        self.dt, self.shape, self.program = dt, tuple(shape), program or plain(dt)
        self.random = np.random.default_rng(seed)
        *lead, m, n, k = shape
        self.lead = tuple(lead)
        ends = [(m, k), (k, n), *[(m, n)] * (len(self.program.inputs) - 1), (m, n)]
        self.shapes = [(*lead, *end) for end in ends]
        self.strides = [row_major(s) for s in self.shapes]
        self.starts = [0] * len(self.shapes)

    def run(self, tile: ProductTile | None = None, which: Sequence[int] | None = None) -> Array:
        """The result, which is compared with NumPy's."""
        kind = NUMPY[self.dt]
        config, launch = contraction.launch(
            self.program, MACHINE, self.dt, self.shape, self.strides, self.starts
        )
        count = launch.range
        if tile is not None:
            m, n, k = self.shape[-3:]
            config = replace(config, tile=tile, even=k % tile.depth == 0)
            count = math.prod(self.lead) * ceil_div(m, tile.rows) * ceil_div(n, tile.columns)
        text = emit_kernel(contraction.name, "k", config, TARGET)
        views: list[Array] = []
        flats: list[Array] = []
        for shape, strides, start in zip(self.shapes, self.strides, self.starts, strict=True):
            flats.append(memory(shape, strides, start, kind))
            views.append(seen(flats[-1], shape, strides, start))
        for view in views[:-1]:
            view[...] = self.random.integers(-8, 9, view.shape) / 8
        # What is bound begins at a multiple of 16 bytes.
        words = 16 // flats[0].itemsize
        flats = [f[start // words * words :] for f, start in zip(flats, self.starts, strict=True)]
        numbers = [*launch.sizes, *(start % words for start in self.starts)]
        run_programs(text, count, flats, numbers, which)
        if which is None:
            wanted = reference(views[:-1], self.program, kind)
            np.testing.assert_allclose(
                views[-1].astype(np.float32), wanted, ERROR[self.dt], ERROR[self.dt]
            )
        return views[-1]


def reference(views: Sequence[Array], program: Program, kind: Any) -> Array:
    a, b, *operands = (v.astype(np.float64) for v in views)
    x = a @ b
    if operands:
        x = x + operands[0]
        x = x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) + operands[1]
    return x.astype(kind).astype(np.float32)


@pytest.mark.parametrize("dt", [f16, bf16, f32], ids=str)
@pytest.mark.parametrize("shape", [(16, 16, 16), (70, 45, 33), (2, 3, 33, 20, 9)])
def test_products_with_an_epilogue(dt: DType, shape: tuple[int, ...]) -> None:
    Product(dt, shape, layer(dt)).run()
    Product(dt, shape).run()


def test_operands_are_read_where_they_lie() -> None:
    m, n, k = 37, 50, 70
    p = Product(f16, (3, m, n, k), layer(f16))
    p.strides[0] = (m * 90, 1, m)  # transposed, with gaps
    p.strides[1] = (0, 1, k + 3)  # one for all, transposed
    p.strides[2], p.strides[3] = (0, 0, 1), (m, 1, 0)  # a row, a column
    p.strides[4] = (m * n * 2, n * 2, 2)
    p.starts = [5, 3, 8, 1, 2]
    p.run()


def test_one_number_and_one_row_of_an_operand() -> None:
    p = Product(f32, (20, 40, 1), layer(f32))
    p.strides[2], p.strides[3] = (0, 0), (0, 1)
    p.run()
    p = Product(f32, (20, 40, 30))
    p.strides[0] = (0, 0)  # every row the same number
    p.run()


@settings(max_examples=8)
@given(
    shape=st.tuples(*[st.integers(9, 80)] * 2, st.integers(1, 80)),
    turned=st.tuples(st.booleans(), st.booleans()),
    starts=st.tuples(*[st.integers(0, 20)] * 3),
    gap=st.integers(0, 16),
    tile=st.sampled_from([ProductTile(32, 32, 16, 4, 2), ProductTile(16, 64, 32, 4, 2), None]),
)
def test_any_shape_and_place(
    shape: tuple[int, int, int], turned: tuple[bool, bool], starts: tuple[int, int, int], gap: int,
    tile: ProductTile | None,
) -> None:  # fmt: skip
    p = Product(bf16, shape)
    p.starts = list(starts)
    for i, turn in enumerate(turned):
        rows, columns = p.shapes[i]
        p.strides[i] = (1, rows + gap) if turn else (columns + gap, 1)
    p.run(tile)


def test_programs_beyond_the_range_do_what_the_last_does() -> None:
    p = Product(f16, (40, 40, 16))
    tile = ProductTile(16, 16, 16, 4, 2)
    whole = p.run(tile)
    p.random = np.random.default_rng(0)
    last = p.run(tile, which=[9, 40, 1 << 15])
    assert np.array_equal(last[32:, 32:], whole[32:, 32:]) and np.isnan(last[:32]).all()


def test_nan_and_infinity_stay_in_their_rows() -> None:
    p = Product(f32, (33, 17, 20))
    config, launch = contraction.launch(plain(f32), MACHINE, f32, (33, 17, 20), p.strides, [0] * 3)
    a, b, c = (np.ones(n, np.float32) for n in (33 * 20, 20 * 17, 33 * 17))
    a[20 * 3], a[20 * 32 + 19] = np.nan, np.inf
    text = emit_kernel(contraction.name, "k", config, TARGET)
    run_programs(text, launch.range, [a, b, c], [*launch.sizes, 0, 0, 0])
    found = c.reshape(33, 17)
    assert np.isnan(found[3]).all() and np.isposinf(found[32]).all()
    assert (np.delete(found, [3, 32], 0) == 20).all()


def test_offsets_beyond_32_bits(tmp_path: Path) -> None:
    """Rows lie so far apart that the tile's offsets, and those of the batch, need 64 bits."""
    m, n, k, far = 20, 16, 16, 1 << 28
    strides = [(far, 1), (n, 1), (n, 1)]
    config, launch = contraction.launch(plain(f16), MACHINE, f16, (m, n, k), strides, [0] * 3)
    assert config.wide
    a = np.memmap(tmp_path / "a", np.float16, "w+", shape=((m - 1) * far + k,))
    rows = np.arange(m, dtype=np.float16)
    for r in range(m):
        a[r * far : r * far + k] = rows[r]
    b, c = np.ones(k * n, np.float16), np.zeros(m * n, np.float16)
    text = emit_kernel(contraction.name, "k", config, TARGET)
    run_programs(text, launch.range, [a, b, c], [*launch.sizes, 0, 0, 0])
    assert np.array_equal(c.reshape(m, n)[:, 0], rows * k)


def test_what_is_outside_is_an_error_of_the_interpreter() -> None:
    """That the tests above would see an access outside of a buffer."""
    config, launch = contraction.launch(
        plain(f16), MACHINE, f16, (20, 20, 20), [(20, 1)] * 3, [0] * 3
    )
    text = emit_kernel(contraction.name, "k", config, TARGET)
    short = [np.ones(400 - n, np.float16) for n in (0, 1, 0)]
    with pytest.raises(OutOfBounds, match="buffer 1"):
        run_programs(text, launch.range, short, [*launch.sizes, 0, 0, 0])


# -- attention -----------------------------------------------------------------------------


def attend(
    dt: DType, *, batch: int = 1, heads: int = 2, key_heads: int = 1, queries: int = 33,
    keys: int = 70, dim: int = 40, kind: MaskKind = "none", mask: Array | None = None,
    mask_dtype: DType | None = None, softcap: float = 0.0, window: int = 0, scale: float = 0.3,
    gap: int = 0, start: int = 0,
) -> tuple[Array, Array]:  # fmt: skip
    """Attention of random tensors as [batch, rows, heads, dim], and what NumPy makes of it."""
    rng, element = np.random.default_rng(1), NUMPY[dt]
    tensors = {"q": (heads, queries), "k": (key_heads, keys), "v": (key_heads, keys)}
    steps, flats, views = {}, {}, {}
    for x, (count, rows) in (*tensors.items(), ("out", (heads, queries))):
        width = count * dim + gap
        steps[x] = Strides(rows * width, dim, width)
        shape = (batch, count, rows, dim)
        strides = (*steps[x], 1)
        flats[x] = memory(shape, strides, start, element)
        views[x] = seen(flats[x], shape, strides, start)
        if x != "out":
            views[x][...] = rng.uniform(-1.5, 1.5, shape)
    buffers = [flats["q"], flats["k"], flats["v"]]
    lies = Strides(0, 0, 0)
    if mask is not None:
        buffers.append(mask.reshape(-1))
        lies = Strides(keys if kind == "custom" else queries * keys, 0, keys)
    buffers.append(flats["out"])
    sizes = AttentionSizes(
        batch, heads, key_heads, queries, keys, dim, scale, steps["q"], steps["k"], steps["v"],
        steps["out"], lies, softcap, window,
    )  # fmt: skip
    base = AttentionConfig(dt, kind, mask_dtype, softcap != 0)
    assert attention.refuses(TARGET, base, sizes) is None
    starts = [start, start, start, *[0] * (mask is not None), start]
    config, launch = attention.launch(base, MACHINE, sizes, starts)
    text = emit_kernel(attention.name, "k", config, TARGET)
    run_programs(text, launch.range, buffers, [*launch.sizes, *starts])
    return views["out"].astype(np.float32), defined(views, kind, mask, softcap, window, scale)


def defined(
    x: dict[str, Array], kind: MaskKind, mask: Array | None, softcap: float, window: int,
    scale: float,
) -> Array:  # fmt: skip
    """The definition, in f64."""
    q, k, v = (x[n].astype(np.float64) for n in "qkv")
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(t, group, 1) for t in (k, v))
    s = scale * (q @ np.swapaxes(k, 2, 3))
    queries, keys = s.shape[2:]
    if softcap:
        s = softcap * np.tanh(s / softcap)
    p = np.arange(queries)[:, None] + (keys - queries)
    j = np.arange(keys)[None, :]
    hidden = np.zeros((1, 1, queries, keys), bool)
    if kind == "causal":
        hidden = ~(j <= p)
    elif kind == "window":
        hidden = ~((j <= p) & (j >= p - window))
    elif kind == "custom":
        assert mask is not None
        hidden = (mask.astype(np.float64) < 0.5)[:, None, None, :]
    elif kind == "bias":
        assert mask is not None
        s = s + mask.astype(np.float64)[:, None]
    s = np.where(hidden, -1e9, s)
    empty = s.max(-1, keepdims=True) == -np.inf
    w = np.exp(s - np.where(empty, 0.0, s.max(-1, keepdims=True)))
    return (w / np.where(empty, 1.0, w.sum(-1, keepdims=True))) @ v


def check(dt: DType, **said: Any) -> Array:
    found, wanted = attend(dt, **said)
    np.testing.assert_allclose(found, wanted, ERROR[dt], ERROR[dt])
    return found


@pytest.mark.parametrize("dt", [f16, bf16, f32], ids=str)
def test_attention(dt: DType) -> None:
    check(dt)


def test_few_and_many_rows_keys_and_elements() -> None:
    check(f16, batch=2, heads=4, key_heads=2, dim=64, queries=70, keys=16)
    check(f16, queries=9, heads=1, dim=200, keys=70)


def test_rows_of_heads_that_share_a_key_head() -> None:
    check(f16, heads=8, key_heads=2, queries=5, keys=40, kind="causal")
    check(f16, heads=6, key_heads=2, queries=50, keys=60, kind="window", window=7)


def test_tensors_with_gaps_that_begin_anywhere() -> None:
    check(f16, gap=5, start=3)
    check(bf16, gap=8, start=0, heads=4, key_heads=4)


@pytest.mark.parametrize("keys", [33, 80, 20])
def test_causal_masks_and_windows(keys: int) -> None:
    """With fewer keys than queries some rows see none, and weigh all alike."""
    check(f32, kind="causal", keys=keys, queries=33)
    check(f32, kind="window", window=11, keys=keys, queries=33)


@pytest.mark.parametrize("dt", [bool_, u8, f32, i32, f16], ids=str)
def test_custom_masks(dt: DType) -> None:
    rng = np.random.default_rng(0)
    mask = rng.integers(0, 2, (2, 70))
    mask[1] = 0  # nobody is seen
    mask = mask * (200 if dt is u8 else 1)
    check(f32, batch=2, kind="custom", mask=mask.astype(NUMPY[dt]), mask_dtype=dt)


def test_biases_and_softcap() -> None:
    rng = np.random.default_rng(0)
    bias = rng.uniform(-3, 3, (2, 33, 70)).astype(np.float32)
    bias[0, :, 60:] = -np.inf
    check(f32, batch=2, kind="bias", mask=bias, mask_dtype=f32, softcap=2.0)
    check(f16, batch=2, kind="bias", mask=bias.astype(np.float16), mask_dtype=f16)
    bias[1, 5], bias[1, 6, 64:], bias[1, 7] = -np.inf, least(f32), least(f32)
    found = check(f32, batch=2, kind="bias", mask=bias, mask_dtype=f32)
    assert not found[1, :, 5].any() and found[1, :, 7].any()
    bias = additive_mask((2, 33, 70), f16, rng)
    check(f16, batch=2, kind="bias", mask=bias, mask_dtype=f16)


# -- choices -------------------------------------------------------------------------------


def test_tiles_fit_the_machine_and_the_sizes() -> None:
    def tile(machine: TritonMachine, *shape: int) -> ProductTile:
        *lead, m, n, k = shape
        strides = [row_major((*lead, *s)) for s in ((m, k), (k, n), (m, n))]
        config, _ = contraction.launch(plain(f16), machine, f16, shape, strides, [0] * 3)
        return config.tile

    hopper = replace(MACHINE, arch=90, shared=227 << 10, stages=4, direct=True)
    assert tile(hopper, 8192, 8192, 4096) == ProductTile(128, 256, 64, 8, 4)
    assert tile(MACHINE, 8192, 8192, 4096) == ProductTile(128, 128, 64, 8, 3)
    assert tile(MACHINE, 20, 9, 10) == ProductTile(16, 16, 16, 2, 3)
    assert tile(MACHINE, 8192, 8192, 40).depth == 64
    assert tile(replace(MACHINE, wave=64), 8192, 8192, 4096).warps == 4
    for shared in (48 << 10, 64 << 10, 99 << 10, 227 << 10):
        machine = replace(MACHINE, shared=shared)
        assert tile(machine, 8192, 8192, 4096).shared_bytes(machine, f16) <= shared
    with pytest.raises(UnsupportedError, match="no tile fits 80's 512 bytes"):
        tile(replace(MACHINE, shared=512), 99, 99, 99)
    step = Strides(0, 0, 64)
    sizes = AttentionSizes(1, 1, 1, 64, 64, 64, 1.0, step, step, step, step)
    with pytest.raises(UnsupportedError, match="attention: no tile fits 80's 512 bytes"):
        attention.launch(AttentionConfig(f16), replace(MACHINE, shared=512), sizes, [0] * 4)


def test_equal_facts_share_a_kernel() -> None:
    def config(m: int, n: int, k: int) -> Any:
        strides = [row_major(s) for s in ((m, k), (k, n), (m, n))]
        return contraction.launch(plain(f16), MACHINE, f16, (m, n, k), strides, [0] * 3)[0]

    assert config(64, 64, 64) == config(64, 64, 128)
    assert config(64, 64, 64) != config(64, 64, 72), "its rows are read in other pieces"
    assert config(64, 64, 72).rounds == (8, 16, 16) and not config(64, 64, 72).even


@pytest.mark.parametrize(
    ("dtypes", "program", "shape", "why"),
    [
        ((f64, f64), plain(f64), (64, 64, 64), "it is of f64"),
        ((f16, f32), plain(f32), (64, 64, 64), "it is of f16 and f32"),
        ((f16, f16), plain(f16), (8, 64, 64), "at most 8 rows or columns"),
        ((f16, f16), plain(f16), (64, 1 << 30, 64), "a dim has 1073741824 elements"),
        ((f16, f16), Program((f16,), (Step("mir.cast", (0,), (f16,), f64),), (1,)), (64, 64, 64),
         "its epilogue computes with f64"),
        ((f16, f16), Program((f16,), (Step("mir.sin", (0,), (f16,), f16),), (1,)), (64, 64, 64),
         "its epilogue has no code on blocks"),
    ],
)  # fmt: skip
def test_what_products_are_refused(
    dtypes: tuple[DType, DType], program: Program, shape: tuple[int, int, int], why: str
) -> None:
    found = contraction.refuses(TARGET, dtypes, program, shape)
    assert found is not None and why in found


def test_what_attention_is_refused() -> None:
    step = Strides(0, 0, 64)

    def why(target: KernelTarget, base: AttentionConfig, queries: int = 64, dim: int = 64) -> Any:
        s = AttentionSizes(1, 1, 1, queries, 64, dim, 1.0, step, step, step, step)
        return attention.refuses(target, base, s)

    assert why(TARGET, AttentionConfig(f16)) is None
    assert why(TARGET, AttentionConfig(f64)) == "it is of f64"
    assert "mask is of f64" in why(TARGET, AttentionConfig(f16, "bias", f64))
    assert "more than 256" in why(TARGET, AttentionConfig(f16), dim=264)
    assert "at most 8 rows" in why(TARGET, AttentionConfig(f16), queries=8)
    halves = replace(TARGET, triton=replace(MACHINE, units=(f16, bf16)))
    assert "no matrix unit of sm_80 for f32" in why(halves, AttentionConfig(f32))
    always = replace(TARGET, triton=replace(MACHINE, units=(f16, bf16), always=True))
    assert why(always, AttentionConfig(f32)) is None


# -- pointwise code ------------------------------------------------------------------------

LOOPS = {
    "mir.sin", "mir.cos", "mir.tan", "mir.remainder", "mir.fmod", "mir.floor_divide", "mir.round",
    "mir.lgamma", "mir.digamma", "mir.polygamma",
}  # fmt: skip
"""Ops whose code on numbers has branches or loops; and round, by an instruction that Triton has
not got."""


def pointwise_cases() -> list[Case]:
    """A sample of every pointwise op for each of some element types."""
    found = {(c.op, c.dtype): c for c in cases(f32, f16, i32, bool_) if c.op.pointwise}
    return list(found.values())


def test_pointwise_ops_on_blocks() -> None:
    """Every pointwise op computes on blocks what the interpreter says; those with loops are refused
    by name."""
    refused: set[str] = set()
    for case in pointwise_cases():
        node = case.node()
        dtypes = tuple(v.dtype for v in node.present)
        if any(dt is f64 or dt.is_complex for dt in (*dtypes, node.out.dtype)):
            continue
        number = tuple(range(len(dtypes)))
        step = Step(node.name, number, dtypes, node.out.dtype, tuple(node.attrs.items()))
        program = Program(dtypes, (step,), (len(dtypes),))
        if pointwise.refused(program):
            refused.add(node.name)
            continue
        arrays = [a for a in case.arrays() if a is not None]
        (wanted,) = run([node.out], dict(zip(node.present, arrays, strict=True)))
        given = [np.broadcast_to(a, wanted.shape).reshape(-1) for a in arrays]
        assert_close(on_blocks(program, given, wanted.size), wanted.reshape(-1))
    assert refused == LOOPS


def on_blocks(program: Program, given: Sequence[Array], size: int) -> Array:
    """A program on flat arrays, by one block."""
    names = [*(f"x{n}" for n in range(len(given))), "y"]
    dtypes = [*program.inputs, *program.results]
    t = Text("k", list(zip(names, dtypes, strict=True)), ["size"])
    at = t.arange(max(2, 1 << (size - 1).bit_length()))
    here = at < t.size("size")
    *xs, y = (t.buffer(n) for n in names)
    values = [t.read(x, x.base + at, here) for x in xs]

    def elements(k: Kernel, regs: Sequence[Reg]) -> Sequence[Reg]:
        return program.emit(k, regs)

    (value,) = pointwise.pointwise(t, elements, values, program.inputs)
    t.write(y, y.base + at, value, here)
    out = np.zeros(size, program.results[0].numpy)
    run_programs(t.text(4, 32, 1), 1, [*map(np.array, given), out], [size, *[0] * len(names)])
    return out
