"""Write test/ops/fixtures/state_space.npz: recurrences with a state, and their gradients, by torch.

Run with a Python that has torch and transformers:

    python tools/make_state_space_fixtures.py

The gated delta rule is that of the Qwen3-Next model in transformers; it takes keys of length 1. The
selective scan is written out here, step by step, and differentiated by torch. All in f64.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers.models.qwen3_next.modeling_qwen3_next import torch_recurrent_gated_delta_rule

OUT = Path(__file__).resolve().parent.parent / "test" / "ops" / "fixtures" / "state_space.npz"


def selective_scan(x: Any, delta: Any, a: Any, b: Any, c: Any, d: Any, state: Any) -> Any:
    ys = []
    for t in range(x.shape[1]):
        step = delta[:, t, :, None]
        state = torch.exp(step * a) * state + step * b[:, t, None] * x[:, t, :, None]
        ys.append((state @ c[:, t, :, None])[..., 0] + d * x[:, t])
    return torch.stack(ys, 1), state


def delta_rule(q: Any, k: Any, v: Any, g: Any, beta: Any, state: Any) -> Any:
    # It would compute in f32: for once, f32 is f64.
    kept, torch.float32 = torch.float32, torch.float64
    try:
        return torch_recurrent_gated_delta_rule(q, k, v, g, beta, state, True)
    finally:
        torch.float32 = kept


def record(name: str, function: Any, operands: list[Any], found: dict[str, Any]) -> None:
    """The operands, the results, and the gradients of the results times random numbers."""
    leaves = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in operands]
    results = function(*leaves)
    weights = [torch.randn(r.shape, dtype=torch.float64) for r in results]
    sum((r * w).sum() for r, w in zip(results, weights, strict=True)).backward()
    for kind, arrays in (
        ("x", operands), ("y", results), ("w", weights), ("g", [leaf.grad for leaf in leaves]),
    ):  # fmt: skip
        for n, array in enumerate(arrays):
            found[f"{name}_{kind}{n}"] = np.asarray(torch.as_tensor(array).detach())


def main() -> None:
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    found: dict[str, Any] = {}
    b, s, h, n = 2, 5, 2, 4
    record("selective_scan", selective_scan, [
        rng.standard_normal((b, s, h)), rng.uniform(0.1, 1, (b, s, h)),
        -rng.uniform(0.1, 2, (h, n)), rng.standard_normal((b, s, n)),
        rng.standard_normal((b, s, n)), rng.standard_normal(h), rng.standard_normal((b, h, n)),
    ], found)  # fmt: skip
    q, k = rng.standard_normal((2, b, s, h, n))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    record("gated_delta_net", delta_rule, [
        q, k, rng.standard_normal((b, s, h, 16)), -rng.uniform(0, 1, (b, s, h)),
        rng.uniform(0, 1, (b, s, h)), rng.standard_normal((b, h, n, 16)),
    ], found)  # fmt: skip
    np.savez_compressed(OUT, **found)


if __name__ == "__main__":
    main()
