"""The elementary functions in f32 on machines without doubles, and without a fused multiply-add.

Shading languages leave it to the device whether a multiply-add rounds once: the functions stay
within half a unit of their bounds where it does not, and within a tenth where it does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.special

from rlx.kernels.builder import Kernel
from rlx.kernels.math import BOUNDS, CPU_MATH
from rlx.kernels.reg import Reg
from rlx.targets.cpu.target import kernel_target
from rlx.types import f32, f64
from support.jit import host, jit

Array = np.ndarray[Any, Any]

FUSED = pytest.mark.parametrize("fused", [True, False], ids=["fused", "two roundings"])

SLACK = {True: 0.1, False: 0.5}

REFERENCES: dict[str, Callable[..., Array]] = {
    "exp": np.exp, "log": np.log, "tanh": np.tanh, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "erf": scipy.special.erf, "expm1": np.expm1, "log1p": np.log1p, "log2": np.log2,
    "gelu": lambda x: np.maximum(x, -40) * scipy.special.ndtr(x),
    "erfinv": lambda x: np.copysign(scipy.special.erfinv(x), x),
    "pow": np.power, "rem": np.fmod, "atan2": np.arctan2,
}  # fmt: skip


class TwoRoundings(Kernel):
    """A builder for a machine whose multiply-add rounds the product too."""

    def fma(self, a: Reg, b: Any, c: Any) -> Reg:
        return a * b + c


@cache
def compiled(name: str, operands: int, fused: bool) -> Callable[..., Array]:
    target = replace(
        kernel_target(host()), lacks={f64: "a test"}, has=frozenset[str](), fused=fused
    )
    k = (Kernel if fused else TwoRoundings)("apply", target)
    inputs = [k.buffer(f"x{n}", f32) for n in range(operands)]
    out = k.buffer("y", f32)
    k.parallel(lambda i: k.store(k.call(name, *(k.load(b, i) for b in inputs)), out, i))
    call = jit(k.text())

    def apply(*xs: Array) -> Array:
        y = np.empty_like(xs[0])
        call(0, y.size, [*xs, y])
        return y

    return apply


def error(name: str, fused: bool, *xs: Array) -> float:
    """The largest error in units of the last place of f32; inf for another kind of value."""
    found = compiled(name, len(xs), fused)(*xs)
    with np.errstate(all="ignore"):
        exact = REFERENCES[name](*(x.astype(np.float64) for x in xs))
        near = exact.astype(np.float32)
        finite = np.isfinite(near) & np.isfinite(found)
        kinds = finite | (near == found) | (np.isnan(near) & np.isnan(found))
        assert kinds.all(), [x[~kinds][:5] for x in (*xs, found, near)]
        signs = np.isnan(near) | (np.signbit(near) == np.signbit(found))
        assert signs.all(), [x[~signs][:5] for x in (*xs, found, near)]
        unit = np.spacing(np.abs(near[finite])).astype(np.float64)
        return float((np.abs(found[finite] - exact[finite]) / unit).max())


def points() -> Array:
    """Every kind of f32, a range where functions change most, and what is next to turns."""
    patterns = np.arange(0, 1 << 32, 60013, dtype=np.uint64).astype(np.uint32).view(np.float32)
    edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, math.pi / 4], np.float32)
    turns = (np.arange(1, 20_000) * (math.pi / 2)).astype(np.float32)
    near = np.linspace(-100, 100, 50_001, dtype=np.float32)
    return np.concatenate([patterns, edges, turns, -turns, near])


@FUSED
@pytest.mark.parametrize("name", [n for n in REFERENCES if n not in ("pow", "rem", "atan2")])
def test_functions_of_one_number(name: str, fused: bool) -> None:
    assert name in CPU_MATH
    x = points()
    if name in ("log", "log2", "log1p", "erfinv"):
        x = np.concatenate([x, np.linspace(-1, 1, 50_001, dtype=np.float32)])
    assert error(name, fused, x) <= BOUNDS[name][0] + SLACK[fused]


@FUSED
def test_angles_that_are_next_to_a_multiple_of_a_quarter_turn(fused: bool) -> None:
    # Nearest of all f32 (J.-M. Muller, Elementary Functions, 3rd ed., 11.3), and large ones.
    hard = [float.fromhex(h) for h in ("0x1.fb9eaep+86", "0x1.f37e16p+93", "0x1.fffffep+127")]
    rng = np.random.default_rng(5)
    x = np.concatenate([np.float32(hard), np.exp2(rng.uniform(16, 127, 20_000))]).astype(np.float32)
    for name in ("sin", "cos", "tan"):
        assert error(name, fused, x) <= BOUNDS[name][0] + SLACK[fused]


@FUSED
@pytest.mark.parametrize("name", ["pow", "rem", "atan2"])
def test_functions_of_two_numbers(name: str, fused: bool) -> None:
    rng = np.random.default_rng(11)
    x = np.concatenate([np.exp(rng.uniform(-80, 80, 1 << 15)), rng.uniform(0.5, 2, 1 << 15)])
    y = np.concatenate([rng.uniform(-2, 2, 1 << 15), rng.uniform(-80, 80, 1 << 15)])
    x, y = x.astype(np.float32), y.astype(np.float32)
    assert error(name, fused, x, y) <= BOUNDS[name][0] + SLACK[fused]
    if name != "pow":
        return
    special = np.float32([0, -0.0, 1, -1, 2, -2, 0.5, 3, -3, 1e30, np.inf, -np.inf, np.nan])
    a, b = (m.ravel().copy() for m in np.meshgrid(special, special))
    assert error(name, fused, a, b) <= BOUNDS[name][0] + SLACK[fused]
