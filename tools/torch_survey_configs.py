"""Configurations of transformers made small, by the names and types of their fields."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

WIDTHS = re.compile(
    r"hidden_?(size|dim)|(embed|embedding|emb)_(dims?|size|rank)|intermediate|(ffn|mlp|proj|project"
    r"|projection|projector|inner|output|pooler|pooler_output|feature|linear|latent|fpn|stem|conv"
    r"|condition|mask|class|descriptor|lang|unit|state|classifier_proj|prediction_head|x4_feat"
    r"|codebook|codevector|quantization|input|image_text|visual_feat|vit|entity_emb|coordinate|shape"
    r"|feed_forward|sscp_conv_channel|share_expert|adapter_(in|out)|text_projection_(in|out))"
    r"_(dims?|sizes?)$|(^|_)dims?$|feedforward|d_(model|ff|kv|head|inner|latents|ssm)$|^dff$|dim_ff$"
    r"|n_inner$|n_embd$|channels?(_list)?$|(text_encoder|lru|groups)_width$|_rank$|units$"
    r"|num_pos_feats$|filters$|dim_head$|head_(dim|size)|headdim$|upsample_groups|hidden_dimension"
    r"|fusion_dims|unit_dims|hc_lowrank"
)
"""Fields that hold widths."""
NO_WIDTHS = re.compile(
    r"^num_channels|position|vocab|(^|_)max_|multiplier|image_size|temperature|pos_emb_width|patch_dim"
    r"|codebook_size|keypoint_decoder|rope_(feat|k)_sizes|^feature_size|input_feat|^input_(dim|size)"
    r"|feature_projection_input|^state_dim|head_out_channels|model_in_dim|layers|indices|^shape_size$"
    r"(?<!shape_size)|inplanes|num_channels"
)
MAIN_WIDTHS = re.compile(r"hidden_size|d_model|n_embd|embed_dim|hidden_dim")
LAYERS = re.compile(
    r"^(?!.*(conv|encoder_blocks|feat_extract|postnet|prenet|adapter|max_window|shared|dense|per_attn|inference|with"
    r"|of_layers|group))(\w+_)?((num|n)_)?(hidden_)?(layers?|blocks|hidden_layers)$|(^|_)depth$"
    r"|num_self_attends_per_block"
)
STAGES = re.compile(
    r"(^|_)(depths?|num_blocks|blocks_per_stage|numb_of_layers|layer_depths|layers)$"
)
PLACES = re.compile(r"(index|indices|indexes|idxs|blocks|layer_ids|layers|list)$")
HEADS = re.compile(r"(^|_)(heads?|n_heads?|num_heads)$|heads_per_stage$")
KEY_HEADS = re.compile(r"key_value_heads|n_head_kv|kv_heads|query_group_num")
HEAD_WIDTHS = re.compile(r"head_(dim|size)|d_kv$|dim_head$|kv_channels|rotary_dim|headdim|d_head$")
INNER_WIDTHS = re.compile(r"intermediate|ffn|d_ff|mlp_dim|feedforward|inner|^dff$|dim_ff")
RANKS = re.compile(r"_rank$")
EXPERTS = re.compile(r"num_experts$|n_routed_experts$|num_local_experts$|moe_num_experts$")
CHOSEN = re.compile(r"experts_per_tok|moe_(k|topk|top_k)$|top_k_experts$")
GROUPS = re.compile(r"^(n_group|topk_group|num_group|num_expert_group)$")
VOCABULARIES = re.compile(
    r"vocab_size$|vocab$|codebook_size$|num_(hash|ngram)\w*_?buckets$|head_out_channels"
)
TOKENS = re.compile(r"(token|start|end|bos|eos|pad|patch|newline)_(id|index)s?$")

VOCABULARY = 512
UNSAID: dict[str, Any] = {
    "image_token_id": 480, "image_token_index": 480, "num_time_features": 1,
    "prediction_length": 4, "context_length": 8, "n_group": 1, "topk_group": 1,
    "num_experts_per_tok": 2, "n_routed_experts": 4, "n_shared_experts": 1, "vocab_size": 64,
    "top_k_experts": 2, "moe_intermediate_size": 32, "num_experts": 4,
    "vocabulary_map": {"<image>": 500, "IMGIMGAZ": 1, "IMGIMGBZ": 2},
}  # fmt: skip
"""What a model cannot do without, though its configuration says nothing by default."""
LARGEST_PLACE = 4096
"""The most positions that a model keeps."""

LIMITS = {
    VOCABULARIES.pattern: VOCABULARY, EXPERTS.pattern: 4, CHOSEN.pattern: 2, GROUPS.pattern: 1,
    "^(max_position_embeddings|n_positions|max_source_positions)$": 512,
    "first_k_dense|num_dense_layers|insert_layer_id": 1,
    "^(sliding_window|attention_window)$": 8,
    "^(mamba_|attention_)?chunk_size$": 8,
    "^num_queries$": 20, "^n_groups$": 2,
}  # fmt: skip
"""The most that other numbers stay, by their names."""
ROTATION = {"rope_type": "default", "rope_theta": 10000.0}
GLM_ROTATION = {**ROTATION, "partial_rotary_factor": 0.5, "mrope_section": [8, 12, 12]}
SAID: dict[str, dict[str, Any]] = {
    "CohereCompassTextConfig": {"rope_parameters": {"full_attention": ROTATION}},
    "DbrxAttentionConfig": {"rope_theta": 10000.0, "clip_qkv": 8.0},
    "CvtConfig": {"depth": [1, 2, 3]},
    "DeepseekOcr2TextConfig": {"mlp_layer_types": ["dense", "sparse"]},
    "EsmConfig": {"pad_token_id": 1, "mask_token_id": 32},
    "Glm4vTextConfig": {"rope_parameters": GLM_ROTATION},
    "Glm4vMoeTextConfig": {"rope_parameters": GLM_ROTATION, "head_dim": 128},
    "GlmImageTextConfig": {"rope_parameters": GLM_ROTATION},
    "NemotronConfig": {"num_key_value_heads": 8},
    "HunYuanVLTextConfig": {
        "head_dim": 128,
        "rope_parameters": {**ROTATION, "mrope_section": [16, 24, 24]},
    },
    **{
        f"{name}Config": {"head_dim": 128}
        for name in ("HunYuanDenseV1", "HunYuanMoEV1", "Ministral", "Ministral3")
    },
    **{
        f"{name}Config": {"width_coefficient": 1.0, "depth_coefficient": 0.25, "hidden_dim": 1280}
        for name in ("AlignVision", "EfficientNet")
    },
    "FunnelConfig": {"architectures": ["FunnelModel"]},
    "FalconH1Config": {"mamba_d_head": "auto"},
    "Granite4VisionConfig": {
        "deepstack_layer_map": [[-1, 0]],
        "spatial_target_layers": [1],
        "downsample_rate": "1/2",
    },
    **{
        f"{name}ThinkerConfig": {"vision_start_token_id": 490, "audio_start_token_id": 491}
        for name in ("Qwen2_5Omni", "Qwen3OmniMoe")
    },
    "InstructBlipVideoConfig": {"video_token_id": 480, "video_token_index": 480},
    "XmodConfig": {"default_language": "en_XX"},
    "Lfm2MoeConfig": {"layer_types": ["conv", "full_attention"] * 16},
    "Step3p7TextConfig": {"sliding_window": 8},
    "GPTNeoConfig": {"attention_types": [[["global", "local"], 1]]},
    "ClapAudioConfig": {"hidden_size": 192},
    "GraniteSpeech5EncoderConfig": {"num_stacked_frames": 4},
    "Kosmos2Config": {"latent_query_num": 4},
    "LwDetrConfig": {"projector_scale_factors": [1.0], "num_queries": 10},
    "Molmo2AdapterConfig": {"vision_feature_layer": [-1, -2]},
    "MoonshineStreamingConfig": {"num_key_value_heads": 8},
    "Qwen2_5OmniTextConfig": {
        "rope_parameters": {**ROTATION, "mrope_section": [16, 24, 24]},
    },
    "Qwen4ExpTextConfig": {
        "indexer_n_heads": 4,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 64,
        "indexer_budget": 8,
        "indexer_compress_ratio": 2,
    },
    "RfDetrConfig": {"num_queries": 10},
    "TvpConfig": {"num_frames": 2, "max_img_size": 128, "visual_prompt_size": 16},
}
"""The same of single classes."""


@dataclass(frozen=True)
class Plan:
    """How widths become small: each is divided by a number, which keeps sums, products and ratios,
    or, with ``limit``, kept below one that its name says."""

    divisor: int = 1
    limit: bool = False
    heads: bool = False
    """Whether there are fewer heads, as wide as they were, in place of narrower ones."""
    images: bool = False
    """Whether images become small too."""


def plans(config: Any) -> Iterator[Plan]:
    """Plans to try for a configuration, from the smallest to the one that keeps all widths."""
    found = list(_numbers(config))
    widths = [v for k, v in found if MAIN_WIDTHS.search(k)]
    heads = [v for k, v in found if HEAD_WIDTHS.search(k) and v >= 16]
    most = max(1, min([w for w in widths if w >= 128] or [128]) // 64)
    most = min([most, *(h // 8 for h in heads)])
    divisor = 1 << (most.bit_length() - 1)
    if divisor > 1:
        yield from (Plan(divisor, images=True), Plan(divisor))
    fewer = math.gcd(*(v for k, v in found if HEADS.search(k) and v > 1))
    fewer = min(fewer & -fewer, 16) if fewer else 1
    if fewer > 1:
        yield from (Plan(fewer, heads=True, images=True), Plan(fewer, heads=True))
    yield Plan(limit=True, images=True)
    if divisor > 4:
        yield from (Plan(divisor // 4, images=True), Plan(divisor // 4))
    yield from (Plan(limit=True), Plan(images=True), Plan())


def _numbers(config: Any) -> Iterator[tuple[str, int]]:
    from transformers import PretrainedConfig

    for k, v in {**config.__dict__, **SAID.get(type(config).__name__, {})}.items():
        if isinstance(v, PretrainedConfig):
            yield from _numbers(v)
        elif isinstance(v, int) and not isinstance(v, bool):
            yield k, v


class Small:
    """A configuration made small by a plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._tokens: dict[int, int] = {}
        self._heads: set[int] = set()
        self._layers: dict[int, list[int]] = {}

    def of(self, config: Any) -> Any:
        """A configuration of the same class, whose derived fields are derived anew."""
        from transformers import PretrainedConfig

        kind = type(config)
        if kind.model_type.startswith("timm"):
            return config  # its architecture decides its sizes
        default = kind()
        held = {**config.__dict__, **SAID.get(kind.__name__, {})}
        self._heads = {v for k, v in held.items() if HEADS.search(k) and isinstance(v, int)}
        self._layers = dict(_kept_layers(config))
        given: dict[str, Any] = {}
        derived: dict[str, Any] = {}
        for f in fields(kind):
            v = held.get(f.name, held.get(kind.attribute_map.get(f.name, "")))
            if not v and f.name in UNSAID:
                v = UNSAID[f.name]
            if v is None or f.name.startswith("_") or f.name in ("id2label", "label2id"):
                continue
            if isinstance(v, PretrainedConfig):
                layers, heads = self._layers, self._heads
                given[f.name] = self.of(v)
                self._layers, self._heads = layers, heads
            elif f.default is not None or f.default_factory is not MISSING or (
                v != default.__dict__.get(f.name)
            ):  # fmt: skip
                given[f.name] = self._smaller(f.name, v)
            elif isinstance(v, list | tuple) and len(v) in self._layers:
                derived[f.name] = self._smaller(f.name, v)
        extra = {k: v for k, v in held.items() if k not in default.__dict__ and k[0] != "_"}
        given |= {k: self._smaller(k, v) for k, v in extra.items() if k not in given}
        given |= _fitted_sections(held, given)
        try:  # with a layer of each kind, though the first ones are of one kind
            small = self._backbone(config, default, kind, {**derived, **given})
        except Exception:
            small = self._backbone(config, default, kind, given)
        _fit_rotations(config, small)
        return small

    def _backbone(self, config: Any, default: Any, kind: Any, given: dict[str, Any]) -> Any:
        """With the stages that a backbone gives, or the last ones."""
        places = config.__dict__.get("_out_indices")
        if not places or (places == default.__dict__.get("_out_indices")):
            return kind(**given)
        try:
            return kind(**given, out_indices=list(places))
        except Exception:
            stages = len(kind(**given).stage_names)
            return kind(**given, out_indices=list(range(stages))[-len(places) :])

    def _smaller(self, k: str, v: Any) -> Any:
        if k == "per_layer_config":
            return self._by_layer(v)
        if isinstance(v, Mapping):
            return {n: self._smaller(n, x) for n, x in v.items()} if "rope" not in k else dict(v)
        if isinstance(v, bool):
            return v
        if isinstance(v, list | tuple):
            return type(v)(self._list(k, v))
        return self._number(k, v) if isinstance(v, int) else v

    def _by_layer(self, found: Mapping[Any, Any]) -> dict[int, Any]:
        """What is said of single layers, of those that are kept."""
        kept = self._layers[max(self._layers)] if self._layers else []
        wanted = {int(i): v for i, v in found.items()}
        return {
            new: {n: self._smaller(n, x) for n, x in wanted[old].items()}
            for new, old in enumerate(kept) if old in wanted
        }  # fmt: skip

    def _list(self, k: str, v: Any) -> Any:
        if len(v) in self._layers and len(v) > 2:
            return [v[i] for i in self._layers[len(v)]]
        if k == "layers_block_type":  # the list says how many layers there are
            return list(dict.fromkeys(v))
        whole = all(isinstance(x, int) and not isinstance(x, bool) for x in v)
        if not whole or not v:
            return v
        if "feature_layer" in k:
            return [*range(-1, -1 - len(v), -1)]
        if STAGES.search(k):
            return [1] * len(v)
        if PLACES.search(k) and self._layers and list(v) == sorted(v):
            old = max(self._layers)
            new = len(self._layers[old])
            return sorted({x if x < 0 else min(x * new // old, new - 1) for x in v})
        if "token" in k or (WIDTHS.search(k) and not NO_WIDTHS.search(k)):
            return [self._number(k, x) for x in v]
        return v

    def _number(self, k: str, v: int) -> int:
        if TOKENS.search(k) or k.endswith(("token_ids", "token_id")):
            return self._token(v)
        if LAYERS.search(k):
            return len(self._layers[v]) if v in self._layers else min(v, 2)
        if k == "num_kv_shared_layers":
            return 0
        if self._plan.images and k in ("image_size", "img_size"):
            return min(v, 64)
        for pattern, most in LIMITS.items():
            if re.search(pattern, k):
                return min(v, most)
        return self._width(k, v)

    def _width(self, k: str, v: int) -> int:
        if self._plan.limit:
            return self._limited(k, v)
        divisor = self._plan.divisor
        if self._plan.heads and KEY_HEADS.search(k):
            return max(1, v // divisor)
        if self._plan.heads and HEADS.search(k):
            return max(1, v // divisor)
        if self._plan.heads and HEAD_WIDTHS.search(k):
            return v
        if divisor > 1 and v >= 16 and WIDTHS.search(k) and not NO_WIDTHS.search(k):
            return v // divisor if v % divisor == 0 else max(2, 2 * round(v / divisor / 2))
        return v

    def _limited(self, k: str, v: int) -> int:
        if KEY_HEADS.search(k):
            return min(v, 4 if v in self._heads else 2)
        for pattern, most in ((HEADS, 4), (HEAD_WIDTHS, 16), (INNER_WIDTHS, 128), (RANKS, 32)):
            if pattern.search(k):
                return min(v, most)
        return min(v, 64) if WIDTHS.search(k) and not NO_WIDTHS.search(k) else v

    def _token(self, v: int) -> int:
        """Tokens stay apart, and beyond those of texts."""
        if v < VOCABULARY:
            return v
        return self._tokens.setdefault(v, VOCABULARY - 5 - len(self._tokens))


def _kept_layers(config: Any) -> Iterator[tuple[int, list[int]]]:
    """Which of its layers a configuration keeps, by their number: one of each kind, two at least,
    and as many as a backbone gives."""
    held = config.__dict__
    for k, v in held.items():
        if not isinstance(v, int) or isinstance(v, bool) or not LAYERS.search(k) or v <= 2:
            continue
        lists = [x for x in held.values() if isinstance(x, list | tuple) and len(x) == v]
        kinds = [x for x in lists if all(isinstance(e, str) for e in x)]
        keys = list(zip(*kinds, strict=True)) if kinds else [()] * v
        apart = {int(i) for i in held.get("per_layer_config") or {}}
        keys = [(*key, i in apart) for i, key in enumerate(keys)]
        first = [i for i, key in enumerate(keys) if key not in keys[:i]][:4]
        least = max(2, len(held.get("_out_indices") or ()))
        rest = [i for i in range(v) if i not in first]
        yield v, sorted(first + rest[: max(0, least - len(first))])


def _fitted_sections(held: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Rotations with the sections of their own, which a configuration checks."""
    found: dict[str, Any] = {}
    for k in ("rope_parameters", "rope_scaling"):
        if isinstance(held.get(k), dict) and "mrope_section" in held[k]:
            found[k] = dict(held[k])
            _fit_rotation(found[k], *(_head_width(x) for x in (held, {**held, **given})))
    return found


def _fit_rotations(config: Any, small: Any) -> None:
    """Give rotary embeddings sections and factors of the width that heads have now."""
    old, new = _head_width(config.__dict__), _head_width(small.__dict__)
    for k in ("rope_parameters", "rope_scaling"):
        found = small.__dict__.get(k)
        if isinstance(found, dict) and "mrope_section" in found:
            continue
        if isinstance(found, dict) and old and new:
            for part in (found, *(v for v in found.values() if isinstance(v, dict))):
                _fit_rotation(part, old, new)


def _fit_rotation(found: dict[str, Any], old: int, new: int) -> None:
    section = found.get("mrope_section")
    if section and old != new:
        total = max(sum(section) * new // old, len(section))
        parts = [max(1, s * total // sum(section)) for s in section]
        parts[0] += total - sum(parts)
        found["mrope_section"] = parts
    for k in ("short_factor", "long_factor"):
        if isinstance(found.get(k), list):
            found[k] = found[k][: max(1, len(found[k]) * new // old)]


def _head_width(held: Mapping[str, Any]) -> int:
    if isinstance(held.get("head_dim"), int):
        return held["head_dim"]
    width, heads = (held.get(n) for n in ("hidden_size", "num_attention_heads"))
    return width // heads if isinstance(width, int) and isinstance(heads, int) and heads else 0
