"""Write ``test/llm/fixtures/logits.npz`` and ``shapes.json``: what transformers makes of small
decoders of every family; and ``smollm2.npz``: what it makes of SmolLM2.

It needs torch and transformers (``pip install torch==2.13.0 transformers accelerate gguf``):

    python tools/make_llm_fixtures.py               # all
    python tools/make_llm_fixtures.py gpt-oss       # those of a configuration anew
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "test"))

from support.minilm import smollm_file  # noqa: E402
from support.tiny_llm import CONFIGS, KEPT, PROMPT, config, write_model  # noqa: E402

GREEDY = 64
COLUMNS = 61
"""Of SmolLM2's logits every so many are kept."""


def main() -> None:
    """All families, in f32, or those that are named."""
    names = sys.argv[1:]
    folder = ROOT / "test" / "llm" / "fixtures"
    arrays: dict[str, Any] = {}
    shapes: dict[str, Any] = {}
    if names:
        shapes.update(json.loads((folder / "shapes.json").read_text(encoding="utf-8")))
        arrays.update(np.load(folder / "logits.npz"))
    for name in names or CONFIGS:
        with tempfile.TemporaryDirectory() as made:
            shapes[name], logits, greedy = judged(config(name), Path(made), GREEDY)
        arrays[f"{name}.logits"] = logits[KEPT]
        arrays[f"{name}.greedy"] = greedy
        print(name, len(shapes[name]["shapes"]), float(logits.std()))
    arrays = {
        f"{n}.{k}": arrays[f"{n}.{k}"] for n in CONFIGS if n in shapes for k in ("logits", "greedy")
    }
    shapes = {n: shapes[n] for n in CONFIGS if n in shapes}
    np.savez_compressed(folder / "logits.npz", **arrays)
    (folder / "shapes.json").write_text(json.dumps(shapes, indent=None) + "\n", encoding="utf-8")
    if not names:
        np.savez_compressed(folder / "smollm2.npz", **smollm())


def judged(whole: dict[str, Any], folder: Path, count: int) -> tuple[dict[str, Any], Any, Any]:
    """A model of a configuration in a folder, and what transformers makes of it: its configuration
    and shapes as they are saved, the logits of a prompt, and so many of the likeliest tokens."""
    import torch

    made = save_model(whole, folder)
    model = load_judge(folder)
    with torch.no_grad():
        ids = torch.tensor([PROMPT])
        logits = model(ids).logits[0].numpy()
        for _ in range(count):
            ids = torch.cat([ids, model(ids).logits[:, -1].argmax(-1, keepdim=True)], 1)
    greedy = ids[0, len(PROMPT) :].numpy().astype(np.int32)
    return made, logits.astype(np.float32), greedy


def save_model(
    whole: dict[str, Any], folder: Path, scale: float = 0.25, dtype: Any = "f4"
) -> dict[str, Any]:
    """Write a model of a configuration to a folder, with weights of a scale and an element type
    that follow from their names; its configuration and shapes, as transformers saves them."""
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.initialization import no_init_weights

    with no_init_weights():
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**whole)).float()
    model.tie_weights()
    # What it would write are the names and shapes alone: the numbers are none yet.
    with patch("transformers.modeling_utils.safe_save_file") as written:
        model.save_pretrained(folder, max_shard_size="100GB")
    stored = written.call_args.args[0]
    shapes = {name: list(stored[name].shape) for name in sorted(stored)}
    saved = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    write_model(folder, saved, shapes, scale, dtype)
    return {"config": saved, "shapes": shapes}


def load_judge(folder: Path, dtype: Literal["float32", "float64"] = "float32") -> Any:
    """The model of a folder in transformers, of which every product and sum is in a type."""
    import torch
    from transformers import AutoModelForCausalLM, logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    take_steps()
    given: dict[str, Any] = {"dtype": getattr(torch, dtype)}
    given |= dict.fromkeys(("attn_implementation", "experts_implementation"), "eager")
    return AutoModelForCausalLM.from_pretrained(folder, **given).eval()


def take_steps() -> None:
    """Let transformers run the gated delta rule by its own function of single steps: that of
    chunks, for the speed of GPUs, inverts triangles, and is in f32 7e-5 of the deviation from
    it."""
    from transformers.models.qwen3_5 import modeling_qwen3_5 as dense
    from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe as moe
    from transformers.models.qwen3_next import modeling_qwen3_next as first

    step = first.torch_recurrent_gated_delta_rule

    def by_steps(*args: Any, chunk_size: int | None = None, **more: Any) -> Any:
        return step(*args, **more)

    modules: tuple[Any, ...] = (first, dense, moe)
    for module in modules:
        module.torch_chunk_gated_delta_rule = by_steps


def smollm() -> dict[str, Any]:
    """Ids of a question, some columns of its logits, and the tokens that are the likeliest."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = smollm_file()
    if path is None:
        sys.exit("make .venv/chat-model.stamp")
    given: dict[str, Any] = {"gguf_file": path.name}
    tokenizer = AutoTokenizer.from_pretrained(path.parent, **given)
    model = AutoModelForCausalLM.from_pretrained(path.parent, dtype=torch.float32, **given).eval()
    ids = torch.tensor([tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}],
        add_generation_prompt=True, return_dict=False,
    )])  # fmt: skip
    count = ids.shape[1]
    with torch.no_grad():
        logits = model(ids).logits[0].numpy()
        for _ in range(GREEDY):
            ids = torch.cat([ids, model(ids).logits[:, -1].argmax(-1, keepdim=True)], 1)
    return {
        "ids": ids[0, :count].numpy().astype(np.int32), "std": np.float32(logits.std()),
        "logits": logits[:, ::COLUMNS].astype(np.float32),
        "greedy": ids[0, count:].numpy().astype(np.int32),
    }  # fmt: skip


if __name__ == "__main__":
    main()
