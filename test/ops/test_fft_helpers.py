"""The helpers of Fourier transforms, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
from rlx.errors import DTypeError, ShapeError


def test_the_helpers_of_the_system_that_rlx_follows() -> None:
    x = np.random.default_rng(4).standard_normal((3, 12)).astype(np.float32)
    g = rlx.Graph("helpers")
    v = g.input("x", [3, 12])
    z = rlx.fft_batch_real(v)
    padded = rlx.pad_last_axis_to_pow2(v)
    outs = [z, rlx.psd_real(v), rlx.ifft_spectrum(z), *rlx.split_spectrum(z), padded]
    g.set_outputs([*outs, rlx.pad_last_axis_to_pow2(padded), rlx.fft_real(v[0])])
    found = rlx.Session("cpu").compile(g).run({"x": x})
    full, half = np.fft.fft(x.astype(np.float64)), np.fft.rfft(x.astype(np.float64))
    filled = np.pad(x, ((0, 0), (0, 4)))
    want = [full, np.abs(half) ** 2 / 12, x, full.real, full.imag, filled, filled, full[0]]
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    for make, error in (
        (lambda: rlx.fft_real(z), DTypeError), (lambda: rlx.fft_batch_real(v[0]), ShapeError),
        (lambda: rlx.ifft_spectrum(v), DTypeError), (lambda: rlx.psd_real(z), DTypeError),
    ):  # fmt: skip
        with pytest.raises(error):
            make()
