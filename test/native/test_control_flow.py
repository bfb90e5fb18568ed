"""If, while and for; the error record; schedules that are refused."""

import numpy as np
import pytest

from rlx.runtime import _native as native

ARENA, ERROR, X, Y = native.BASE_ARENA, native.BASE_ERROR, 3, 4
FLAG = (ARENA, 0)
SITE = 77


class Builder:
    """Programs over one int64: y starts as x, then the steps run."""

    def __init__(self, kernels: native.Object) -> None:
        self.kernels = kernels

    def launch(self, name, buffers, sizes=()):
        return ("launch", self.kernels.symbol(name), 1, 1, 0, buffers, sizes)

    def add(self, amount):
        return self.launch("add_constant", [(Y, 0)], [amount])

    def less(self, limit):
        return self.launch("less", [(Y, 0), FLAG], [limit])

    def program(self, *steps, **others) -> native.Program:
        start = ("launch", self.kernels.symbol("copy"), 8, 8, 0, [(X, 0), (Y, 0)], ())
        return native.Program(
            objects=[self.kernels],
            inputs=[("x", "i64", ())],
            outputs=[("y", "i64", ())],
            arena_bytes=64,
            main=[start, *steps],
            **others,
        )

    def weights(self, *prologue) -> native.Weights:
        return native.Weights(objects=[self.kernels], prologue=prologue)

    def run(self, x: int, *steps) -> int:
        return int(self.program(*steps).run_slots(np.array(x))[0])


@pytest.fixture
def build(kernels) -> Builder:
    return Builder(kernels)


@pytest.mark.parametrize(("x", "expected"), [(3, 13), (30, 130)])
def test_if_takes_one_branch(build, x, expected):
    assert build.run(x, build.less(10), ("if", FLAG, [build.add(10)], [build.add(100)])) == expected


@pytest.mark.parametrize(("x", "expected"), [(0, 12), (9, 12), (12, 12), (50, 50)])
def test_while_looks_before_each_round(build, x, expected):
    assert build.run(x, ("while", [build.less(10)], FLAG, [build.add(3)], -1, SITE)) == expected


def test_for_counts_its_rounds(build):
    add_counter = build.launch("add_int", [(Y, 0), (ARENA, 8)])
    assert build.run(5, ("for", 10, [add_counter], (ARENA, 8), False)) == 5 + sum(range(10))
    assert build.run(5, ("for", 4, [build.add(2)], None, False)) == 13
    assert build.run(5, ("for", 0, [build.add(2)], None, False)) == 5


def copied(build, steps):
    """What steps make of a table of six, in [3, 2]; they get a launch that copies 8 bytes."""
    program = native.Program(
        objects=[build.kernels],
        inputs=[("table", "i64", (2, 3))],
        outputs=[("y", "i64", (3, 2))],
        main=steps(lambda *refs: ("launch", build.kernels.symbol("copy"), 8, 8, 0, refs, ())),
    )
    table = np.arange(6, dtype=np.int64).reshape(2, 3)
    return program.run_slots(table)[0].tolist()


@pytest.mark.parametrize("reverse", [False, True])
def test_places_move_with_the_rounds_around_them(build, reverse):
    def transposed(copy):
        inner = copy((X, 0, (0, 24), (1, 8)), (Y, 0, (0, 8), (1, 16)))
        return [("for", 2, [("for", 3, [inner], None, reverse)], None, False)]

    assert copied(build, transposed) == [[0, 3], [1, 4], [2, 5]]


@pytest.mark.parametrize(("reverse", "last"), [(False, 5), (True, 0)])
def test_a_reverse_loop_ends_with_round_0(build, reverse, last):
    def steps(copy):
        return [("for", 6, [copy((X, 0, (0, 8)), (Y, 0))], None, reverse)]

    assert copied(build, steps)[0][0] == last
    add_counter = build.launch("add_int", [(Y, 0), (ARENA, 8)])
    double = build.launch("add_int", [(Y, 0), (Y, 0)])
    rounds = [1, 0] if reverse else [0, 1]
    expected = 0
    for i in rounds:
        expected = 2 * expected + i
    assert build.run(0, ("for", 2, [double, add_counter], (ARENA, 8), reverse)) == expected


def test_control_flow_nests(build):
    inner = ("for", 2, [("while", [build.less(10)], FLAG, [build.add(1)], -1, SITE)], None, False)
    assert build.run(0, ("if", FLAG, [inner], [inner]), build.add(1)) == 11


