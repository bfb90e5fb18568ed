"""If, while and for; the error record; schedules that are refused."""

import struct
from dataclasses import replace

import numpy as np
import pytest

from rlx.ops.control.bodies import MAX_DEPTH
from rlx.runtime import _native as native
from rlx.schedule.steps import KINDS, VERSION, For, If, Place, While
from support.steps import launch, main_of, prologue_of

ARENA, ERROR, X, Y = native.BASE_ARENA, native.BASE_ERROR, 3, 4
FLAG = Place(ARENA, 0)
SITE = 77


class Builder:
    """Programs over one int64: y starts as x, then the steps run."""

    def __init__(self, kernels: native.Object) -> None:
        self.kernels = kernels

    def launch(self, name, places, sizes=()):
        return launch(self.kernels.symbol(name), places, sizes=sizes)

    def add(self, amount):
        return self.launch("add_constant", [(Y, 0)], [amount])

    def less(self, limit):
        return self.launch("less", [(Y, 0), FLAG], [limit])

    def copy(self, *places):
        return launch(self.kernels.symbol("copy"), places, range=8, grain=8)

    def program(self, *steps, **others) -> native.Program:
        return native.Program(
            objects=[self.kernels],
            inputs=[("x", "i64", ())],
            outputs=[("y", "i64", ())],
            arena_bytes=64,
            **{**main_of([self.copy((X, 0), (Y, 0)), *steps]), **others},
        )

    def weights(self, *prologue) -> native.Weights:
        return native.Weights(objects=[self.kernels], **prologue_of(prologue))

    def run(self, x: int, *steps) -> int:
        return int(self.program(*steps).run_slots(np.array(x))[0])


def while_(test, body, limit=-1):
    return While((test,), FLAG, (body,), limit, SITE)


def rounds(count, *body, counter=None, reverse=False):
    return For(count, body, counter, reverse)


@pytest.fixture
def build(kernels) -> Builder:
    return Builder(kernels)


@pytest.mark.parametrize(("x", "expected"), [(3, 13), (30, 130)])
def test_if_takes_one_branch(build, x, expected):
    assert build.run(x, build.less(10), If(FLAG, (build.add(10),), (build.add(100),))) == expected


@pytest.mark.parametrize(("x", "expected"), [(0, 12), (9, 12), (12, 12), (50, 50)])
def test_while_looks_before_each_round(build, x, expected):
    assert build.run(x, while_(build.less(10), build.add(3))) == expected


def test_for_counts_its_rounds(build):
    add_counter = build.launch("add_int", [(Y, 0), (ARENA, 8)])
    assert build.run(5, rounds(10, add_counter, counter=Place(ARENA, 8))) == 5 + sum(range(10))
    assert build.run(5, rounds(4, build.add(2))) == 13
    assert build.run(5, rounds(0, build.add(2))) == 5


def copied(build, steps):
    """What steps make of a table of six, in [3, 2]."""
    program = native.Program(
        objects=[build.kernels],
        inputs=[("table", "i64", (2, 3))],
        outputs=[("y", "i64", (3, 2))],
        **main_of(steps),
    )
    table = np.arange(6, dtype=np.int64).reshape(2, 3)
    return program.run_slots(table)[0].tolist()


@pytest.mark.parametrize("reverse", [False, True])
def test_places_move_with_the_rounds_around_them(build, reverse):
    inner = build.copy(Place(X, 0, ((0, 24), (1, 8))), Place(Y, 0, ((0, 8), (1, 16))))
    transposed = rounds(2, rounds(3, inner, reverse=reverse))
    assert copied(build, [transposed]) == [[0, 3], [1, 4], [2, 5]]


@pytest.mark.parametrize(("reverse", "last"), [(False, 5), (True, 0)])
def test_a_reverse_loop_ends_with_round_0(build, reverse, last):
    step = build.copy(Place(X, 0, ((0, 8),)), (Y, 0))
    assert copied(build, [rounds(6, step, reverse=reverse)])[0][0] == last
    add_counter = build.launch("add_int", [(Y, 0), (ARENA, 8)])
    double = build.launch("add_int", [(Y, 0), (Y, 0)])
    expected = 0
    for i in [1, 0] if reverse else [0, 1]:
        expected = 2 * expected + i
    loop = rounds(2, double, add_counter, counter=Place(ARENA, 8), reverse=reverse)
    assert build.run(0, loop) == expected


def test_control_flow_nests(build):
    inner = rounds(2, while_(build.less(10), build.add(1)))
    assert build.run(0, If(FLAG, (inner,), (inner,)), build.add(1)) == 11


def test_a_loop_may_run_exactly_its_limit(build):
    loop = build.less(10), build.add(1)
    assert build.run(0, while_(*loop, limit=10)) == 10
    with pytest.raises(native.Fault, match="iteration limit") as caught:
        build.run(0, while_(*loop, limit=9))
    assert (caught.value.code, caught.value.site) == (native.FAULT_LOOP_LIMIT, SITE)


def test_an_error_record_becomes_a_fault(build):
    program = build.program(
        build.less(5), If(FLAG, (build.launch("fail", [(ERROR, 0)], [42, 1001]),), ())
    )
    with pytest.raises(native.Fault) as caught:
        program.run_slots(np.array(1))
    assert (caught.value.code, caught.value.site) == (42, 1001)
    assert isinstance(caught.value, RuntimeError)
    assert int(program.run_slots(np.array(9))[0]) == 9  # the next call starts with a clean record


