"""ModernBERT (B. Warner et al., 2024) as a graph: token ids and mask in, states out."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.base.frozen import frozen
from rlx.errors import ModelError
from rlx.ir.graph import Graph
from rlx.ir.value import Value
from rlx.models.files import expect, read_json
from rlx.models.layers import ACTIVATIONS, dense, pooled
from rlx.models.pooling import pooling_of_folder
from rlx.ops.nn.attention_mask import HIDDEN
from rlx.ops.nn.normalization import LayerNorm
from rlx.ops.nn.transformer import AttentionBlock

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["FAMILY", "ModernBertConfig", "modernbert_score", "modernbert_states"]

FAMILY = "modernbert"
GLOBAL, LOCAL = "full_attention", "sliding_attention"
_DEFAULTS = {
    "hidden_activation": "gelu", "classifier_activation": "gelu", "classifier_pooling": "cls",
}  # fmt: skip


@frozen
class ModernBertConfig:
    """What decides the graph. ``windows`` has for each layer how many tokens on either side a token
    sees, None for all; ``thetas`` are the bases of its rotary embedding."""

    vocab: int
    hidden: int
    heads: int
    inner: int
    positions: int
    windows: tuple[int | None, ...]
    thetas: tuple[float, ...]
    activation: str = "gelu"
    eps: float = 1e-5
    norm_bias: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    pooling: str = "mean"
    head_pooling: str = "cls"
    head_activation: str = "gelu"
    head_bias: bool = False

    @property
    def longest(self) -> int:
        """The most tokens of a text."""
        return self.positions

    @staticmethod
    def from_dir(path: str | Path) -> ModernBertConfig:
        """Read a model directory. ModelError if a file is missing or asks for what is not done."""
        path = os.fspath(path)
        file = os.path.join(path, "config.json")
        raw = read_json(file, dict)
        expect(path, raw, "model_type", (FAMILY,))
        raw = {**_DEFAULTS, **raw}
        expect(path, raw, "hidden_activation", tuple(ACTIVATIONS))
        expect(path, raw, "classifier_activation", tuple(ACTIVATIONS))
        expect(path, raw, "classifier_pooling", ("cls", "mean"))
        try:
            kinds = _kinds(raw)
            thetas = {kind: _theta(file, raw, kind) for kind in (GLOBAL, LOCAL)}
            near = _least(raw, "local_attention", 0, 128) // 2
            config = ModernBertConfig(
                vocab=int(raw["vocab_size"]),
                hidden=int(raw["hidden_size"]),
                heads=int(raw["num_attention_heads"]),
                inner=int(raw["intermediate_size"]),
                positions=int(raw["max_position_embeddings"]),
                windows=tuple(None if kind == GLOBAL else near for kind in kinds),
                thetas=tuple(thetas[kind] for kind in kinds),
                activation=ACTIVATIONS[raw["hidden_activation"]],
                eps=_epsilon(raw),
                norm_bias=bool(raw.get("norm_bias", False)),
                attention_bias=bool(raw.get("attention_bias", False)),
                mlp_bias=bool(raw.get("mlp_bias", False)),
                pooling=pooling_of_folder(path, ("mean", "cls")) or "mean",
                head_pooling=raw["classifier_pooling"],
                head_activation=ACTIVATIONS[raw["classifier_activation"]],
                head_bias=bool(raw.get("classifier_bias", False)),
            )
        except KeyError as e:
            raise ModelError(f"{file} has no {e.args[0]!r}") from None
        except (OverflowError, TypeError, ValueError) as e:
            raise ModelError(f"{file} is malformed: {e}") from None
        sizes = (config.vocab, config.hidden, config.heads, config.inner, config.positions)
        if min(sizes) < 1 or config.hidden % (2 * config.heads):
            raise ModelError(
                f"{file}: sizes are 1 or more, and hidden_size is a multiple of twice"
                f" num_attention_heads; found {config.hidden} and {config.heads}"
            )
        return config


def _least(raw: dict[str, Any], name: str, least: int, default: int) -> int:
    """A whole number that is not too small."""
    found = int(raw.get(name, default))
    if found < least:
        raise ValueError(f"{name} is {found}, expected {least} or more")
    return found


def _epsilon(raw: dict[str, Any]) -> float:
    found = float(raw.get("norm_eps", 1e-5))
    if not 0 <= found < np.inf:
        raise ValueError(f"norm_eps is {found}, expected a number from 0 on")
    return found


def _kinds(raw: dict[str, Any]) -> list[str]:
    """The kind of attention of each layer."""
    listed = raw.get("layer_types")
    if listed is None:
        every = _least(raw, "global_attn_every_n_layers", 1, 3)
        layers = _least(raw, "num_hidden_layers", 0, raw["num_hidden_layers"])
        return [LOCAL if n % every else GLOBAL for n in range(layers)]
    if not isinstance(listed, list) or not {*map(str, listed)} <= {GLOBAL, LOCAL}:
        raise ValueError(f"layer_types is {listed!r}")
    if len(listed) != raw["num_hidden_layers"]:
        raise ValueError(f"{len(listed)} layer_types, {raw['num_hidden_layers']} layers")
    return listed


def _theta(file: str, raw: dict[str, Any], kind: str) -> float:
    """The base of the rotary embedding of a kind of layers."""
    every = raw.get("rope_parameters") or {}
    named = (every.get(kind) or {}) if isinstance(every, dict) else every
    if not isinstance(named, dict):
        raise ValueError(f"rope_parameters is {every!r}, expected an object for each kind of layer")
    if kind == LOCAL and not named and raw.get("local_rope_theta", 0) is None:
        kind = GLOBAL  # older files say so that all layers have one
    scaled = named.get("rope_type", "default")
    if scaled != "default" or raw.get("rope_scaling"):
        raise ModelError(f"{file}: a rotary embedding that is scaled ({scaled}) is not supported")
    old, default = {
        GLOBAL: ("global_rope_theta", 160_000.0), LOCAL: ("local_rope_theta", 10_000.0)
    }[kind]  # fmt: skip
    return float(named.get("rope_theta") or raw.get(old) or default)


def modernbert_states(
    g: Graph, config: ModernBertConfig, prefix: str, ids: Value, mask: Value
) -> Value:
    """The states of tokens: f32 ``[batch, tokens, hidden]``."""
    width, tokens = config.hidden, ids.shape[1]
    words = g.param(f"{prefix}embeddings.tok_embeddings.weight", [config.vocab, width])
    x = _norm(g, config, f"{prefix}embeddings.norm", words.gather(ids))
    tables = {theta: _tables(g, config, theta, tokens) for theta in dict.fromkeys(config.thetas)}
    hidden = {w: _hidden(g, mask, w) for w in dict.fromkeys(config.windows) if w is not None}
    for n, (window, theta) in enumerate(zip(config.windows, config.thetas, strict=True)):
        at = f"{prefix}layers.{n}."
        y = _norm(g, config, f"{at}attn_norm", x) if n else x
        cos, sin = tables[theta]
        y = AttentionBlock.build(
            y,
            g.param(f"{at}attn.Wqkv.weight", [3 * width, width]),
            g.param(f"{at}attn.Wo.weight", [width, width]),
            mask if window is None else hidden[window],
            g.param(f"{at}attn.Wqkv.bias", [3 * width]) if config.attention_bias else None,
            g.param(f"{at}attn.Wo.bias", [width]) if config.attention_bias else None,
            cos, sin, num_heads=config.heads, transposed=True,
            mask_kind="custom" if window is None else "bias",
        )  # fmt: skip
        x = x + y
        x = x + _gated(g, config, at, _norm(g, config, f"{at}mlp_norm", x))
    return _norm(g, config, f"{prefix}final_norm", x)


def modernbert_score(
    g: Graph, config: ModernBertConfig, prefix: str, x: Value, mask: Value
) -> Value:
    """The score of a classifier with one label: f32 ``[batch, 1]``."""
    found = pooled(x, mask, config.head_pooling, normalize=False)
    found = dense(g, "head.dense.", found, config.hidden, bias=config.head_bias)
    found = _norm(g, config, "head.norm", getattr(found, config.head_activation)())
    return dense(g, "classifier.", found, 1)


def _norm(g: Graph, config: ModernBertConfig, at: str, x: Value) -> Value:
    gamma = g.param(f"{at}.weight", [config.hidden])
    beta = g.param(f"{at}.bias", [config.hidden]) if config.norm_bias else None
    return LayerNorm.build(x, gamma, beta, eps=config.eps)


def _gated(g: Graph, config: ModernBertConfig, at: str, x: Value) -> Value:
    """The feed-forward network, half of whose first product gates the other."""
    both = dense(g, f"{at}mlp.Wi.", x, 2 * config.inner, bias=config.mlp_bias)
    value, gate = both.split([config.inner, config.inner], -1)
    y = getattr(value, config.activation)() * gate
    return dense(g, f"{at}mlp.Wo.", y, config.hidden, bias=config.mlp_bias)


def _tables(g: Graph, config: ModernBertConfig, theta: float, tokens: Any) -> tuple[Value, Value]:
    """Cosines and sines of the angles of positions: f32 ``[tokens, half a head]``."""
    size = config.hidden // config.heads
    turns = 1 / theta ** (np.arange(0, size, 2, dtype=np.float32) / size)
    angles = g.iota([tokens, 1], 0, "i32").cast(to="f32") * g.constant(turns.astype(np.float32))
    return angles.cos(), angles.sin()


def _hidden(g: Graph, mask: Value, window: int) -> Value:
    """What is added to scores, for tokens that see so many on either side: f32 ``[batch, 1, tokens,
    tokens]``."""
    batch, tokens = mask.shape
    apart = (g.iota([tokens, 1], 0, "i32") - g.iota([1, tokens], 1, "i32")).abs()
    seen = mask.ge(1).reshape((batch, 1, 1, tokens)).logical_and(
        apart.le(window).reshape((1, 1, tokens, tokens))
    )  # fmt: skip
    return seen.where(0.0, HIDDEN).cast(to="f32")
