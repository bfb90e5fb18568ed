"""The models of ``torch_survey.py``: the smallest of each family of timm, and the architectures of
transformers with their configurations made small."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

from torch_survey import Result, enliven, judge, settle

Case = Callable[[Result], None]

SMALL_WORDS = ("tiny", "nano", "pico", "femto", "atto", "small", "18", "_s", "xs", "mini", "lite",
               "050", "b0", "_t")  # fmt: skip
LARGEST = 400e6
"""The most weights of a model."""


def timm_cases() -> dict[str, Case]:
    """Every family of timm, with the model of it that has the fewest weights."""
    from timm.models import list_models, list_modules

    return {family: _timm_case(family) for family in list_modules() if list_models(module=family)}


def _smallest(family: str) -> str:
    """The least model of a family, among those whose names promise it."""
    import timm
    import torch

    def size(name: str) -> float:
        try:
            with torch.device("meta"):
                return sum(p.numel() for p in timm.create_model(name).parameters())
        except Exception:
            return float("inf")

    names = timm.list_models(module=family)
    return min(([n for n in names if any(w in n for w in SMALL_WORDS)] or names)[:8], key=size)


def _timm_case(family: str) -> Case:
    def run(result: Result) -> None:
        import timm
        import torch

        result["model"] = name = _smallest(family)
        torch.manual_seed(0)
        model = timm.create_model(name).eval()
        cfg = model.default_cfg
        size = cfg.get("min_input_size") or cfg.get("input_size", (3, 224, 224))
        enliven(model)
        settle(model, torch.randn(2, *size))
        judge(model, (torch.randn(1, *size),), {}, result)

    return run


# -- transformers --------------------------------------------------------------------------

SIZES: dict[int, tuple[str, ...]] = {
    64: ("hidden_size", "d_model", "n_embd", "dim", "embed_dim", "emb_dim", "embedding_size",
         "hidden_dim", "word_embed_proj_dim", "d_embed", "embedding_dim", "text_embed_dim",
         "project_dim", "encoder_hidden_size", "decoder_hidden_size", "attention_hidden_size",
         "input_embedding_size", "output_dim", "out_hidden_size"),
    128: ("intermediate_size", "d_ff", "ffn_dim", "n_inner", "encoder_ffn_dim", "decoder_ffn_dim",
          "moe_intermediate_size", "shared_expert_intermediate_size", "ffn_hidden_size", "d_inner",
          "dim_feedforward", "mlp_dim", "decoder_intermediate_size", "intermediate_dim",
          "expert_intermediate_size", "shared_intermediate_size", "moe_d_ff", "ff_dim"),
    32: ("projection_dim", "q_lora_rank", "kv_lora_rank"),
    16: ("linear_head_dim", "mamba_d_head", "mamba_head_dim", "linear_key_head_dim",
         "linear_value_head_dim", "mamba_chunk_size", "chunk_size", "d_kv", "qk_nope_head_dim",
         "qk_rope_head_dim", "v_head_dim", "head_dim", "attention_head_dim", "kv_channels",
         "index_head_dim", "global_head_dim"),
    8: ("rotary_dim",),
    4: ("num_attention_heads", "n_head", "num_heads", "encoder_attention_heads",
        "decoder_attention_heads", "n_heads", "decoder_num_attention_heads",
        "encoder_num_attention_heads", "num_experts", "n_routed_experts", "num_local_experts",
        "moe_num_experts"),
    2: ("num_experts_per_tok", "num_experts_per_token", "moe_k", "moe_topk", "moe_top_k",
        "top_k_experts"),
    1: ("n_group", "topk_group", "num_group", "num_expert_group"),
}  # fmt: skip
"""The most that a number of a configuration stays, by its name."""
LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers",
          "n_layers", "num_decoder_layers", "num_encoder_layers", "encoder_num_hidden_layers",
          "decoder_num_hidden_layers", "depth")  # fmt: skip
KEY_HEADS = ("num_key_value_heads", "n_head_kv", "num_kv_heads", "multi_query_group_num",
             "decoder_num_key_value_heads", "encoder_num_key_value_heads")  # fmt: skip
LIMITS = {name: most for most, names in SIZES.items() for name in names}
VOCABULARY = 1000
TOKENS = 12


def transformers_cases() -> dict[str, Case]:
    """Every architecture that AutoModel knows."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return {n: _transformer_case(n) for n in MODEL_MAPPING_NAMES if n in CONFIG_MAPPING}


