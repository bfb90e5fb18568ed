"""Schedules with structured control, from LIR text to a native run."""

from typing import Any

import numpy as np
import pytest

from rlx.compiler.driver import CompileReport, compile_schedule
from rlx.dialects.context import parse
from rlx.errors import FaultError, IRError, UnsupportedError
from rlx.lowering.compilation import Compilation
from rlx.lowering.passes.lir_reader import read_schedule
from rlx.runtime.executable import Executable
from rlx.schedule.steps import For, If, Launch, Place
from rlx.targets import find_target

SCALAR = '{dtype = i64, is = "TensorType", shape = []}'
INT = "memref<?xi64>"
BOOL = "memref<?xi8>"


def kernel(name: str, op: str, result: str) -> str:
    """A kernel on two scalars of i64."""
    config = (
        f'{{attrs = [], is = "CommonConfig", op = "mir.{op}", operands = [{SCALAR}, {SCALAR}]}}'
    )
    return (
        f"func.func private @{name}({INT}, {INT}, {result}) attributes "
        f'{{lir.family = "common", lir.config = {config}}}'
    )


def view(name: str, base: str, kind: str, offset: int, result: str) -> str:
    return (
        f'{name} = "lir.view"({base}) {{offset = {offset} : i64, shape = array<i64>, '
        f"strides = array<i64>}} : ({kind}) -> {result}"
    )


ARGUMENTS = ", ".join(
    [
        '%arena: memref<64xi8> {lir.role = "arena"}',
        '%packed: memref<0xi8> {lir.role = "packed"}',
        '%error: memref<2xi64> {lir.role = "error"}',
        '%param: memref<i64> {lir.role = "param", lir.name = "p"}',
        '%three: memref<i64> {lir.role = "constant", lir.name = "0"}',
        '%limit: memref<i64> {lir.role = "constant", lir.name = "1"}',
        '%input: memref<i64> {lir.role = "input", lir.name = "x"}',
        '%output: memref<i64> {lir.role = "output", lir.name = "0"}',
    ]
)
VIEWS = [
    view("%flag", "%arena", "memref<64xi8>", 0, BOOL),
    view("%round", "%arena", "memref<64xi8>", 8, INT),
    view("%p", "%param", "memref<i64>", 0, INT),
    view("%c3", "%three", "memref<i64>", 0, INT),
    view("%c20", "%limit", "memref<i64>", 0, INT),
    view("%x", "%input", "memref<i64>", 0, INT),
    view("%y", "%output", "memref<i64>", 0, INT),
]


def call(name: str, a: str, b: str, out: str) -> str:
    kinds = f"{INT}, {INT}, {BOOL if name == 'less' else INT}"
    marks = "lir.range = 1 : i64, lir.grain = 1 : i64, lir.scratch = 0 : i64"
    return f"func.call @{name}({a}, {b}, {out}) {{{marks}}} : ({kinds}) -> ()"


def marked(step: str, ops: str) -> str:
    """A launch that says what it is for."""
    return step.replace("lir.range", f'lir.ops = "{ops}", lir.range')


LESS = call("less", "%y", "%c20", "%flag")
TEST = f'%more = "lir.test"(%flag) : ({BOOL}) -> i1'
ADD3 = call("add", "%y", "%c3", "%y")
DOUBLE = call("add", "%y", "%y", "%y")


SITE = '{message = "too many rounds", file = "model.py", line = 7 : i64}'


def module(*body: str) -> str:
    """y = x + p, then the steps of ``body``; the constants are 3 and 20."""
    lines = [
        "module attributes {lir.constant0 = dense<3> : tensor<i64>,"
        " lir.constant1 = dense<20> : tensor<i64>,"
        f" lir.sites = [{SITE}]}} {{",
        kernel("add", "add", INT),
        kernel("less", "lt", BOOL),
        f"func.func @main({ARGUMENTS}) {{",
        *VIEWS,
        call("add", "%x", "%p", "%y"),
        *body,
        "return",
        "}",
        "}",
    ]
    return "\n".join(lines)


def load(*body: str) -> Executable:
    target = find_target("cpu")
    schedule = read_schedule(parse(module(*body)))
    executable = Executable(compile_schedule(schedule, target, CompileReport(Compilation(target))))
    executable.weights.set_param("p", np.array(1))
    return executable


def run(x: int, *body: str) -> int:
    return int(load(*body).run_slots(np.array(x))[0])