def test_a_loop_may_run_exactly_its_limit(build):
    loop = [build.less(10)], FLAG, [build.add(1)]
    assert build.run(0, ("while", *loop, 10, SITE)) == 10
    with pytest.raises(native.Fault, match="iteration limit") as caught:
        build.run(0, ("while", *loop, 9, SITE))
    assert (caught.value.code, caught.value.site) == (native.FAULT_LOOP_LIMIT, SITE)


def test_an_error_record_becomes_a_fault(build):
    program = build.program(
        build.less(5), ("if", FLAG, [build.launch("fail", [(ERROR, 0)], [42, 1001])], [])
    )
    with pytest.raises(native.Fault) as caught:
        program.run_slots(np.array(1))
    assert (caught.value.code, caught.value.site) == (42, 1001)
    assert isinstance(caught.value, RuntimeError)
    assert int(program.run_slots(np.array(9))[0]) == 9  # the next call starts with a clean record


def test_a_fault_ends_an_endless_loop(build):
    fail = build.launch("fail", [(ERROR, 0)], [7, 8])
    with pytest.raises(native.Fault):
        build.run(0, ("while", [build.less(10)], FLAG, [fail], -1, SITE))


def test_a_fault_in_the_prologue_is_raised_by_each_call(build):
    fail = build.launch("fail", [(ERROR, 0)], [5, 6])
    program = build.program(weights=build.weights((fail, [])))
    for _ in range(2):
        with pytest.raises(native.Fault) as caught:
            program.run_slots(np.array(1))
        assert (caught.value.code, caught.value.site) == (5, 6)


@pytest.mark.parametrize(
    ("step", "named"),
    [
        (("jump", 1), r"main\[1\]: found 'jump'"),
        ((), r"main\[1\]: found an empty tuple"),
        (7, r"main\[1\]: found int"),
        (("launch", 1, 1, 1, 0, ()), r"main\[1\]: found 6 items"),
        (("launch", 1, 1, 1, 0, (), ()), r"main\[1\]: found function address 1"),
        (("launch", "f", 1, 1, 0, (), ()), r"main\[1\].fn: found 'f'"),
        (("if", (ARENA, 64), [], []), r"main\[1\].condition: found offset 64 in base 0"),
        (("if", (9, 0), [], []), r"main\[1\].condition: found base 9"),
        (("if", (ARENA, -1), [], []), "found offset -1"),
        (
            ("for", 1, [("for", -1, [], None, False)], None, False),
            r"main\[1\].body\[0\]: found count -1",
        ),
        (("for", 1, [], (ARENA, 57), False), r"main\[1\].counter: found offset 57"),
        (
            ("for", 2, [("if", (ARENA, 63, (0, 1)), [], [])], None, False),
            r"body\[0\].condition: found a move by 1 bytes a round, in 2, expected .* at most 0",
        ),
        (
            ("for", 2, [("if", (ARENA, 0, (1, 1)), [], [])], None, False),
            r"found a move with loop 1, expected one of the 1 around it",
        ),
        (
            ("for", 2, [("if", (ARENA, 8, (0, -4)), [], [])], None, False),
            "found a move by -4 bytes",
        ),
        (("for", 2**62, [("if", (ARENA, 0, (0, 2**62)), [], [])], None, False), "a move by"),
        (("if", (ARENA, 0, (0, 0)), [], []), "one of the 0 around it"),
        (("if", (ARENA, 0, (0,)), [], []), "found 1 items, expected \\(loop, bytes\\)"),
        (("for", 1, [], None, 3), r"main\[1\].reverse: found int, expected a bool"),
        (("while", [], FLAG, [], -2, 0), r"main\[1\]: found max_iterations -2"),
    ],
)
def test_a_malformed_step_is_named(build, step, named):
    with pytest.raises(native.Error, match=named):
        build.program(step)


@pytest.mark.parametrize(
    ("position", "value", "found"),
    [(2, -1, "range -1"), (3, 0, "grain 0"), (4, -8, "-8 bytes of scratch")],
)
def test_a_malformed_launch_is_named(build, position, value, found):
    step = list(build.add(1))
    step[position] = value
    with pytest.raises(native.Error, match=found):
        build.program(step)


def test_nesting_has_a_limit(build):
    step = ("for", 1, [], None, False)
    for _ in range(100):
        step = ("for", 1, [step], None, False)
    with pytest.raises(native.Error, match="nested deeper"):
        build.program(step)


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
    with pytest.raises(native.Error, match="arena: found no memory"):
        program.run_slots()
