"""Write test/training/fixtures/language_model.json: the losses of the example's twin in PyTorch.

    PYTHONPATH=. python tools/make_training_fixtures.py      # needs torch

The twin has the weights and the batches of examples/training/language_model.py, and the optimiser
of the test: AdamW with a rate of 1e-3 and gradients clipped to a norm of 1.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

ROOT = Path(__file__).resolve().parent.parent
STEPS = 50


def example() -> Any:
    """The example as a module."""
    path = ROOT / "examples" / "training" / "language_model.py"
    spec = importlib.util.spec_from_file_location("language_model", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def loss_of(m: Any, p: dict[str, torch.Tensor], ids: Any, follows: Any) -> torch.Tensor:
    """The loss of a batch, as the example's graph has it."""
    batch, tokens, width = m.BATCH, m.TOKENS, m.WIDTH

    def norm(x: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, (width,), gamma, 1e-5)

    def heads(x: torch.Tensor) -> torch.Tensor:
        return x.view(batch, tokens, m.HEADS, width // m.HEADS).transpose(1, 2)

    x = p["embed"][torch.tensor(ids)] + p["place"]
    for i in range(m.LAYERS):
        h = norm(x, p[f"{i}.norm1"])
        q, k, v = (heads(h @ p[f"{i}.{n}"]) for n in ("query", "key", "value"))
        a = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + a.transpose(1, 2).reshape(batch, tokens, width) @ p[f"{i}.out"]
        h = norm(x, p[f"{i}.norm2"])
        x = x + functional.gelu(h @ p[f"{i}.up"]) @ p[f"{i}.down"]
    out = norm(x, p["norm"]) @ p["embed"].T
    return functional.cross_entropy(out.flatten(0, 1), torch.tensor(follows).flatten())


def main() -> None:
    """Train the twin and write its losses."""
    m = example()
    params = {n: torch.nn.Parameter(torch.tensor(a)) for n, a in m.weights().items()}
    optimizer = torch.optim.AdamW(params.values(), lr=1e-3, weight_decay=0.01)
    text = (ROOT / "LICENSE").read_bytes()
    losses: list[float] = []
    for n in range(STEPS):
        batch = m.windows(text, n)
        optimizer.zero_grad()
        loss = loss_of(m, params, batch["ids"], batch["next"])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params.values(), 1.0)
        optimizer.step()
        losses.append(float(f"{loss.item():.9g}"))
    out = ROOT / "test" / "training" / "fixtures" / "language_model.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"torch": torch.__version__, "losses": losses}), encoding="utf-8")


if __name__ == "__main__":
    main()
