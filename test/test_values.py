"""Values under Python's and NumPy's own operations: comparison, identity, copies, numbers."""

from __future__ import annotations

import copy
import operator
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import GraphError
from rlx.ir.graph import Graph
from rlx.ir.interpreter import interpret
from rlx.runtime.session import CompiledGraph
from rlx.types import SymDim, TensorType

X = np.float32([1, 2, 3])
COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
OTHERS = {"a list": [1, 5, 3], "a number": 2, "an array": np.float32([1, 5, 3]),
          "a scalar": np.float64(2), "nan": float("nan")}  # fmt: skip


def ran(build: Callable[[rlx.Value], rlx.Value]) -> Any:
    g = Graph()
    g.set_outputs(build(g.input("x", [3])))
    found = rlx.Session().compile(g).run({"x": X})[0]
    assert found.tobytes() == interpret(g, {"x": X})[0].tobytes()
    return found


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("compare", COMPARISONS)
def test_comparisons_are_element_by_element(compare: Callable[..., Any], other: str) -> None:
    o: Any = OTHERS[other]
    assert ran(lambda x: compare(x, o)).tolist() == compare(X, np.float32(o)).tolist()
    assert ran(lambda x: compare(o, x)).tolist() == compare(np.float32(o), X).tolist()
    assert ran(lambda x: compare(x, x + o)).tolist() == compare(X, X + np.float32(o)).tolist()


def test_equality_counts_in_arithmetic() -> None:
    assert ran(lambda x: x * (x == x.abs())).tolist() == [1, 2, 3]
    assert ran(lambda x: x * (x != x.flip(0))).tolist() == [1, 0, 3]


def test_values_are_found_by_identity() -> None:
    x = Graph().input("x", [3])
    y = x.exp()
    assert len({x, y, x}) == 2 and {x: 1, y: 2}[y] == 2
    assert x in {x, y} and x in [x, y]
    assert copy.copy(x) is x and copy.deepcopy({"a": [y]})["a"][0] is y
    assert y.op is not None and copy.deepcopy(y.op) is y.op


@pytest.mark.parametrize(
    "number", [np.float64(2), np.int64(2), np.bool_(True), np.complex128(2), 2, [2, 1, 1.5]]
)
def test_numbers_take_the_type_of_what_they_meet(number: Any) -> None:
    for dt in ("f16", "bf16", "f32", "f64"):
        x = Graph().input("x", [3], dt)
        expected = x.dtype if not isinstance(number, complex) else (x * 2j).dtype
        for v in (number * x, x * number, x + number, number - x):
            assert v.dtype is expected


def test_typed_arrays_keep_their_type() -> None:
    x = Graph().input("x", [3])
    assert (np.float32(2) * x).dtype.name == "f32" and (np.int32([1, 2, 3]) * x).dtype.name == "f32"
    assert (np.ones(3) * x.cast("f64")).dtype.name == "f64"
    assert (np.ones(3) * x.cast("i32")).dtype.name == "f64"
    assert (np.float32([1, 2, 3]) * x.cast("f16")).dtype.name == "f32"


OPERATORS = (
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
    operator.pow, operator.matmul, *COMPARISONS,
)  # fmt: skip


@pytest.mark.parametrize("op", OPERATORS)
def test_arrays_stand_on_either_side(op: Callable[..., Any]) -> None:
    a = np.float32([3, 2, 1])
    assert np.allclose(ran(lambda x: op(a, x)), op(a, X))
    assert np.allclose(ran(lambda x: op(x, a)), op(X, a))


def test_python_functions_of_numbers() -> None:
    assert ran(lambda x: round(x / 2)).tolist() == np.round(X / 2).tolist()
    assert ran(lambda x: divmod(x, 2)[1]).tolist() == (X % 2).tolist()
    assert ran(lambda x: divmod(np.float32(7), x)[0]).tolist() == (7 // X).tolist()
    x = Graph().input("x", [3])
    assert f"{x}" == repr(x)


# -- copies --------------------------------------------------------------------------------


def bilinear() -> Graph:
    g = Graph("bilinear")
    x, w = g.input("x", ["n", 2]), g.param("w", value=np.float32([[1, 2], [3, 4]]))
    g.set_outputs([x @ w, x == 1.0])
    return g


COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": lambda v: pickle.loads(pickle.dumps(v)),
}  # fmt: skip


@pytest.mark.parametrize("how", COPIES)
def test_a_copied_graph_is_one_of_its_own(how: str) -> None:
    g = bilinear()
    other = COPIES[how](g)
    x = np.float32([[1, 2], [5, 6]])
    expected = [a.tolist() for a in rlx.Session().compile(g).run({"x": x})]
    other.input("late", [1])
    assert len(g.inputs) == 1 and not {*g.inputs} & {*other.inputs}
    found = rlx.Session().compile(other).run({"x": x, "late": np.ones(1, np.float32)})
    assert [a.tolist() for a in found] == expected


@pytest.mark.parametrize("how", COPIES)
def test_types_and_sessions_are_copied(how: str) -> None:
    t = TensorType.of(["n", 3], "bf16")
    assert COPIES[how](t) == t and {t: 1}[COPIES[how](t)] == 1
    session = COPIES[how](rlx.Session(precision="high"))
    assert session.compile(bilinear()).run({"x": np.ones((1, 2), np.float32)})[0].shape == (1, 2)


def test_a_dim_of_another_process_is_the_same() -> None:
    code = (
        "import pickle, sys; from rlx.types import SymDim;"
        "sys.stdout.buffer.write(pickle.dumps(SymDim.symbol('n') * 2))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    assert {SymDim.symbol("n") * 2: 1}[pickle.loads(told)] == 1


@pytest.mark.parametrize("how", COPIES)
def test_what_holds_memory_is_not_copied(how: str) -> None:
    g = Graph()
    g.set_outputs((g.input("x", [2]) * g.param("w", value=np.ones(2, np.float32))).sum())
    f: CompiledGraph = rlx.Session().compile(g)
    step = rlx.compile_training(g, rlx.optim.SGD(lr=0.1))
    for held, instead in (
        (f, "compile its graph again"),
        (rlx.GraphDevices(g), "compile its graph again"),
        (step, "save its state"),
    ):
        with pytest.raises(GraphError, match=f"{type(held).__name__} is not copied .*{instead}"):
            COPIES[how](held)