@pytest.mark.parametrize(("x", "expected"), [(5, 12), (30, 34)])
def test_if_reads_its_bool_when_it_runs(x: Any, expected: Any):
    assert run(x, LESS, TEST, f"scf.if %more {{ {DOUBLE} }} else {{ {ADD3} }}") == expected


def test_if_without_else():
    assert run(5, LESS, TEST, f"scf.if %more {{ {DOUBLE} }}") == 12
    assert run(30, LESS, TEST, f"scf.if %more {{ {DOUBLE} }}") == 31


@pytest.mark.parametrize(("x", "expected"), [(0, 22), (19, 20), (40, 41)])
def test_while_tests_before_each_round(x: Any, expected: Any):
    assert run(x, *while_(ADD3)) == expected


def while_(body: str, marks: str = "") -> list[str]:
    return [
        "scf.while : () -> () {", LESS, TEST, "scf.condition(%more)", "} do {", body, "scf.yield",
        "}" + (f" attributes {{{marks}}}" if marks else ""),
    ]  # fmt: skip


def bounds(low: int, high: int, step: int) -> list[str]:
    numbers = (("low", low), ("high", high), ("step", step))
    return [f"%{n} = arith.constant {v} : index" for n, v in numbers]


def for_(*body: str) -> list[str]:
    return ["scf.for %i = %low to %high step %step {", *body, "}"]


def test_for_runs_its_rounds():
    assert run(0, *bounds(0, 4, 1), *for_(ADD3)) == 13
    assert run(0, *bounds(0, 0, 1), *for_(ADD3)) == 1


def test_count_stores_the_round():
    count = f'"lir.count"(%i, %round) : (index, {INT}) -> ()'
    body = for_(count, call("add", "%y", "%round", "%y"))
    assert run(0, *bounds(0, 5, 1), *body) == 1 + 0 + 1 + 2 + 3 + 4


def moving(step: int, at: str = "%i") -> str:
    """A place of the arena that moves with a round."""
    marks = (
        f"offset = 16 : i64, moves = array<i64: {step}>, shape = array<i64>, strides = array<i64>"
    )
    return f'%slot = "lir.view"(%arena, {at}) {{{marks}}} : (memref<64xi8>, index) -> {INT}'


COUNT = f'"lir.count"(%i, %round) : (index, {INT}) -> ()'


def test_a_view_moves_with_the_round():
    """The slots hold 3, 4, 5, 6; the third is added to 1."""
    body = for_(moving(8), COUNT, call("add", "%round", "%c3", "%slot"))
    third = view("%third", "%arena", "memref<64xi8>", 32, INT)
    assert run(0, *bounds(0, 4, 1), *body, third, call("add", "%y", "%third", "%y")) == 1 + 5


@pytest.mark.parametrize(("mark", "expected"), [("", 5), (" {lir.reverse}", 6)])
def test_a_reverse_loop_counts_down(mark: Any, expected: Any):
    *loop, end = for_(COUNT, DOUBLE, call("add", "%y", "%round", "%y"))
    assert run(0, *bounds(0, 2, 1), *loop, end + mark) == expected


def test_control_nests():
    inner = [LESS, TEST, "scf.if %more {", *for_(ADD3), "} else {", DOUBLE, "}"]
    # 1 -> 10 -> 19 -> 28 -> 56: three rounds below 20 add 9 each, the fourth doubles.
    assert run(0, *bounds(0, 3, 1), "scf.for %j = %low to %high step %step {", *inner, "}") == 28
    again = [*bounds(0, 3, 1), "%four = arith.constant 4 : index"]
    assert run(0, *again, "scf.for %j = %low to %four step %step {", *inner, "}") == 56


def test_launches_inside_control_are_told_apart():
    """The runtime and the artifact count launches in one order, whatever they are nested in."""
    otherwise = ["} else {", DOUBLE, "}"]
    inner = [LESS, TEST, "scf.if %more {", *for_(marked(ADD3, "inner")), *otherwise]
    executable = load(
        *bounds(0, 3, 1), "scf.for %j = %low to %high step %step {", *inner, "}",
        *while_(marked(ADD3, "never")), marked(DOUBLE, "last"),
    )  # fmt: skip
    executable.program.set_profiling(True)
    # 1 -> 10 -> 19 -> 28: three rounds below 20.
    assert int(executable.run_slots(np.array(0))[0]) == 56
    calls = [n for _, n in executable.program.launch_times()]
    named = [(f.name, n) for f, n in zip(executable.launches, calls, strict=True)]
    assert named == [
        ("add", 1), ("less", 3), ("inner", 9), ("add", 0), ("less", 1), ("never", 0), ("last", 1),
    ]  # fmt: skip