def test_a_fault_ends_an_endless_loop(build):
    fail = build.launch("fail", [(ERROR, 0)], [7, 8])
    with pytest.raises(native.Fault):
        build.run(0, while_(build.less(10), fail))


def test_a_fault_in_the_prologue_is_raised_by_each_call(build):
    fail = build.launch("fail", [(ERROR, 0)], [5, 6])
    program = build.program(weights=build.weights((fail, [])))
    for _ in range(2):
        with pytest.raises(native.Fault) as caught:
            program.run_slots(np.array(1))
        assert (caught.value.code, caught.value.site) == (5, 6)


def moving(count, offset, *moves):
    return rounds(count, If(Place(ARENA, offset, moves), (), ()))


@pytest.mark.parametrize(
    ("step", "named"),
    [
        (launch(1, ()), r"main\[1\]: found function address 1"),
        (If(Place(ARENA, 64), (), ()), r"main\[1\].flag: found offset 64 in base 0"),
        (If(Place(9, 0), (), ()), r"main\[1\].flag: found base 9"),
        (If(Place(ARENA, -1), (), ()), "found offset -1"),
        (rounds(1, rounds(-1)), r"main\[1\].body\[0\]: found rounds -1"),
        (rounds(1, counter=Place(ARENA, 57)), r"main\[1\].counter: found offset 57"),
        (
            moving(2, 63, (0, 1)),
            r"body\[0\].flag: found a move by 1 bytes a round, in 2, expected .* at most 0",
        ),
        (moving(2, 0, (1, 1)), r"found a move with loop 1, expected one of the 1 around it"),
        (moving(2, 8, (0, -4)), "found a move by -4 bytes"),
        (moving(2**62, 0, (0, 2**62)), "a move by"),
        (If(Place(ARENA, 0, ((0, 0),)), (), ()), "one of the 0 around it"),
        (While((), FLAG, (), -2, 0), r"main\[1\]: found limit -2"),
    ],
)
def test_a_malformed_step_is_named(build, step, named):
    with pytest.raises(native.Error, match=named):
        build.program(step)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((VERSION + 1, 0), f"found steps of version {VERSION + 1}, expected version {VERSION}"),
        ((VERSION, 1, len(KINDS), 0, 0, 0, 0, 0), f"found kind of step {len(KINDS)}"),
        ((VERSION, 1, 0, 7, 1, 1, 0, 0, 0), "found kernel 7, expected one below 0"),
        ((VERSION, 1), "found count 1"),
        ((VERSION, 0, 0), "found 1 words behind the end"),
        ((VERSION, 1, 3, 1, 2, 0, 0, 0, 0, 0), "found flag 2"),
    ],
)
def test_malformed_words_are_refused(kernels, words, named):
    data = struct.pack(f"<{len(words)}q", *words)
    with pytest.raises(native.Error, match=named):
        native.Program(objects=[kernels], main=data)
    with pytest.raises(native.Error, match="found 15 bytes, expected whole words"):
        native.Program(objects=[kernels], main=data[:15])


@pytest.mark.parametrize(
    ("grid", "found"),
    [((-1, 1, 0), "range -1"), ((1, 0, 0), "grain 0"), ((1, 1, -8), "-8 bytes of scratch")],
)
def test_a_malformed_launch_is_named(build, grid, found):
    with pytest.raises(native.Error, match=found):
        build.program(replace(build.add(1), grid=grid))


def test_nesting_has_the_limit_of_bodies(build):
    step = rounds(1)
    for _ in range(MAX_DEPTH - 1):
        step = rounds(1, step)
    build.program(step)
    with pytest.raises(native.Error, match=f"nested deeper.* {MAX_DEPTH} levels"):
        build.program(rounds(1, step))


def test_a_prologue_reads_no_input(build):
    bad = build.launch("add_constant", [(X, 0)], [1])
    with pytest.raises(native.Error, match=r"prologue\[0\]: found base 3"):
        build.weights((bad, []))
    with pytest.raises(native.Error, match=r"prologue\[0\]: found offset 8 in base 0"):
        build.weights((build.launch("add_constant", [(ARENA, 8)], [1]), []))
    good = build.launch("add_constant", [(ARENA, 0)], [1])
    with pytest.raises(native.Error, match=r"prologue\[0\]: found param 0"):
        build.weights((good, [0]))


def test_signatures_are_checked(kernels):
    for bad, named in [
        (("x", "f31", ()), "dtype 'f31'"),
        (("x", "f32", (-1,)), "dim -1"),
        (("x", "f32", (2**40, 2**40)), "at most"),
        (("x", "f32"), "2 items"),
    ]:
        with pytest.raises(native.Error, match=named):
            native.Program(objects=[kernels], inputs=[bad])


def test_an_arena_that_does_not_fit_is_an_error(kernels):
    program = native.Program(objects=[kernels], arena_bytes=2**55)
    with pytest.raises(native.Error, match="arena: found no memory") as error:
        program.run_slots()
    assert not error.value.partly_run


def test_scratch_that_does_not_fit_is_an_error_of_a_call_that_ran_in_part(build):
    program = build.program(build.add(1), replace(build.add(1), grid=(1, 1, 2**55)))
    with pytest.raises(native.Error, match=r"no memory, expected \d+ bytes of scratch") as error:
        program.run_slots(np.array(1))
    assert error.value.partly_run
