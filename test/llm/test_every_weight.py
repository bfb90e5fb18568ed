"""Every tensor of a model file has a place in its graphs, and all that these need is there."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlx.errors import ModelError
from rlx.frontends import gguf
from rlx.frontends.gguf import Tensor
from rlx.llm.builder import Cache, step_graphs
from rlx.llm.config import ModelConfig
from rlx.llm.families import family_of
from rlx.llm.names import LAYER_PARTS, names_of_hf
from rlx.llm.share import Share
from rlx.llm.weights import read_model
from rlx.models.safetensors import write_safetensors
from rlx.types import f32
from support.sweeps import turn
from support.tiny_llm import weights, write_model

Array = np.ndarray[Any, Any]
Weights = dict[str, Tensor]

SHAPES: dict[str, Any] = json.loads(
    (Path(__file__).parent / "fixtures" / "shapes.json").read_text(encoding="utf-8")
)
FAMILIES = {name: family_of("hf", row["config"]["model_type"]) for name, row in SHAPES.items()}


def build(config: ModelConfig, weights: Weights) -> None:
    cache = Cache(2, 16, f32, 1, 32)
    step_graphs(config, weights, cache, "f32", Share.whole(config), {})


def read(name: str, folder: Path) -> tuple[ModelConfig, Weights]:
    write_model(folder, SHAPES[name]["config"], SHAPES[name]["shapes"])
    return read_model(folder)


@pytest.mark.parametrize(
    ("name", "said", "beside"),
    [
        ("qwen3.5", {"vision_config": {}}, "model.visual.patch_embed.proj.weight"),
        ("llama4", {"vision_config": {}}, "vision_model.class_embedding"),
        ("gemma3", {"vision_config": {}}, "vision_tower.encoder.layers.0.fc1.weight"),
        ("qwen3-next", {}, "mtp.fc.weight"),
        ("glm4-moe-lite", {"num_nextn_predict_layers": 1}, "model.layers.3.eh_proj.weight"),
        (
            "glm4-moe-lite",
            {"text_config": {"num_nextn_predict_layers": 1}},
            "model.language_model.layers.3.eh_proj.weight",
        ),
    ],
)
def test_what_is_not_of_the_decoder(
    name: str, said: dict[str, Any], beside: str, tmp_path: Path
) -> None:
    whole, shapes = SHAPES[name]["config"], SHAPES[name]["shapes"]
    write_model(tmp_path, {**whole, **said}, {**shapes, beside: [4, 4]})
    assert {*read_model(tmp_path)[1]} == {*read(name, tmp_path)[1]}
    if said:
        write_model(tmp_path, whole, {**shapes, beside: [4, 4]})
        with pytest.raises(ModelError, match=r"no tensor of a .* is called"):
            read_model(tmp_path)


def test_norms_behind_blocks_may_be_none(tmp_path: Path) -> None:
    """As a configuration of hyperclovax says."""
    row = SHAPES["hyperclovax"]
    shapes = {k: v for k, v in row["shapes"].items() if "post_norm" not in k}
    write_model(tmp_path, {**row["config"], "use_post_norm": False}, shapes)
    build(*read_model(tmp_path))


def last_of(weights: Iterable[str]) -> dict[str, str]:
    """The last tensor of every part, such as "attn_q.weight"."""
    return {re.sub(r"^blk\.\d+\.", "", name): name for name in sorted(weights)}


def others(config: ModelConfig, weights: Weights, kinds: tuple[str, ...]) -> Weights:
    """What layers of other families have, as parts of the last layer."""
    own = last_of(weights)
    return {
        f"blk.{config.layers - 1}.{part}": Tensor.of(np.zeros(2, np.float32))
        for part in LAYER_PARTS
        if part not in own and part.endswith(kinds)
    }


@pytest.mark.parametrize("name", SHAPES)
def test_no_tensor_may_be_missing(name: str, tmp_path: Path) -> None:
    config, weights = read(name, tmp_path)
    own = last_of(weights)
    for part in turn([*own], [*SHAPES].index(name), 9):
        rest = {n: t for n, t in weights.items() if n != own[part]}
        with pytest.raises(ModelError, match=r"needs .*, and the file has none|have no place|asks"):
            build(config, rest)
            pytest.fail(f"{own[part]} was not missed")


@pytest.mark.parametrize(
    ("name", "part", "missing"),
    [
        ("gpt-oss", "model.layers.1.self_attn.q_proj.bias", "blk.1.attn_q.bias"),
        ("gpt-oss", "model.layers.1.mlp.router.bias", "blk.1.ffn_gate_inp.bias"),
        ("gpt-oss", "model.layers.1.mlp.experts.gate_up_proj_bias", "blk.1.ffn_gate_exps.bias"),
        ("gpt-oss", "model.layers.1.mlp.experts.down_proj_bias", "blk.1.ffn_down_exps.bias"),
        ("llama-yarn", "model.layers.1.self_attn.v_proj.bias", "blk.1.attn_v.bias"),
        ("qwen2", "model.layers.1.self_attn.k_proj.bias", "blk.1.attn_k.bias"),
        ("llama", "model.layers.1.mlp.gate_proj.weight", "blk.1.ffn_gate.weight"),
        ("jamba", "model.layers.2.mamba.dt_layernorm.weight", "blk.2.ssm_dt_norm.weight"),
        ("jamba", "model.layers.2.mamba.conv1d.bias", "blk.2.ssm_conv1d.bias"),
        ("mamba2", "backbone.layers.0.mixer.conv1d.bias", "blk.0.ssm_conv1d.bias"),
        ("lfm2", "model.layers.0.conv.conv.bias", "blk.0.ssm_conv1d.bias"),
        ("gpt2", "transformer.h.1.ln_2.bias", "blk.1.ffn_norm.bias"),
        ("starcoder2", "model.norm.bias", "output_norm.bias"),
        ("lfm2", "model.layers.2.conv.out_proj.bias", "blk.2.ssm_out.bias"),
        ("lfm2-moe", "model.layers.1.feed_forward.expert_bias", "blk.1.exp_probs_b.bias"),
        ("dots1", "model.layers.2.mlp.gate.e_score_correction_bias", "blk.2.exp_probs_b.bias"),
        ("deepseek-v3", "model.layers.2.mlp.gate.e_score_correction_bias",
         "blk.2.exp_probs_b.bias"),
        ("glm4-moe", "model.layers.1.mlp.gate.e_score_correction_bias", "blk.1.exp_probs_b.bias"),
        ("llama-yarn", "model.layers.1.self_attn.o_proj.bias", "blk.1.attn_output.bias"),
        ("seed-oss", "model.layers.0.self_attn.k_proj.bias", "blk.0.attn_k.bias"),
        ("ernie4.5", "model.layers.1.mlp.gate_proj.bias", "blk.1.ffn_gate.bias"),
        ("jais2", "model.layers.0.mlp.up_proj.bias", "blk.0.ffn_up.bias"),
        ("stablelm", "model.layers.2.self_attn.v_proj.bias", "blk.2.attn_v.bias"),
        ("phi", "lm_head.bias", "output.bias"),
        ("gpt-j", "lm_head.bias", "output.bias"),
        ("falcon-new", "transformer.h.1.mlp.dense_4h_to_h.bias", "blk.1.ffn_down.bias"),
        ("qwen2-moe", "model.layers.1.mlp.shared_expert_gate.weight",
         "blk.1.ffn_gate_inp_shexp.weight"),
        ("solar-open", "model.layers.1.mlp.gate.weight", "blk.1.ffn_gate_inp.weight"),
    ],
)  # fmt: skip
def test_what_a_file_lacks_does_not_count_as_nothing(
    name: str, part: str, missing: str, tmp_path: Path
) -> None:
    shapes = {k: v for k, v in SHAPES[name]["shapes"].items() if k != part}
    assert len(shapes) < len(SHAPES[name]["shapes"])
    write_model(tmp_path, SHAPES[name]["config"], shapes)
    with pytest.raises(ModelError, match=f"needs {missing}, and the file has none"):
        build(*read_model(tmp_path))


_SHARED = [name for name in SHAPES if ModelConfig.from_hf(SHAPES[name]["config"]).shared]


def write_without(name: str, part: str, folder: Path, change: Mapping[str, Any] = {}) -> None:
    """A model without the tensors in whose names ``part`` is found."""
    row = SHAPES[name]
    family = family_of("hf", row["config"]["model_type"])
    kept = {
        k: v for k, v in row["shapes"].items() if not re.search(part, names_of_hf(k, family) or "")
    }
    assert len(kept) < len(row["shapes"])
    write_model(folder, {**row["config"], **change}, kept)


@pytest.mark.parametrize("name", _SHARED)
def test_shared_experts_that_are_missing(name: str, tmp_path: Path) -> None:
    """All of them, in the families whose layers with experts have one."""
    write_without(name, "shexp", tmp_path)
    part = "ffn_up_shexp" if ModelConfig.from_hf(SHAPES[name]["config"]).experts else "ffn_gate"
    with pytest.raises(ModelError, match=rf"needs blk\.\d\.{part}.weight, and the file has none"):
        build(*read_model(tmp_path))


@pytest.mark.parametrize(
    ("name", "change", "without"),
    [
        ("deepseek-v3", {"n_shared_experts": None}, "shexp"),
        ("granite-moe-shared", {"shared_intermediate_size": 0}, "shexp"),
        ("deepseek-v3", {"topk_method": "greedy"}, "exp_probs_b"),
        ("lfm2-moe", {"use_expert_bias": False}, "exp_probs_b"),
        ("qwen2-moe", {"qkv_bias": False}, ".bias"),
        ("falcon-new", {"bias": False}, r"(qkv|output|up|down)\.bias"),
    ],
)
def test_what_a_configuration_says_is_not_there(
    name: str, change: dict[str, Any], without: str, tmp_path: Path
) -> None:
    write_without(name, without, tmp_path, change)
    build(*read_model(tmp_path))


@pytest.mark.parametrize(
    ("arch", "said", "shared", "corrected"),
    [
        ("glm4moe", {}, True, True),
        ("glm4moe", {"expert_shared_count": 0}, False, True),
        ("granitemoe", {}, None, False),
        ("granitemoe", {"expert_shared_feed_forward_length": 8}, True, False),
        ("qwen2moe", {}, True, False),
        ("qwen3moe", {"expert_shared_count": 1}, False, False),
    ],
)
def test_what_metadata_say_of_experts(
    arch: str, said: dict[str, int], shared: bool | None, corrected: bool
) -> None:
    sizes = {"embedding_length": 32, "block_count": 1, "attention.head_count": 4,
             "context_length": 64, "expert_count": 4, "expert_used_count": 2,
             "expert_feed_forward_length": 8, **said}  # fmt: skip
    metadata = {"general.architecture": arch, **{f"{arch}.{k}": v for k, v in sizes.items()}}
    found = ModelConfig.from_gguf(metadata, 96)
    assert (found.shared, "exp_probs_b" in found.biased) == (shared, corrected)


@pytest.mark.parametrize("name", SHAPES)
def test_a_folder_has_no_tensor_without_a_place(name: str, tmp_path: Path) -> None:
    config, weights = read(name, tmp_path)
    build(config, weights)
    more = others(config, weights, (".weight", ".bias"))
    left = re.escape(str(sorted(more)[:4]))
    with pytest.raises(ModelError, match=rf"{len(more)} weights have no place in a .*: {left}"):
        build(config, {**weights, **more})


IN_GGUF = {name: family for name, family in FAMILIES.items() if family.gguf}
"""Those whose metadata are sizes alone: others are in ``test_states.py``."""


ELSEWHERE = ("attn_qkv.weight", "ffn_gate_up_exps.weight", "post_attention_norm.weight")
"""What is another name for weights that are there."""


def metadata(config: ModelConfig, arch: str) -> dict[str, Any]:
    """What a GGUF file says of a model, as far as it decides which tensors there are."""
    c, said = config, dict[str, Any]()
    heads: Any = c.kv_heads
    if c.family.recurrent and any(c.attends):
        heads = np.array([c.kv_heads if a else 0 for a in c.attends], np.int32)
    inner: Any = c.inner
    if not c.family.network and any(c.attends):
        inner = np.array([c.inner if k == "network" else 0 for k in c.kinds], np.int32)
    said |= {
        "embedding_length": c.hidden, "block_count": c.layers, "context_length": c.context,
        "attention.head_count": c.heads, "attention.head_count_kv": heads,
        "attention.key_length": c.head_dim, "feed_forward_length": inner,
        "attention.layer_norm_rms_epsilon": 1e-5, "use_parallel_residual": c.parallel,
        "rope.dimension_count": c.rotary.dim,
    }  # fmt: skip
    if c.experts:
        said |= {
            "expert_count": c.experts, "expert_used_count": c.experts_used,
            "expert_feed_forward_length": c.expert_inner,
            "expert_shared_count": int(bool(c.shared)),
        }  # fmt: skip
    if c.latent is not None:
        said |= {
            "attention.q_lora_rank": c.latent.queries, "attention.kv_lora_rank": c.latent.rank,
            "attention.value_length": c.latent.value,
            "expert_gating_func": 2 if c.family.router == "sigmoid" else 1,
        }  # fmt: skip
    if (r := c.recurrent) is not None:
        said |= {
            "shortconv.l_cache": r.kernel, "ssm.conv_kernel": r.kernel,
            "ssm.inner_size": r.inner, "ssm.state_size": r.size, "ssm.group_count": r.groups,
            "ssm.time_step_rank": r.heads if r.kind == "mamba2" else r.rank,
            "ssm.dt_b_c_rms": bool(r.part_eps),
        }  # fmt: skip
    return {"general.architecture": arch, **{f"{arch}.{k}": v for k, v in said.items()}}


@pytest.mark.parametrize("name", IN_GGUF)
def test_a_gguf_file_has_no_tensor_without_a_place(name: str, tmp_path: Path) -> None:
    hf, found = read(name, tmp_path)
    path, said = tmp_path / "model.gguf", metadata(hf, IN_GGUF[name].gguf[-1])
    gguf.write(path, found, said)
    config, mine = read_model(path)
    build(config, mine)
    optional = {
        "attn_q_norm": config.qk_norm, "attn_k_norm": config.qk_norm, "ffn_norm": config.second,
        "ffn_latent_down": None if config.family.narrowed else False,
        "ffn_latent_up": None if config.family.narrowed else False,
    }  # fmt: skip
    more = {
        n: t
        for n, t in others(config, mine, (".weight",)).items()
        if optional.get(n.split(".")[2], False) is not None and not n.endswith(ELSEWHERE)
    }
    gguf.write(path, {**found, **more}, said)
    left = re.escape(str(sorted(more)[:4]))
    with pytest.raises(ModelError, match=rf"{len(more)} weights have no place in a .*: {left}"):
        build(*read_model(path))


@pytest.mark.parametrize(
    ("whole", "texts", "output"),
    [(False, True, True), (True, False, None), (None, False, None)],
)
def test_the_whole_model_says_whether_its_embeddings_are_tied(
    whole: bool | None, texts: bool, output: bool | None
) -> None:
    """And not its part for texts, whose entry transformers writes too."""
    part = {**SHAPES["llama"]["config"], "tie_word_embeddings": texts}
    said = {} if whole is None else {"tie_word_embeddings": whole}
    assert ModelConfig.from_hf({"text_config": part, **said}).output is output


def twice(name: str, other: str) -> Callable[[dict[str, Array]], None]:
    return lambda w: w.update({other: w[name]})


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("llama", twice("model.layers.1.mlp.gate_proj.weight", "model.layers.1.mlp.w1.weight")),
        ("llama", twice("model.norm.weight", "norm.weight")),
        ("phi3", twice("model.layers.0.self_attn.o_proj.weight",
                       "model.layers.0.self_attn.q_proj.weight")),
        ("phi3", twice("model.layers.0.mlp.down_proj.weight", "model.layers.0.mlp.w2.weight")),
        ("mixtral", twice("model.layers.0.block_sparse_moe.experts.1.w1.weight",
                          "model.layers.0.mlp.experts.1.w1.weight")),
    ],
)  # fmt: skip
def test_no_weight_is_there_under_two_names(
    name: str, change: Callable[[dict[str, Array]], None], tmp_path: Path
) -> None:
    """Of which one would be taken, and the other not be missed."""
    made = weights(SHAPES[name]["shapes"])
    change(made)
    write_safetensors(tmp_path / "model.safetensors", made)
    (tmp_path / "config.json").write_text(json.dumps(SHAPES[name]["config"]), encoding="utf-8")
    with pytest.raises(ModelError, match="twice"):
        read_model(tmp_path)
