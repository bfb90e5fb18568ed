"""Random graphs under random nestings of transforms; ``tools/soak.py`` runs thousands of them."""

from __future__ import annotations

from collections import Counter

import pytest

from support.random_runs import failure, report
from support.random_transforms import transformed


@pytest.mark.parametrize("start", [0, 3])
def test_what_transforms_give_runs_as_it_is_interpreted(start: int) -> None:
    for seed in range(start, start + 3):
        made = transformed(seed)
        if made is not None:
            found = failure(made.case)
            assert found is None, f"{made}\n{report(made.case, found)}"


def test_every_transform_comes_up_in_nestings() -> None:
    made = [m for m in map(transformed, range(40)) if m is not None]
    seen = Counter(step.name for m in made for step in m.steps)
    assert set(seen) == {
        "grad", "value_and_grad", "vjp", "jvp", "vmap", "hvp", "jacfwd", "jacrev", "hessian",
    }  # fmt: skip
    assert sum(len(m.steps) > 1 for m in made) > 10


def test_the_same_as_jax() -> None:
    pytest.importorskip("jax", reason="JAX is not installed: it is a peer of bench/ only")
    from support.jax_graphs import case_for_jax, disagreement

    for seed in (0, 1, 2, 3, 4, 5, 7, 8):
        made = case_for_jax(seed)
        if made is not None:
            assert disagreement(made) is None, f"seed {seed}: {made}"
