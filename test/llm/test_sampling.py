"""Tokens drawn in a graph, judged by NumPy in f64 and by the logits processors of transformers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx
from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.ir.dim import Dim
from rlx.ir.graph import Graph
from rlx.llm.sampling import Plan, Row, Sampler, SamplingParams, _feeds, scores

VOCAB = 200
Array = np.ndarray[Any, Any]

CASES = {
    "plain": SamplingParams(),
    "temperature": SamplingParams(temperature=0.6),
    "top_k": SamplingParams(top_k=7),
    "top_k beyond the short list": SamplingParams(top_k=150),
    "top_p": SamplingParams(top_p=0.8),
    "top_p tiny": SamplingParams(top_p=1e-6),
    "top_k and top_p": SamplingParams(top_k=20, top_p=0.5, temperature=1.7),
    "min_p": SamplingParams(min_p=0.1),
    "typical": SamplingParams(typical_p=0.6),
    "repetition": SamplingParams(repetition_penalty=1.4),
    "presence and frequency": SamplingParams(presence_penalty=0.7, frequency_penalty=-0.4),
    "bias": SamplingParams(logit_bias={3: 5.0, 199: -math.inf}),
    "all": SamplingParams(
        temperature=0.8, top_k=60, top_p=0.9, min_p=0.01, typical_p=0.9, repetition_penalty=1.1,
        presence_penalty=0.2, frequency_penalty=0.1, logit_bias={9: 2.0},
    ),
}  # fmt: skip


def logits_of(rows: int, seed: int = 0) -> Array:
    return (np.random.default_rng(seed).normal(size=(rows, VOCAB)) * 3).astype(np.float32)


def expected(x: Array, row: Row) -> Array:
    """The scores of a row in f64, by the definitions."""
    p, x = row.params, x.astype(np.float64)
    for token, bias in p.logit_bias.items():
        x[token] += bias
    for token in {*row.prompt, *row.answer}:
        x[token] *= 1 / p.repetition_penalty if x[token] > 0 else p.repetition_penalty
    for token in set(row.answer):
        x[token] -= p.presence_penalty + p.frequency_penalty * list(row.answer).count(token)
    if row.mask is not None:
        allowed = np.unpackbits(row.mask.view(np.uint8), bitorder="little")[:VOCAB]
        x[allowed == 0] = -math.inf
    x = x / p.temperature
    if p.top_k:
        x[x < np.sort(x)[-p.top_k]] = -math.inf
    if p.top_p < 1:
        order = np.argsort(-x, kind="stable")
        before = np.cumsum(softmax(x)[order]) - softmax(x)[order]
        x[order[before >= p.top_p]] = -math.inf
    x[softmax(x) < p.min_p * softmax(x).max()] = -math.inf
    if p.typical_p < 1:
        q = softmax(x)
        surprise = -np.log(q, where=q > 0, out=np.full_like(q, -math.inf))
        far = np.abs(surprise - np.sum(q * np.where(q > 0, surprise, 0)))
        order = np.argsort(far, kind="stable")
        before = np.cumsum(q[order]) - q[order]
        x[order[before >= p.typical_p]] = -math.inf
    return x


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max())
    return e / e.sum()


def row_of(params: SamplingParams, **given: Any) -> Row:
    return Row(params, **{"prompt": [1, 2, 3, 5], "answer": [5, 9, 9], **given})


def run_scores(x: Array, rows: list[Row]) -> Array:
    plan = Plan.of(rows[0])
    g = Graph()
    g.set_outputs(scores(g, g.input("logits", [Dim("rows"), VOCAB]), plan))
    feeds = {k: v for k, v in _feeds(plan, rows, VOCAB).items() if k not in ("seed", "step")}
    return np.asarray(rlx.Session("cpu").compile(g).run({"logits": x, **feeds})[0])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("masked", [False, True], ids=["", "masked"])
def test_scores(name: str, masked: bool) -> None:
    x = logits_of(3)
    bits = np.random.default_rng(1).integers(0, 1 << 32, (3, 7), dtype=np.uint32)
    rows = [row_of(CASES[name], mask=bits[n] if masked else None) for n in range(3)]
    found = run_scores(x, rows)
    for n, row in enumerate(rows):
        np.testing.assert_allclose(found[n], expected(x[n], row), rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_scores_are_those_of_transformers(name: str) -> None:
    torch = pytest.importorskip("torch", reason="the processors of transformers need torch")
    process = pytest.importorskip("transformers.generation.logits_process")
    p, x = CASES[name], logits_of(2)
    rows = [row_of(p), row_of(p)]
    if p.presence_penalty or p.frequency_penalty or p.logit_bias:
        pytest.skip("transformers has no such penalty, or spells it otherwise")
    made = [
        process.RepetitionPenaltyLogitsProcessor(p.repetition_penalty),
        process.TemperatureLogitsWarper(p.temperature),
        *([process.TopKLogitsWarper(p.top_k)] if p.top_k else []),
        *([process.TopPLogitsWarper(p.top_p)] if p.top_p < 1 else []),
        *([process.MinPLogitsWarper(p.min_p)] if p.min_p else []),
        *([process.TypicalLogitsWarper(p.typical_p)] if p.typical_p < 1 else []),
    ]
    ids = torch.tensor([[1, 2, 3, 5, 5, 9, 9]] * 2)
    theirs = torch.from_numpy(x.copy())
    for step in made:
        theirs = step(ids, theirs)
    np.testing.assert_allclose(run_scores(x, rows), theirs.numpy(), rtol=2e-5, atol=1e-5)


@pytest.fixture(scope="module")
def sampler() -> Sampler:
    return Sampler(VOCAB)


@pytest.mark.parametrize("temperature", [0, 1e-50, 1e-45, 1e-38, 1e-30])
def test_greedy_takes_the_greatest(sampler: Sampler, temperature: float) -> None:
    """So does every temperature by which logits in f32 would overflow."""
    x = logits_of(5)
    params = SamplingParams(temperature=temperature)
    drawn = sampler.draw(x, [Row(params, [], []) for _ in range(5)])
    assert [d.token for d in drawn] == x.argmax(-1).tolist()


def test_draws_have_the_distribution(sampler: Sampler) -> None:
    stats = pytest.importorskip("scipy.stats")
    params, n = SamplingParams(temperature=1.3, top_k=12), 4000
    x = np.repeat(logits_of(1, 3), n, 0)
    drawn = sampler.draw(x, [Row(params, [], [], seed=s) for s in range(n)])
    p = softmax(expected(x[0], Row(params, [], [])))
    counts = np.bincount([d.token for d in drawn], minlength=VOCAB)
    assert not counts[p == 0].any()
    assert stats.chisquare(counts[p > 0], p[p > 0] * n).pvalue > 1e-4
    assert stats.chisquare(np.bincount([
        d.token for d in sampler.draw(x, [Row(params, [], [0] * s, seed=7) for s in range(n)])
    ], minlength=VOCAB)[p > 0], p[p > 0] * n).pvalue > 1e-4, "steps of one seed"  # fmt: skip


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_a_row_is_drawn_as_if_it_were_alone(sampler: Sampler, data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from([*CASES]), min_size=2, max_size=6))
    x = logits_of(len(names), data.draw(st.integers(0, 99)))
    rows = [
        row_of(CASES[name], answer=[n] * n, seed=data.draw(st.integers(0, (1 << 64) - 1)))
        for n, name in enumerate(names)
    ]
    together = sampler.draw(x, rows)
    alone = [sampler.draw(x[n : n + 1], [row])[0] for n, row in enumerate(rows)]
    assert together == alone


def test_log_probabilities(sampler: Sampler) -> None:
    x = logits_of(2)
    p = SamplingParams(temperature=0, top_logprobs=3, logit_bias={4: 100.0})
    for n, drawn in enumerate(sampler.draw(x, [row_of(p), row_of(p)])):
        logp = np.log(softmax(x[n].astype(np.float64)))
        assert drawn.token == 4
        assert drawn.logprob == pytest.approx(logp[4], abs=1e-5)
        best = np.argsort(-logp)[:3]
        assert [t for t, _ in drawn.top] == best.tolist()
        np.testing.assert_allclose([v for _, v in drawn.top], logp[best], rtol=1e-5)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"temperature": -1.0}, "temperature is a number from 0.0 to 100.0, found -1.0"),
        ({"temperature": "hot"}, "found 'hot'"),
        ({"top_p": 1.5}, "top_p is a number from 0.0 to 1.0"),
        ({"top_p": 0}, "top_p is above 0"),
        ({"top_k": 1.5}, "top_k is an int"),
        ({"top_logprobs": 21}, "from 0 to 20"),
        ({"logit_bias": {-1: 1.0}}, "numbers by ids, found -1"),
        ({"logit_bias": {1: math.nan}}, "found 1: nan"),
        ({"seed": 1 << 64}, "a seed has 64 bits"),
        ({"seed": 0.5}, "a seed, or a number to fold in, is an int"),
    ],
)
def test_wrong_parameters(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(GraphError, match=says):
        SamplingParams(**wrong)


def test_wrong_rows(sampler: Sampler) -> None:
    row = Row(SamplingParams(), [], [])
    with pytest.raises(ShapeError, match=r"logits are \[1, 200\], found \[1, 3\]"):
        sampler.draw(np.zeros((1, 3), np.float32), [row])
    with pytest.raises(DTypeError, match="logits are f32, found float64"):
        sampler.draw(np.zeros((1, VOCAB)), [row])
    with pytest.raises(GraphError, match="names token 200; the vocabulary has 200"):
        sampler.draw(logits_of(1), [row_of(SamplingParams(logit_bias={200: 1.0}))])
    with pytest.raises(ShapeError, match=r"a mask is u32 \[7\], found uint32 \[6\]"):
        sampler.draw(logits_of(1), [row_of(SamplingParams(), mask=np.zeros(6, np.uint32))])
