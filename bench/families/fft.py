"""Fourier transforms; NumPy's column is scipy.fft on as many threads."""

from __future__ import annotations

from functools import partial
from typing import Any

from bench.case import Array, Case, Run, Tensor

LENGTHS = (64, 256, 1024, 4096, 16384, 65536, 1000, 1001, 1021, 12288)
BATCHES = (1, 8, 64)
KINDS = (("fft", "complex64"), ("fft", "complex128"), ("rfft", "float32"), ("rfft", "float64"))


class Transform(Case):
    """A case whose complex input has an imaginary part."""

    def feeds(self) -> dict[str, Array]:
        """The input."""
        t = self.inputs["x"]
        x = t.draw("x")
        return {"x": x + 1j * t.draw("imaginary").real if x.dtype.kind == "c" else x}


def scipy_call(kind: str, case: Case, threads: int) -> Run:
    """The transform of scipy.fft."""
    import scipy.fft

    x, f = case.feeds()["x"], getattr(scipy.fft, kind)
    return lambda: f(x, workers=threads)


def scipy_wide(kind: str, case: Case) -> Array:
    """The reference: that of scipy.fft in f64."""
    import scipy.fft

    x = case.feeds()["x"]
    return getattr(scipy.fft, kind)(x.astype("complex128" if x.dtype.kind == "c" else "float64"))


def build(kind: str, f: Any, x: Any) -> Any:
    """By the library's own function, or RLX's method."""
    return getattr(f.xp.fft, kind)(x) if hasattr(f, "xp") else getattr(x, kind)()


def cases() -> list[Case]:
    """Powers of two, and lengths with other factors."""
    return [
        Transform(
            f"{kind} {dtype} {batch}x{n}", partial(build, kind),
            {"x": Tensor((batch, n), dtype=dtype)},
            own={"numpy": partial(scipy_call, kind), "reference": partial(scipy_wide, kind)},
            tolerance=1e-5 if dtype in ("complex64", "float32") else 1e-12,
            runtimes=("rlx", "numpy", "torch", "jax"),
            quick=(kind, dtype, batch) == ("fft", "complex64", 8) and n in (1024, 16384),
        )
        for kind, dtype in KINDS
        for batch in BATCHES
        for n in LENGTHS
    ]  # fmt: skip
