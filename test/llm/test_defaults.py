"""What a config.json means where it does not say something."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlx.llm.config import ModelConfig
from rlx.llm.defaults import PATH
from rlx.llm.families import FAMILIES

SAVED = json.loads((Path(__file__).parent / "fixtures" / "shapes.json").read_text(encoding="utf-8"))
TABLE = json.loads(Path(PATH).read_text(encoding="utf-8"))


def test_every_family_has_defaults() -> None:
    assert {*TABLE} == {kind for row in FAMILIES.values() for kind in row.hf}


def test_an_entry_may_be_missing_that_is_as_transformers_takes_it() -> None:
    tried = 0
    for row in SAVED.values():
        whole = row["config"]
        entries = TABLE[whole["model_type"]]["entries"]
        left_out = [k for k, v in entries.items() if k in whole and whole[k] == v]
        tried += len(left_out)
        for names in (*([k] for k in left_out), left_out):
            part = {k: v for k, v in whole.items() if k not in names}
            assert ModelConfig.from_hf(part) == ModelConfig.from_hf(whole), names
    assert tried > 300


@pytest.mark.parametrize(
    ("kind", "left_out", "there"),
    [
        ("glm", "rope_parameters", {}),
        ("glm4-moe", "rope_parameters", {}),
        ("phi", "rope_parameters", {}),
        ("nemotron", "rope_parameters", {}),
        ("bamba", "rope_parameters", {}),
        ("glm", "rope_parameters", {"rope_theta": 10000.0}),
        ("qwen3-next", "layer_types", {"full_attention_interval": 4}),
        ("qwen3-next", "layer_types", {}),
        ("cohere2", "layer_types", {"sliding_window_pattern": 4}),
        ("exaone4", "layer_types", {"sliding_window_pattern": 2}),
        ("smollm3", "no_rope_layers", {"no_rope_layer_interval": 2}),
        ("qwen3-moe", "num_experts", {"num_local_experts": 6}),
    ],
)
def test_what_follows_from_others(kind: str, left_out: str, there: dict[str, Any]) -> None:
    whole = SAVED[kind]["config"]
    part = {k: v for k, v in whole.items() if k not in (left_out, "num_local_experts")}
    assert ModelConfig.from_hf({**part, **there}) == ModelConfig.from_hf(whole)


ROPE = ("rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("cwm", {"rope_theta": 5e5}),
        ("cwm", {"rope_theta": 5e5, "rope_scaling": None}),
        ("cwm", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}),
        ("gpt-oss", {"rope_theta": 5e5}),
        ("gpt-oss", {"rope_theta": 5e5, "rope_scaling": None}),
        ("gpt-oss", {"rope_parameters": None}),
        ("gemma3", {"rope_theta": 5e5}),
        ("gemma3", {"rope_theta": 5e5, "rope_local_base_freq": 7.0}),
        ("olmo3", {"rope_theta": 7e5}),
        ("gpt-neox", {"rotary_emb_base": 5e5}),
        ("gpt-neox", {"rotary_emb_base": 5e5, "rope_theta": 1e4}),
    ],
)
def test_rotary_embeddings_are_those_of_transformers(kind: str, said: dict[str, Any]) -> None:
    judge = pytest.importorskip("transformers", reason="the judge of defaults is transformers")
    rest = {k: v for k, v in SAVED[kind]["config"].items() if k not in ROPE}
    known = judge.AutoConfig.for_model(rest["model_type"], **said).rope_parameters
    found = ModelConfig.from_hf({**rest, **said})
    assert found == ModelConfig.from_hf({**rest, "rope_parameters": known})


@pytest.mark.parametrize(
    ("kind", "other", "name", "value"),
    [
        ("falcon", "n_embed", "hidden_size", 64),
        ("lfm2", "block_ff_dim", "intermediate_size", 96),
        ("lfm2-moe", "block_ff_dim", "intermediate_size", 96),
        ("nemotron-h", "mamba_conv_bias", "use_conv_bias", False),
        ("nemotron-h", "mamba_dt_min", "time_step_min", 0.125),
    ],
)
def test_another_name_counts_first(kind: str, other: str, name: str, value: Any) -> None:
    """As in the configurations of transformers."""
    whole = SAVED[kind]["config"]
    known = ModelConfig.from_hf({**whole, name: value})
    assert known != ModelConfig.from_hf(whole)
    assert ModelConfig.from_hf({**whole, other: value}) == known
    rest = {k: v for k, v in whole.items() if k != name}
    assert ModelConfig.from_hf({**rest, other: value}) == known


@pytest.mark.parametrize(
    ("kind", "name"),
    [("gpt2", "n_inner"), ("starcoder", "n_inner"), ("gpt-j", "n_inner"),
     ("falcon", "ffn_hidden_size")],
)  # fmt: skip
def test_networks_of_four_times_a_row(kind: str, name: str) -> None:
    rest = {k: v for k, v in SAVED[kind]["config"].items() if k not in (name, "intermediate_size")}
    assert ModelConfig.from_hf(rest).inner == ModelConfig.from_hf({**rest, name: None}).inner == 128


def test_dynamic_rotary_embeddings_are_plain_up_to_the_context() -> None:
    """As transformers computes them for 256 positions."""
    rope = {"rope_type": "dynamic", "factor": 6.0}
    rest = {k: v for k, v in SAVED["internlm3"]["config"].items() if k not in ROPE}
    found = ModelConfig.from_hf({**rest, "rope_theta": 1e4, "rope_scaling": rope})
    assert found.context == 256
    np.testing.assert_allclose(found.rotary.frequencies(), [1, 0.1, 0.01, 0.001], rtol=1e-12)
    assert found.rotary.magnitude == 1.0


@pytest.mark.parametrize(
    ("kind", "said", "windows"),
    [
        ("qwen2", {"max_window_layers": 2}, [0, 0, 7, 7]),
        ("qwen2", {"max_window_layers": 2, "use_sliding_window": False}, [0, 0, 0, 0]),
        ("cwm", {}, [0, 7, 7, 7]),
        ("qwen2-moe", {"max_window_layers": 3}, [7, 0, 7, 0]),
        ("smollm3", {"no_rope_layers": [1, 0, 0, 1]}, [0, 7, 7, 0]),
        ("smollm3", {"no_rope_layers": None, "no_rope_layer_interval": 2}, [0, 7, 0, 7]),
    ],
)
def test_windows_of_layers(kind: str, said: dict[str, Any], windows: list[int]) -> None:
    """As the configurations of transformers make ``layer_types`` of these entries."""
    part = {k: v for k, v in SAVED[kind]["config"].items() if k != "layer_types"}
    own = {"num_hidden_layers": 4, "sliding_window": 7, "use_sliding_window": True}
    assert ModelConfig.from_hf({**part, **own, **said}).windows == tuple(windows)


def test_a_pattern_in_words_needs_layer_types() -> None:
    """As EXAONE-4.0-32B has both."""
    whole = SAVED["exaone4"]["config"]
    assert ModelConfig.from_hf({**whole, "sliding_window_pattern": "LLLG"}) == ModelConfig.from_hf(
        whole
    )


def test_the_text_part_of_gemma_3_4b() -> None:
    """All that its file says."""
    found = ModelConfig.from_hf({
        "model_type": "gemma3",
        "text_config": {
            "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
            "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
            "sliding_window": 1024, "vocab_size": 262208,
        },
    })  # fmt: skip
    assert (found.heads, found.kv_heads, found.head_dim) == (8, 4, 256)
    assert (found.rotary.theta, found.rotary.factor, found.eps) == (1e6, 8.0, 1e-6)
    assert found.local is not None
    assert (found.local.theta, found.local.factor) == (1e4, 1.0)
    assert found.windows[:6] == (1024,) * 5 + (0,)
