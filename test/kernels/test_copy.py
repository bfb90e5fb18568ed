"""Copies of every element width between strided views, and fills."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlx.codegen.builder import KernelText
from rlx.codegen.family import Launch
from rlx.kernels.elementwise import copy
from rlx.kernels.elementwise.emit import ElementwiseConfig
from rlx.targets.cpu import emit
from rlx.targets.cpu.features import preset
from rlx.targets.cpu.target import kernel_target
from support.runkernel import element_strides, run_launch

Array = np.ndarray[Any, Any]
WIDTHS = (8, 16, 32, 64)


def bits_of(width: int, *shape: int) -> Array:
    rng = np.random.default_rng(width)
    return rng.integers(0, 1 << width, shape, f"u{width // 8}", endpoint=False)


def plan(source: Array, target: Array) -> tuple[ElementwiseConfig, Launch]:
    return copy.launch(
        target.itemsize * 8,
        target.shape,
        element_strides(source, target.shape),
        element_strides(target),
    )


def check(source: Array, target: Array | None = None, pieces: int = 1) -> ElementwiseConfig:
    out = np.zeros(source.shape, source.dtype) if target is None else target
    config, launch = plan(source, out)
    run_launch(copy, config, launch, [source, out], pieces)
    np.testing.assert_array_equal(out, np.broadcast_to(source, out.shape))
    return config


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("shape", [(64, 64), (8, 8), (301, 517), (9, 8), (8, 15), (7, 30), (1, 40)])
def test_transposes(shape: tuple[int, int], width: int) -> None:
    check(bits_of(width, *shape).T)


@pytest.mark.parametrize("width", WIDTHS)
def test_permutations(width: int) -> None:
    x = bits_of(width, 3, 20, 5, 33)
    for perm in ((0, 2, 1, 3), (0, 2, 3, 1), (3, 2, 1, 0), (1, 0, 3, 2), (2, 3, 0, 1)):
        check(x.transpose(perm))


@pytest.mark.parametrize("width", WIDTHS)
def test_slices_and_broadcasts(width: int) -> None:
    x = bits_of(width, 40, 90)
    check(x)
    check(x[3:20, 7:61])
    check(x[::2, ::3])
    check(x[:, ::3].T)
    check(x[5:6, 9:10].reshape(()))
    check(x[:0])
    check(np.broadcast_to(x[0, :33], (9, 33)))
    check(np.broadcast_to(x[:9, :1], (9, 33)))


@pytest.mark.parametrize("width", WIDTHS)
def test_into_a_part(width: int) -> None:
    x = bits_of(width, 40, 30)
    for source in (x, x.T.copy().T, np.broadcast_to(x[:1], x.shape)):
        whole = np.zeros((50, 200), x.dtype)
        check(source, whole[5:45, 100:130])
        check(source, whole[5:45, 1:90:3])
        whole[5:45, 100:130] = whole[5:45, 1:90:3] = 0
        assert not whole.any()


def test_contiguous_across_goes_by_tiles() -> None:
    x = bits_of(32, 4, 16, 8)
    assert check(x.transpose(0, 2, 1)).across
    assert not check(x.transpose(1, 0, 2)).across
    assert not check(x[:, :4].transpose(0, 2, 1)).across


def test_one_kernel_serves_every_transpose_of_a_rank() -> None:
    shapes = ((16, 64), (301, 517), (20, 9))
    assert len({plan(x.T, np.zeros_like(x.T, order="C"))[0] for x in map(np.zeros, shapes)}) == 1


def test_pieces_of_the_range() -> None:
    x = bits_of(32, 4, 130, 300)
    for source in (x.transpose(0, 2, 1), x.transpose(1, 0, 2), x):
        _, launch = plan(source, np.zeros(source.shape, x.dtype))
        assert launch.range > 4
        check(source, pieces=launch.range)


@pytest.mark.parametrize("width", WIDTHS)
def test_fill(width: int) -> None:
    pattern = (1 << width) - 3
    whole = np.zeros((9, 50), f"u{width // 8}")
    part = whole[2:8, 3:41]
    config, launch = copy.fill_launch(width, pattern, part.shape, element_strides(part))
    run_launch(copy, config, launch, [part])
    assert (part == pattern).all()
    part[...] = 0
    assert not whole.any()


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4", "aarch64"])
def test_compiles_for(cpu: str) -> None:
    features = preset(cpu)
    kernels: list[KernelText] = []
    for width in WIDTHS:
        for shape in ((20, 30), (3, 20, 9, 33)):
            x = np.zeros(shape, f"u{width // 8}").swapaxes(-1, -2)
            config, _ = plan(x, np.zeros(x.shape, x.dtype))
            assert config.across
            kernels.append(copy.emit(f"k{width}_{x.ndim}", config, kernel_target(features)))
    assert emit.compile_kernels(kernels, features).startswith(b"\x7fELF")
