"""Functions built of Fourier transforms: spectra over time, powers, convolution.

``stft`` and ``istft`` are PyTorch's; ``psd`` and ``welch`` are ``scipy.signal``'s periodogram and
welch, of which they give the powers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.base.dims import is_known, surely_less
from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.ir.attrs import to_array
from rlx.ir.builders import located
from rlx.ir.lift import promoted
from rlx.ir.op import Array
from rlx.ir.value import Value
from rlx.ops.fft.fft import Fft, Ifft, Irfft, Rfft, along, length_of
from rlx.ops.fft.plan import prime_factors
from rlx.ops.movement.constant import Constant, check_count
from rlx.ops.movement.frames import framed, overlapped, reflected
from rlx.types import dtype as dtype_of

__all__ = ["fft_conv1d", "istft", "psd", "stft", "welch"]


# -- spectra over time ---------------------------------------------------------------------


@located
def stft(
    x: Value,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Array | Sequence[float] | str | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
) -> Value:
    """``torch.stft``: transforms of windowed frames of the last axis, [..., frequency, frame].

    A frame begins every ``hop_length`` samples (a quarter of ``n_fft``). With ``center`` frame t is
    around sample t * hop_length: half a frame is put at both ends, mirrored ("reflect") or of zeros
    ("constant"). ``window`` is an array of ``win_length``, or "hann", "hamming" or "boxcar".
    """
    hop = _hop(n_fft, hop_length)
    w = _padded_window(window, n_fft, win_length)
    if x.rank == 0:
        raise ShapeError("stft: the samples lie along the last axis, found a scalar")
    if center:
        x = _centered(x, n_fft // 2, pad_mode)
    n = x.shape[-1]
    if surely_less(n, n_fft):
        raise ShapeError(f"stft: a frame has n_fft = {n_fft} samples, the signal with its ends {n}")
    frames = framed(x, n_fft, hop, (n - n_fft) // hop + 1) * _like(w, x)
    real = not x.dtype.is_complex
    norm = "ortho" if normalized else "backward"
    half = real if onesided is None else onesided
    if half and not real:
        raise GraphError("stft: complex samples have no one-sided spectrum; give onesided=False")
    return (Rfft if half else Fft).build(frames, None, -1, norm).swapaxes(-1, -2)


def istft(
    x: Value,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Array | Sequence[float] | str | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool = True,
    length: int | None = None,
) -> Value:
    """``torch.istft``: the signal from [..., frequency, frame], the inverse of ``stft``.

    Frames are windowed again, added where they overlap, and divided by the sum of squared windows,
    which must not be 0 anywhere. ``length`` is that of the result.
    """
    hop = _hop(n_fft, hop_length)
    w = _padded_window(window, n_fft, win_length)
    norm = "ortho" if normalized else "backward"
    turned = x.swapaxes(-1, -2)
    count = n_fft // 2 + 1 if onesided else n_fft
    if length_of(turned) != count:
        raise ShapeError(f"istft: n_fft = {n_fft} has {count} frequencies, found {x.type}")
    if onesided:
        frames = Irfft.build(turned, n_fft, -1, norm)
    else:
        frames = Ifft.build(turned, None, -1, norm)
    many = length_of(frames, -2)
    start = n_fft // 2 if center else 0
    whole = n_fft + hop * (many - 1)
    end = whole - start if length is None else start + length
    envelope = np.zeros(whole)
    for t in range(many):
        envelope[t * hop : t * hop + n_fft] += w**2
    kept = envelope[start : min(end, whole)]
    if not kept.size or kept.min() < 1e-11:
        raise GraphError(
            "istft: the squared windows add up to 0 somewhere, where the signal is lost; frames"
            f" must overlap more (n_fft {n_fft}, hop_length {hop}), or give a shorter length"
        )
    added = overlapped(frames * _like(w, frames), hop).narrow(-1, start, len(kept))
    out = added * _like(1.0 / kept, added)
    rest = 0 if length is None else length - len(kept)
    return out.pad([0] * out.rank, [*[0] * (out.rank - 1), rest]) if rest else out


def _hop(n_fft: int, hop_length: int | None) -> int:
    hop = n_fft // 4 if hop_length is None else hop_length
    if not is_known(n_fft) or not is_known(hop) or n_fft < 1 or hop < 1:
        raise ShapeError(f"n_fft and hop_length are at least 1, found {n_fft} and {hop}")
    return hop


def _centered(x: Value, side: int, mode: str) -> Value:
    if mode == "constant":
        ends = [*[0] * (x.rank - 1), side]
        return x.pad(ends, ends)
    if mode != "reflect":
        raise GraphError(f'stft: pad_mode is "reflect" or "constant", found {mode!r}')
    if surely_less(x.shape[-1], side + 1):
        raise ShapeError(f"stft: {x.shape[-1]} samples cannot be mirrored {side} at an end")
    return reflected(x, side)


def _padded_window(
    window: Array | Sequence[float] | str | None, n_fft: int, win_length: int | None
) -> Array:
    """The window with zeros at both sides to make n_fft."""
    size = n_fft if win_length is None else win_length
    if not 1 <= size <= n_fft:
        raise ShapeError(f"win_length is 1 to n_fft = {n_fft}, found {size}")
    check_count("a window", n_fft)
    w = _window("boxcar" if window is None else window, size)
    left = (n_fft - size) // 2
    return np.pad(w, (left, n_fft - size - left))


_COSINES = {"boxcar": (1.0, 0.0), "hann": (0.5, 0.5), "hamming": (0.54, 0.46)}


def _window(window: Array | Sequence[float] | str, size: int) -> Array:
    """A window in f64; those by name are periodic, as ``scipy.signal.get_window``'s."""
    if isinstance(window, str):
        if window not in _COSINES:
            raise GraphError(f"window {window!r} is none of {', '.join(_COSINES)}; give an array")
        level, depth = _COSINES[window]
        return level - depth * np.cos(2 * np.pi * np.arange(size) / size)
    w = to_array(window, "the window")
    if w.shape != (size,):
        raise ShapeError(f"the window has {size} samples, found an array of shape {list(w.shape)}")
    if dtype_of(w.dtype).is_complex:
        raise DTypeError(f"the window is of real numbers, found {w.dtype}")
    return w.astype(np.float64)


