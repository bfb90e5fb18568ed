"""The fft family alone, on vectors of several lengths, against NumPy in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlx.codegen.builder import Kernel
from rlx.codegen.reg import Reg
from rlx.kernels.fft import emit as fft
from rlx.kernels.fft.butterfly import interleaved
from rlx.kernels.fft.emit import FftConfig
from rlx.kernels.fft.plan import passes_of, radices
from rlx.targets.cpu.features import preset
from rlx.targets.cpu.target import kernel_target
from rlx.types import DType, f32, f64
from support.jit import host
from support.runkernel import run_launch

Array = np.ndarray[Any, Any]


def transform(config: FftConfig, x: Array, out: Array, pieces: int = 1) -> None:
    """Run the kernel on the rows of ``x``, which may have gaps between them."""
    table = fft.table(config, kernel_target(host()))
    stride = x.strides[0] // x.itemsize
    run_launch(fft, config, fft.launch(config, len(x), stride), [x, table, out], pieces)


@pytest.mark.parametrize("part", [f32, f64], ids=str)
@pytest.mark.parametrize("n", [2, 4, 6, 16, 30, 32, 77, 512, 26])
def test_rows(n: int, part: DType) -> None:
    rng = np.random.default_rng(n)
    both = np.result_type(part.numpy, np.complex64)
    limit = 1e-6 if part is f32 else 1e-14
    wide = (rng.standard_normal((3, n + 2)) + 1j * rng.standard_normal((3, n + 2))).astype(both)
    x, real = wide[:, :n], np.ascontiguousarray(wide.real)[:, : 2 * (n // 2)]
    half = wide[:, : n // 2 + 1]
    out = np.empty((3, n), both)
    for inverse, function in ((False, np.fft.fft), (True, np.fft.ifft)):
        config = FftConfig("complex", part, n, inverse, 1.0 / n if inverse else 1.0)
        transform(config, x, out, pieces=2)
        expected = function(x.astype(np.complex128))
        assert np.abs(out - expected).max() < limit * np.abs(expected).max()
    if n % 2 or n < 4:
        return
    halves = np.empty((3, n // 2 + 1), both)
    transform(FftConfig("from_real", part, n, False, 0.5), real, halves)
    expected = np.fft.rfft(real.astype(np.float64)) / 2
    assert np.abs(halves - expected).max() < limit * np.abs(expected).max()
    back = np.empty((3, n), part.numpy)
    transform(FftConfig("to_real", part, n, True, 1.0 / n), half, back)
    expected = np.fft.irfft(half.astype(np.complex128), n)
    assert np.abs(back - expected).max() < limit * np.abs(expected).max()


@pytest.mark.parametrize("name", ["x86-64-v3", "aarch64"])
def test_text_on_other_vectors(name: str) -> None:
    """Passes of other lengths of vectors are whole kernels, too."""
    target = kernel_target(preset(name))
    for n in (64, 1001):
        text = fft.emit("k", FftConfig("complex", f64, n, False, 1.0), target)
        assert text.scratch
        assert "no name" not in text.text


def test_radices_multiply_to_the_length() -> None:
    for n in range(2, 200):
        assert np.prod(radices(n)) == n
        passes = passes_of(n, 16)
        assert [p.length * p.stride for p in passes] == [n] * len(passes)
        assert all(p.lanes <= max(1, p.steps * p.stride if p.flat else p.stride) for p in passes)


@pytest.mark.parametrize("rows", [2, 3, 4, 5, 8, 13])
@pytest.mark.parametrize(("lanes", "run"), [(2, 1), (4, 1), (8, 2), (16, 1), (16, 4), (16, 8)])
def test_interleaving_is_a_transpose(rows: int, lanes: int, run: int) -> None:
    """The shuffles are carried out on labels."""
    k = Kernel("labels", kernel_target(preset("x86-64-v4")))
    held: dict[str, list[int]] = {}

    def shuffle(a: Reg, b: Reg, order: Any) -> Reg:
        both = [*held[a.name], *held[b.name]]
        made = Reg(k, f"%{len(held)}", f32, len(order))
        held[made.name] = [both[i] for i in order]
        return made

    k.shuffle = shuffle
    regs = [Reg(k, f"%row{i}", f32, lanes) for i in range(rows)]
    for i, r in enumerate(regs):
        held[r.name] = list(range(i * lanes, (i + 1) * lanes))
    found = [x for r in interleaved(k, regs, run) for x in held[r.name]]
    expected = np.arange(rows * lanes).reshape(rows, lanes // run, run).transpose(1, 0, 2)
    assert found == list(expected.reshape(-1))
