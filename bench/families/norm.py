"""Layer and RMS normalisation, alone and with the residual sum before it, or as a result too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.case import Case, Tensor, padded

SHAPES = ((1, 768), (128, 384), (128, 768), (77, 1001), (80, 1008), (512, 2048),
          (4096, 768))  # fmt: skip


def residual(f: Any, x: Any, r: Any, g: Any) -> Any:
    """What a pre-norm layer passes on: the norm, and the sum that its result is added to."""
    h = x + r
    return f.rms_norm(h, g), h


KINDS: dict[str, Callable[..., Any]] = {
    "layer_norm": lambda f, x, g, b: f.layer_norm(x, g, b),
    "add+layer_norm": lambda f, x, r, g, b: f.layer_norm(x + r, g, b),
    "rms_norm": lambda f, x, g: f.rms_norm(x, g),
    "add+rms_norm": lambda f, x, r, g: f.rms_norm(x + r, g),
    "residual+rms_norm": residual,
}


def case(kind: str, m: int, n: int) -> Case:
    """A normalisation of m rows."""
    inputs = {"x": Tensor((m, n))} | ({"r": Tensor((m, n))} if "+" in kind else {})
    params = {"g": Tensor((n,), "gain")}
    if "layer" in kind:
        params["b"] = Tensor((n,))
    name = (kind + " {}x{}").format
    return Case(
        name(m, n), KINDS[kind], inputs, params, quick=(m, n) in SHAPES[2:4], **padded(name, m, n)
    )


def cases() -> list[Case]:
    """All kinds at all shapes."""
    return [case(kind, m, n) for kind in KINDS for m, n in SHAPES]
