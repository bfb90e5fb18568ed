"""Speculation: answers are those without it, to the bit, whatever is drafted."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tokenizers", reason="texts need the package tokenizers")

import rlx
from rlx.errors import GraphError, ModelError
from rlx.llm.answer import Completion
from rlx.llm.batching.drafts import Asked, Lookup
from rlx.llm.batching.scheduler import Limits, Schedule, commit, next_step, submit
from rlx.llm.model import LLM
from rlx.llm.pages import KvPagePool
from support.tiny_llm import TALKER, write_talker

SIZES: dict[str, Any] = {"threads": 1, "context": 160, "sequences": 6}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_talker(tmp_path_factory.mktemp("talker"))


@pytest.fixture(scope="module")
def plain(folder: Path) -> LLM:
    return rlx.LLM(folder, tokens=960, **SIZES)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    """A model with one of the two layers."""
    path = write_talker(tmp_path_factory.mktemp("small"), num_hidden_layers=1)
    return rlx.LLM(path, tokens=320, **SIZES)


@pytest.fixture(scope="module")
def looking(folder: Path) -> LLM:
    return rlx.LLM(folder, tokens=320, speculate="lookup", **SIZES)


@pytest.fixture(scope="module")
def drafting(folder: Path, small: LLM) -> LLM:
    return rlx.LLM(folder, tokens=320, speculate=small, **SIZES)


def held(llm: LLM) -> int:
    """Pages that answers hold."""
    schedule = llm.batch.schedule
    return schedule.pool.used_count - schedule.prefix.idle


def same(found: Sequence[Completion], wanted: Sequence[Completion]) -> None:
    for a, b in zip(found, wanted, strict=True):
        assert (a.ids, a.drawn, a.text, a.finish) == (b.ids, b.drawn, b.text, b.finish)


OPTIONS = st.fixed_dictionaries(
    {"max_new_tokens": st.integers(1, 60), "ignore_eos": st.booleans()},
    optional={
        "temperature": st.sampled_from([0.3, 0.7, 1.2]),
        "seed": st.integers(0, 9),
        "repetition_penalty": st.just(1.3),
        "top_logprobs": st.just(3),
        "stop": st.sampled_from(["a", "xy", "\n"]),
    },
)


def test_answers_are_the_same_with_any_drafts(
    plain: LLM, looking: LLM, drafting: LLM, small: LLM
) -> None:
    """Side by side, behind known beginnings, after they gave way, beside what is cancelled."""
    draw_and_compare(plain, (looking, drafting))
    for llm in (looking, drafting):
        assert llm.batch.drafted > llm.batch.accepted > 0
        assert llm.batch.schedule.preemptions and llm.batch.schedule.prefix.hits
    assert not held(small), "the draft model keeps nothing"


@settings(max_examples=5, deadline=None)
@given(data=st.data())
def draw_and_compare(plain: LLM, others: Sequence[LLM], data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, 60))
    run = st.tuples(st.lists(st.integers(0, 255), min_size=1, max_size=3), st.integers(1, 12)).map(
        lambda drawn: drawn[0] * drawn[1]
    )
    ends = data.draw(st.lists(run, min_size=1, max_size=5))
    options: Any = {"seed": 0, **data.draw(OPTIONS)}
    prompts = [[*range(begin), *end] for end in ends]
    wanted = plain.generate(prompts, **options)
    for llm in others:
        gone = llm.stream([*range(begin), 7, 7, 7, 7], max_new_tokens=30, ignore_eos=True)
        next(gone)
        same(llm.generate(prompts, **options), wanted)
        gone.close()  # pyright: ignore[reportAttributeAccessIssue]
        assert not held(llm)


def test_grammars_and_the_ends_of_texts(plain: LLM, looking: LLM, drafting: LLM) -> None:
    pytest.importorskip("llguidance", reason="grammars need the package llguidance")
    before = looking.batch.accepted, drafting.batch.accepted
    cases: list[dict[str, Any]] = [
        {"regex": "(ab|ba|c)*x", "temperature": 1.0, "seed": 1, "max_new_tokens": 60},
        {"regex": "(abc){3,9}", "max_new_tokens": 60},
        {"json_schema": {"type": "array", "items": {"enum": [1, 22]}}, "max_new_tokens": 40},
    ]
    for options in cases:
        wanted = plain.generate("abcabcabcab", **options)
        same(looking.generate("abcabcabcab", **options), wanted)
        same(drafting.generate("abcabcabcab", **options), wanted)
    assert looking.batch.accepted > before[0] and drafting.batch.accepted > before[1]


def test_a_model_drafts_for_itself(folder: Path, plain: LLM) -> None:
    """Then every draft is right, drawn as well as taken: draws have the seeds of their places."""
    llm = rlx.LLM(folder, tokens=960, speculate=str(folder), draft_tokens=7, **SIZES)
    for draws in ({}, {"temperature": 0.9, "seed": 3, "top_k": 9}):
        options: Any = {"max_new_tokens": 41, "ignore_eos": True, **draws}
        steps = llm.batch.steps
        found = llm.generate("Once upon a time", **options)
        same(found, plain.generate("Once upon a time", **options))
        assert found[0].drafted == found[0].accepted == 35
        assert llm.batch.steps - steps == 1 + 5
        before = llm.batch.drafted
        same(llm.generate("Once upon a time", draft_tokens=0, **options), found)
        assert llm.batch.drafted == before
        looked = llm.generate("Once upon a time", speculate="lookup", **options)
        same(looked, found)
        assert looked[0].drafted != 35


def test_a_draft_model_forgets_what_was_wrong(drafting: LLM, small: LLM) -> None:
    """Its drafts are what it draws for the text alone, whatever it drafted before."""
    tokens = [*range(40)]
    drafter, _ = drafting._speculation.of("draft", 3)
    assert drafter is not None
    for right in (3, 0, 2, 1):
        answer = drafting.answer(tokens, max_new_tokens=50, ignore_eos=True, draft_tokens=3)
        (found,) = drafter.draft([Asked(-1, tokens, answer)], 9)
        alone = small.generate(tokens, max_new_tokens=3, ignore_eos=True)[0]
        assert found == list(alone.ids)
        tokens = [*tokens, *found[:right], (found[right % 3] + 1) % 256]
    drafter.forget(-1)
    assert not held(small)


def test_what_follows_runs_that_were_seen_before() -> None:
    answer: Any = type("Any", (), {"draft_room": 9})()
    lookup = Lookup()

    def drafted(*tokens: int, most: int = 4) -> list[int]:
        (found,) = lookup.draft([Asked(len(tokens), [*tokens], answer)], most)
        return found

    assert drafted(1, 2, 3, 4, 5, 1, 2) == [3, 4, 5, 1]
    assert drafted(1, 2, 3, 1, 2, 4, 9, 1, 2, most=2) == [4, 9], "what was seen last"
    assert drafted(8, 1, 2, 3, 4, 1, 2, 5, 8, 1, 2) == [3, 4, 1, 2], "the longer run"
    assert drafted(5, 7, 7, 7) == [7, 7, 7, 7], "what repeats goes on"
    assert drafted(1, 2, 1, 2, 1, most=3) == [2, 1, 2]
    assert drafted(1, 2, 3) == drafted(4) == []
    text = [1, 2, 3, 1]
    lookup.draft([Asked(0, text, answer)], 4)
    text.append(2)
    assert lookup.draft([Asked(0, text, answer)], 1) == [[3]], "the rest is read, once"


def test_drafts_have_rows_and_pages_that_are_left() -> None:
    s = Schedule.of(KvPagePool(3, 1, 2), Limits(6, 4, 16))
    submit(s, 1, [1, 2, 3], 6)
    submit(s, 2, [4], 6)
    commit(s, (step := next_step(s, {1: [9]})), {1: [5], 2: [6]})
    assert [e.drafted for e in step] == [0, 0], "prompts have none"
    one, two = next_step(s, {1: [7] * 5, 2: [8] * 5})
    assert (one.tokens, one.drafted, two.tokens, two.drafted) == ((5,), 0, (6,), 0)
    s = Schedule.of(KvPagePool(8, 1, 2), Limits(6, 4, 16))
    submit(s, 1, [1, 2, 3], 6)
    submit(s, 2, [4], 6)
    commit(s, next_step(s), {1: [5], 2: [6]})
    one, two = next_step(s, {1: [7] * 3, 2: [8] * 5})
    assert (one.tokens, one.drafted, two.tokens, two.drafted) == ((5, 7, 7, 7), 3, (6, 8), 1)
    assert len(one.pages) == 4
    commit(s, [one, two], {1: [7, 1], 2: [8, 9]})
    assert s.running[1].tokens == [1, 2, 3, 5, 7, 1] and s.running[1].cached == 5
    assert len(s.running[1].pages) == 3, "pages of what was wrong are free"
    assert s.running[2].tokens == [4, 6, 8, 9] and s.running[2].cached == 3


def test_a_draft_model_without_room(folder: Path, plain: LLM) -> None:
    tiny = rlx.LLM(folder, threads=1, context=64, tokens=64, sequences=2)
    llm = rlx.LLM(folder, tokens=960, speculate=tiny, **SIZES)
    prompts = [[n] * 20 for n in range(5)]
    given: dict[str, Any] = {"max_new_tokens": 60, "ignore_eos": True}
    same(llm.generate(prompts, **given), plain.generate(prompts, **given))
    assert llm.batch.drafted and not tiny.decoder.pool.used_count
    tiny.generate(list(range(60)), max_new_tokens=2)
    assert tiny.decoder.pool.used_count == 1, "known beginnings of its own make room"
    assert llm.generate(prompts, **given)[0].drafted


@pytest.mark.parametrize("width", [TALKER - 32, TALKER + 32])
def test_tables_that_are_padded_to_other_lengths(
    width: int, folder: Path, tmp_path: Path, plain: LLM
) -> None:
    """Of one tokenizer, as models of a family are."""
    draft = rlx.LLM(write_talker(tmp_path, vocab_size=width), tokens=320, **SIZES)
    llm = rlx.LLM(folder, tokens=320, speculate=draft, **SIZES)
    given: dict[str, Any] = {"max_new_tokens": 12, "temperature": 1.0, "seed": 1}
    same(llm.generate(["Hi", "you"], **given), plain.generate(["Hi", "you"], **given))
    assert llm.batch.drafted


def test_what_cannot_be_asked_for(folder: Path, plain: LLM, tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="draft_tokens is 1 or more, found 0"):
        rlx.LLM(folder, speculate="lookup", draft_tokens=0, **SIZES)
    with pytest.raises(GraphError, match="draft_tokens is 0 or more, found -1"):
        plain.generate("Hi", speculate="lookup", draft_tokens=-1)
    with pytest.raises(GraphError, match="speculate is one of lookup, draft, found 'guess'"):
        plain.generate("Hi", speculate="guess")
    with pytest.raises(GraphError, match="there is no draft model: load the model with speculate="):
        plain.generate("Hi", speculate="draft")
    other = shutil.copytree(folder, tmp_path / "other")
    text = (other / "tokenizer.json").read_text(encoding="utf-8")
    (other / "tokenizer.json").write_text(text.replace("<|end|>", "<|stop|>"), encoding="utf-8")
    with pytest.raises(
        ModelError, match=r"its token 257 is '<\|stop\|>', where .* has '<\|end\|>'"
    ):
        rlx.LLM(folder, speculate=other, **SIZES)
    wide = write_talker(tmp_path, vocab_size=TALKER + 1)
    (wide / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"another vocabulary: of 321 tokens, where .* has 320"):
        rlx.LLM(folder, speculate=wide, **SIZES)
