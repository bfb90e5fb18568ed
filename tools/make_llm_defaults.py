"""Write ``rlx/llm/defaults.json``: what transformers takes for the entries that a config.json does
not have, of every ``model_type`` that RLX runs, and other names that it knows entries by.

    python tools/make_llm_defaults.py

It needs transformers (``pip install transformers``); run it when a family is added.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from rlx.llm.defaults import PATH
from rlx.llm.families import FAMILIES

OF_FILES = ("vocab_size", "hidden_size", "num_hidden_layers", "n_embd", "n_layer", "num_layers")
"""Sizes that tell models apart: a file without them is broken. Of the rest are left out what says
nothing of a graph, and whether embeddings are tied, which the tensors of a file say."""
OTHER = (
    "dropout", "_token_id", "initializer", "router_aux", "output_router", "use_cache", "_jitter",
    "tie_word_embeddings", "pretraining_tp", "_pdrop", "classifier", "summary_",
)  # fmt: skip

FIRST = {
    "falcon": {"n_embed": "hidden_size"},
    "gpt_neox": {"rotary_emb_base": "rope_theta"},
    "lfm2": {"block_ff_dim": "intermediate_size"},
    "lfm2_moe": {"block_ff_dim": "intermediate_size"},
    "nemotron_h": {"mamba_conv_bias": "use_conv_bias", "mamba_dt_min": "time_step_min"},
}
"""Other names that transformers has in code (``kwargs.pop``), and takes before the names themselves
where a file has both; those that ``rlx.llm.entries`` has are not here."""


def main() -> None:
    """All families."""
    kinds = sorted({kind for row in FAMILIES.values() for kind in row.hf})
    rows = [f" {json.dumps(kind)}: {json.dumps(defaults_of(kind))}" for kind in kinds]
    Path(PATH).write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
    print(f"wrote {Path(PATH).name}: {len(rows)} kinds of models")


def defaults_of(kind: str) -> dict[str, Any]:
    """The entries of a kind of model that are numbers or words, and other names of entries."""
    from transformers import AutoConfig, PreTrainedConfig

    made = AutoConfig.for_model(kind).get_text_config()
    names = made.attribute_map
    common = {f.name for f in dataclasses.fields(PreTrainedConfig)}
    entries: dict[str, Any] = {
        names.get(f.name, f.name): f.default
        for f in dataclasses.fields(type(made))
        if isinstance(f.default, bool | int | float | str)
        and f.name not in common.union(OF_FILES)
        and not any(word in f.name for word in OTHER)
    }
    rope = made.to_dict().get("rope_parameters") or {}
    whole = rope.get("full_attention", rope)
    entries |= {k: whole[k] for k in ("rope_theta", "partial_rotary_factor") if k in whole}
    if whole is not rope or rope.get("rope_type", "default") != "default":
        # Without the base, if one that a file has counts.
        other = type(made).from_dict({"rope_theta": 7.0}).rope_parameters
        entries["rope_parameters"] = _common(rope, other)
    found = {"entries": dict(sorted(entries.items())), "names": names}
    return found | ({"first": FIRST[kind]} if kind in FIRST else {})


def _common(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """What two objects have in common."""
    found = {k: _common(v, other[k]) if isinstance(v, dict) else v for k, v in one.items()}
    return {k: v for k, v in found.items() if isinstance(v, dict) or v == other[k]}


if __name__ == "__main__":
    main()
