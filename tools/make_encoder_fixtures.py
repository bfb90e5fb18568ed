"""Write test/models/fixtures/encoders.json: what transformers computes with small random encoders.

Run with a Python that has torch and transformers:

    python tools/make_encoder_fixtures.py

Of each configuration of test/support/tiny_encoders.py it has the shapes of the tensors, and the
result in f64: masked means of the last states, of length 1, or scores of pairs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "test"), str(ROOT)]

from support.tiny_encoders import CONFIGS, LABELLED, inputs  # noqa: E402 -- found by the path above
from support.tiny_llm import weights  # noqa: E402

OUT = ROOT / "test" / "models" / "fixtures" / "encoders.json"


def computed(name: str) -> dict[str, Any]:
    """The shapes and the result of a model."""
    config = transformers.AutoConfig.for_model(**CONFIGS[name])
    config._attn_implementation = "eager"
    kind = "ModelForSequenceClassification" if name in LABELLED else "Model"
    model = getattr(transformers, f"Auto{kind}").from_config(config).eval()
    held = {n: p for n, p in model.named_parameters() if name in LABELLED or "pooler" not in n}
    shapes = {n: list(p.shape) for n, p in held.items()}
    with torch.no_grad():
        for n, value in weights(shapes).items():
            held[n].copy_(torch.from_numpy(value))
        model = model.double()
        rows = zip(*inputs(name).values(), strict=True)
        result = [one(model, name, *map(torch.from_numpy, row)) for row in rows]
    return {"shapes": shapes, "result": result}


def one(model: Any, name: str, ids: Any, kinds: Any, mask: Any) -> list[float]:
    """The result for a text, of whose row the padding is left out."""
    length = int(mask.sum())
    given = {"input_ids": ids[None, :length], "attention_mask": mask[None, :length]}
    if "type_vocab_size" in CONFIGS[name]:
        given["token_type_ids"] = kinds[None, :length] * (name in LABELLED)
    found = model(**given)
    if name in LABELLED:
        return found.logits[0].tolist()
    mean = found.last_hidden_state[0].mean(0)
    return (mean / mean.norm()).tolist()


def main() -> None:
    """Write the file."""
    OUT.write_text(json.dumps({name: computed(name) for name in CONFIGS}) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
