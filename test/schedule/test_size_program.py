"""Schedules of symbolic sizes as the native runtime binds them, against ``bind_schedule``."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_dim_expressions import sizes, symbolic, trees

import rlx
from rlx.base.dim_text import parse_dim
from rlx.base.dims import SymDim, bind_dim
from rlx.base.guards import Guard
from rlx.errors import ShapeError
from rlx.lowering.select.views import Memory
from rlx.runtime import _native
from rlx.schedule.arena import plan
from rlx.schedule.bind import bind_schedule
from rlx.schedule.codec import main_words
from rlx.schedule.plan import Buffer, Schedule
from rlx.schedule.size_program import SizeProgram, size_program
from rlx.schedule.steps import For, launches
from support.symbolic import lower_at

N: Any = SymDim.symbol("n")


def _schedule(**fields: Any) -> Schedule:
    empty: dict[str, Any] = {
        "target": "cpu", "kernels": (), "arena_bytes": 0, "packed_bytes": 0, "params": [],
        "constants": [], "inputs": [], "outputs": [], "prologue": (), "main": (), "sites": [],
    }  # fmt: skip
    return Schedule(**{**empty, **fields})


def _native_of(p: SizeProgram, sizes: int = 1, **changed: Any) -> _native.SizeProgram:
    parts: dict[str, Any] = {**p.parts}
    return _native.SizeProgram(sizes=sizes, **{**parts, **changed})


@given(st.lists(trees, min_size=1, max_size=4), sizes)
def test_numbers_are_those_of_dims(many: list[Any], at: dict[str, int]) -> None:
    dims = [d for tree in many if (d := symbolic(tree)) is not None]
    try:
        wanted = tuple(bind_dim(d, at) for d in dims)
    except ShapeError:
        return
    schedule = _schedule(outputs=[("y", "f32", tuple(dims))])
    made = _native_of(size_program(schedule, (), sorted(at)), len(at))
    found = made.bind([at[name] for name in sorted(at)])
    assert found is not None
    assert found[1] == (0, *wanted)


lives = st.tuples(st.integers(0, 3000), st.integers(0, 12), st.integers(0, 6))


@given(st.lists(lives, max_size=14))
def test_the_arena_is_planned_alike(rows: list[tuple[int, int, int]]) -> None:
    buffers = tuple(Buffer(N * b, first, first + more) for b, first, more in rows)
    placed = [Memory("arena", i, 3 * b, 0, f, f + m) for i, (b, f, m) in enumerate(rows)]
    total = plan(placed)
    names = [*(f"arena.{n}" for n in range(len(buffers))), "arena.size"]
    offsets = tuple(SymDim({(_symbol(name),): 1}) for name in names)
    schedule = _schedule(buffers=buffers, outputs=[("y", "f32", offsets)])
    found = _native_of(size_program(schedule, (), ["n"])).bind([3])
    assert found is not None
    assert found[1][1:] == (*(b.offset for b in placed), total)


def _symbol(name: str) -> Any:
    from rlx.base.dim_atoms import Symbol

    return Symbol.inner(name)


@given(st.sampled_from(("==", "!=", ">=", "<=")), st.integers(0, 9), st.integers(-5, 40))
def test_guards(relation: Any, size: int, number: int) -> None:
    guard = Guard(N * 4, relation, number)
    made = _native_of(size_program(_schedule(), (guard,), ["n"]))
    assert (made.bind([size]) is not None) == guard.holds({"n": size})


def test_guards_are_asked_in_order() -> None:
    parts: Any = parse_dim("12//n")
    guards = (Guard(N, ">=", 1), Guard(parts, "<=", 4))
    made = _native_of(size_program(_schedule(), guards, ["n"]))
    assert [made.bind([n]) is not None for n in (0, 2, 3)] == [False, False, True]


def test_words_of_a_model() -> None:
    g = rlx.Graph()
    x = g.input("x", ["n", "m", 16])
    y = (x @ g.param("w", [16, 24])).relu().softmax(-1)
    g.set_outputs([(y * y).sum(axes=1), y.transpose((1, 0, 2))])
    found = lower_at(g, {"n": 4, "m": 9})
    program = size_program(found.schedule, found.guards, ["n", "m"])
    made, served = _native_of(program, 2), 0
    for n, m in [(4, 9), (3, 7), (1, 5), (5, 11), (64, 200), (7, 13)]:
        at = {"n": n, "m": m}
        bound = made.bind([m, n])  # by name
        assert (bound is not None) == found.serves(at)
        if bound is None:
            continue
        served += 1
        wanted = bind_schedule(found.schedule, at)
        dims = [d for _, _, shape in (*wanted.inputs, *wanted.outputs) for d in shape]
        origins = [step.origin for step in launches(wanted.main)]
        facts = [n for origin in origins for n in (origin.flops, origin.bytes)]
        assert bound == (main_words(wanted.main), (wanted.arena_bytes, *dims, *facts))
    assert served > 2


def _row(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}q", *numbers)


NUMBER, SIZE, ADD, MULTIPLY, DIVIDE = range(5)
BAD = [
    ({"instructions": _row(9, 0, 0)}, "an instruction 9"),
    ({"instructions": _row(SIZE, 5, 0)}, "an operand 5"),
    ({"instructions": _row(ADD, 0, 0)}, "an operand 0"),
    ({"instructions": _row(SIZE, 0, 0, ADD, 0, 3)}, "an operand 3"),
    ({"guards": _row(7, 0, 0)}, "a guard 7"),
    ({"buffers": _row(7, 0, 0)}, "a buffer 7"),
    ({"instructions": _row(SIZE, 1, 0), "guards": _row(0, 0, 0)}, "a size 1"),
    ({"patches": _row(9, 0)}, "a word 9"),
    ({"words": _row(1), "patches": _row(0, 3)}, "a word's number 3"),
    ({"results": _row(4)}, "a result 4"),
    ({"words": b"abc"}, "3 bytes"),
    ({"guards": _row(0, 0)}, "2 words"),
]


@pytest.mark.parametrize(("changed", "says"), BAD)
def test_what_is_no_program(changed: dict[str, bytes], says: str) -> None:
    program = size_program(_schedule(), (), ["n"])
    with pytest.raises(_native.Error, match=says):
        _native_of(program, 1, **changed)


def _sized(main: bytes, **changed: bytes) -> _native.SizedSchedule:
    program = _native_of(size_program(_schedule(), (), ["n"]), 1, words=main, **changed)
    return _native.SizedSchedule(
        sizes=program, weights=_native.Weights(), objects=[], constants=[], inputs=[], outputs=[],
        main=main, kernels=[], functions=[],
    )  # fmt: skip


def _loop(rounds: Any) -> bytes:
    return main_words((For(rounds, (), None, False),))


def test_numbers_are_put_into_steps() -> None:
    """The rounds of a loop, which no more than the check of the bound steps looks at."""
    size = {"instructions": _row(SIZE, 0, 0, NUMBER, 0, 0), "results": _row(1)}
    made = _sized(_loop(0), **size, patches=_row(3, 0))
    assert made.bind([5]) is not None
    with pytest.raises(_native.Error, match=r"main\[0\]: found rounds -5, expected at least 0"):
        made.bind([-5])


@pytest.mark.parametrize("word", [0, 1, 2, 4, 5, 8])
def test_words_that_are_no_numbers_are_not_replaced(word: int) -> None:
    size = {"instructions": _row(SIZE, 0, 0), "results": _row(0)}
    with pytest.raises(_native.Error, match=f"word {word} to be replaced"):
        _sized(_loop(1), **size, patches=_row(word, 0))


def test_a_word_that_is_replaced_twice() -> None:
    size = {"instructions": _row(SIZE, 0, 0), "results": _row(0)}
    with pytest.raises(_native.Error, match="word 3 to be replaced"):
        _sized(_loop(1), **size, patches=_row(3, 0, 3, 0))


def test_results_for_no_dims() -> None:
    with pytest.raises(_native.Error, match="2 results, expected 1"):
        _sized(_loop(1), instructions=_row(SIZE, 0, 0), results=_row(0, 0))


LARGE = [
    (_row(SIZE, 0, 0, DIVIDE, 0, 0), [0], "divided by 0"),
    (_row(SIZE, 0, 0, MULTIPLY, 0, 0), [1 << 40], r"beyond 2\*\*60"),
    (_row(SIZE, 0, 0, ADD, 0, 0), [1 << 62], r"beyond 2\*\*60"),
    (_row(SIZE, 0, 0), [1, 2], "sizes 2"),
]


@pytest.mark.parametrize(("instructions", "given_sizes", "says"), LARGE)
def test_sizes_that_are_refused(instructions: bytes, given_sizes: list[int], says: str) -> None:
    program = size_program(_schedule(), (), ["n"])
    made = _native_of(program, instructions=instructions, results=b"")
    with pytest.raises(_native.Error, match=says):
        made.bind(given_sizes)


def test_buffers_beyond_all_memory() -> None:
    rows = tuple(Buffer(N * (1 << 40), 0, 1) for _ in range(9))
    with pytest.raises(_native.Error, match=r"beyond 2\*\*60"):
        _native_of(size_program(_schedule(buffers=rows), (), ["n"])).bind([1 << 18])


def test_a_buffer_of_less_than_no_bytes() -> None:
    schedule = _schedule(buffers=(Buffer(N - 8, 0, 1),))
    with pytest.raises(_native.Error, match="a buffer -5 bytes"):
        _native_of(size_program(schedule, (), ["n"])).bind([3])
