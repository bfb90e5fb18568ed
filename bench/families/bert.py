"""BERT-base with random weights: one layer on hidden states, and the whole encoder on token ids."""

from __future__ import annotations

from typing import Any

from bench.case import Case, Tensor

HIDDEN, HEADS, INNER, VOCAB, POSITIONS, EPS = 768, 12, 3072, 30522, 512, 1e-12
TOKENS = (32, 128, 384)


def layer_params(hidden: int, inner: int, at: str = "") -> dict[str, Tensor]:
    """The params of a layer, with a prefix to their names."""
    shapes: dict[str, Tensor] = {}
    for name, k, n in (
        ("q", hidden, hidden), ("k", hidden, hidden), ("v", hidden, hidden), ("o", hidden, hidden),
        ("up", hidden, inner), ("down", inner, hidden),
    ):  # fmt: skip
        shapes |= {f"{at}{name}_w": Tensor((k, n), "weight"), f"{at}{name}_b": Tensor((n,))}
    for name in ("norm1", "norm2"):
        shapes |= {f"{at}{name}_g": Tensor((hidden,), "gain"), f"{at}{name}_b": Tensor((hidden,))}
    return shapes


def layer(f: Any, x: Any, p: dict[str, Any], heads: int, at: str = "") -> Any:
    """Attention and a feed-forward block, each added to its input and then normalised."""

    def linear(x: Any, name: str) -> Any:
        return f.linear(x, p[f"{at}{name}_w"], p[f"{at}{name}_b"])

    def norm(x: Any, name: str) -> Any:
        return f.layer_norm(x, p[f"{at}{name}_g"], p[f"{at}{name}_b"], EPS)

    q, k, v = (linear(x, name) for name in "qkv")
    x = norm(x + linear(f.row_attention(q, k, v, heads, heads), "o"), "norm1")
    return norm(x + linear(f.gelu(linear(x, "up")), "down"), "norm2")


def one_layer(tokens: int) -> Case:
    """A layer on the hidden states of one text."""
    return Case(
        f"layer 1x{tokens}", lambda f, x, **p: layer(f, x, p, HEADS),
        {"x": Tensor((1, tokens, HIDDEN))}, layer_params(HIDDEN, INNER),
        flops=layer_flops(tokens), quick=tokens == 128,
    )  # fmt: skip


def layer_flops(tokens: int) -> int:
    """Of the products of a layer."""
    return 2 * tokens * (4 * HIDDEN**2 + 2 * HIDDEN * INNER) + 4 * tokens**2 * HIDDEN


def encoder(tokens: int, layers: int = 12) -> Case:
    """The whole model without its pooler; every token is seen."""
    params = {
        "words": Tensor((VOCAB, HIDDEN)),
        "places": Tensor((POSITIONS, HIDDEN)),
        "norm_g": Tensor((HIDDEN,), "gain"),
        "norm_b": Tensor((HIDDEN,)),
    }
    for i in range(layers):
        params |= layer_params(HIDDEN, INNER, f"l{i}_")

    def build(f: Any, ids: Any, **p: Any) -> Any:
        x = f.gather(p["words"], ids) + p["places"][:tokens]
        x = f.layer_norm(x, p["norm_g"], p["norm_b"], EPS)
        for i in range(layers):
            x = layer(f, x, p, HEADS, f"l{i}_")
        return x

    return Case(
        f"whole 1x{tokens}", build, {"ids": Tensor((1, tokens), "ids", VOCAB)}, params,
        tolerance=1e-4, flops=layers * layer_flops(tokens), quick=tokens == 32,
    )  # fmt: skip


def cases() -> list[Case]:
    """Both at 32, 128 and 384 tokens."""
    return [make(tokens) for make in (one_layer, encoder) for tokens in TOKENS]
