"""Elementwise kernels whose operands are contiguous along different dims, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlx.codegen.program import Program, Step
from rlx.kernels.elementwise import emit as elementwise
from rlx.kernels.elementwise.emit import ElementwiseConfig
from rlx.kernels.elementwise.tiles import tile_blocks
from rlx.targets.cpu import emit
from rlx.targets.cpu.features import preset
from rlx.targets.cpu.target import kernel_target
from rlx.types import DType, bf16, bool_, c64, f16, f32, f64, i8, i64, u8
from support.runkernel import element_strides, run_launch

Array = np.ndarray[Any, Any]


def step(op: str, *args: int, dt: DType = f32, out: DType | None = None) -> Step:
    return Step(f"mir.{op}", args, (dt,) * len(args), out or dt)


def addition(dt: DType = f32) -> Program:
    return Program((dt, dt), (step("add", 0, 1, dt=dt),), (2,))


LONG = Program((f32, f32), (step("gelu", 0), step("tanh", 1), step("mul", 2, 3)), (4,))


def run(
    program: Program, inputs: list[Array], out: Array, *, in_place: bool = False, pieces: int = 1
) -> ElementwiseConfig:
    config, launch = elementwise.launch(
        program,
        out.shape,
        [element_strides(a, out.shape) for a in inputs],
        [element_strides(out)],
        in_place=in_place,
    )
    run_launch(elementwise, config, launch, [*inputs, out], pieces)
    return config


def numbers(dt: DType, *shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 60, shape).astype(dt.numpy)


SHAPES = [(8, 8), (9, 8), (15, 17), (16, 16), (49, 33), (7, 30), (65, 130), (301, 140), (1, 40)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("program", [addition(), LONG], ids=["short", "long"])
def test_one_operand_across(shape: tuple[int, int], program: Program) -> None:
    x, y = numbers(f32, *shape).T / 8, numbers(f32, *shape[::-1], seed=1) / 8
    out, common = (np.full(y.shape, np.nan, np.float32) for _ in range(2))
    config = run(program, [x, y], out)
    assert config.across == ((0,) if min(shape) >= 8 else ())
    run(program, [np.ascontiguousarray(x), y], common)
    np.testing.assert_array_equal(out, common)


@pytest.mark.parametrize("dt", [i8, u8, f16, bf16, f32, f64, i64], ids=str)
def test_element_types(dt: DType) -> None:
    x, y = numbers(dt, 70, 45).T, numbers(dt, 45, 70, seed=1)
    out = np.zeros_like(y)
    assert run(addition(dt), [x, y], out).across == (0,)
    np.testing.assert_array_equal(out, x + y)


def test_bools_and_casts() -> None:
    x = numbers(i64, 40, 90) % 2 == 0
    out = np.zeros((90, 40), np.float32)
    cast = Program((bool_,), (Step("mir.cast", (0,), (bool_,), f32, (("to", f32),)),), (1,))
    assert run(cast, [x.T], out).across == (0,)
    np.testing.assert_array_equal(out, x.T)
    mask = np.zeros((90, 40), np.bool_)
    y = numbers(f32, 40, 90).T
    run(Program((f32, f32), (step("gt", 0, 1, out=bool_),), (2,)), [y, numbers(f32, 40)], mask)
    np.testing.assert_array_equal(mask, y > numbers(f32, 40))


def test_two_across_and_broadcasts() -> None:
    x, z = numbers(f32, 40, 90), numbers(f32, 40, 90, seed=2)
    row, column = numbers(f32, 40, seed=3), numbers(f32, 90, 1, seed=4)
    add = tuple(step("add", a, b) for a, b in ((0, 1), (4, 2), (5, 3)))
    program = Program((f32,) * 4, add, (6,))
    out = np.zeros((90, 40), np.float32)
    assert run(program, [x.T, z.T, row, column], out).across == (0, 1)
    np.testing.assert_array_equal(out, x.T + z.T + row + column)


def test_ranks_and_pieces() -> None:
    x = numbers(f32, 5, 20, 3, 33)
    for perm in ((0, 2, 3, 1), (3, 2, 1, 0), (0, 3, 2, 1), (2, 3, 0, 1)):
        own = x.transpose(perm)
        out, y = np.zeros(own.shape, np.float32), numbers(f32, own.shape[-1], seed=1)
        for pieces in (1, 7):
            out[...] = np.nan
            run(addition(), [own, y], out, pieces=pieces)
            np.testing.assert_array_equal(out, own + y)


@pytest.mark.parametrize("shape", [(16, 16), (65, 130), (41, 23)])
def test_in_place_every_element_is_read_once(shape: tuple[int, int]) -> None:
    x, y = numbers(f32, *shape).T, numbers(f32, *shape[::-1], seed=1)
    want = x + y
    config = run(addition(), [x, y], y, in_place=True)
    assert config.across == (0,)
    np.testing.assert_array_equal(y, want)


def test_complex_numbers_go_one_by_one() -> None:
    x = (numbers(f32, 20, 30) + 1j).astype(c64.numpy)
    out = np.zeros((30, 20), x.dtype)
    assert not run(addition(c64), [x.T, x.T], out).across
    np.testing.assert_array_equal(out, 2 * x.T)


def test_what_has_no_memory_is_in_no_tile() -> None:
    strides = [(1, 20), (1, 20)]
    for counted, across in (([], (0, 1)), ([0], (1,)), ([0, 1], ())):
        program = addition(i64)
        config, _ = elementwise.launch(program, (20, 30), strides, [(30, 1)], counted=counted)
        assert config.across == across


def test_one_kernel_serves_every_shape() -> None:
    found = {
        run(addition(), [numbers(f32, *s).T, numbers(f32, *s[::-1])], np.zeros(s[::-1], "f4"))
        for s in ((16, 64), (301, 51), (20, 9))
    }
    assert len(found) == 1


def test_blocks_share_a_dim() -> None:
    assert tile_blocks((5, 8, 49)) == [64, 16]
    assert tile_blocks((65, 4096)) == [64, 80]


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4", "aarch64"])
def test_compiles_for(cpu: str) -> None:
    features, strides = preset(cpu), [(1, 40), (30, 1)]
    kernels = [
        elementwise.emit(
            name, elementwise.launch(p, (40, 30), strides, [(30, 1)])[0], kernel_target(features)
        )
        for name, p in (("short", addition()), ("long", LONG), ("double", addition(f64)))
    ]
    assert emit.compile_kernels(kernels, features).startswith(b"\x7fELF")
