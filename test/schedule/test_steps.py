"""Steps as classes, as words and as text: the same, whichever way they go."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import fields

import numpy as np
import pytest

import rlx
from rlx.compiler.driver import compile_graph
from rlx.dialects.context import make_context
from rlx.dialects.export import to_mlir
from rlx.errors import ToolchainError
from rlx.lowering.compilation import Compilation
from rlx.lowering.passes.lir_reader import read_schedule
from rlx.lowering.passes.lir_text import module_of
from rlx.lowering.pipeline import planned
from rlx.runtime import _native
from rlx.schedule.codec import main_words, prologue_words, read_main, read_prologue
from rlx.schedule.plan import KernelRef, Schedule, prologue_first
from rlx.schedule.steps import (
    KINDS,
    VERSION,
    Await,
    Collective,
    For,
    If,
    Launch,
    Place,
    Step,
    While,
    axis_name,
    axis_words,
    launches,
    map_each,
)
from rlx.targets import find_target
from support.random_graphs import random_case

FLAG = Place(0, 8)
MOVING = Place(4, 16, ((0, 4), (1, -8)))


def launch(kernel: int) -> Launch[Place]:
    return Launch(kernel, (7, 2, 64), (FLAG, MOVING), (3, -1, 2**40))


STEPS: tuple[Step[Place], ...] = (
    launch(0),
    If(FLAG, (launch(1),), ()),
    For(5, (While((launch(2),), FLAG, (launch(3), launch(1)), 9, 2),), Place(0, 0), True),
    For(0, (), None, False),
    Collective(0, 2, 3, 64, 4, axis_words("data"), (), 1, True, FLAG, MOVING),
    Collective(6, 0, 7, 0, 4, axis_words("a_longer_name"), (), 0, False, None, FLAG),
    Await(),
)


def kinds_of(steps: Sequence[Step[Place]]) -> set[type]:
    return {type(s) for s in steps}.union(*(kinds_of(s.children()) for s in steps))


def test_steps_are_read_as_they_were_written() -> None:
    assert kinds_of(STEPS) == set(KINDS), "a kind of step is written by no test"
    assert read_main(main_words(STEPS)) == STEPS
    prologue = tuple((step, (n, 2 * n)[:n]) for n, step in enumerate(STEPS))
    assert read_prologue(prologue_words(prologue)) == prologue


@pytest.mark.parametrize("name", ["a", "data", "eightlet", "a_longer_name_with_many_letters"])
def test_the_name_of_an_axis_goes_into_words_and_back(name: str) -> None:
    assert axis_name(axis_words(name)) == name


def test_the_words_begin_with_the_number_of_their_format() -> None:
    assert struct.unpack_from("<2q", main_words(STEPS)) == (VERSION, len(STEPS))


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.__name__)
def test_the_table_has_each_field_of_a_kind(kind: type) -> None:
    """All but where a step comes from, which artifacts keep beside the steps."""
    assert {f.name for f in KINDS[kind]} == {f.name for f in fields(kind)} - {"origin"}


@pytest.mark.parametrize(
    ("step", "memories", "says"),
    [
        (Launch(0, (7, 1, 1), (Place(0, 64),), (3,)), (64,), None),
        (Launch(0, (7, 1, 1), (Place(0, 65),), (3,)), (64,), "offset 65 in base 0"),
        (Launch(0, (7, 1, 1), (Place(0, 0),), (3, 4)), (64,), "what its kernel binds"),
        (If(Place(0, 64), (), ()), (64,), "1 bytes inside its 64"),
    ],
)
def test_steps_of_a_device_stay_in_its_memories(
    step: Step[Place], memories: tuple[int, ...], says: str | None
) -> None:
    """Whose sizes a call brings: those of others are checked where an artifact is read."""
    with nullcontext() if says is None else pytest.raises(_native.Error, match=says):
        _native.check_device_steps(main_words((step,)), [(1, 2)], memories)


def test_launches_are_met_in_order_however_deep() -> None:
    assert [s.kernel for s in launches(STEPS)] == [0, 1, 2, 3, 1]


def test_map_reaches_each_launch_and_each_place() -> None:
    moved = map_each(
        STEPS, lambda s: s.placed(lambda p: p.base), lambda p: p.base
    )  # places by their memories
    assert [s.places for s in launches(moved)] == [(0, 4)] * 5
    loop = moved[2]
    assert isinstance(loop, For) and loop.counter == 0
    (again,) = loop.children()
    assert isinstance(again, While) and again.flag == 0
    counted = map_each(STEPS, lambda s: s, lambda p: p, lambda n: 2 * n)
    loop = counted[2]
    assert isinstance(loop, For) and loop.rounds == 10
    (again,) = loop.children()
    assert isinstance(again, While) and (again.limit, again.site) == (18, 4)


def test_a_prologue_has_the_first_constants_and_kernels() -> None:
    def on(kernel: int, base: int) -> Launch[Place]:
        return Launch(kernel, (1, 1, 0), (Place(base, 0),), ())

    kernels = tuple(KernelRef(name, "copy", None) for name in "abc")
    constants = [np.full(2, n, np.float32) for n in range(3)]
    out = [("y", "f32", (2,))]
    first = 3  # of the constants, since there are no params
    schedule = Schedule(
        "cpu", kernels, 0, 0, [], constants, [], out,
        ((on(2, first + 1), ()),), (on(0, first), on(1, first + 3), on(2, first + 1)), [],
    )  # fmt: skip
    found, of_prologue, launched = prologue_first(schedule)
    assert (of_prologue, launched) == (1, 1)
    assert [c[0] for c in found.constants] == [1, 0, 2]
    assert [k.name for k in found.kernels] == ["c", "a", "b"]
    ((step, follows),) = found.prologue
    assert (step, follows) == (on(0, first), ())
    assert found.main == (on(1, first + 1), on(2, first + 3), on(0, first))


def schedule_of(graph: rlx.Graph, target: str) -> Schedule:
    with make_context() as context:
        compilation = Compilation(find_target(target))
        return planned(to_mlir(graph, context), compilation, for_text=True)


@pytest.mark.parametrize("target", ["cpu:x86-64-v3", "vulkan"])
@pytest.mark.parametrize("seed", range(12))
def test_the_text_of_a_schedule_says_all_of_it(seed: int, target: str) -> None:
    schedule = schedule_of(random_case(seed, 8).graph, target)
    with make_context() as context:
        module = module_of(schedule, context)  # which MLIR verifies
        again = read_schedule(module)
        assert str(module_of(again, context)) == str(module)
    for name in ("prologue", "main", "kernels", "arena_bytes", "packed_bytes", "sites", "slots",
                 "params", "inputs", "outputs", "launches"):  # fmt: skip
        assert getattr(again, name) == getattr(schedule, name), name
    for a, b in zip(schedule.constants, again.constants, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def test_a_native_module_of_other_sources_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "STEPS_VERSION", VERSION - 1)
    g = rlx.Graph("g")
    g.set_outputs(g.input("x", [2]) + 1.0)
    with pytest.raises(ToolchainError, match=f"version {VERSION - 1}, .* `make setup`"):
        compile_graph(g, find_target("cpu"))
