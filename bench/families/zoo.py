"""Whole models as people have them: torch modules of timm and transformers, recurrent nets, U-Nets
and detectors, with fresh weights.

``rlx`` is ``rlx.from_torch`` of the module, ``rlx_onnx`` ``rlx.from_onnx`` of the file that torch
exported, which ONNX Runtime and OpenVINO read too. A first call begins with making the module.
"""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any

from bench.case import Array, Case, Run, Tensor

TEXT = ("input_ids", "attention_mask")
ENCODER = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12,
           "intermediate_size": 1536}  # fmt: skip
DECODER = {"hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8,
           "num_key_value_heads": 2, "intermediate_size": 1408, "vocab_size": 8000}  # fmt: skip
VIT = {"hidden_size": 192, "num_hidden_layers": 12, "num_attention_heads": 3,
       "intermediate_size": 768}  # fmt: skip


def image(size: int) -> dict[str, Tensor]:
    """A picture."""
    return {"image": Tensor((1, 3, size, size))}


def ids(tokens: int, name: str = "ids") -> dict[str, Tensor]:
    """Token ids of a text."""
    return {name: Tensor((1, tokens), "ids", 900)}


MASKED = ids(128) | {"mask": Tensor((1, 128), "ones")}

Model = tuple[str, dict[str, Any], dict[str, Tensor]]


def text(kind: str, **numbers: Any) -> Model:
    """A model of 128 tokens, all of which are seen."""
    return "of_transformers", {"kind": kind, "names": TEXT, **numbers}, MASKED


MODELS: dict[str, Model] = {
    **{
        name: ("of_timm", {"name": name, "size": size}, image(size))
        for name, size in {
            "resnet18": 224, "resnet50": 224, "resnext50_32x4d": 224, "seresnet50": 224,
            "res2net50d": 224, "densenet121": 224, "vgg11": 224, "mobilenetv2_100": 224,
            "mobilenetv3_large_100": 224, "efficientnet_b0": 224, "efficientnetv2_rw_t": 224,
            "regnetx_004": 224, "regnety_004": 224, "convnext_nano": 224, "inception_v3": 299,
            "hrnet_w18_small": 224, "dla34": 224, "ghostnet_100": 224,
            "vit_tiny_patch16_224": 224, "swin_tiny_patch4_window7_224": 224,
            "mixer_s32_224": 224, "resmlp_12_224": 224, "poolformer_s12": 224, "mobilevit_s": 256,
            "levit_128": 224, "edgenext_small": 256, "repvgg_a0": 224, "rexnet_100": 224,
        }.items()
    },
    "bert": text("bert", **ENCODER),
    "roberta": text("roberta", **ENCODER),
    "albert": text("albert", **ENCODER),
    "electra": text("electra", **ENCODER),
    "mpnet": text("mpnet", **ENCODER),
    "deberta-v2": text("deberta-v2", **ENCODER),
    "distilbert": text("distilbert", dim=384, n_layers=6, n_heads=12, hidden_dim=1536),
    "gpt2": text("gpt2", n_embd=384, n_layer=6, n_head=6),
    "llama": text("llama", **DECODER),
    "qwen3": text("qwen3", head_dim=64, **DECODER),
    "gemma2": text("gemma2", head_dim=64, **DECODER),
    "t5": (
        "of_transformers",
        {"kind": "t5", "names": ("input_ids", "decoder_input_ids"), "d_model": 384,
         "num_layers": 4, "d_ff": 1024, "num_heads": 6, "vocab_size": 8000},
        ids(128) | ids(32, "decoder"),
    ),
    "whisper": (
        "of_transformers",
        {"kind": "whisper", "names": ("input_features", "decoder_input_ids"), "d_model": 256,
         "encoder_layers": 4, "decoder_layers": 4, "encoder_attention_heads": 4,
         "decoder_attention_heads": 4, "encoder_ffn_dim": 1024, "decoder_ffn_dim": 1024,
         "max_source_positions": 500, "vocab_size": 8000, "pad_token_id": 0},
        {"sound": Tensor((1, 80, 1000))} | ids(16, "decoder"),
    ),
    "wav2vec2": (
        "of_transformers", {"kind": "wav2vec2", "names": ("input_values",), **ENCODER},
        {"samples": Tensor((1, 16000))},
    ),
    "mamba": (
        "of_transformers",
        {"kind": "mamba", "names": ("input_ids",), "hidden_size": 256, "num_hidden_layers": 4,
         "vocab_size": 8000},
        ids(64),
    ),
    "lstm": ("recurrent", {"net": "LSTM", "hidden": 256, "num_layers": 2}, ids(64)),
    "lstm both ways": ("recurrent", {"net": "LSTM", "hidden": 256, "bidirectional": True}, ids(64)),
    "gru": ("recurrent", {"net": "GRU", "hidden": 256, "num_layers": 2}, ids(64)),
    "unet": ("u_net", {"width": 16, "resized": False}, image(192)),
    "unet resized": ("u_net", {"width": 16, "resized": True}, image(192)),
    "segformer": ("of_segmentation", {"name": "segformer"}, image(192)),
    "ssd mobilenetv3": ("single_shot", {"name": "mobilenetv3_large_100"}, image(320)),
    "ssd cspdarknet53": ("single_shot", {"name": "cspdarknet53"}, image(256)),
    "yolos": (
        "of_detection",
        {"name": "yolos", "names": ("pixel_values",), "image_size": [256, 256],
         "num_detection_tokens": 50, **VIT},
        image(256),
    ),
}  # fmt: skip
"""By name: the function of ``bench/zoo_models.py`` that makes it, its arguments, and the inputs."""
QUICK = ("resnet50", "efficientnet_b0", "swin_tiny_patch4_window7_224", "bert", "llama", "lstm",
         "unet", "yolos")  # fmt: skip


def module(make: str, options: dict[str, Any], case: Case, exporting: bool = False) -> Any:
    """The torch module of a case."""
    return getattr(importlib.import_module("bench.zoo_models"), make)(**options)


def graph(case: Case) -> Any:
    """What RLX makes of the module."""
    import rlx
    from bench.runtimes.torch import arguments

    return rlx.from_torch(case.own["module"](case), *arguments(case), check=False)


def from_torch(case: Case, threads: int) -> Run:
    """The graph of the module, compiled; inputs are given by position."""
    import rlx

    f = rlx.Session("cpu", threads=threads).compile(graph(case))
    feeds = tuple(case.feeds().values())
    return lambda: f.run_slots(*feeds)[0]


def reference(case: Case) -> Array:
    """What torch computes, in f32."""
    import torch

    from bench.runtimes.torch import arguments

    with torch.no_grad():
        result = case.own["module"](case)(*arguments(case))
    return (result[0] if isinstance(result, tuple) else result).numpy()


def case(name: str) -> Case:
    """A model of the table."""
    make, options, inputs = MODELS[name]
    return Case(
        name, lambda *_, **__: None, inputs, tolerance=1e-3, quick=name in QUICK, traced=False,
        runtimes=("rlx", "rlx_onnx", "torch", "inductor", "onnxruntime", "openvino"),
        own={"module": partial(module, make, options), "rlx": from_torch, "graph": graph,
             "reference": reference},
    )  # fmt: skip


def cases() -> list[Case]:
    """All models, on inputs of batch 1."""
    return [case(name) for name in MODELS]
