"""Write test/optim/fixtures/*.json: what PyTorch's optimisers and schedules make of given numbers.

    python tools/make_optim_fixtures.py      # needs torch

Each optimiser runs ``STEPS`` updates on two params from gradients that do not depend on them; what
is written are the params after every update. What PyTorch has not (Lion, LAMB, MARS, Sophia, SOAP)
is written out from the papers' algorithms in float64. Muon's iteration is kept in float32: the
bfloat16 that it rounds to would leave two digits to compare.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent / "test" / "optim" / "fixtures"
STEPS, SEED = 6, 7
SHAPES = {"w": (5, 3), "u": (3, 5), "b": (4,), "t": (2, 3, 4)}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {"lr": 0.1}),
    "sgd-decay": ("SGD", {"lr": 0.1, "weight_decay": 0.02}),
    "sgd-momentum": ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.02}),
    "sgd-nesterov": ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "adam": ("Adam", {"lr": 1e-2, "weight_decay": 0.1}),
    "adamw": ("AdamW", {"lr": 1e-2, "weight_decay": 0.1, "betas": (0.8, 0.99), "eps": 1e-6}),
    "adafactor": ("Adafactor", {"lr": 1e-2}),
    "adafactor-decay": (
        "Adafactor",
        {"lr": 0.5, "weight_decay": 0.1, "d": 1.5, "eps": (1e-4, 1e-2), "beta2_decay": -0.6},
    ),
    "nadamw": (
        "NAdam",
        {"lr": 1e-2, "weight_decay": 0.1, "betas": (0.8, 0.99), "decoupled_weight_decay": True},
    ),
    "radam": ("RAdam", {"lr": 1e-2, "weight_decay": 0.1, "betas": (0.9, 0.9)}),
    "radam-decoupled": (
        "RAdam",
        {"lr": 1e-2, "weight_decay": 0.1, "betas": (0.9, 0.9), "decoupled_weight_decay": True},
    ),
    "muon": ("Muon", {"lr": 0.02}),
    "muon-plain": ("Muon", {"lr": 0.02, "nesterov": False, "adjust_lr_fn": "match_rms_adamw"}),
}  # fmt: skip

SCHEDULES: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "step": lambda o: torch.optim.lr_scheduler.StepLR(o, 3, 0.5),
    "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 10, eta_min=0.01),
    "linear": lambda o: torch.optim.lr_scheduler.LinearLR(o, 1.0, 0.1, 10),
}


def numbers() -> tuple[dict[str, np.ndarray], list[dict[str, np.ndarray]]]:
    """The first params, and the gradients of every step."""
    rng = np.random.default_rng(SEED)
    params = {n: rng.standard_normal(s).astype(np.float32) for n, s in SHAPES.items()}
    grads = [
        {n: rng.standard_normal(s).astype(np.float32) for n, s in SHAPES.items()}
        for _ in range(STEPS)
    ]
    return params, grads


def listed(a: np.ndarray) -> Any:
    """Nested lists of numbers of 9 digits, which give the same f32."""
    return np.vectorize(lambda x: float(f"{x:.9g}"))(a).tolist()


def run(
    make: Callable[..., torch.optim.Optimizer], settings: dict[str, Any], names: Sequence[str]
) -> list[dict[str, list[Any]]]:
    """The params after every update."""
    params, grads = numbers()
    tensors = {n: torch.nn.Parameter(torch.tensor(params[n])) for n in names}
    optimizer = make(list(tensors.values()), **settings)
    found: list[dict[str, list[Any]]] = []
    for given in grads:
        for n, p in tensors.items():
            p.grad = torch.tensor(given[n])
        optimizer.step()
        found.append({n: listed(p.detach().numpy()) for n, p in tensors.items()})
    return found


def lion(lr: float, beta1: float, beta2: float, decay: float) -> list[dict[str, list[Any]]]:
    """Algorithm 2 of the paper, line by line, in float64."""
    params, grads = numbers()
    theta = {n: a.astype(np.float64) for n, a in params.items()}
    m = {n: np.zeros(a.shape) for n, a in params.items()}
    found: list[dict[str, list[Any]]] = []
    for given in grads:
        for n, g in given.items():
            c = beta1 * m[n] + (1 - beta1) * g
            theta[n] = theta[n] - lr * (np.sign(c) + decay * theta[n])
            m[n] = beta2 * m[n] + (1 - beta2) * g
        found.append({n: listed(a) for n, a in theta.items()})
    return found


Rule = Callable[[np.ndarray, np.ndarray, dict[str, Any], int], np.ndarray]


def square() -> tuple[dict[str, np.ndarray], list[dict[str, np.ndarray]]]:
    """As ``numbers``, for one square param: of another the first gradient leaves a null space, of
    which any basis is one of eigenvectors."""
    rng = np.random.default_rng(SEED + 1)
    first, *grads = rng.standard_normal((1 + STEPS, 4, 4)).astype(np.float32)
    return {"s": first}, [{"s": g} for g in grads]


def by_rule(rule: Rule, given_numbers: Callable[..., Any] = numbers) -> list[dict[str, list[Any]]]:
    """The params after every update by a rule: param, gradient, what it keeps, and the update from
    1 on, to the new param; all in float64."""
    params, grads = given_numbers()
    names = list(params)
    theta = {n: params[n].astype(np.float64) for n in names}
    kept: dict[str, dict[str, Any]] = {n: {} for n in names}
    found: list[dict[str, list[Any]]] = []
    for t, given in enumerate(grads, 1):
        for n in names:
            theta[n] = rule(theta[n], given[n].astype(np.float64), kept[n], t)
        found.append({n: listed(a) for n, a in theta.items()})
    return found


def lamb(p: np.ndarray, g: np.ndarray, kept: dict[str, Any], t: int) -> np.ndarray:
    """Algorithm 2 of LAMB's paper, with its phi the identity."""
    kept["m"] = 0.9 * kept.get("m", 0) + 0.1 * g
    kept["v"] = 0.999 * kept.get("v", 0) + 0.001 * g**2
    r = kept["m"] / (1 - 0.9**t) / (np.sqrt(kept["v"] / (1 - 0.999**t)) + 1e-6) + 0.1 * p
    return p - 0.01 * np.linalg.norm(p) / np.linalg.norm(r) * r


