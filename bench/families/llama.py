"""A decoder block of the shape of a 1B llama: prefill of a prompt, and decode with a cache."""

from __future__ import annotations

from typing import Any

from bench.case import Case, Tensor

HIDDEN, HEADS, KEY_HEADS, DIM, INNER = 2048, 32, 8, 64, 8192

PARAMS = {
    "q": Tensor((HIDDEN, HEADS * DIM), "weight"),
    "k": Tensor((HIDDEN, KEY_HEADS * DIM), "weight"),
    "v": Tensor((HIDDEN, KEY_HEADS * DIM), "weight"),
    "o": Tensor((HEADS * DIM, HIDDEN), "weight"),
    "gate": Tensor((HIDDEN, INNER), "weight"),
    "up": Tensor((HIDDEN, INNER), "weight"),
    "down": Tensor((INNER, HIDDEN), "weight"),
    "norm1": Tensor((HIDDEN,), "gain"),
    "norm2": Tensor((HIDDEN,), "gain"),
}


def block(f: Any, x: Any, cos: Any, sin: Any, p: dict[str, Any], past: tuple[Any, ...]) -> Any:
    """RMS norm, grouped attention with rotary positions, and a gated feed-forward block."""
    y = f.rms_norm(x, p["norm1"])
    q = f.rope(f.linear(y, p["q"]), cos, sin, HEADS)
    k = f.rope(f.linear(y, p["k"]), cos, sin, KEY_HEADS)
    v = f.linear(y, p["v"])
    if past:
        k, v = f.concat([past[0], k], 1), f.concat([past[1], v], 1)
    x = x + f.linear(f.row_attention(q, k, v, HEADS, KEY_HEADS, not past), p["o"])
    y = f.rms_norm(x, p["norm2"])
    return x + f.linear(f.silu(f.linear(y, p["gate"])) * f.linear(y, p["up"]), p["down"])


def case(tokens: int, past: int) -> Case:
    """New tokens after some that are in the cache."""
    inputs = {"x": Tensor((1, tokens, HIDDEN))}
    inputs |= {name: Tensor((tokens, DIM // 2)) for name in ("cos", "sin")}
    if past:
        inputs |= {n: Tensor((1, past, KEY_HEADS * DIM)) for n in ("past_k", "past_v")}

    def build(f: Any, x: Any, cos: Any, sin: Any, **p: Any) -> Any:
        kept = tuple(p.pop(n) for n in ("past_k", "past_v") if n in p)
        return block(f, x, cos, sin, p, kept)

    weights = 2 * HIDDEN * (HEADS + KEY_HEADS) * DIM + 3 * HIDDEN * INNER
    scores = tokens * (past or tokens / 2)
    return Case(
        f"decode after {past}" if past else f"prefill {tokens}", build, inputs, PARAMS,
        flops=2 * tokens * weights + 4 * scores * HEADS * DIM, quick=(tokens, past) == (1, 512),
    )  # fmt: skip


def cases() -> list[Case]:
    """Prompts of 32 to 512 tokens, and one token after 512 and 2048."""
    return [case(n, 0) for n in (32, 128, 512)] + [case(1, n) for n in (512, 2048)]