def _like(a: Array, x: Value) -> Value:
    return Constant(a.astype(x.dtype.numpy)).out


# -- power -------------------------------------------------------------------------------------


def psd(
    x: Value,
    fs: float = 1.0,
    window: Array | Sequence[float] | str | None = "boxcar",
    detrend: str | None = "constant",
    scaling: str = "density",
    axis: int = -1,
) -> Value:
    """The powers of ``scipy.signal.periodogram``: one-sided for real signals, without their mean.

    They are at the frequencies ``rfftfreq(n, 1 / fs)``, or ``fftfreq`` for a complex signal, and
    per unit of frequency ("density") or of each ("spectrum").
    """
    n = length_of(x, axis)
    return welch(x, fs, window, n, 0, detrend, scaling, axis)


def welch(
    x: Value,
    fs: float = 1.0,
    window: Array | Sequence[float] | str | None = "hann",
    nperseg: int = 256,
    noverlap: int | None = None,
    detrend: str | None = "constant",
    scaling: str = "density",
    axis: int = -1,
) -> Value:
    """The powers of ``scipy.signal.welch``: the mean of those of overlapping windowed segments, by
    default of half of each."""
    if detrend not in ("constant", None) or scaling not in ("density", "spectrum"):
        raise GraphError(
            'welch: detrend is "constant" or None and scaling "density" or "spectrum", found'
            f" {detrend!r} and {scaling!r}"
        )

    def along_last(v: Value) -> Value:
        size = min(nperseg, length_of(v))
        shared = size // 2 if noverlap is None else noverlap
        if size < 1 or not 0 <= shared < size:
            raise ShapeError(f"welch: segments of {size} samples cannot share {shared}")
        w = _window("boxcar" if window is None else window, size)
        scale = 1 / (fs * np.sum(w**2)) if scaling == "density" else 1 / np.sum(w) ** 2
        return _mean_power(v, w, shared, float(scale), detrend is not None)

    return along(x, axis, along_last)


def _mean_power(x: Value, w: Array, shared: int, scale: float, detrend: bool) -> Value:
    size = len(w)
    hop = size - shared
    frames = framed(x, size, hop, (length_of(x) - shared) // hop)
    if detrend:
        frames = frames - frames.mean(axes=-1, keepdims=True)
    frames = frames * _like(w, frames)
    if x.dtype.is_complex:
        return Fft.build(frames).complex_norm_sq().mean(axes=-2) * scale
    power = Rfft.build(frames).complex_norm_sq()
    both = np.full(size // 2 + 1, 2 * scale)
    both[0] = scale
    if size % 2 == 0:
        both[-1] = scale
    return power.mean(axes=-2) * _like(both, power)


# -- convolution ---------------------------------------------------------------------------


def fft_conv1d(a: Value, b: Value, n_fft: int | None = None) -> Value:
    """The convolution of real signals along the last axis by transforms: ``numpy.convolve``, whose
    result has one element less than both together. Other axes broadcast.

    Shorter transforms than that, by ``n_fft``, convolve circularly; the result has their length.
    """
    a, b = promoted(a, b)
    whole = length_of(a) + length_of(b) - 1
    n = _fast_length(whole) if n_fft is None else n_fft
    if n < max(length_of(a), length_of(b)):
        raise ShapeError(
            f"fft_conv1d: transforms of n_fft = {n} elements cut the signals {a.type} and {b.type}"
        )
    product = Rfft.build(a, n) * Rfft.build(b, n)
    return Irfft.build(product, n).narrow(-1, 0, min(n, whole))


def _fast_length(n: int) -> int:
    """The least even length from n on that has small factors alone."""
    n += n % 2
    while prime_factors(n)[-1] > 7:
        n += 2
    return max(n, 2)
