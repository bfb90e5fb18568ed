"""Rounding of f32 to bf16: by an instruction the same bits as without, and no more than once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlx.codegen.bfloat import rounds_fast
from rlx.codegen.builder import Kernel, KernelTarget
from rlx.targets.cpu import emit
from rlx.targets.cpu.features import preset
from rlx.targets.cpu.target import kernel_target
from rlx.types import bf16, f32
from support.jit import host, jit

Array = np.ndarray[Any, Any]

TARGET = kernel_target(host())
SHORT = preset("x86-64-v4+avx512bf16")


def rounding(target: KernelTarget, lanes: int, rounds: int = 1) -> Kernel:
    k = Kernel("round", target)
    x, y = k.buffer("x", f32), k.buffer("y", bf16)

    def body(i: Any) -> None:
        at = i * max(lanes, 1)
        value = k.load(x, at, lanes)
        for _ in range(rounds):
            value = k.round_to(value, bf16)
        k.store(value, y, at)

    k.parallel(body)
    return k


@pytest.mark.parametrize("lanes", [0, 8, 16, 48])
def test_every_kind_of_number(lanes: int) -> None:
    """All high halves, beside low ones about the middle between two bf16."""
    high = np.arange(1 << 16, dtype=np.uint32) << 16
    low = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    x = (high[:, None] | low).ravel().view(np.float32)
    found = np.zeros(x.shape, bf16.numpy)
    step = max(lanes, 1)
    jit(rounding(TARGET, lanes).text())(0, x.size // step, [x, found])
    nan = np.isnan(x)
    want = np.where(nan, np.float32(0), x).astype(bf16.numpy).view(np.uint16)
    words = found.view(np.uint16)
    assert np.array_equal(words[~nan], want[~nan])
    # A nan keeps its sign and the bits that there is room for, and is quiet.
    assert np.array_equal(words[nan], x.view(np.uint32)[nan] >> 16 | 0x40)


def test_one_subnormal_among_sixteen() -> None:
    x = np.linspace(1, 2, 32, dtype=np.float32)
    x[5] = 2.0**-130
    found = np.zeros(32, bf16.numpy)
    jit(rounding(TARGET, 16).text())(0, 2, [x, found])
    assert np.array_equal(found, x.astype(bf16.numpy)) and found[5] > 0


def test_what_is_rounded_is_not_rounded_again() -> None:
    target = kernel_target(SHORT)
    assert rounds_fast(target) and not rounds_fast(kernel_target(preset("x86-64-v4")))
    for rounds in (0, 3):
        asm = emit.to_assembly([rounding(target, 16, rounds).text()], SHORT)
        assert asm.count("vcvtneps2bf16") == 1
