"""The arena plan: buffers that are alive together lie apart."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rlx.lowering.select.views import Memory
from rlx.schedule.arena import ALIGN, plan


def buffer(size: int, first: int, last: int) -> Memory:
    return Memory("arena", size=size, first=first, last=last)


@st.composite
def buffers(draw: st.DrawFn) -> list[Memory]:
    out = []
    for _ in range(draw(st.integers(0, 25))):
        first = draw(st.integers(0, 12))
        out.append(buffer(draw(st.integers(0, 500)), first, first + draw(st.integers(0, 6))))
    return out


@settings(max_examples=300)
@given(buffers())
def test_no_two_alive_buffers_overlap(many: list[Memory]) -> None:
    total = plan(many)
    assert total % ALIGN == 0
    for b in many:
        assert b.offset % ALIGN == 0 and b.offset >= 0 and b.offset + b.size <= total
    for i, a in enumerate(many):
        for b in many[:i]:
            together = a.first <= b.last and b.first <= a.last
            apart = a.offset + a.size <= b.offset or b.offset + b.size <= a.offset
            assert apart or not together


@settings(max_examples=100)
@given(buffers())
def test_the_plan_is_no_larger_than_laying_all_side_by_side(many: list[Memory]) -> None:
    assert plan(many) <= sum(-(-b.size // ALIGN) * ALIGN for b in many)


def test_what_is_over_makes_room() -> None:
    chain = [buffer(1000, i, i + 1) for i in range(10)]
    assert plan(chain) == 2 * 1024  # a step reads one and writes the next
    assert plan([]) == 0


def test_a_result_never_lies_over_an_operand() -> None:
    operand, result = buffer(64, 0, 3), buffer(64, 3, 5)
    plan([operand, result])
    assert operand.offset != result.offset


def test_touching_widens_a_life() -> None:
    b = Memory("arena", size=8)
    for step in (4, 5, 9):
        b.touch(step)
    assert (b.first, b.last) == (4, 9)
