"""Transforms and what is built of them against SciPy, and their own laws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.fft
import scipy.signal

import rlx
from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.ops.fft.plan import prime_factors, roots
from support.compiled import agrees
from support.evaluate import call

Array = np.ndarray[Any, Any]

LIMITS = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-12}
"""How far from the exact result, relative to the largest element."""

LENGTHS = (2, 3, 15, 24, 64, 74, 128, 1000, 1001, 4096 * 3)
KINDS = ("fft", "ifft", "rfft", "irfft")


def signal(*shape: int, seed: int = 0, real: bool = False) -> Array:
    rng = np.random.default_rng([seed, *shape])
    x = rng.standard_normal(shape)
    return x if real else x + 1j * rng.standard_normal(shape)


def check(found: Array, expected: Array, part: Any = np.float64) -> None:
    assert found.shape == expected.shape
    assert np.dtype(found.real.dtype) == np.dtype(part)
    assert np.iscomplexobj(found) == np.iscomplexobj(expected)
    error = np.max(np.abs(found - expected), initial=0) / np.max(np.abs(expected), initial=1e-300)
    assert error < LIMITS[np.dtype(part)], error


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("part", [np.float32, np.float64])
def test_every_length_agrees_with_scipy(n: int, part: Any) -> None:
    """All four transforms, compiled: in one graph, with a batch that is no multiple of a vector."""
    both = np.result_type(part, np.complex64)
    x = {k: signal(3, n, real=k == "rfft", seed=i) for i, k in enumerate(KINDS)}
    x["irfft"] = x["irfft"][:, : n // 2 + 1]
    x = {k: a.astype(part if k == "rfft" else both) for k, a in x.items()}
    g = rlx.Graph("all")
    leaves = {k: g.input(k, a.shape, a.dtype) for k, a in x.items()}
    extra = {"fft": {}, "ifft": {}, "rfft": {}, "irfft": {"n": n}}
    g.set_outputs([getattr(leaves[k], k)(**extra[k]) for k in KINDS])
    for kind, found in zip(KINDS, rlx.Session("cpu").compile(g).run(x), strict=True):
        wide = x[kind].astype(np.float64 if kind == "rfft" else np.complex128)
        check(found, getattr(scipy.fft, kind)(wide, **extra[kind]), part)


def test_references_agree_with_scipy() -> None:
    """The interpreter, which judges the compiled ops elsewhere, has another judge."""
    for n in (1, 2, 7, 12, 127):
        x = signal(2, n)
        for norm in ("backward", "ortho", "forward"):
            check(call(lambda v, o=norm: v.fft(norm=o), x), scipy.fft.fft(x, norm=norm))
            check(call(lambda v, o=norm: v.ifft(norm=o), x), scipy.fft.ifft(x, norm=norm))
            check(call(lambda v, o=norm: v.rfft(norm=o), x.real), scipy.fft.rfft(x.real, norm=norm))
            expected = scipy.fft.irfft(x, n, norm=norm)
            check(call(lambda v, o=norm, m=n: v.irfft(n=m, norm=o), x), expected)


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_norms_axes_and_lengths_compiled(norm: str) -> None:
    """Every argument of NumPy's, of lengths that have a kernel and that have none."""
    x, y = signal(6, 8, 5), signal(6, 8, 5, real=True)
    g = rlx.Graph("norms")
    a, b = g.input("x", x.shape, "c128"), g.input("y", y.shape, "f64")
    rows = [
        (a.fft(n=12, axis=0, norm=norm), scipy.fft.fft(x, 12, 0, norm)),
        (a.ifft(n=37, axis=1, norm=norm), scipy.fft.ifft(x, 37, 1, norm)),
        (b.rfft(n=6, axis=-2, norm=norm), scipy.fft.rfft(y, 6, -2, norm)),
        (b.rfft(n=41, norm=norm), scipy.fft.rfft(y, 41, norm=norm)),
        (a.irfft(axis=0, norm=norm), scipy.fft.irfft(x, axis=0, norm=norm)),
        (a.irfft(n=9, axis=1, norm=norm), scipy.fft.irfft(x, 9, 1, norm)),
        (a.fftn(norm=norm), scipy.fft.fftn(x, norm=norm)),
        (a.ifftn(s=(4, 7), axes=(0, 2), norm=norm), scipy.fft.ifftn(x, (4, 7), (0, 2), norm)),
        (b.rfftn(axes=(2, 0), norm=norm), scipy.fft.rfftn(y, None, (2, 0), norm)),
        (a.irfftn(s=(4, 8), norm=norm), scipy.fft.irfftn(x, (4, 8), (1, 2), norm)),
        (a.fft2(norm=norm), scipy.fft.fft2(x, norm=norm)),
        (a.ifft2(norm=norm), scipy.fft.ifft2(x, norm=norm)),
        (a.hfft(n=7, axis=1, norm=norm), scipy.fft.hfft(x, 7, 1, norm)),
        (b.ihfft(norm=norm), scipy.fft.ihfft(y, norm=norm)),
        (b.fft(norm=norm), scipy.fft.fft(y, norm=norm)),
        (a.fftshift(axes=(0, 2)), scipy.fft.fftshift(x, (0, 2))),
        (a.fftshift().ifftshift(), x),
    ]
    g.set_outputs([v for v, _ in rows])
    found = rlx.Session("cpu").compile(g).run({"x": x, "y": y})
    for f, (_, expected) in zip(found, rows, strict=True):
        check(f, np.asarray(expected))


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_frequencies(n: int) -> None:
    """The negative half begins with the Nyquist frequency, as in NumPy."""
    np.testing.assert_array_equal(call(lambda: rlx.Graph("f").fftfreq(n)), np.fft.fftfreq(n))
    found = call(lambda: rlx.Graph("f").rfftfreq(n, 0.25, dtype="f32"))
    np.testing.assert_array_equal(found, np.fft.rfftfreq(n, 0.25).astype(np.float32))


