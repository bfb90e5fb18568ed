"""Softmax of rows."""

from __future__ import annotations

from bench.case import Case, Tensor, padded

SHAPES = (
    (128, 768), (1536, 128), (77, 1001), (80, 1008), (1024, 1024), (32, 32000), (1, 128256),
)  # fmt: skip


def cases() -> list[Case]:
    """Rows of attention scores, of hidden states, and of a vocabulary."""
    return [
        Case(
            f"{m}x{n}", lambda f, x: f.softmax(x), {"x": Tensor((m, n), scale=3)},
            quick=(m, n) in SHAPES[:3], **padded("{}x{}".format, m, n),
        )
        for m, n in SHAPES
    ]  # fmt: skip