def mars(p: np.ndarray, g: np.ndarray, kept: dict[str, Any], t: int) -> np.ndarray:
    """Algorithm 2 of MARS's paper (MARS-AdamW), approximate."""
    c = g + 0.025 * 0.95 / 0.05 * (g - kept.get("g", g))
    c = c / max(1.0, float(np.linalg.norm(c)))
    kept["g"], kept["m"] = g, 0.95 * kept.get("m", 0) + 0.05 * c
    kept["v"] = 0.99 * kept.get("v", 0) + 0.01 * c**2
    m, v = kept["m"] / (1 - 0.95**t), kept["v"] / (1 - 0.99**t)
    return p - 0.01 * (m / (np.sqrt(v) + 1e-8) + 0.1 * p)


def sophia(p: np.ndarray, g: np.ndarray, kept: dict[str, Any], t: int) -> np.ndarray:
    """Algorithm 3 of Sophia's paper, with batch * g * g for the Hessian at every second update."""
    kept["m"] = 0.96 * kept.get("m", 0) + 0.04 * g
    if t % 2 == 1:
        kept["h"] = 0.99 * kept.get("h", 0) + 0.01 * 16 * g * g
    p = p - 0.01 * 0.1 * p
    return p - 0.01 * np.clip(kept["m"] / np.maximum(0.05 * kept["h"], 1e-12), -1, 1)


def soap(p: np.ndarray, g: np.ndarray, kept: dict[str, Any], t: int) -> np.ndarray:
    """Algorithm 3 of SOAP's paper, with new eigenvectors at every second update and the first."""
    if t > 1:
        left, right = kept["Q"]
        kept["m"] = 0.95 * kept.get("m", 0) + 0.05 * g
        kept["v"] = 0.9 * kept.get("v", 0) + 0.1 * (left.T @ g @ right) ** 2
        m = left.T @ kept["m"] @ right / (1 - 0.95 ** (t - 1))
        n = m / (np.sqrt(kept["v"] / (1 - 0.9 ** (t - 1))) + 1e-8)
        p = p - 0.01 * left @ n @ right.T
        p = p - 0.01 * 0.1 * p
    kept["l"] = 0.8 * kept.get("l", 0) + 0.2 * g @ g.T
    kept["r"] = 0.8 * kept.get("r", 0) + 0.2 * g.T @ g
    if t == 1 or t % 2 == 0:
        kept["Q"] = tuple(np.linalg.eigh(kept[side])[1] for side in "lr")
    return p


def rates(schedule: Callable[[torch.optim.Optimizer], Any]) -> list[float]:
    """The learning rates of 12 updates."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    scheduler = schedule(optimizer)
    found: list[float] = []
    for _ in range(12):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


def clipped(limit: float) -> dict[str, list[Any]]:
    """The first gradients after clip_grad_norm_."""
    grads = numbers()[1][0]
    tensors = {n: torch.nn.Parameter(torch.zeros(g.shape)) for n, g in grads.items()}
    for n, p in tensors.items():
        p.grad = torch.tensor(grads[n])
    torch.nn.utils.clip_grad_norm_(list(tensors.values()), limit)
    return {n: listed(p.grad.numpy()) for n, p in tensors.items() if p.grad is not None}


def main() -> None:
    """Write the file."""
    torch.Tensor.bfloat16 = torch.Tensor.clone  # what Muon calls
    params, grads = numbers()
    found: dict[str, Any] = {
        "torch": torch.__version__,
        "params": {n: listed(a) for n, a in params.items()},
        "grads": [{n: listed(a) for n, a in g.items()} for g in grads],
        "square": [listed(a["s"]) for a in (square()[0], *square()[1])],
        "updates": {},
        "rates": {name: rates(make) for name, make in SCHEDULES.items()},
        "clipped": {str(limit): clipped(limit) for limit in (0.5, 100.0)},
    }
    for case, (kind, settings) in CASES.items():
        names = [n for n, s in SHAPES.items() if kind != "Muon" or len(s) == 2]
        found["updates"][case] = run(getattr(torch.optim, kind), settings, names)
    for rule in (lamb, mars, sophia):
        found["updates"][rule.__name__] = by_rule(rule)
    found["updates"]["soap"] = by_rule(soap, square)
    found["updates"]["lion"] = lion(1e-2, 0.9, 0.99, 0.1)
    ROOT.mkdir(parents=True, exist_ok=True)
    (ROOT / "torch.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
