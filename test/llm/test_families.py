"""Decoders of every family, against what transformers makes of them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlx.llm.decoder import Decoder
from rlx.llm.engine import StepRows
from rlx.llm.families import FAMILIES, family_of
from rlx.tools.family_page import BOUND
from support.sweeps import covering
from support.tiny_llm import CONFIGS, KEPT, LENGTH, PROMPT, write_model

FIXTURES = Path(__file__).parent / "fixtures"  # tools/make_llm_fixtures.py
PAGES = [3, 1, 0, 2, 5, 4, 6, 7]


@pytest.fixture(scope="module")
def expected() -> Any:
    with np.load(FIXTURES / "logits.npz") as found:
        return dict(found)


def model(name: str, folder: Path, **options: Any) -> Decoder:
    made = json.loads((FIXTURES / "shapes.json").read_text(encoding="utf-8"))[name]
    write_model(folder, made["config"], made["shapes"])
    options = {"cache": "f32", "page_size": 16, "threads": 1, "context": 128, **options}
    return Decoder.load(folder, **options)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Decoder]:
    """A model of which some layers have a window, by one thread and by two."""
    return [
        model("gemma3", tmp_path_factory.mktemp("model"), threads=n, cache="bf16") for n in (1, 2)
    ]


def facts(name: str) -> Iterator[tuple[str, Any]]:
    """What a configuration asks of the builder, beside sizes."""
    c = CONFIGS[name]
    family = family_of("hf", c["model_type"])
    for field in dataclasses.fields(family):
        value = getattr(family, field.name)
        if field.name not in ("name", "gguf", "hf") and value != field.default:
            yield field.name, value
    rope = c.get("rope_scaling") or c.get("rope_parameters") or {}
    yield "rope", rope.get("rope_type")
    yield from (
        (k, True) for k in ("use_parallel_residual", "num_kv_heads", "attention_bias") if k in c
    )


@pytest.mark.parametrize("name", covering(CONFIGS, facts))
def test_logits_and_greedy_tokens_are_those_of_transformers(
    name: str, tmp_path: Path, expected: Any
) -> None:
    m = model(name, tmp_path)
    wanted = expected[f"{name}.logits"]
    pages, states = PAGES[: m.cache.table[1]], [] if m.states is None else [5]
    logits = m.step(StepRows.of([(PROMPT, 0, pages)], every=True, states=states))
    assert np.abs(logits[KEPT] - wanted).max() <= BOUND * wanted.std()
    tokens: list[int] = []
    for n in range(64):
        tokens.append(int(logits[-1].argmax()))
        logits = m.step(StepRows.of([(tokens[-1:], len(PROMPT) + n, pages)], states=states))
    assert tokens == expected[f"{name}.greedy"].tolist()


def test_the_page_has_every_configuration() -> None:
    """``docs/llm_families.md``, whose rows ``tools/llm_families.py`` found."""
    path = Path(__file__).resolve().parents[2] / "docs" / "llm_families.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert [*rows] == [*CONFIGS], "python tools/llm_families.py NAME --record"
    found = [(name, row[s]) for name, row in rows.items() for s in ("tiny", "0.6b") if s in row]
    assert [name for name, row in found if row["same"] != row["tokens"]] == []
    assert [n for n, row in rows.items() if row["tiny"]["error"] > BOUND] == []
    beyond = {n for n, row in rows.items() if "0.6b" in row and row["0.6b"]["error"] > BOUND}
    assert beyond == {"falcon-mamba", "qwen3-next", "jamba"}, "which docs/llm.md counts"


def test_every_family_is_tried() -> None:
    tried = {kind for c in CONFIGS.values() for kind in (c["model_type"],)}
    whole = {"gemma3", "qwen3_5", "qwen3_5_moe"}  # of which those are the parts for texts
    assert {name for row in FAMILIES.values() for name in row.hf} - tried == whole


@settings(max_examples=25)
@given(data=st.data())
def test_the_bits_of_a_sequence_are_its_own(data: st.DataObject, models: list[Decoder]) -> None:
    """Alone, in any batch, under any cut of its prompt, in any pages, at 1 and 2 threads."""
    one, two = models
    count = data.draw(st.integers(1, LENGTH))
    alone = one.step(StepRows.of([(PROMPT[:count], 0, PAGES)]))[0]
    m = data.draw(st.sampled_from([one, two]))
    pages = data.draw(st.permutations(range(8)))
    mine, theirs = pages[:3], pages[3:6]
    other = data.draw(st.integers(0, 20))
    if other:
        m.step(StepRows.of([(PROMPT[:other], 0, theirs)]))
    at = 0
    found = None
    while at < count:
        n = data.draw(st.integers(1, count - at))
        entries = [(PROMPT[at : at + n], at, mine)]
        if data.draw(st.booleans()):
            entries.insert(
                data.draw(st.integers(0, 1)), (PROMPT[: other + 1][other:], other, theirs)
            )
            other += 1
        logits = m.step(StepRows.of(entries))
        found = logits[[e[2] is mine for e in entries].index(True)]
        at += n
    assert found is not None
    assert found.tobytes() == alone.tobytes()
