"""Fourier transforms on the software devices, against NumPy in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.compiler.driver import compile_program
from rlx.kernels.fft import gpu
from rlx.targets import find_target
from rlx.types import f32
from support.device import compiled

Array = np.ndarray[Any, Any]

CASES = {
    ("opencl", "c64"): (2, 130, 2048), ("opencl", "c128"): (30,), ("vulkan", "c64"): (64, 1000),
    ("gpu", "c64"): (1000,), ("opengl", "c64"): (130,),
}  # fmt: skip
"""Powers of two, mixed radices, a radix of 13; more threads than transforms, and fewer."""


def graph_and_feeds(lengths: tuple[int, ...], wide: str) -> tuple[rlx.Graph, dict[str, Array]]:
    rng = np.random.default_rng(1)
    g, feeds, outs = rlx.Graph("transforms"), dict[str, Array](), list[rlx.Value]()
    real = "f32" if wide == "c64" else "f64"
    for n in lengths:
        for name, size, dt in (("z", n, wide), ("x", n, real), ("h", n // 2 + 1, wide)):
            a = rng.standard_normal((3, size, 2)) @ [1, 1j if dt == wide else 0]
            value = g.input(f"{name}{n}", [3, size], dt)
            feeds[f"{name}{n}"] = (a if dt == wide else a.real).astype(value.dtype.numpy)
        z, x, h = g.inputs[-3:]
        outs += [z.fft(), z.ifft(norm="ortho"), x.rfft(norm="forward")]
        outs += [h.irfft(n=n)] if n > 2 else []
    g.set_outputs(outs)
    return g, feeds


def wanted(feeds: dict[str, Array], lengths: tuple[int, ...]) -> list[Array]:
    out: list[Array] = []
    for n in lengths:
        z, x, h = (feeds[f"{name}{n}"] for name in "zxh")
        z, h, x = z.astype(np.complex128), h.astype(np.complex128), x.astype(np.float64)
        out += [np.fft.fft(z), np.fft.ifft(z, norm="ortho"), np.fft.rfft(x, norm="forward")]
        out += [np.fft.irfft(h, n)] if n > 2 else []
    return out


@pytest.mark.parametrize(("api", "wide"), CASES)
def test_transforms_of_rows(api: str, wide: str) -> None:
    lengths = CASES[api, wide]
    g, feeds = graph_and_feeds(lengths, wide)
    tolerance = 1e-6 if wide == "c64" else 1e-14
    for a, b in zip(compiled(api, g).run(feeds), wanted(feeds, lengths), strict=True):
        assert np.abs(a - b).max() <= tolerance * np.abs(b).max()


def native(target: str, build: Any, shape: list[int], dt: str = "c64") -> dict[str, int]:
    g = rlx.Graph("one")
    g.set_outputs([build(g.input("x", shape, dt))])
    return compile_program(g, find_target(target))[1].compilation.dispatch.native


@pytest.mark.parametrize("target", ["cuda", "rocm", "metal", "webgpu", "directx", "vulkan"])
def test_every_gpu_has_the_kernel_up_to_what_a_block_shares(target: str) -> None:
    assert native(target, lambda x: x.fft(), [4, 2048])["gpu_fft: fft"] == 1
    assert native(target, lambda x: x.irfft(), [4, 2049])["gpu_fft: irfft"] == 1
    # Longer rows, large primes and odd real rows are products and shorter transforms.
    for build, shape in ((lambda x: x.fft(), [4, 4096]), (lambda x: x.fft(), [4, 17])):
        assert "gpu_fft: fft" not in native(target, build, shape)
    assert "gpu_fft: rfft" not in native(target, lambda x: x.rfft(), [4, 15], "f32")


def test_rows_anywhere_in_memory() -> None:
    rng = np.random.default_rng(2)
    a = (rng.standard_normal((2, 3, 24, 2)) @ [1, 1j]).astype(np.complex64)
    g = rlx.Graph("views")
    z = g.input("z", [2, 3, 24], "c64")
    g.set_outputs([z.transpose([1, 0, 2]).fft(), z[:, :, ::2].ifft(), z.fft(axis=0)])
    found = compiled("opencl", g).run({"z": a})
    want = [np.fft.fft(a.transpose(1, 0, 2)), np.fft.ifft(a[:, :, ::2]), np.fft.fft(a, axis=0)]
    for x, y in zip(found, want, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)


def test_a_block_has_threads_for_its_row() -> None:
    kernels = find_target("vulkan").kernels
    threads = [gpu.choose(kernels, "complex", f32, n, False, 1.0).threads for n in (2, 16, 2048)]
    assert threads == [1, 8, min(256, kernels.most_threads)]
