"""Write ``test/llm/fixtures/lora.npz``: what PEFT makes of small adapters on small decoders.

It needs torch, transformers and peft (``pip install torch==2.13.0 transformers peft``):

    python tools/make_lora_fixtures.py
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "test"))

from support.tiny_llm import PROMPT, write_model  # noqa: E402
from support.tiny_lora import ADAPTERS, write_adapter  # noqa: E402

FIXTURES = ROOT / "test" / "llm" / "fixtures"


def main() -> None:
    """All adapters, in f32."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    arrays: dict[str, Any] = {}
    shapes = json.loads((FIXTURES / "shapes.json").read_text(encoding="utf-8"))
    for name, (base, _) in ADAPTERS.items():
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            write_model(folder, shapes[base]["config"], shapes[base]["shapes"])
            model = AutoModelForCausalLM.from_pretrained(
                folder, attn_implementation="eager", dtype=torch.float32
            )
            path = write_adapter(folder / "adapter", name, shapes[base]["shapes"])
            model = PeftModel.from_pretrained(model, path).eval()
            with torch.no_grad():
                arrays[name] = model(torch.tensor([PROMPT])).logits[0].numpy()
                with model.disable_adapter():
                    plain = model(torch.tensor([PROMPT])).logits[0].numpy()
        print(name, float(arrays[name].std()), float(np.abs(arrays[name] - plain).max()))
    np.savez_compressed(FIXTURES / "lora.npz", **arrays)


if __name__ == "__main__":
    main()
