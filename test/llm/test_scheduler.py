"""The scheduler on made-up traces, and its rules on small cases."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlx.errors import GraphError, NameError, ShapeError
from rlx.llm.batching import prefix, scheduler
from rlx.llm.batching.scheduler import Limits, Schedule, cancel, commit, next_step, submit
from rlx.llm.pages import KvPagePool
from support.schedule_traces import run_trace


@given(st.integers(0, 1 << 60))
@settings(max_examples=300, deadline=None)
def test_traces(seed: int) -> None:
    assert run_trace(seed).steps


def test_traces_meet_what_they_are_for() -> None:
    traces = [run_trace(n) for n in range(150)]
    assert sum(t.schedule.preemptions for t in traces) > 20
    assert sum(t.schedule.prefix.hits for t in traces) > 500
    assert sum(t.done for t in traces) > 500
    assert sum(t.drafted for t in traces) > 1.2 * sum(t.accepted for t in traces) > 500


@pytest.mark.parametrize(
    ("module", "name", "broken"),
    [
        (scheduler, "_give_back", lambda schedule, s: schedule.prefix.release(s.node)),
        (scheduler, "_take", lambda schedule, s, count: True),
        (scheduler, "_by_turn", lambda s, decoding: _turn(s, decoding=decoding)[::-1]),
        (prefix.PrefixCache, "release", lambda cache, node: None),
        (scheduler, "_shrink", lambda schedule, s: None),
    ],
    ids=["pages kept", "pages missing", "unfair", "users kept", "drafts kept"],
)  # fmt: skip
def test_the_traces_find_what_is_broken(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, broken: Any
) -> None:
    monkeypatch.setattr(module, name, broken)
    with pytest.raises((AssertionError, IndexError, KeyError, GraphError)):
        for n in range(300):
            run_trace(n)


_turn = scheduler._by_turn


def schedule_of(pages: int = 16, size: int = 4, **limits: Any) -> Schedule:
    given: dict[str, Any] = {"max_tokens": 8, "max_sequences": 4, "context": 64, **limits}
    return Schedule.of(KvPagePool(pages, 1, size), Limits(**given))


def parts(schedule: Schedule) -> list[tuple[int, int]]:
    """One step: the names and how many tokens each has in it; 0 is drawn for each."""
    step = next_step(schedule)
    commit(schedule, step, {e.name: [0] for e in step if e.last})
    return [(e.name, len(e.tokens)) for e in step]


def test_prompts_come_in_parts_beside_those_who_decode() -> None:
    s = schedule_of()
    submit(s, 1, [1, 2], 20)
    submit(s, 2, list(range(10, 24)), 30)
    assert parts(s) == [(1, 2), (2, 6)]
    assert parts(s) == [(1, 1), (2, 7)]
    assert parts(s) == [(1, 1), (2, 1)]


def test_a_known_beginning_is_not_computed_again() -> None:
    s = schedule_of(max_tokens=32)
    prompt = list(range(13))
    submit(s, 1, prompt, 20)
    assert parts(s) == [(1, 13)]
    cancel(s, 1)
    submit(s, 2, [*prompt[:12], 99], 20)
    submit(s, 3, prompt[:8], 20)
    assert parts(s) == [(2, 1), (3, 4)], "the last token of a prompt is always computed"
    assert s.running[2].pages[:3] != s.running[3].pages[:3]
    assert s.running[2].pages[0] == s.running[3].pages[0]
    assert s.pool.holders(s.running[2].pages[0]) == 3


def test_who_came_last_gives_way() -> None:
    s = schedule_of(pages=4, size=2, context=8)
    submit(s, 1, [1, 2, 3], 8)
    submit(s, 2, [4, 5, 6], 8)
    assert parts(s) == [(1, 3), (2, 3)]
    assert parts(s) == [(1, 1), (2, 1)]
    assert parts(s) == [(1, 1)] and s.preemptions == 1 and 2 in s.waiting
    cancel(s, 1)
    assert parts(s)[0][0] == 2


def test_clients_are_served_alike() -> None:
    s = schedule_of(pages=64, max_tokens=4, max_sequences=1)
    for n in range(8):
        submit(s, n, [n] * 4, 5, "many")
    submit(s, 8, [9] * 4, 5, "one")
    order = list[int]()
    while s.waiting or s.running:
        (name, _), = parts(s)  # fmt: skip
        order.append(name)
        cancel(s, name)
    assert order.index(8) == 1, "a client with one request need not wait for eight of another"


def test_who_comes_back_has_no_credit() -> None:
    s = schedule_of(pages=64)
    submit(s, 1, [1], 5, "a")
    s.served["a"] = 100.0
    submit(s, 2, [1], 5, "b")
    assert s.served["b"] == 100.0


@pytest.mark.parametrize(
    ("prompt", "longest", "error", "says"),
    [
        ([], 5, ShapeError, "one token or more"),
        ([1], 65, ShapeError, "up to 65; there is room for 64"),
        ([1] * 70, 5, ShapeError, "70 tokens of prompt"),
        ([1], 5, NameError, "there is a sequence 7 already"),
    ],
)
def test_what_cannot_be_submitted(
    prompt: list[int], longest: int, error: type[Exception], says: str
) -> None:
    s = schedule_of()
    submit(s, 7, [1], 5)
    with pytest.raises(error, match=says):
        submit(s, 7 if error is NameError else 8, prompt, longest)


def test_wrong_limits() -> None:
    with pytest.raises(GraphError, match="max_tokens is 1 or more, found 0"):
        Limits(0, 1, 1)


def test_a_sequence_that_is_not_there() -> None:
    assert not cancel(schedule_of(), 3)
