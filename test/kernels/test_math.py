"""Every elementary function keeps the error bound that ``BOUNDS`` states for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from rlx.codegen.builder import Kernel
from rlx.codegen.math import BOUNDS, CPU_MATH
from rlx.codegen.math.exponential import exp2_share
from rlx.codegen.reg import Reg
from rlx.targets.cpu.features import Features
from rlx.targets.cpu.target import kernel_target
from rlx.types import DType, f32, f64
from support.functions import (
    DECIMALS,
    UNARY,
    decimal_error,
    decimal_points,
    needs_extended,
    pairs,
    points,
    powers,
    reference,
    worst,
)
from support.jit import host, jit
from support.runkernel import features_of

Array = np.ndarray[Any, Any]
INF, NAN = math.inf, math.nan


@cache
def compiled(name: str, dt: DType, operands: int = 1, scalar: bool = False) -> Callable[..., Array]:
    """The function over arrays, by a kernel of one vector (or scalar) an index."""
    return applied(lambda k, *xs: k.call(name, *xs), dt, operands, scalar)


def applied(
    function: Callable[..., Reg],
    dt: DType,
    operands: int = 1,
    scalar: bool = False,
    features: Features | None = None,
) -> Callable[..., Array]:
    """The same of ``function(kernel, *registers)``."""
    target = kernel_target(features or host())
    lanes = 0 if scalar else target.lanes(dt)
    k = Kernel("apply", target)
    inputs = [k.buffer(f"x{n}", dt) for n in range(operands)]
    out = k.buffer("y", dt)

    def body(i: Any) -> None:
        at = i * (lanes or 1)
        k.store(function(k, *(k.load(b, at, lanes) for b in inputs)), out, at)

    k.parallel(body)
    call = jit(k.text(), features)

    def apply(*xs: Array) -> Array:
        size = xs[0].size
        padded = [np.concatenate([x, np.ones(-size % (lanes or 1), dt.numpy)]) for x in xs]
        y = np.empty_like(padded[0])
        call(0, y.size // (lanes or 1), [*padded, y])
        return y[:size]

    return apply


def f32_patterns(step: int, start: int = 0) -> Array:
    return np.arange(start, 1 << 32, step, dtype=np.uint64).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("name", UNARY)
def test_f32_strided(name: str) -> None:
    x = np.concatenate([f32_patterns(6007), np.linspace(-100, 100, 200_001, dtype=np.float32)])
    assert worst(compiled(name, f32)(x), reference(name, x)) <= BOUNDS[name][0]


@pytest.mark.slow
@pytest.mark.parametrize("name", UNARY)
def test_f32_every_pattern(name: str) -> None:
    part = 1 << 18  # arrays that stay in a cache: several times quicker than larger ones
    for start in range(0, 1 << 32, part):
        x = np.arange(start, start + part, dtype=np.uint64).astype(np.uint32).view(np.float32)
        error = worst(compiled(name, f32)(x), reference(name, x))
        assert error <= BOUNDS[name][0], f"{name} in [{x[0]}, {x[-1]}]: {error} ulp"


@pytest.mark.parametrize("isa", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize(
    ("dt", "wider"),
    [(f32, np.float64), pytest.param(f64, np.longdouble, marks=needs_extended)],
)
def test_shares(dt: DType, wider: Any, isa: str) -> None:
    share = applied(lambda _, x: exp2_share(x), dt, features=features_of(isa))
    x = np.linspace(-120, 120, 100_001).astype(dt.numpy)
    assert worst(share(x), np.exp2(x.astype(wider))) <= 2
    ends = np.array([0, -0.0, -120.1, -300, -1e9, -1e38, -INF, NAN], dt.numpy)
    np.testing.assert_array_equal(share(ends), [1, 1, 0, 0, 0, 0, 0, NAN])


@needs_extended
@pytest.mark.parametrize("name", [n for n in UNARY if n not in DECIMALS])
def test_f64(name: str) -> None:
    x = points(f64)
    assert worst(compiled(name, f64)(x), reference(name, x)) <= BOUNDS[name][1]


@pytest.mark.parametrize("name", DECIMALS)
def test_f64_in_decimals(name: str) -> None:
    x = decimal_points(name)
    assert decimal_error(name, x, compiled(name, f64)(x)) <= BOUNDS[name][1]


@pytest.mark.parametrize("dt", [f32, pytest.param(f64, marks=needs_extended)])
def test_pow(dt: DType) -> None:
    x, y = powers(dt)
    assert worst(compiled("pow", dt, 2)(x, y), reference("pow", x, y)) <= BOUNDS["pow"][dt is f64]


@pytest.mark.parametrize("dt", [f32, f64])
def test_pow_special_cases(dt: DType) -> None:
    odd = 2.0**23 + 1 if dt is f32 else 2.0**52 + 1
    row = [0, -0.0, 1, -1, 2, -2, 3, -3, 0.5, -0.5, 1e-40, odd, -odd, 1e30, math.inf, -math.inf,
           math.nan]  # fmt: skip
    x, y = (a.ravel() for a in np.meshgrid(np.array(row, dt.numpy), np.array(row, dt.numpy)))
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
    assert worst(compiled("pow", dt, 2)(x.copy(), y.copy()), want) <= 2


BY_NUMBERS = (0.5, 1.0, 2.0, 3.0, 4.0, 7.0, 16.0, 17.0, -1.0, -2.0, -3.0, -0.5, 0.0)


@pytest.mark.parametrize("isa", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("y", BY_NUMBERS)
@pytest.mark.parametrize("dt", [f32, pytest.param(f64, marks=needs_extended)])
def test_pow_by_a_number(dt: DType, y: float, isa: str) -> None:
    """Powers that multiplications and roots make have the bounds and special cases of others."""
    apply = applied(lambda k, x: k.pow(x, k.const(y, dt)), dt, features=features_of(isa))
    row = [0, -0.0, 1, -1, 1e-40, -1e-40, 2.0**-149, math.inf, -math.inf, math.nan]
    limits = np.finfo(dt.numpy)
    some = points(dt, 1 << 12)
    x = np.concatenate([some, -some, powers(dt)[0][::8], np.array(row, dt.numpy)])
    x = np.concatenate([x, np.array([limits.max, limits.tiny, -limits.max], dt.numpy)])
    found = apply(x)
    assert worst(found, reference("pow", x, np.full_like(x, y))) <= BOUNDS["pow"][dt is f64]


@pytest.mark.parametrize("dt", [f32, f64])
def test_remainder_is_exact(dt: DType) -> None:
    x, y = pairs(dt)
    with np.errstate(all="ignore"):
        want = np.fmod(x, y)
    assert worst(compiled("rem", dt, 2)(x, y), want) == 0


@pytest.mark.parametrize("dt", [f32, pytest.param(f64, marks=needs_extended)])
def test_atan2(dt: DType) -> None:
    y, x = pairs(dt)
    found = compiled("atan2", dt, 2)(y, x)
    assert worst(found, reference("atan2", y, x)) <= BOUNDS["atan2"][dt is f64]


EDGES = [
    ("exp", INF, INF), ("exp", -INF, 0.0), ("exp", NAN, NAN), ("exp", -0.0, 1.0), ("exp", 1e9, INF),
    ("exp", -1e9, 0.0), ("log", 0.0, -INF), ("log", -0.0, -INF), ("log", -1.0, NAN),
    ("log", INF, INF), ("log", -INF, NAN), ("log", NAN, NAN), ("log", 1.0, 0.0),
    ("tanh", INF, 1.0), ("tanh", -INF, -1.0), ("tanh", -0.0, -0.0), ("tanh", NAN, NAN),
    ("erf", INF, 1.0), ("erf", -INF, -1.0), ("erf", -0.0, -0.0), ("erf", NAN, NAN),
    ("erfinv", 1.0, INF), ("erfinv", -1.0, -INF), ("erfinv", 1.5, NAN), ("erfinv", -0.0, -0.0),
    ("erfinv", INF, NAN), ("erfinv", NAN, NAN), ("erfinv", 1e-40, 8.86226925452758e-41),
    ("gelu", INF, INF), ("gelu", -INF, -0.0), ("gelu", -0.0, -0.0), ("gelu", NAN, NAN),
    ("gelu", -40.0, -0.0), ("gelu", 1e30, 1e30), ("gelu", -1e30, -0.0), ("gelu", 0.0, 0.0),
    ("sin", INF, NAN), ("sin", -0.0, -0.0), ("cos", -INF, NAN), ("cos", 0.0, 1.0),
    ("tan", INF, NAN), ("tan", -0.0, -0.0), ("tan", NAN, NAN), ("atan", -0.0, -0.0),
    ("atan", INF, math.pi / 2), ("atan", -INF, -math.pi / 2), ("atan", NAN, NAN),
    ("asin", 1.0, math.pi / 2), ("asin", -0.0, -0.0), ("asin", 1.5, NAN), ("asin", NAN, NAN),
    ("acos", 1.0, 0.0), ("acos", -1.0, math.pi), ("acos", -1.5, NAN), ("acos", INF, NAN),
    ("exp2", INF, INF), ("exp2", -INF, 0.0), ("exp2", 10.0, 1024.0), ("exp2", NAN, NAN),
    ("expm1", -0.0, -0.0), ("expm1", -INF, -1.0), ("expm1", INF, INF), ("expm1", NAN, NAN),
    ("expm1", 1e-40, 1e-40), ("log1p", -0.0, -0.0), ("log1p", -1.0, -INF), ("log1p", -2.0, NAN),
    ("log1p", INF, INF), ("log1p", -INF, NAN), ("log1p", NAN, NAN), ("log1p", 1e-40, 1e-40),
    ("log2", 8.0, 3.0), ("log2", 0.0, -INF), ("log2", -1.0, NAN), ("log2", INF, INF),
    ("log2", 2.0**-140, -140.0), ("log2", NAN, NAN), ("sinh", -INF, -INF), ("sinh", -0.0, -0.0),
    ("sinh", NAN, NAN), ("cosh", -INF, INF), ("cosh", 0.0, 1.0), ("cosh", NAN, NAN),
    ("asinh", -INF, -INF), ("asinh", -0.0, -0.0), ("asinh", NAN, NAN), ("acosh", 1.0, 0.0),
    ("acosh", 0.5, NAN), ("acosh", -INF, NAN), ("acosh", INF, INF), ("acosh", NAN, NAN),
    ("atanh", 1.0, INF), ("atanh", -1.0, -INF), ("atanh", 2.0, NAN), ("atanh", INF, NAN),
    ("atanh", -0.0, -0.0), ("atanh", NAN, NAN),
]  # fmt: skip


@pytest.mark.parametrize("dt", [f32, f64])
@pytest.mark.parametrize(("name", "x", "want"), EDGES)
def test_edges(name: str, x: float, want: float, dt: DType) -> None:
    got = compiled(name, dt)(np.array([x], dt.numpy))
    np.testing.assert_array_equal(got, np.array([want], dt.numpy))
    assert math.isnan(want) or bool(np.signbit(got[0])) == (math.copysign(1, want) < 0)


@pytest.mark.parametrize("dt", [f32, f64])
def test_hardest_angles(dt: DType) -> None:
    """The numbers next to a multiple of π/2 (J.-M. Muller, Elementary Functions, 3rd ed., 11.3)."""
    x = np.array([16367173.0 * 2.0**72 if dt is f32 else 6381956970095103.0 * 2.0**797], dt.numpy)
    # f64: cos is -4.68716592425462761112E-19 there.
    got = float(compiled("cos", dt)(x)[0])
    want = -4.68716592425462761112e-19 if dt is f64 else math.cos(float(x[0]))
    assert abs(got - want) <= BOUNDS["cos"][dt is f64] * float(np.spacing(abs(dt.numpy.type(want))))


@pytest.mark.parametrize("dt", [f32, f64])
@pytest.mark.parametrize("name", UNARY)
def test_a_scalar_gives_the_bits_of_a_vector(name: str, dt: DType) -> None:
    x = np.concatenate([np.linspace(-30, 30, 2001), np.geomspace(1e-30, 1e30, 500)]).astype(
        dt.numpy
    )
    one, many = compiled(name, dt, scalar=True)(x), compiled(name, dt)(x)
    np.testing.assert_array_equal(one, many)


def test_every_function_states_a_bound() -> None:
    assert BOUNDS.keys() == CPU_MATH.keys()


def test_other_types_are_refused() -> None:
    from rlx.types import i32

    k = Kernel("k", kernel_target(host()))
    with pytest.raises(TypeError, match="take f32 or f64, not i32"):
        k.exp(k.const(1, i32))
