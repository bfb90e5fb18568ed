"""What each layer of a decoder is, from what a configuration says of layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from rlx.errors import ModelError
from rlx.llm.families import Family

__all__ = ["Kind", "kinds_of", "layer_types_of", "split_by_layer", "turned_of", "windows_of"]

Kind = Literal["full", "window", "state", "network"]
"""Attention over all keys or those in a window, a block with a state, or a network alone."""

_KINDS: dict[str, Kind] = {
    "full_attention": "full", "attention": "full", "chunked_attention": "full",
    "sliding_attention": "window", "linear_attention": "state", "mamba": "state", "conv": "state",
    "mlp": "network", "moe": "network",
}  # fmt: skip
_LETTERS = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}


def layer_types_of(
    config: Mapping[str, Any], layers: int, turns: Sequence[Any]
) -> Sequence[str] | None:
    """What a config.json calls its layers, where it says so in a way of its own: by a pattern of
    letters, by the indices of layers with attention, by how often these come, or by which layers
    have a window; None if not. ``turns`` says which ones are turned, where they say so."""
    pattern = config.get("hybrid_override_pattern")
    if isinstance(pattern, str):
        return [_LETTERS.get(c, c) for c in pattern]
    key = "attn_layer_indices" if "attn_layer_indices" in config else "full_attn_idxs"
    attending = config.get(key)
    if attending is not None and not isinstance(attending, list):
        raise ModelError(f"config.json has {attending!r} for {key}, expected a list of layers")
    period, offset = config.get("attn_layer_period"), config.get("attn_layer_offset")
    if isinstance(period, int) and isinstance(offset, int) and period > 0:
        attending = range(offset, layers, period)
    if attending is None:
        return _windowed(config, layers, turns)
    return ["full_attention" if i in attending else "linear_attention" for i in range(layers)]


def _windowed(config: Mapping[str, Any], layers: int, turns: Sequence[Any]) -> Sequence[str] | None:
    """The layers of families that say from which one on, or up to which one, some have a window, or
    that have it in three of four."""
    kind, at = config.get("model_type"), config.get("max_window_layers")
    if kind in ("qwen2", "qwen3", "dots1") and isinstance(at, int):
        windows = [i >= at for i in range(layers)]
    elif kind == "qwen2_moe" and isinstance(at, int):
        windows = [i < at and not i % 2 for i in range(layers)]
    elif kind == "cwm":
        windows = [i % 4 > 0 for i in range(layers)]
    elif kind == "smollm3" and config.get("use_sliding_window"):
        windows = [not n for n in turns]
    else:
        return None
    return ["sliding_attention" if w else "full_attention" for w in windows]


def split_by_layer(own: dict[str, Any], family: Family) -> list[str] | None:
    """What the layers of a GGUF file are that says for each how many heads of keys it has: none in
    one with a state. What it says so becomes one number. None where it says one number for all."""
    heads, units = (
        found.tolist() if isinstance(found, np.ndarray) and found.dtype.kind in "iu" else None
        for found in map(own.get, ("attention.head_count_kv", "feed_forward_length"))
    )
    if not heads or not family.recurrent:
        return None
    own["attention.head_count_kv"] = max(heads)
    each = [0] * len(heads)
    if units and len(units) == len(heads):
        own["feed_forward_length"], each = max(units), units
    alone = ["linear_attention" if family.network or not u else "mlp" for u in each]
    return ["full_attention" if h else own_kind for h, own_kind in zip(heads, alone, strict=True)]


def kinds_of(family: Family, found: Mapping[str, Any]) -> tuple[Kind, ...]:
    """The kind of each layer."""
    layers, given = found["layers"], found.get("layer_types")
    if given is None:
        every = family.every and (found.get("every") or family.every)
        if not isinstance(every, int) or every < 0:
            raise ModelError(
                f"config.json has {every!r} for how often a layer sees all keys, expected a"
                " positive whole number, or layer_types"
            )
        other: Kind = "state" if family.recurrent else "window"
        return tuple("full" if every and not (i + 1) % every else other for i in range(layers))
    missing = {"state": not family.recurrent, "network": family.network}
    known: dict[str, Kind] = {name: kind for name, kind in _KINDS.items() if not missing.get(kind)}
    wrong = [k for k in given if not isinstance(k, str) or k not in known]
    if wrong or len(given) != layers:
        what = f"a layer of {wrong[0]}" if wrong else f"{len(given)} layer_types"
        raise ModelError(f"{what} in a model of {layers} layers, which RLX cannot run")
    return tuple(known[k] for k in given)


def windows_of(kinds: Sequence[Kind], found: Mapping[str, Any]) -> tuple[int, ...]:
    """How many keys the rows of each layer see at most, 0 for all."""
    window = int(found.get("window") or 0)
    return tuple(window if kind == "window" else 0 for kind in kinds)


def turned_of(
    family: Family, found: Mapping[str, Any], kinds: Sequence[Kind], windows: Sequence[int]
) -> tuple[bool, ...]:
    """Which layers have a rotary embedding."""
    attends = [kind in ("full", "window") for kind in kinds]
    given, every = found.get("turns"), family.unturned
    if family.learned:
        turned = [False] * len(kinds)
    elif given is not None and every:
        if len(given) != len(kinds):
            raise ModelError(
                f"{len(given)} entries say which of {len(kinds)} layers have rotary embeddings"
            )
        turned = [bool(n) for n in given]
    elif every == "full":
        turned = [bool(w) or not any(windows) for w in windows]
    else:
        turned = [not every or bool((i + 1) % every) for i in range(len(kinds))]
    return tuple(a and t for a, t in zip(attends, turned, strict=True))