def test_facts_of_a_launch_are_checked():
    with pytest.raises(IRError, match=r"lir\.flops must be an i64 of at least 0, found -1"):
        load(ADD3.replace("lir.range", "lir.flops = -1 : i64, lir.range"))
    with pytest.raises(IRError, match=r"lir\.ops must be a string, found 3"):
        load(ADD3.replace("lir.range", "lir.ops = 3 : i64, lir.range"))


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("dense<3> : tensor<i64>", '"three"', "lir.constant0 holds no elements"),
        (f"[{SITE}]", "7", "lir.sites is 7 : i64, expected a ArrayAttr"),
        (SITE, "7", "an entry of lir.sites needs message, file and line, found 7 : i64"),
        ("line = 7", "lin = 7", "needs message, file and line, found {file"),
        ("line = 7 : i64", 'line = "7"', 'line is "7", expected a IntegerAttr'),
    ],
)
def test_facts_of_the_module_are_checked(right: Any, wrong: Any, message: str):
    text = module(ADD3)
    assert right in text
    with pytest.raises(IRError) as caught:
        read_schedule(parse(text.replace(right, wrong)))
    assert message in caught.value.message


def test_a_loop_over_its_limit_is_a_fault_at_its_site():
    assert run(0, *while_(ADD3, "lir.limit = 7 : i64, lir.site = 0 : i64")) == 22
    with pytest.raises(FaultError, match="too many rounds") as caught:
        run(0, *while_(ADD3, "lir.limit = 6 : i64, lir.site = 0 : i64"))
    assert caught.value.location == ("model.py", 7)


def test_steps_are_classes_of_numbers():
    body = [*bounds(0, 2, 1), *for_(LESS, TEST, f"scf.if %more {{ {ADD3} }}")]
    schedule = read_schedule(parse(module(*body)))
    names = [k.name for k in schedule.kernels]
    _, loop = schedule.main
    assert isinstance(loop, For)
    assert (loop.rounds, loop.counter, loop.reverse) == (2, None, False)
    less, branch = loop.children()
    assert isinstance(less, Launch) and names[less.kernel] == "less"
    assert isinstance(branch, If) and branch.flag == Place(0, 0)
    (add,) = branch.children()
    assert isinstance(add, Launch) and names[add.kernel] == "add"
    assert len(schedule.launches) == 3, "one for each launch, however deep"


def test_a_structured_prologue_step_follows_the_params_of_its_launches():
    marked = ADD3.replace("lir.grain", "lir.when = array<i64: 0>, lir.grain")
    text = module()
    start = text.index("func.func @main")
    head = text[start:].replace("@main", "@prologue", 1).split(call("add", "%x", "%p", "%y"))[0]
    prologue = "\n".join([head, *bounds(0, 2, 1), *for_(marked), "return", "}"])
    schedule = read_schedule(parse(text[:start] + prologue + "\n" + text[start:]))
    ((step, params),) = schedule.prologue
    assert isinstance(step, For) and params == (0,)


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        ([LESS, TEST, ADD3, f"scf.if %more {{ {ADD3} }}"], IRError, "right before it"),
        (["%t = arith.constant true", f"scf.if %t {{ {ADD3} }}"], IRError, "right before it"),
        ([*bounds(1, 3, 1), *for_(ADD3)], UnsupportedError, "from 1 in steps of 1"),
        ([*bounds(0, 3, 2), *for_(ADD3)], UnsupportedError, "from 0 in steps of 2"),
        (
            [*bounds(0, 3, 1), *for_(ADD3, f'"lir.count"(%i, %round) : (index, {INT}) -> ()')],
            IRError,
            "before the steps",
        ),
        (while_(ADD3, "lir.limit = -2 : i64"), IRError, "lir.limit is -2"),
        (
            [*bounds(0, 4, 1), *for_(moving(8, "%low"), ADD3)],
            IRError,
            "moves with the rounds of an scf.for around it",
        ),
        (
            [*bounds(0, 4, 1), *for_(moving(16), ADD3)],
            IRError,
            "bytes 64 to 72 of a memory of 64 bytes",
        ),
    ],
)
def test_malformed_control_is_refused(body: Any, error: Any, message: str):
    with pytest.raises(error, match=message) as caught:
        read_schedule(parse(module(*body)))
    assert caught.value.location is not None
