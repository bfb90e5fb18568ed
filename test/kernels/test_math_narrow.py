"""The elementary functions on machines without doubles, and without a fused multiply-add.

Shading languages leave it to the device whether a multiply-add rounds once, and Vulkan does so in
f64 too: the functions stay within half a unit of their bounds where it does not, and within a tenth
where it does. What is exact stays exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from rlx.codegen.builder import Kernel
from rlx.codegen.math import BOUNDS
from rlx.codegen.reg import Reg
from rlx.targets.cpu.target import kernel_target
from rlx.types import DType, f32, f64
from support.functions import (
    BINARY,
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

Array = np.ndarray[Any, Any]
Machine = tuple[DType, bool, bool]

F32 = {"fused": (f32, True, False), "two roundings": (f32, False, False)}
# The doubles change what only angles and powers are computed by.
DOUBLES = {"two roundings, f64": (f32, False, True)}
F64 = {"f64, two roundings": (f64, False, True)}
"""Types to compute in, with whether a multiply-add rounds once, and whether there are doubles."""

SLACK = {True: 0.1, False: 0.5}


def on(*machines: dict[str, Machine]) -> pytest.MarkDecorator:
    """A test of several machines; those of f64 need a wider type."""
    rows = [
        pytest.param(m, id=name, marks=[needs_extended] if m[0] is f64 else [])
        for part in machines
        for name, m in part.items()
    ]
    return pytest.mark.parametrize("machine", rows)


class TwoRoundings(Kernel):
    """A builder for a machine whose multiply-add rounds the product too, and whose compiler takes
    a·u + (a·v + x) for a·(u + v) + x if it is written with multiply-adds, as Mesa's does."""

    def fma(self, a: Reg, b: Any, c: Any) -> Reg:
        number = isinstance(b, int | float)
        made = self.__dict__.setdefault("made", {})
        if number and isinstance(c, Reg) and (a.name, c.name) in made:
            other, rest = made[a.name, c.name]
            return a * float(a.dtype.numpy.type(b) + a.dtype.numpy.type(other)) + rest
        result = a * b + c
        if number:
            made[a.name, result.name] = b, c
        return result


class RoughDivision(Kernel):
    """A builder for a machine whose quotients are two units off, to the side of ``sign``; an OpenCL
    device may be one."""

    sign = 1

    def arith(self, verb: Any, a: Any, b: Any) -> Reg:
        found = super().arith(verb, a, b)
        if verb != "div" or not found.dtype.is_float:
            return found
        return found * (1 + self.sign * 2 * float(np.finfo(found.dtype.numpy).eps))


class RoughDivisionBelow(RoughDivision):
    """The same to the other side."""

    sign = -1


@cache
def compiled(
    name: str, operands: int, machine: Machine, builder: type[Kernel] | None = None
) -> Callable[..., Array]:
    dt, fused, doubles = machine
    lacks = {} if doubles else {f64: "a test"}
    target = replace(
        kernel_target(host()),
        lacks=lacks,
        has=frozenset[str](),
        fused=fused,
        rounded_quotients=not (builder and issubclass(builder, RoughDivision)),
    )
    k = (builder or (Kernel if fused else TwoRoundings))("apply", target)
    inputs = [k.buffer(f"x{n}", dt) for n in range(operands)]
    out = k.buffer("y", dt)
    k.parallel(lambda i: k.store(k.call(name, *(k.load(b, i) for b in inputs)), out, i))
    call = jit(k.text())

    def apply(*xs: Array) -> Array:
        y = np.empty_like(xs[0])
        call(0, y.size, [*xs, y])
        return y

    return apply


def holds(name: str, machine: Machine, *xs: Array) -> None:
    """The bound of a function on a machine."""
    dt, fused, _ = machine
    found = worst(compiled(name, len(xs), machine)(*xs), reference(name, *xs))
    assert found <= bound(name, dt, fused)


def bound(name: str, dt: DType, fused: bool) -> float:
    return BOUNDS[name][dt is f64] + (SLACK[fused] if name != "rem" else 0)


def f32_points() -> Array:
    """Every kind of f32, a range where functions change most, and what is next to turns."""
    patterns = np.arange(0, 1 << 32, 60013, dtype=np.uint64).astype(np.uint32).view(np.float32)
    edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, math.pi / 4], np.float32)
    turns = (np.arange(1, 20_000) * (math.pi / 2)).astype(np.float32)
    near = np.linspace(-100, 100, 50_001, dtype=np.float32)
    inside = np.linspace(-1, 1, 50_001, dtype=np.float32)
    return np.concatenate([patterns, edges, turns, -turns, near, inside])


@on(F32)
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_number(name: str, machine: Machine) -> None:
    holds(name, machine, f32_points())


@on(F64)
@pytest.mark.parametrize("name", [n for n in UNARY if n not in DECIMALS])
def test_functions_of_one_double(name: str, machine: Machine) -> None:
    holds(name, machine, points(f64))


@pytest.mark.parametrize("name", DECIMALS)
def test_doubles_in_decimals(name: str) -> None:
    (machine,) = F64.values()
    x = decimal_points(name)
    assert decimal_error(name, x, compiled(name, 1, machine)(x)) <= bound(name, f64, False)


@on(F32, DOUBLES, F64)
def test_angles_that_are_next_to_a_multiple_of_a_quarter_turn(machine: Machine) -> None:
    # Nearest of all f32 (J.-M. Muller, Elementary Functions, 3rd ed., 11.3), and large ones.
    hard = [float.fromhex(h) for h in ("0x1.fb9eaep+86", "0x1.f37e16p+93", "0x1.fffffep+127")]
    rng = np.random.default_rng(5)
    top = 127 if machine[0] is f32 else 60  # where long double has the digits of a turn yet
    x = np.concatenate([np.array(hard), np.exp2(rng.uniform(16, top, 20_000))])
    x = (x if machine[0] is f32 else x[3:]).astype(machine[0].numpy)
    for name in ("sin", "cos", "tan"):
        holds(name, machine, x)
        holds(name, machine, points(machine[0], 1 << 12))


@on(F32, DOUBLES, F64)
@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_numbers(name: str, machine: Machine) -> None:
    x, y = powers(machine[0])
    holds(name, machine, x, y)
    special = np.array([0, -0.0, 1, -1, 2, -2, 0.5, 3, -3, 1e30, np.inf, -np.inf, np.nan])
    a, b = (m.ravel().copy() for m in np.meshgrid(*[special.astype(x.dtype)] * 2))
    holds(name, machine, a, b)
    if name == "rem":
        holds(name, machine, *pairs(machine[0]))


class RoughDivisionTwoRoundings(RoughDivision, TwoRoundings):
    """A machine that is both."""


class RoughDivisionBelowTwoRoundings(RoughDivisionBelow, TwoRoundings):
    """The same to the other side."""


ROUGH = [
    RoughDivision, RoughDivisionBelow, RoughDivisionTwoRoundings, RoughDivisionBelowTwoRoundings,
]  # fmt: skip


@pytest.mark.parametrize("dt", [f32, pytest.param(f64, marks=needs_extended)], ids=str)
@pytest.mark.parametrize("builder", ROUGH)
def test_remainders_are_exact_by_rough_quotients(builder: type[Kernel], dt: DType) -> None:
    machine = dt, not issubclass(builder, TwoRoundings), True
    for two in (pairs(dt), powers(dt)):
        x, y = (part[::2].copy() for part in two)
        assert worst(compiled("rem", 2, machine, builder)(x, y), reference("rem", x, y)) == 0