def test_of_a_slice_and_of_a_param() -> None:
    """A source with gaps is copied; what params alone decide runs in the prologue."""
    g = rlx.Graph("views")
    x = g.input("x", [3, 4, 33], "f32")
    w = g.param("w", [64], "c64")
    g.set_outputs([x[:, 1, 1:].rfft(), x[:, :, 0].fft(axis=0), w.fft() * 2.0])
    agrees(g)


def test_an_empty_batch() -> None:
    g = rlx.Graph("empty")
    g.set_outputs(g.input("x", [0, 8], "c64").fft())
    (found,) = rlx.Session("cpu").compile(g).run({"x": np.zeros((0, 8), np.complex64)})
    assert found.shape == (0, 8)


def test_a_symbolic_batch() -> None:
    g = rlx.Graph("batch")
    g.set_outputs(g.input("x", ["batch", 16], "f32").rfft())
    x = signal(5, 16, real=True).astype(np.float32)
    (found,) = rlx.Session("cpu").compile(g).run({"x": x})
    check(found, scipy.fft.rfft(x.astype(np.float64)), np.float32)


@pytest.mark.parametrize("threads", [1, 2])
def test_rows_are_the_same_at_any_number_of_threads(threads: int) -> None:
    x = signal(40, 512).astype(np.complex64)
    g = rlx.Graph("rows")
    g.set_outputs(g.input("x", x.shape, "c64").fft())
    found = rlx.Session("cpu", threads=threads).compile(g).run_slots(x)[0]
    alone = rlx.Graph("row")
    alone.set_outputs(alone.input("x", [512], "c64").fft())
    one = rlx.Session("cpu", threads=1).compile(alone)
    for row, expected in zip(x, found, strict=True):
        assert one.run_slots(row)[0].tobytes() == expected.tobytes()


def test_which_lengths_have_a_kernel() -> None:
    """The dispatch report names the family, and what expands instead."""
    g = rlx.Graph("dispatch")
    g.set_outputs([g.input(f"x{n}", [n], "c64").fft() for n in (64, 1001, 17)])
    report = rlx.Session("cpu").compile(g).reports[0].compilation.dispatch
    assert report.native["fft: fft"] == 2
    assert report.rewritten["fft"] == 1


