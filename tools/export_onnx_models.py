"""Export small models of PyTorch and transformers to ONNX, with what ONNX Runtime makes of them.

    python tools/export_onnx_models.py [DIRECTORY]

needs torch, transformers, onnxscript and onnxruntime, which ``make bench`` installs in part.
Weights are random, from a fixed seed. Each model is a file NAME.onnx, and NAME.npz holds its inputs
and the expected outputs, which ``test/frontends/test_onnx_models.py`` compares with. The default
directory is where that test looks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from torch import Tensor, nn

FIXTURES = Path(__file__).resolve().parents[1] / "test" / "frontends" / "fixtures"

Inputs = dict[str, Tensor]
Dims = dict[str, dict[int, str]]


class Residual(nn.Module):
    """A block of ResNet: two convolutions with batch norms, and a shortcut."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outer)
        self.down = nn.Sequential(
            nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer)
        )

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.down(x))


def resnet() -> tuple[nn.Module, Inputs, Dims]:
    """A stem, two residual blocks, global average pooling and a classifier."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.MaxPool2d(3, 2, 1), Residual(8, 8, 1), Residual(8, 16, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.normal_(0, 0.1)
            layer.running_var.uniform_(0.5, 1.5)
    return model, {"image": torch.randn(2, 3, 32, 32)}, {"image": {0: "batch"}}


class VitBlock(nn.Module):
    """Patches of an image, a class token, and one encoder layer of a vision transformer."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.position = nn.Parameter(torch.randn(1, 17, width))
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width))
        self.heads = heads

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


def vit() -> tuple[nn.Module, Inputs, Dims]:
    return VitBlock(), {"image": torch.randn(2, 3, 32, 32)}, {"image": {0: "batch"}}


def bert() -> tuple[nn.Module, Inputs, Dims]:
    """Two layers of BERT with its embeddings, a mask, and a symbolic batch and length."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=50, hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
        intermediate_size=40, max_position_embeddings=32,
    )  # fmt: skip

    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = BertModel(config, add_pooling_layer=True)

        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
            out = self.model(input_ids=input_ids, attention_mask=attention_mask)
            return out.last_hidden_state, out.pooler_output

    ids = torch.randint(0, 50, (2, 7))
    mask = torch.ones(2, 7, dtype=torch.int64)
    mask[1, 5:] = 0
    dims = {0: "batch", 1: "length"}
    return (
        Wrapped(), {"input_ids": ids, "attention_mask": mask},
        {"input_ids": dims, "attention_mask": dims},
    )  # fmt: skip


def llama() -> tuple[nn.Module, Inputs, Dims]:
    """Two decoder layers of Llama with grouped heads and rotary positions."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=48, max_position_embeddings=64,
    )  # fmt: skip

    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = LlamaForCausalLM(config)

        def forward(self, input_ids: Tensor) -> Tensor:
            return self.model(input_ids=input_ids, use_cache=False).logits

    return (
        Wrapped(), {"input_ids": torch.randint(0, 60, (2, 9))},
        {"input_ids": {0: "batch", 1: "length"}},
    )  # fmt: skip


MODELS: dict[str, Callable[[], tuple[nn.Module, Inputs, Dims]]] = {
    "resnet": resnet,
    "vit": vit,
    "bert": bert,
    "llama": llama,
}


def export(name: str, folder: Path) -> None:
    """Write one model and its arrays."""
    torch.manual_seed(0)
    model, inputs, dims = MODELS[name]()
    path = folder / f"{name}.onnx"
    with torch.no_grad():
        program: Any = torch.onnx.export(
            model.eval(), kwargs=None, args=tuple(inputs.values()), dynamo=True,
            input_names=list(inputs), dynamic_shapes=_dynamic(inputs, dims), external_data=False,
        )  # fmt: skip
    slim = program.model_proto
    for node in (*slim.graph.node, *(n for f in slim.functions for n in f.node)):
        del node.metadata_props[:]
        node.doc_string = ""
    del slim.graph.value_info[:]
    onnx.save(slim, path)
    arrays = {k: v.numpy() for k, v in inputs.items()}
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    outputs: list[Any] = list(session.run(None, arrays))
    np.savez_compressed(
        folder / f"{name}.npz", **arrays, **{f"output_{i}": a for i, a in enumerate(outputs)}
    )
    print(f"{path}: {path.stat().st_size} bytes, {len(slim.graph.node)} nodes")


def _dynamic(inputs: Inputs, dims: Dims) -> tuple[Any, ...]:
    named = {n: torch.export.Dim(n, min=1, max=64) for d in dims.values() for n in d.values()}
    return tuple({i: named[n] for i, n in dims.get(k, {}).items()} for k in inputs)


def main(argv: list[str]) -> int:
    """Export all models to the directory that is given."""
    folder = Path(argv[0]) if argv else FIXTURES
    folder.mkdir(parents=True, exist_ok=True)
    for name in MODELS:
        export(name, folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
