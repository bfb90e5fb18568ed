"""The kernel builder: what each of its operations computes, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlx.codegen.builder import Kernel, KernelTarget
from rlx.codegen.reg import Reg
from rlx.targets.cpu.target import kernel_target
from rlx.types import (
    DTYPES,
    DType,
    bf16,
    bool_,
    c64,
    c128,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u32,
    u64,
)
from support.jit import host, jit

Array = np.ndarray[Any, Any]
TARGET = kernel_target(host())
LANES = 8


def run(
    emit: Callable[..., Reg],
    inputs: list[Array],
    dtypes: list[DType],
    out: DType,
    lanes: int = LANES,
) -> Array:
    """One vector of ``emit`` over the inputs (or one element at a time, with lanes 0)."""
    k = Kernel("k", TARGET)
    buffers = [k.buffer(f"in{n}", dt) for n, dt in enumerate(dtypes)]
    y = k.buffer("out", out)

    def body(i: Reg) -> None:
        at = i * (lanes or 1)
        k.store(emit(k, *(k.load(b, at, lanes) for b in buffers)), y, at)

    k.parallel(body)
    result = np.zeros(inputs[0].size, out.numpy)
    jit(k.text())(0, result.size // (lanes or 1), [*inputs, result])
    return result


def values(dt: DType, seed: int, count: int = 4 * LANES) -> Array:
    rng = np.random.default_rng(seed)
    if dt is bool_:
        return rng.integers(0, 2, count).astype(bool)
    if dt.is_float:
        return (rng.standard_normal(count) * 4).astype(dt.numpy)
    info = np.iinfo(dt.numpy)
    return rng.integers(info.min, info.max, count, dtype=dt.numpy, endpoint=True)


WHOLE = [
    d
    for d in DTYPES.values()
    if d not in (f16, bf16, bool_) and not d.is_complex and not d.is_float8
]
each_width = pytest.mark.parametrize("lanes", [0, LANES])


@each_width
@pytest.mark.parametrize("dt", WHOLE, ids=str)
def test_arithmetic_and_comparison(dt: DType, lanes: int) -> None:
    a, b = values(dt, 1), values(dt, 2)
    b[b == 0] = 3
    with np.errstate(over="ignore"):
        for emit, want in (
            (lambda k, x, y: x + y, a + b),
            (lambda k, x, y: x - y, a - b),
            (lambda k, x, y: x * y, a * b),
            (lambda k, x, y: k.maximum(x, y), np.maximum(a, b)),
            (lambda k, x, y: k.minimum(x, y), np.minimum(a, b)),
            (lambda k, x, y: k.select(x < y, x, y), np.minimum(a, b)),
            (lambda k, x, y: k.neg(x), -a),
            (lambda k, x, y: k.abs(x), np.abs(a)),
        ):
            np.testing.assert_array_equal(run(emit, [a, b], [dt, dt], dt, lanes), want)
    for emit, want in (
        (lambda k, x, y: x < y, a < b),
        (lambda k, x, y: x >= y, a >= b),
        (lambda k, x, y: k.compare("eq", x, y), a == b),
    ):
        np.testing.assert_array_equal(run(emit, [a, b], [dt, dt], bool_, lanes), want)


@pytest.mark.parametrize("dt", [i32, u32, i64, u64, i16], ids=str)
def test_integer_division_and_shifts(dt: DType) -> None:
    a, b = values(dt, 3), values(dt, 4) // 1000
    b[b == 0] = 7
    pairs = [(int(x), int(y)) for x, y in zip(a, b, strict=True)]
    exact = [abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) for x, y in pairs]
    got = run(lambda k, x, y: x // y, [a, b], [dt, dt], dt)
    np.testing.assert_array_equal(got, np.array(exact, dt.numpy))
    rest = run(lambda k, x, y: x % y, [a, b], [dt, dt], dt)
    np.testing.assert_array_equal(got * b + rest, a)
    np.testing.assert_array_equal(run(lambda k, x: x >> 3, [a], [dt], dt), a >> 3)
    np.testing.assert_array_equal(run(lambda k, x: (x << 3) | 1, [a], [dt], dt), (a << 3) | 1)


@each_width
@pytest.mark.parametrize("dt", [f32, f64], ids=str)
def test_rounding_and_fma(dt: DType, lanes: int) -> None:
    a = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 1e9, -0.0, 3.7], dt.numpy)
    for emit, want in (
        (lambda k, x: k.floor(x), np.floor(a)),
        (lambda k, x: k.ceil(x), np.ceil(a)),
        (lambda k, x: k.round_even(x), np.rint(a)),
        (lambda k, x: k.sqrt(k.abs(x)), np.sqrt(np.abs(a))),
    ):
        np.testing.assert_array_equal(run(emit, [a], [dt], dt, lanes), want)
    eps = np.finfo(dt.numpy).eps
    x = np.full(LANES, 1 + eps, dt.numpy)
    # (1 + e)^2 - (1 + 2e) is e^2 where the product is not rounded, and 0 where it is.
    got = run(lambda k, x: k.fma(x, x, -float(1 + 2 * eps)), [x], [dt], dt, lanes)
    np.testing.assert_array_equal(got, np.full(LANES, eps * eps, dt.numpy))


@each_width
@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_extremes_keep_nan(name: str, lanes: int) -> None:
    a = np.array([np.nan, 1, np.nan, 0.0, -np.inf, 2, 3, 4], np.float32)
    b = np.array([1, np.nan, np.nan, -0.0, np.inf, 1, 4, 4], np.float32)
    got = run(lambda k, x, y: getattr(k, name)(x, y), [a, b], [f32, f32], f32, lanes)
    np.testing.assert_array_equal(got, getattr(np, name)(a, b))
    assert np.signbit(got[3]) == (name == "minimum")


@each_width
@pytest.mark.parametrize("to", WHOLE, ids=str)
@pytest.mark.parametrize("dt", [*WHOLE, bool_], ids=str)
def test_cast(dt: DType, to: DType, lanes: int) -> None:
    a = values(dt, 5)
    if dt.is_float and not to.is_float:
        a = np.concatenate([a, a * 1e30, [np.nan, np.inf, -np.inf, 0.99, -0.99, 255, 256, -1]])
        a = a.astype(dt.numpy)
        info = np.iinfo(to.numpy)
        whole = [0 if np.isnan(x) else int(np.clip(x, -1e300, 1e300)) for x in a.astype(float)]
        want = np.array([min(max(n, info.min), info.max) for n in whole], to.numpy)
    else:
        want = a.astype(to.numpy)
    np.testing.assert_array_equal(run(lambda k, x: k.cast(x, to), [a], [dt], to, lanes), want)


@each_width
@pytest.mark.parametrize("dt", [f16, bf16], ids=str)
def test_16_bit_floats_round_once(dt: DType, lanes: int) -> None:
    half = np.arange(1 << 16, dtype=np.uint16).view(dt.numpy)
    back = run(lambda k, x: x, [half], [dt], dt, lanes)
    nan = np.isnan(half.astype(np.float32))
    np.testing.assert_array_equal(back.view(np.uint16)[~nan], half.view(np.uint16)[~nan])
    assert np.isnan(back.astype(np.float32)[nan]).all()
    rng = np.random.default_rng(0)
    wide = rng.integers(0, 1 << 32, 1 << 16, dtype=np.uint64).astype(np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        want = wide.astype(dt.numpy).astype(np.float32)
    np.testing.assert_array_equal(
        run(lambda k, x: k.round_to(x, dt), [wide], [f32], f32, lanes), want
    )


@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
def test_reduce(lanes: int) -> None:
    a = np.arange(1, lanes + 1, dtype=np.float64)
    for kind, want in (("add", a.sum()), ("mul", a.prod()), ("maximum", lanes), ("minimum", 1)):
        got = run(lambda k, x, kind=kind: k.splat(k.reduce(kind, x), lanes), [a], [f64], f64, lanes)
        assert got[0] == want


@pytest.mark.parametrize(("mask", "want"), [([0] * 8, False), ([0] * 7 + [1], True)])
def test_any(mask: list[int], want: bool) -> None:
    got = run(lambda k, x: k.splat(k.any(x), LANES), [np.array(mask, bool)], [bool_], bool_)
    assert got.tolist() == [want] * LANES


@pytest.mark.parametrize("dt", [f32, bf16, bool_, i8], ids=str)
def test_gather_and_fill(dt: DType) -> None:
    k = Kernel("k", TARGET)
    x, y, z = k.buffer("x", dt), k.buffer("y", dt), k.buffer("z", dt)
    stride = k.size("stride")

    def body(i: Reg) -> None:
        v = k.gather(x, i, stride, LANES)
        k.store(v, y, 0)
        k.store(k.load(x, 1), z, 0, LANES)

    k.parallel(body)
    a = values(dt, 9, 64)
    got, filled = np.zeros(LANES, dt.numpy), np.zeros(LANES, dt.numpy)
    jit(k.text())(2, 3, [a, got, filled], [5])
    np.testing.assert_array_equal(got, a[2 : 2 + 5 * LANES : 5])
    np.testing.assert_array_equal(filled, a[[1] * LANES])


def test_control_flow() -> None:
    """The steps of the Collatz sequence, by nested loops, branches and carried values."""
    k = Kernel("k", TARGET)
    x, y = k.buffer("x", i64), k.buffer("y", i64)

    def step(_: Reg, n: Reg, count: Reg) -> list[Reg]:
        def more() -> list[Reg]:
            odd = k.compare("ne", n & 1, 0)
            follow = k.when(odd, lambda: n * 3 + 1, lambda: n >> 1, results=[n])
            return [*follow, count + 1]

        return k.when(n > 1, more, lambda: [n, count], results=[n, count])

    def body(i: Reg) -> None:
        k.store(k.loop(0, 120, 1, step, init=[k.load(x, i), k.const(0, i64)])[1], y, i)

    k.parallel(body)
    a, got = np.array([1, 2, 7, 27]), np.zeros(4, np.int64)
    jit(k.text())(0, 4, [a, got])
    assert got.tolist() == [0, 1, 16, 111]


def test_a_function_of_a_kernel_is_defined_once_and_called_with_what_it_needs() -> None:
    k = Kernel("k", TARGET)
    x, y, bias = k.buffer("x", f32), k.buffer("y", f32), k.size("bias")

    def scale(i: Reg, factor: Reg) -> None:
        k.store(k.load(x, i) * k.cast(factor, f32) + 0.5, y, i)

    def body(i: Reg) -> None:
        half = k.load(x, i) * 0.5  # a constant of the kernel's, and a register that is not given
        k.store(half, y, i)
        k.when(i < 2, lambda: k.outline("scale", [x, y], [i, bias], scale))
        k.when(i > 2, lambda: k.outline("scale", [x, y], [i, bias + 1], scale))
        k.store(k.load(y, i) + half * 0.5, y, i)

    k.parallel(body)
    text = k.text()
    assert text.text.count("func.func private @k_scale(") == 1
    assert text.text.count("func.call @k_scale(") == 2
    assert text.written == (1,)
    found, given = np.zeros(4, np.float32), np.arange(4, dtype=np.float32)
    jit(text)(0, 4, [given, found], [10])
    assert (found == given * 0.25 + [0.5, 10.5, 1, 33.5]).all()


def test_text_has_no_value_twice_where_it_is_known_and_no_neutral_operand() -> None:
    k = Kernel("k", TARGET)
    x, y, n = k.buffer("x", f32), k.buffer("y", f32), k.size("n")

    def body(i: Reg) -> None:
        k.when(n > 3, lambda: k.store(k.load(x, i * n), y, i))
        k.when(n > 3, lambda: k.store(k.load(x, i * n) + 1.0, y, i))  # i * n was another branch's
        assert (i * n).name == (i * n).name
        assert (i + 0) is i
        assert (1 * i) is i
        assert (i - 0) is i
        assert (i // 1) is i
        assert (k.index(3) * 4 - 5).name == k.index(7).name
        assert k.minimum(i, n).name == k.minimum(i, n).name
        assert k.select(i < n, i, n).name == k.select(i < n, i, n).name

    k.parallel(body)
    text = k.text().text
    assert text.count("arith.muli") == 3
    assert text.count("arith.cmpi sgt") == 1
    found, given = np.zeros(4, np.float32), np.arange(40, dtype=np.float32)
    jit(k.text())(0, 4, [given, found], [10])
    assert found.tolist() == [1, 11, 21, 31]


def test_numbers_of_constants_are_those_of_a_function() -> None:
    """Each function of a kernel names its constants from 0 on."""
    k = Kernel("k", TARGET)
    y, n = k.buffer("y", u32), k.size("n")

    def inner(i: Reg) -> None:
        lanes = k.lane_numbers(u32, 4)  # the first constant here, as 0 is outside
        k.store(lanes + lanes, y, i * 4, 4)

    def body(i: Reg) -> None:
        zero = k.const(0, u32, 4)
        k.outline("inner", [y], [i], inner)
        assert k.number_of(zero) == 0
        k.store(k.load(y, i * 4, 4) + zero, y, i * 4)

    assert n.name == "%n"
    k.parallel(body)
    got = np.zeros(4, np.uint32)
    jit(k.text())(0, 1, [got], [1])
    assert got.tolist() == [0, 2, 4, 6]


def test_stack_is_taken_once() -> None:
    k = Kernel("k", TARGET)
    y = k.buffer("y", f32)

    def body(i: Reg) -> None:
        array = k.stack(f32, 1024)
        k.store(k.cast(i, f32), array, 3)
        k.store(k.load(array, 3), y, i)

    k.parallel(body)
    got = np.zeros(100_000, np.float32)
    jit(k.text())(0, got.size, [got])
    np.testing.assert_array_equal(got, np.arange(got.size))


def test_constants_keep_their_bits() -> None:
    for value in (0.1, -0.0, np.inf, -np.inf, np.nan, 1e-45):
        got = run(
            lambda k, x, value=value: k.const(value, f32, LANES), [np.zeros(8, "f")], [f32], f32
        )
        assert got.view(np.uint32)[0] == np.float32(value).view(np.uint32)
    top = run(lambda k, x: x + (2**64 - 1), [np.ones(8, np.uint64)], [u64], u64)
    assert not top.any()


def kernel(frame: str = "cpu") -> Kernel:
    return Kernel("k", KernelTarget("t", 32, 16, {}, frame=frame))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("emit", "message"),
    [
        (lambda k: k.const(1.5, i32), "1.5 is no i32"),
        (lambda k: k.const(1.0, f32) + k.const(1, i32), "operands are f32 and i32"),
        (lambda k: k.arith("add", 1, 2), "must be a register"),
        (lambda k: k.const(1.0, f32) & 1.0, "there is no and of f32"),
        (lambda k: k.reduce("add", k.const(1.0, f32, 12)), "cannot fold 12 lanes"),
        (lambda k: k.reduce("xor", k.const(1, u8, 8)), "cannot fold 8 lanes by 'xor'"),
        (lambda k: k.splat(k.const(1.0, f32, 4), 8), "4 lanes where 8 are needed"),
        (lambda k: k.cast(k.const(1.0, f32), f16), "memory format"),
        (lambda k: k.store(k.const(1, i32), k.buffer("x", f32), 0), "cannot store i32 into a f32"),
        (lambda k: [k.size("n"), k.size("n")], "name 'n' is taken"),
        (lambda k: k.shared(f32, 4), "shares no memory in a block"),
        (lambda k: k.buffer("c1", f32), "name 'c1' is taken"),
        (lambda k: k.when(k.const(True, bool_), list, results=[k.index(0)]), "needs both branches"),
        (lambda k: k.loop(0, 1, 1, lambda i, s: None, [k.index(0)]), "gave nothing where"),
    ],
)
def test_refused(emit: Callable[[Kernel], object], message: str) -> None:
    with pytest.raises(TypeError, match=rf"kernel k: .*{message}"):
        emit(kernel())


def test_a_gpu_kernel_has_no_scratch_and_no_functions() -> None:
    with pytest.raises(TypeError, match="no scratch"):
        kernel("gpu").scratch(f32)
    with pytest.raises(TypeError, match="a GPU kernel is one function"):
        kernel("gpu").outline("f", [], [], lambda: None)


def test_gpu_frame() -> None:
    k = kernel("gpu")
    x = k.buffer("x", f32)
    k.parallel(lambda i: k.store(1.0, x, i))
    text = k.text()
    assert text.frame == "gpu"
    assert text.sizes == ("range",)
    assert "gpu.func @k(%x: memref<1099511627776xf32>, %sizes: memref<2xi32>) kernel" in text.text


def test_text_says_its_arguments() -> None:
    k = kernel()
    k.buffer("x", bf16)
    k.size("rows")
    text = k.text()
    assert (text.buffers, text.sizes) == ((bf16,), ("rows",))
    assert (text.scratch, text.frame) == (False, "cpu")


@each_width
def test_complex_registers_are_pairs(lanes: int) -> None:
    """Loads, stores, gathers, loops, branches and functions, of vectors and of scalars."""
    rng = np.random.default_rng(3)
    z, w = (rng.standard_normal(4 * LANES) + 1j * rng.standard_normal(4 * LANES) for _ in range(2))

    def carried(k: Kernel, x: Reg, y: Reg) -> Reg:
        (total,) = k.loop(0, 3, 1, lambda i, t: t * x + y, [y])
        if lanes:
            return total
        return k.when(k.compare("eq", x, x), lambda: total, lambda: x, [x])[0]

    for emit, want in (
        (lambda k, x, y: x * y - 2.0, z * w - 2),
        (lambda k, x, y: x / y + 1j, z / w + 1j),
        (lambda k, x, y: k.select(k.compare("ne", x, y), -x, y), -z),
        (carried, ((w * z + w) * z + w) * z + w),
        (lambda k, x, y: k.cast(k.cast(x, c64), c128), z.astype(np.complex64).astype(complex)),
        (lambda k, x, y: k.cast(k.abs(x), c128), np.abs(z) + 0j),
    ):
        found = run(emit, [z, w], [c128, c128], c128, lanes)
        np.testing.assert_allclose(found, want, rtol=1e-14)


def test_what_complex_registers_cannot() -> None:
    k = Kernel("k", TARGET)
    z = k.load(k.buffer("z", c64), 0)
    with pytest.raises(TypeError, match="no order, so there is no lt"):
        k.compare("lt", z, z)
    with pytest.raises(TypeError, match="there is no rem of c64"):
        k.arith("rem", z, z)
    with pytest.raises(TypeError, match="c64 has no value in f32"):
        k.cast(z, f32)
