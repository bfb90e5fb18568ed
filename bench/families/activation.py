"""Chains of pointwise operations with an activation in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.case import Case, Tensor, padded

SHAPES = ((1, 3072), (128, 3072), (77, 1001), (80, 1008), (512, 8192))

CHAINS: dict[str, Callable[..., Any]] = {
    "gelu": lambda f, x: f.gelu(x),
    "gelu_tanh": lambda f, x: f.gelu_tanh(x),
    "silu": lambda f, x: f.silu(x),
    "silu*y": lambda f, x, y: f.silu(x) * y,
    "gelu(x+b)*s+y": lambda f, x, y, b: f.gelu(x + b) * 0.5 + y,
}


def case(name: str, m: int, n: int) -> Case:
    """A chain on ``[m, n]``."""
    inputs = {"x": Tensor((m, n))} | (
        {"y": Tensor((m, n))} if "y" in name.split("*", 1)[-1] else {}
    )
    params = {"b": Tensor((n,))} if "b)" in name else {}
    named = (name + " {}x{}").format
    return Case(
        named(m, n), CHAINS[name], inputs, params, quick=(m, n) in SHAPES[1:3],
        **padded(named, m, n),
    )  # fmt: skip


def cases() -> list[Case]:
    """All chains at all shapes."""
    return [case(name, m, n) for name in CHAINS for m, n in SHAPES]
