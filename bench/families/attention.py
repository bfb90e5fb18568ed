"""Attention on contiguous heads: scaled dot products, softmax, and sums of values."""

from __future__ import annotations

from bench.case import Case, Tensor, padded

SIZES = (
    # batch, heads, key heads, queries, keys, dim, causal
    (1, 12, 12, 16, 16, 32, False),
    (1, 12, 12, 128, 128, 32, False),
    (8, 12, 12, 128, 128, 32, False),
    (1, 12, 12, 16, 16, 64, False),
    (1, 12, 12, 128, 128, 64, False),
    (1, 12, 12, 131, 131, 64, False),
    (1, 12, 12, 136, 136, 64, False),
    (1, 12, 12, 131, 131, 64, True),
    (1, 12, 12, 136, 136, 64, True),
    (1, 12, 12, 512, 512, 64, False),
    (1, 12, 12, 512, 512, 64, True),
    (1, 12, 12, 1024, 1024, 64, True),
    (1, 12, 12, 4096, 4096, 64, False),
    (1, 12, 12, 4096, 4096, 64, True),
    (1, 32, 8, 131, 131, 64, True),
    (1, 32, 8, 136, 136, 64, True),
    (1, 32, 8, 512, 512, 64, True),
    (1, 12, 12, 1, 512, 64, False),
    (1, 32, 8, 1, 512, 64, False),
    (1, 32, 8, 1, 4096, 64, False),
)
QUICK = ((1, 12, 12, 128, 128, 32), (1, 12, 12, 131, 131, 64), (1, 32, 8, 512, 512, 64),
         (1, 32, 8, 1, 4096, 64))  # fmt: skip


def case(b: int, h: int, hk: int, sq: int, sk: int, d: int, causal: bool) -> Case:
    """One attention; a causal one counts half of the scores."""
    kind = " causal" if causal else ""
    groups = f"{h}/{hk}" if h != hk else f"{h}"
    inputs = {
        "q": Tensor((b, h, sq, d)), "k": Tensor((b, hk, sk, d)), "v": Tensor((b, hk, sk, d)),
    }  # fmt: skip
    name = f"{b}x{groups} heads of {d}, {{}}x{{}}{kind}".format
    return Case(
        name(sq, sk),
        lambda f, q, k, v: f.attention(q, k, v, causal),
        inputs,
        flops=4 * b * h * sq * sk * d / (2 if causal else 1),
        quick=(b, h, hk, sq, sk, d) in QUICK,
        **padded(name, sq, sk),
    )


def cases() -> list[Case]:
    """From 16 to 4096 tokens, grouped queries, and single queries."""
    return [case(*sizes) for sizes in SIZES]
