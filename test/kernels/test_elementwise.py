"""Elementwise kernels against numpy: shapes, strides, element types, and what configs leave out."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlx.codegen.family import Launch
from rlx.codegen.program import Program, Step
from rlx.kernels.elementwise import emit as elementwise
from rlx.kernels.elementwise.emit import ElementwiseConfig
from rlx.targets.cpu import emit
from rlx.targets.cpu.features import preset
from rlx.targets.cpu.target import kernel_target
from rlx.types import DTYPES, INTS, DType, TensorType, bf16, bool_, f16, f32, f64, i32, i64, u8
from support.runkernel import element_strides, guarded, run_launch
from support.samples import array_of

Array = np.ndarray[Any, Any]


def step(op: str, *args: int, dt: DType = f32, out: DType | None = None, **attrs: Any) -> Step:
    return Step(f"mir.{op}", args, (dt,) * len(args), out or dt, tuple(attrs.items()))


def addition(dt: DType = f32) -> Program:
    return Program((dt, dt), (step("add", 0, 1, dt=dt),), (2,))


GELU_CHAIN = Program((f32, f32), (step("add", 0, 1), step("gelu", 2), step("mul", 3, 3)), (4,))


def plan(
    program: Program, inputs: list[Array], outputs: list[Array]
) -> tuple[ElementwiseConfig, Launch]:
    shape = outputs[0].shape
    return elementwise.launch(
        program,
        shape,
        [element_strides(a, shape) for a in inputs],
        [element_strides(a) for a in outputs],
        in_place=any(a is b for a in inputs for b in outputs),
    )


def run(program: Program, inputs: list[Array], *outputs: Array, pieces: int = 1) -> None:
    config, launch = plan(program, inputs, list(outputs))
    run_launch(elementwise, config, launch, [*inputs, *outputs], pieces)


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


SHAPES = [
    ((), ()),
    ((1,), ()),
    ((), (2,)),
    ((5, 7), (7,)),
    ((4, 1, 5), (3, 1)),
    ((16,), (16,)),
    ((64, 65), (64, 1)),
    ((3, 1, 17, 33), (1, 5, 17, 1)),
    ((2, 3, 1, 5, 1, 7), (1, 3, 4, 1, 6, 7)),
    ((1, 9000), (2, 1)),
    ((301, 40), (301, 40)),
    ((0, 3), (3,)),
    ((3, 0), (3, 1)),
]


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_broadcasting(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    x, y = normal(*left), normal(*right, seed=1)
    out = np.full(np.broadcast_shapes(left, right), np.nan, np.float32)
    run(addition(), [x, y], out)
    np.testing.assert_array_equal(out, x + y)


def test_nothing_is_launched_for_an_empty_tensor() -> None:
    _, launch = plan(addition(), [normal(4, 0), normal(4, 1)], [normal(4, 0)])
    assert launch.range == 0


X = normal(40, 50)
VIEWS = {
    "transposed": (X.T, X.T),
    "one transposed": (X.T[:40], X[:, :40]),
    "sliced": (X[::2, ::3], X[:20, :17]),
    "sliced and transposed": (X.T[:20, 1::3], X[:20, 4:17]),
    "permuted": (X.reshape(4, 10, 50).transpose(2, 0, 1), X.reshape(4, 10, 50).transpose(2, 0, 1)),
    "diagonal": (np.lib.stride_tricks.as_strided(X, (40,), (204,)), X[:, 3]),
}


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("name", VIEWS)
def test_strided_operands(name: str, order: str) -> None:
    x, y = VIEWS[name]
    out = np.full(x.shape, np.nan, np.float32, order=order)  # type: ignore[call-overload]
    run(addition(), [x, y], out)
    np.testing.assert_array_equal(out, x + y)


@pytest.mark.parametrize("dt", [u8, i32, i64, f32], ids=str)
@pytest.mark.parametrize(
    ("shape", "strides"),
    [((70,), (1,)), ((3, 70), (70, 1)), ((70, 3), (0, 1)), ((5, 70), (1, 0)), ((2, 70), (0, 7))],
)
def test_a_counted_input_is_its_own_offset(
    shape: tuple[int, ...], strides: tuple[int, ...], dt: DType
) -> None:
    """Beside an input in memory; a float takes integers, which it casts."""
    word = i64 if dt is f32 else dt
    steps = (step("cast", 0, dt=word, out=dt, to=dt), step("add", 2, 1, dt=dt))
    x, out = np.ones(shape, dt.numpy), np.zeros(shape, dt.numpy)
    config, launch = elementwise.launch(
        Program((word, dt), steps, (3,)),
        shape,
        [strides, element_strides(x)],
        [element_strides(out)],
        counted=[0],
    )
    run_launch(elementwise, config, launch, [x, out], 3)
    offsets = sum(i * s for i, s in zip(np.indices(shape), strides, strict=True))
    np.testing.assert_array_equal(out, np.asarray(offsets).astype(dt.numpy) + x)


def test_strided_output_leaves_the_rest_alone() -> None:
    x = normal(6, 21)
    whole = np.zeros((9, 64), np.float32)
    run(addition(), [x, x], whole[1:7, 2:65:3])
    np.testing.assert_array_equal(whole[1:7, 2:65:3], x + x)
    whole[1:7, 2:65:3] = 0
    assert not whole.any()


@pytest.mark.parametrize("shape", [(37,), (5, 1)], ids=str)
@pytest.mark.parametrize(
    "dt", [d for d in DTYPES.values() if d is not bool_ and not d.is_float8], ids=str
)
def test_element_types(dt: DType, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    x, y = (array_of(TensorType.of(s, dt), "normal", rng) for s in ((5, 37), shape))
    out = np.zeros(np.broadcast_shapes(x.shape, y.shape), dt.numpy)
    run(addition(dt), [x, y], out)
    np.testing.assert_array_equal(out, (x + y).astype(dt.numpy))


@pytest.mark.parametrize("dt", INTS, ids=str)
def test_integers_wrap(dt: DType) -> None:
    x = np.full(70, np.iinfo(dt.numpy).max, dt.numpy)
    out = np.zeros_like(x)
    run(addition(dt), [x, np.ones((), dt.numpy)], out)
    assert (out == np.iinfo(dt.numpy).min).all()


def test_mixed_types_and_several_outputs() -> None:
    program = Program(
        (i64, f16, bool_),
        (
            step("cast", 0, dt=i64, out=f32, to=f32),
            step("cast", 1, dt=f16, out=f32, to=f32),
            step("mul", 3, 4),
            step("lt", 3, 4, out=bool_),
            step("logical_and", 2, 6, dt=bool_),
            step("cast", 5, out=bf16, to=bf16),
        ),
        (5, 7, 8),
    )
    x = np.arange(-50, 51)
    y = normal(3, 101).astype(np.float16)
    m = normal(3, 1) > 0
    outs = [np.zeros((3, 101), dt.numpy) for dt in (f32, bool_, bf16)]
    run(program, [x, y, m], *outs)
    product = x.astype(np.float32) * y.astype(np.float32)
    np.testing.assert_array_equal(outs[0], product)
    np.testing.assert_array_equal(outs[1], m & (x < y))
    np.testing.assert_array_equal(outs[2], product.astype(bf16.numpy))


def test_literals() -> None:
    """Signed zeros and nans differ in a literal, though not by ``==``."""
    for value in (0.0, -0.0, 1.5, np.nan, -np.inf):
        out = np.ones(19, np.float32)
        run(Program((), (Step.literal(value, f32),), (0,)), [], out)
        assert out.tobytes() == np.full(19, value, np.float32).tobytes()
    assert Step.literal(0.0, f32) != Step.literal(-0.0, f32)
    assert Step.literal(np.nan, f32) == Step.literal(float("nan"), f32)


def test_in_place() -> None:
    for x in (normal(100, 33), normal(33, 100).T):
        expected = x + np.float32(2)
        run(addition(), [x, np.full((), 2, np.float32)], x)
        np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("columns", [*range(1, 20), 31, 33, 37, 61, 127])
def test_ragged_rows(columns: int) -> None:
    """Nothing behind the end is written, whether rows are written in place or anew."""
    x, bias = normal(9, columns), normal(columns, seed=3)
    expected = x + bias
    whole = np.zeros(9 * columns + 1, np.float32)
    out = whole[:-1].reshape(9, columns)
    run(addition(), [x, bias], out)
    np.testing.assert_array_equal(out, expected)
    out[...] = x
    run(addition(), [out, bias], out)
    np.testing.assert_array_equal(out, expected)
    assert whole[-1] == 0


@pytest.mark.parametrize("dt", [f32, f64, f16, bf16, u8, bool_], ids=str)
def test_rests_are_neither_read_nor_written_beyond(dt: DType) -> None:
    """The pages behind an input and the result cannot be touched."""
    op = "logical_and" if dt is bool_ else "add"
    program = Program((dt, dt), (step(op, 0, 1, dt=dt),), (2,))
    rng = np.random.default_rng(3)
    for columns in (*range(1, 36), 63, 65, 79):
        x, y = (array_of(TensorType.of((2, columns), dt), "normal", rng) for _ in range(2))
        out = guarded(np.zeros_like(x))
        run(program, [guarded(x), guarded(y)], out)
        np.testing.assert_array_equal(out, x & y if dt is bool_ else (x + y).astype(dt.numpy))


@pytest.mark.parametrize("shape", [(50_000,), (37, 700), (3, 5, 1111), (2, 20_000)])
def test_pieces_of_the_range_give_the_same_bits(shape: tuple[int, ...]) -> None:
    x, bias = normal(*shape), normal(shape[-1], seed=5)
    whole, cut = np.zeros_like(x), np.zeros_like(x)
    run(GELU_CHAIN, [x, bias], whole)
    _, launch = plan(GELU_CHAIN, [x, bias], [cut])
    run(GELU_CHAIN, [x, bias], cut, pieces=launch.range)
    assert launch.range > 1
    assert whole.tobytes() == cut.tobytes()


def test_the_inner_dim_is_the_outputs_unless_most_operands_say_otherwise() -> None:
    x, out = normal(30, 40), np.zeros((40, 30), np.float32)
    assert plan(addition(), [x.T, x.T], [out])[0].outputs == (("any", "one"),)
    three = Program((f32,) * 3, (step("add", 0, 1), step("add", 3, 2)), (4,))
    assert plan(three, [x.T, x.T, x.T], [out])[0].outputs == (("any", "any"),)


def test_one_kernel_serves_every_shape() -> None:
    configs = {
        plan(GELU_CHAIN, [normal(*shape), normal(shape[-1])], [normal(*shape)])[0]
        for shape in ((5, 7), (128, 1536), (2, 9, 33), (1000, 4))
    }
    assert len(configs) == 1


def test_large_operands_are_asked_for_ahead() -> None:
    """To read and to write, in memory of their own: neither a number nor a row that all share."""
    x = (2048, 1024)

    def launched(rows: int, columns: int, block: int = elementwise.BLOCK) -> ElementwiseConfig:
        ends = [(columns, 1), (0, 1)], [(columns, 1)]
        return elementwise.launch(GELU_CHAIN, (rows, columns), *ends, block)[0]

    far = launched(*x)
    assert far.far and not launched(x[0] - 1, x[1]).far  # 2 x 8 MiB
    assert not launched(x[0] * 8, x[1] // 8).far  # short rows
    assert not launched(*x, block=1).far  # a GPU
    texts = [elementwise.emit("k", c, kernel_target(preset("x86-64-v4"))).text
             for c in (far, replace(far, far=False))]  # fmt: skip
    asked = [set(re.findall(r"prefetch %(\w+)\[.*?\], (\w+)", text)) for text in texts]
    assert asked == [{("in0", "read"), ("out0", "write")}, set()]


@pytest.mark.parametrize("columns", [33, 1500])
def test_what_is_asked_for_ahead_need_not_be_there(columns: int) -> None:
    """The pages behind the operands cannot be touched."""
    inputs = [guarded(normal(5, columns)), guarded(normal(columns, seed=1))]
    near, out = (guarded(np.zeros((5, columns), np.float32)) for _ in range(2))
    config, launch = plan(GELU_CHAIN, inputs, [out])
    run_launch(elementwise, config, launch, [*inputs, near])
    run_launch(elementwise, replace(config, far=True), launch, [*inputs, out])
    assert out.tobytes() == near.tobytes()


def test_vector_and_single_elements_agree() -> None:
    """An element's bits do not depend on whether a vector or the tail computes it."""
    x, zero = normal(67), np.zeros((), np.float32)
    whole = np.zeros_like(x)
    run(GELU_CHAIN, [x, zero], whole)
    for n in (1, 15, 17, 66):
        part = np.zeros(n, np.float32)
        run(GELU_CHAIN, [x[-n:].copy(), zero], part)
        assert part.tobytes() == whole[-n:].tobytes()


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4", "aarch64"])
def test_compiles_for(cpu: str) -> None:
    features = preset(cpu)
    x = normal(4, 33)
    kernels = []
    for n, program in enumerate((GELU_CHAIN, addition(f64), addition(bf16), addition(f16))):
        for m, y in enumerate((x[0], x[:, :1], x.T[:4])):
            config, _ = plan(program, [x[:, : y.shape[-1]], y], [x[:, : y.shape[-1]].copy()])
            kernels.append(elementwise.emit(f"k{n}_{m}", config, kernel_target(features)))
    assert emit.compile_kernels(kernels, features).startswith(b"\x7fELF")