def test_prime_factors_and_roots() -> None:
    for n in (1, 2, 12, 97, 1001):
        assert np.prod(prime_factors(n), dtype=int) == n
    for n in (1, 2, 3, 5, 8, 12, 1000):
        powers = np.arange(-n, 2 * n)
        np.testing.assert_allclose(roots(powers, n), np.exp(-2j * np.pi * powers / n), atol=2e-15)
    # Exact where they can be: no 6e-17 in place of 0.
    assert list(roots(np.arange(4), 4)) == [1, -1j, -1, 1j]


# -- spectra over time ---------------------------------------------------------------------


def frames_by_hand(x: Array, n_fft: int, hop: int, window: Array) -> Array:
    starts = range(0, x.shape[-1] - n_fft + 1, hop)
    return np.stack([scipy.fft.rfft(x[..., s : s + n_fft] * window) for s in starts], axis=-1)


@pytest.mark.parametrize(("n_fft", "hop"), [(16, 4), (16, 5), (10, 16), (9, 1)])
def test_stft_is_the_transform_of_each_frame(n_fft: int, hop: int) -> None:
    x, w = signal(2, 70, real=True), scipy.signal.get_window("hann", n_fft)
    found = call(lambda v: v.stft(n_fft, hop, window="hann", center=False), x)
    check(found, frames_by_hand(x, n_fft, hop, w))
    side = n_fft // 2
    for mode in ("reflect", "constant"):
        wide = np.pad(x, ((0, 0), (side, side)), mode=mode)
        found = call(lambda v, m=mode: v.stft(n_fft, hop, window=w, pad_mode=m), x)
        check(found, frames_by_hand(wide, n_fft, hop, w))


def test_istft_undoes_stft() -> None:
    x = signal(2, 100, real=True)
    for how in ({}, {"normalized": True}, {"center": False}):
        window = "hamming" if "center" in how else "hann"
        back = call(
            lambda v, h=how, w=window: v.stft(16, 4, window=w, **h).istft(16, 4, window=w, **h), x
        )
        check(back, x[:, : back.shape[-1]])
        assert back.shape[-1] > 95
    longer = call(lambda v: v.stft(16, window="hann").istft(16, window="hann", length=104), x)
    check(longer[:, :100], x)
    z = signal(64)
    two_sided = call(
        lambda v: v.stft(8, window="hann").istft(8, window="hann", onesided=False, length=64), z
    )
    check(two_sided, z)


def test_stft_and_istft_are_torchs() -> None:
    torch = pytest.importorskip("torch")
    x, w = signal(2, 200, real=True), np.hamming(24)
    window = torch.tensor(w)
    for how in ({}, {"center": False}, {"normalized": True}, {"pad_mode": "constant"}):
        theirs = torch.stft(torch.tensor(x), 32, 10, 24, window, return_complex=True, **how)
        check(call(lambda v, h=how: v.stft(32, 10, 24, window=w, **h), x), theirs.numpy())
    theirs = torch.stft(torch.tensor(x), 32, 10, 24, window, return_complex=True)
    for length in (None, 150):
        back = torch.istft(theirs, 32, 10, 24, window, length=length).numpy()
        ours = call(lambda v, n=length: v.istft(32, 10, 24, window=w, length=n), theirs.numpy())
        check(ours, back)


@pytest.mark.parametrize("scaling", ["density", "spectrum"])
def test_welch_and_psd_are_scipys(scaling: str) -> None:
    x = signal(3, 500, real=True) + 2.0
    how = {"fs": 8.0, "scaling": scaling}
    _, expected = scipy.signal.periodogram(x, **how)
    check(call(lambda v: v.psd(**how), x), expected)
    for more in ({}, {"nperseg": 64, "noverlap": 10}, {"nperseg": 65, "detrend": None}):
        theirs = {**more, "detrend": False} if "detrend" in more else more
        _, expected = scipy.signal.welch(x, **how, **theirs)
        check(call(lambda v, m=more: v.welch(**how, **m), x), expected)
    z = signal(300)
    _, expected = scipy.signal.welch(z, nperseg=100, window="hamming", return_onesided=False)
    check(call(lambda v: v.welch(nperseg=100, window="hamming"), z), expected)
    check(call(lambda v: v.T.psd(axis=0), x), scipy.signal.periodogram(x.T, axis=0)[1])