def shrink(config: Any, widths: bool, seen: set[int] | None = None) -> None:
    """Make the numbers of a configuration small: those of layers and of the vocabulary, and
    ``widths`` too."""
    from transformers import PretrainedConfig

    seen = set() if seen is None else seen
    if id(config) in seen:
        return
    seen.add(id(config))
    held = config.__dict__
    heads = {held[k] for k in LIMITS if "head" in k and k.endswith(("heads", "head")) and k in held}
    for k, v in list(held.items()):
        if isinstance(v, PretrainedConfig):
            shrink(v, widths, seen)
        elif isinstance(v, int | list) and not isinstance(v, bool):
            put(config, k, _smaller(k, v, widths, heads))
    if widths:
        _fit(config)
    for k in ("use_cache", "output_attentions", "output_hidden_states"):
        if k in held:
            put(config, k, False)
    for k in ("rope_parameters", "rope_scaling"):
        if isinstance(held.get(k), dict) and "mrope_section" in held[k]:
            held[k]["mrope_section"] = [2, 3, 3]


def _fit(config: Any) -> None:
    """Set what follows from other numbers of a configuration."""
    held = config.__dict__
    if "mamba_n_heads" in held and "mamba_d_head" in held:
        inner = held.get("mamba_expand", 2) * held["hidden_size"]
        put(config, "mamba_n_heads", inner // held["mamba_d_head"])
    if "qk_head_dim" in held and "qk_rope_head_dim" in held:
        put(config, "qk_head_dim", held["qk_nope_head_dim"] + held["qk_rope_head_dim"])
    if held.get("prediction_length", 0) is None:
        put(config, "prediction_length", 4)
        put(config, "context_length", 8)


def put(config: Any, name: str, value: Any) -> None:
    """Set what may be set."""
    try:
        setattr(config, name, value)
    except Exception as e:  # a property that others decide
        assert e is not None


def _smaller(k: str, v: Any, widths: bool, heads: set[int]) -> Any:
    if isinstance(v, list):
        if k == "depths":
            return [1] * len(v)
        kinds = list(dict.fromkeys(map(str, v)))
        many = k in ("layer_types", "mlp_layer_types", "layers_block_type", "block_types")
        return (kinds * 2)[:2] if many and len(v) > 2 else v
    if k in LAYERS:
        return min(v, 2)
    if k.endswith("vocab_size"):
        return min(v, VOCABULARY)
    if k.endswith(("token_id", "token_index")):
        return min(v, VOCABULARY - 10)
    if k in ("max_position_embeddings", "n_positions", "max_source_positions"):
        return v if v <= 4096 else 512
    if widths and k in KEY_HEADS:
        return min(v, 4 if v in heads else 2)
    return min(v, LIMITS[k]) if k in LIMITS and (widths or LIMITS[k] <= 2) else v


def inputs_of(model: Any, config: Any, images: bool = False) -> dict[str, Any]:
    """Arguments for a model, by the name of its main input; text comes with ``images`` if wanted,
    for models that compare the two."""
    names = inspect.signature(model.forward).parameters
    main = getattr(model, "main_input_name", "input_ids")
    visual = main in ("pixel_values", "pixel_values_videos")
    if main == "input_ids" or ("input_ids" in names and not visual and "input_" not in main):
        found = _text(names)
        if images:
            found.update(_images("pixel_values", names, config))
    elif main in ("input_features", "input_values", "past_values"):
        found = {main: _series(main, config)}
    else:
        found = _images(main, names, config)
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in names:
        found["decoder_input_ids"] = _ids(6)
    return found


def _ids(length: int = TOKENS) -> Any:
    import torch

    return torch.randint(3, 90, (1, length))


def _text(names: Mapping[str, Any]) -> dict[str, Any]:
    import torch

    found = {"input_ids": _ids()}
    if "attention_mask" in names:
        found["attention_mask"] = torch.ones(1, TOKENS, dtype=torch.long)
    if "bbox" in names:
        found["bbox"] = torch.zeros(1, TOKENS, 4, dtype=torch.long)
    return found


def _series(main: str, config: Any) -> Any:
    """Sound, as features or as samples, or a series of numbers."""
    import torch

    kind = type(config).__name__
    if main == "input_values":
        if hasattr(config, "num_mel_bins") and hasattr(config, "max_length"):
            return torch.randn(1, config.max_length, config.num_mel_bins)
        codec = "ncodec" in kind or "imi" in kind
        return torch.randn(1, 1, 4000) if codec else torch.randn(1, 4000)
    if main == "past_values":
        channels = getattr(config, "num_input_channels", 1)
        return torch.randn(1, getattr(config, "context_length", 64), channels)
    bins = getattr(config, "num_mel_bins", 80)
    if "hisper" in kind:
        return torch.randn(1, bins, 2 * getattr(config, "max_source_positions", 64))
    return torch.randn(1, 64, getattr(config, "feature_projection_input_dim", bins))


def _images(main: str, names: Mapping[str, Any], config: Any) -> dict[str, Any]:
    import torch

    if main == "pixel_values_videos":
        frames = getattr(config, "num_frames", getattr(config, "frames_per_clip", 16))
        return {main: torch.randn(1, frames, 3, *_image_size(config))}
    channels = getattr(getattr(config, "vision_config", None) or config, "num_channels", 3)
    image = _ids() if "ids" in main else torch.randn(1, channels, *_image_size(config))
    found = {main: image, **({"input_ids": _ids()} if "input_ids" in names else {})}
    if "attention_mask" in names and "input_ids" in names:
        found["attention_mask"] = torch.ones(1, TOKENS, dtype=torch.long)
    return found


def _image_size(config: Any) -> tuple[int, int]:
    size = getattr(getattr(config, "vision_config", None) or config, "image_size", 224) or 224
    if isinstance(size, dict):
        return size.get("height", 224), size.get("width", 224)
    return (size, size) if isinstance(size, int) else tuple(size)


def _transformer_case(kind: str) -> Case:
    def run(result: Result) -> None:
        result["stage"] = "no small model"
        model, kwargs = _small_model(kind)
        enliven(model)
        judge(model, (), kwargs, result)

    return run


def _small_model(kind: str) -> tuple[Any, dict[str, Any]]:
    """A small model that runs: with its widths made small, else without."""
    import torch

    reasons: list[str] = []
    for widths, attention, images in product((True, False), ("sdpa", "eager"), (False, True)):
        try:
            return _model(kind, widths, attention, images)
        except Exception as e:
            reasons.append(f"{type(e).__name__}: {e}")
            if isinstance(e, MemoryError):
                break
    torch.manual_seed(0)
    raise RuntimeError(next((r for r in reasons if "attention impl" not in r), reasons[0])[:300])


def _model(kind: str, widths: bool, attention: str, images: bool) -> tuple[Any, dict[str, Any]]:
    import torch
    from transformers import AutoModel
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config = CONFIG_MAPPING[kind]()
    shrink(config, widths)
    config._attn_implementation = attention
    with torch.device("meta"):
        size = sum(p.numel() for p in AutoModel.from_config(config).parameters())
    if size > LARGEST:
        raise MemoryError(f"{size / 1e6:.0f} million weights")
    torch.manual_seed(0)
    model = AutoModel.from_config(config).eval()
    if hasattr(model, "set_experts_implementation"):
        try:
            model.set_experts_implementation("batched_mm")
        except Exception as e:  # it has no experts
            assert e is not None
    kwargs = inputs_of(model, config, images)
    with torch.no_grad():
        model(**kwargs)
    return model, kwargs
