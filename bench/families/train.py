"""Training steps in f32: the loss, all gradients and an update by SGD; ``train_cases`` has models.

A call is a step, so every call trains further. The first loss is compared with that of PyTorch in
f32.
"""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any

from bench import train_cases
from bench.case import Case, Run

LIBRARIES = {
    "torch": "bench.train_peers",
    "inductor": "bench.train_peers",
    "jax": "bench.train_peers",
    "sklearn": "bench.train_sklearn",
    "rlx": "bench.train_rlx",
}
"""The module that has a library's ``prepare_NAME``."""


def step(library: str, case: Case, threads: int) -> Run:
    """A step of a library."""
    module = importlib.import_module(LIBRARIES[library])
    return getattr(module, f"prepare_{library}")(train_cases.CASES[case.name], threads)


def first_loss(case: Case) -> Any:
    """The reference."""
    return step("torch", case, 1)()


def graph(case: Case) -> Any:
    """The step that RLX compiles."""
    from bench.train_rlx import step_graph

    return step_graph(train_cases.CASES[case.name])


def cases() -> list[Case]:
    """Every model of ``train_cases``; scikit-learn has the dense one alone."""
    own = {name: partial(step, name) for name in LIBRARIES}
    return [
        Case(
            name, graph, {}, tolerance=1e-4, quick=name == "mlp",
            runtimes=tuple(n for n in LIBRARIES if n != "sklearn" or name == "mlp"),
            own=own | {"reference": first_loss, "graph": graph},
        )
        for name in train_cases.CASES
    ]  # fmt: skip