def test_fft_conv1d_is_a_convolution() -> None:
    a, b = signal(2, 50, real=True), signal(7, real=True)
    expected = np.stack([np.convolve(row, b) for row in a])
    check(call(lambda v, w: v.fft_conv1d(w), a, b), expected)
    circular = expected[:, :50].copy()
    circular[:, :6] += expected[:, 50:]
    check(call(lambda v, w: v.fft_conv1d(w, n_fft=50), a, b), circular)


def test_spectra_compiled() -> None:
    g = rlx.Graph("spectra")
    x = g.input("x", [2, 120], "f32")
    s = x.stft(16, window="hann")
    g.set_outputs([s, s.istft(16, window="hann"), x.welch(nperseg=32), x.fft_conv1d(x[:, :9])])
    agrees(g)


# -- refusals ------------------------------------------------------------------------------

REFUSED: list[tuple[type[Exception], str, Any]] = [
    (DTypeError, "takes f32, f64, c64, c128; found f16. Cast", lambda x: x.cast(to="f16").fft()),
    (DTypeError, "takes f32, f64; found f16. Cast", lambda x: x.cast(to="f16").rfft()),
    (DTypeError, "takes f32, f64; found c64. Take its real", lambda x: x.fft().rfft()),
    (DTypeError, "found i32. Cast", lambda x: x.cast(to="i32").fft()),
    (ShapeError, "axis 2 is out of range", lambda x: x.fft(axis=2)),
    (ShapeError, "found n = 0", lambda x: x.fft(n=0)),
    (ShapeError, "at least 1", lambda x: x[:, :1].irfft()),
    (GraphError, "norm 'full' is none of", lambda x: x.fft(norm="full")),
    (GraphError, "norm 'full' is none of", lambda x: x.hfft(norm="full")),
    (ShapeError, "as many lengths", lambda x: x.fftn(s=(3,), axes=(0, 1))),
    (ShapeError, "needs one axis", lambda x: x.fftn(axes=())),
    (ShapeError, "one sample or more", lambda x: x.graph.fftfreq(0)),
    (ShapeError, "the signal with its ends 20", lambda x: x.stft(40, center=False)),
    (ShapeError, "at least 1, found 8 and 0", lambda x: x.stft(8, 0)),
    (ShapeError, "win_length is 1 to", lambda x: x.stft(8, win_length=9)),
    (ShapeError, "the window has 8 samples", lambda x: x.stft(8, window=np.ones(7))),
    (GraphError, "window 'kaiser' is none of", lambda x: x.stft(8, window="kaiser")),
    (GraphError, "pad_mode is", lambda x: x.stft(8, pad_mode="wrap")),
    (ShapeError, "cannot be mirrored 20", lambda x: x.stft(40)),
    (GraphError, "onesided=False", lambda x: x.fft().stft(8, onesided=True)),
    (ShapeError, "has 5 frequencies", lambda x: x.fft().istft(8)),
    (
        GraphError,
        "add up to 0 somewhere",
        lambda x: x.stft(8, 8, center=False).istft(8, 8, window="hann", center=False),
    ),
    (GraphError, "detrend is", lambda x: x.welch(detrend="linear")),
    (ShapeError, "cannot share 20", lambda x: x.welch(nperseg=10, noverlap=20)),
    (ShapeError, "cut the signals", lambda x: x.fft_conv1d(x, n_fft=5)),
    (ShapeError, "the symbol n", lambda x: rlx.Graph("s").input("y", ["n"], "f32").fft(n=4)),
]  # fmt: skip


@pytest.mark.parametrize(("error", "match", "make"), REFUSED, ids=[m for _, m, _ in REFUSED])
def test_refusals_teach(error: type[Exception], match: str, make: Any) -> None:
    x = rlx.Graph("g").input("x", [2, 20], "f32")
    with pytest.raises(error, match=match.replace(".", r"\.")):
        make(x)
