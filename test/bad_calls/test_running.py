"""Bad calls of sessions and compiled graphs: names, lengths, element types, shapes, unset params."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import (
    DeviceError,
    DTypeError,
    FaultError,
    GraphError,
    NameError,
    ShapeError,
)
from support.bad_calls import Bad, check, ids

X = np.array([[1, 2, 3, 4]], np.float32)
W = np.ones((4, 2), np.float32)
MASKED = np.ma.masked_greater(X, 2)
MASKED_W = np.ma.masked_array(W)


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


class Column:
    """An array by the method that NumPy looks for, of a type of its own."""

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        return X.astype(float)


def graph() -> rlx.Graph:
    g = rlx.Graph("hello")
    g.set_outputs([g.input("x", [1, 4]) @ g.param("w", [4, 2])])
    return g


def symbolic() -> rlx.Graph:
    g = rlx.Graph("symbolic")
    x, y = g.input("x", ["batch", "seq"]), g.input("y", ["batch", 2], "i64")
    g.set_outputs([x.sum(axes=1), y * 2])
    return g


class NoDevice:
    """What claims to be an array for others, and is not one for NumPy."""

    def __dlpack__(self, **_: Any) -> None:
        raise BufferError("it lies on another device")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


def read_only(a: np.ndarray) -> np.ndarray:
    a.setflags(write=False)
    return a


SESSIONS = [
    Bad(
        DeviceError,
        "unknown device 'cpuu'; did you mean 'cpu'.*available: cpu",
        lambda: rlx.Session("cpuu"),
    ),
    Bad(DeviceError, "unknown device ''.*available: cpu", lambda: rlx.Session("")),
    Bad(DeviceError, "unknown device 3", lambda: rlx.Session(3)),
    Bad(DeviceError, r"unknown device \['cpu'\]", lambda: rlx.Session(["cpu"])),
    Bad(DeviceError, "'metal' is not available.*use one of cpu", lambda: rlx.Session("metal")),
    Bad(
        GraphError,
        "no precision is called 'f61'; did you mean 'f16'",
        lambda: rlx.Session("cpu", "f61"),
    ),
    Bad(
        GraphError,
        "'custom' is given as a mapping of compute, reduction",
        lambda: rlx.Session().with_policy("custom"),
    ),
    Bad(
        GraphError,
        "no class of ops is called 'computes'; did you mean 'compute'",
        lambda: rlx.Session().with_policy({"computes": "bf16"}),
    ),
    Bad(
        DTypeError,
        "a policy computes in f32, f16 or bf16, found i8 for 'compute'",
        lambda: rlx.Session().with_policy({"compute": "i8"}),
    ),
    Bad(GraphError, "no precision is called None; use", lambda: rlx.Session("cpu", None)),
    Bad(
        GraphError,
        "no precision is called 'int8', since a scale belongs to each tensor: rlx.quant.quantize_graph",
        lambda: rlx.Session("cpu", "int8"),
    ),
    Bad(
        GraphError,
        "threads: found 0, expected a number of threads in 1..4096",
        lambda: rlx.Session(threads=0),
    ),
    Bad(
        GraphError,
        "threads: found -2, expected a number of threads in 1..4096",
        lambda: rlx.Session(threads=-2),
    ),
    Bad(
        GraphError,
        "threads is a number from 1 on, found 'many'",
        lambda: rlx.Session(threads="many"),
    ),
    Bad(GraphError, "threads is a number from 1 on, found 1.5", lambda: rlx.Session(threads=1.5)),
    Bad(
        GraphError,
        "threads: found 1000000000, expected a number of threads in 1..4096",
        lambda: rlx.Session(threads=10**9),
    ),
    Bad(
        GraphError,
        "threads is a number from 1 on, found 1000000000000000000000",
        lambda: rlx.Session(threads=10**21),
    ),
    Bad(GraphError, "compile takes a Graph, found a NoneType", lambda: rlx.Session().compile(None)),
    Bad(
        GraphError,
        "compile takes a Graph, found a str",
        lambda: rlx.Session().compile("model.mlir"),
    ),
    Bad(
        GraphError,
        "'empty' has no outputs; call set_outputs",
        lambda: rlx.Session().compile(rlx.Graph("empty")),
    ),
    Bad(
        GraphError,
        "no option is called 'fuze'; did you mean 'fuse'",
        lambda: rlx.Session().compile(graph(), fuze=False),
    ),
    Bad(
        GraphError,
        r"no option is called 'static_argnames'; write rlx.jit\(static=",
        lambda: rlx.jit(abs, static_argnames="n"),
    ),
    Bad(
        GraphError,
        "dispatch is 'native' or 'common', found 'fast'",
        lambda: rlx.Session().compile(graph(), dispatch="fast"),
    ),
    Bad(
        GraphError,
        "no option is called 'fuze'; did you mean 'fuse'",
        lambda: rlx.Session().compile(symbolic(), fuze=False),
    ),
    Bad(
        GraphError,
        "dispatch is 'native' or 'common', found 'fast'",
        lambda: rlx.Session("interpret").compile(symbolic(), dispatch="fast"),
    ),
    Bad(
        GraphError,
        "no option is called 'fuze'; did you mean 'fuse'",
        lambda: rlx.compile_artifact(graph(), fuze=False),
    ),
    Bad(
        GraphError,
        "no option is called 'fuze'; did you mean 'fuse'",
        lambda: rlx.legalize_graph_for_device(graph(), fuze=False),
    ),
    Bad(
        GraphError,
        "no option is called 'fuze'; did you mean 'fuse'",
        lambda: rlx.dispatch_report_for_device(graph(), fuze=False),
    ),
    Bad(
        GraphError,
        "fuse is True or False, found 'no'",
        lambda: rlx.Session().compile(graph(), fuse="no"),
    ),
    Bad(
        NameError,
        "no dim is called 'bacth'; did you mean 'batch'.*known: batch, seq",
        lambda: rlx.Session().compile(symbolic(), dims={"bacth": 2}),
    ),
    Bad(
        ShapeError,
        "the size of dim 'batch' is an int >= 0, found -1",
        lambda: rlx.Session().compile(symbolic(), dims={"batch": -1}),
    ),
    Bad(
        ShapeError,
        "the size of dim 'batch' is an int >= 0, found 1.5",
        lambda: rlx.Session().compile(symbolic(), dims={"batch": 1.5}),
    ),
    Bad(
        ShapeError,
        "the size of dim 'batch' is an int >= 0, found '2'",
        lambda: rlx.Session().compile(symbolic(), dims={"batch": "2"}),
    ),
    Bad(
        GraphError,
        "dims is a mapping .* found 3",
        lambda: rlx.Session().compile(symbolic(), dims=3),
    ),
    Bad(
        DeviceError,
        "'cpu' is already registered",
        lambda: rlx.register_backend("cpu", lambda: None),
    ),
    Bad(
        DeviceError,
        "no target is called 'cpuu'; did you mean 'cpu'",
        lambda: rlx.inspect_pipeline(graph(), "cpuu"),
    ),
    Bad(
        DeviceError,
        "unknown CPU 'x86-64-v9'.*RLX emits code for",
        lambda: rlx.inspect_pipeline(graph(), "cpu:x86-64-v9"),
    ),
    Bad(
        DeviceError,
        "unknown extra 'avx'.*known are",
        lambda: rlx.inspect_pipeline(graph(), "cpu:x86-64-v4+avx"),
    ),
    Bad(
        GraphError,
        "no option is called 'fuze'; did you mean 'fuse'",
        lambda: rlx.inspect_pipeline(graph(), fuze=1),
    ),
    Bad(ShapeError, "symbolic dim batch.*bind it|batch", lambda: rlx.inspect_pipeline(symbolic())),
    Bad(GraphError, "takes a Graph, found an int", lambda: rlx.inspect_pipeline(3)),
    Bad(NameError, "nothing was given for 'x'", lambda: rlx.interpret(graph(), {"w": W})),
    Bad(NameError, "nothing was given for 'w'", lambda: rlx.interpret(graph(), {"x": X})),
    Bad(
        NameError,
        "no input or param is called 'v'.*'x', 'w'",
        lambda: rlx.interpret(graph(), {"x": X, "v": W}),
    ),
    Bad(
        ShapeError,
        r"'x' has shape \[1, 4\], found \[4, 1\]",
        lambda: rlx.interpret(graph(), {"x": X.T, "w": W}),
    ),
    Bad(
        DTypeError,
        "'x' is f32, found no such array",
        lambda: rlx.interpret(graph(), {"x": [[1], [1, 2]], "w": W}),
    ),
    Bad(
        DTypeError,
        "'w' is a masked array",
        lambda: rlx.interpret(graph(), {"x": X, "w": MASKED_W}),
    ),
    Bad(DTypeError, "'x'", lambda: rlx.interpret(graph(), {"x": "text", "w": W})),
    Bad(GraphError, "takes a Graph, found a str", lambda: rlx.interpret("graph", {})),
    Bad(
        ShapeError,
        "'y' says batch is 3, another tensor says 2",
        lambda: rlx.interpret(symbolic(), {"x": ones(2, 3), "y": np.ones((3, 2), int)}),
    ),
    Bad(
        ShapeError,
        r"'x' has shape \[batch, seq\], found \[2\]",
        lambda: rlx.interpret(symbolic(), {"x": ones(2), "y": np.ones((2, 2), int)}),
    ),
]

PARAMS = [
    Bad(DTypeError, "param 'w' is a masked array", lambda f: f.set_param("w", MASKED_W)),
    Bad(DTypeError, "input 'x' is a masked array", lambda f: f.set_input("x", MASKED)),
    Bad(NameError, "no param is called 'v'; there is 'w'", lambda f: f.set_param("v", W)),
    Bad(NameError, "no param is called 'x'", lambda f: f.set_param("x", X)),
    Bad(NameError, "no param is called None", lambda f: f.set_param(None, X)),
    Bad(NameError, r"no param is called \[\]", lambda f: f.set_param([], X)),
    Bad(ShapeError, r"'w' has shape \[4, 2\], found \[2, 4\]", lambda f: f.set_param("w", W.T)),
    Bad(ShapeError, "8 elements expected, 7 found", lambda f: f.set_param("w", W.ravel()[:7])),
    Bad(
        DTypeError,
        "'w' is f32, found float16; convert",
        lambda f: f.set_param("w", W.astype(np.float16)),
    ),
    Bad(DTypeError, "'w' is f32, found object", lambda f: f.set_param("w", np.array([None]))),
    Bad(DTypeError, "'w' is f32, found <U1", lambda f: f.set_param("w", np.array(["a"]))),
    Bad(
        DTypeError,
        "'w' is f32, found a str|'w' is f32, found <U3 numbers",
        lambda f: f.set_param("w", "abc"),
    ),
    Bad(
        DTypeError,
        "'w' is f32, found .*None|'w' is f32, found object numbers",
        lambda f: f.set_param("w", None),
    ),
    Bad(
        DTypeError,
        "'w' is f32, found a list that is no such array",
        lambda f: f.set_param("w", [[1], [1, 2]]),
    ),
    Bad(
        DTypeError,
        "'w' is f32, found a NoDevice that NumPy cannot read.*give a NumPy array",
        lambda f: f.set_param("w", NoDevice()),
    ),
    Bad(NameError, "no input is called 'w'", lambda f: f.set_input("w", W)),
    Bad(
        NameError,
        "no input is called 'X'; did you mean 'x'|no input is called 'X'",
        lambda f: f.set_input("X", X),
    ),
    Bad(ShapeError, r"'x' has shape \[1, 4\], found \[4\]", lambda f: f.set_input("x", X[0])),
    Bad(DTypeError, "'x' is f32, found float64", lambda f: f.set_input("x", X.astype(float))),
]

RUNS = [
    Bad(GraphError, r"write run\(\{'x': x\}\)", lambda f: f.run(x=X)),
    Bad(GraphError, r"write run\(\{'x': x, 'w': w\}\)", lambda f: f.run(x=X, w=W)),
    Bad(GraphError, r"one mapping; write run\(\{'x': array", lambda f: f.run(X, X)),
    Bad(DTypeError, r"'x' is a masked array.*\.filled", lambda f: f.run({"x": MASKED})),
    Bad(DTypeError, r"'x' is a masked array", lambda f: f.run_slots(MASKED)),
    Bad(
        DTypeError,
        "output '0' is a masked array",
        lambda f: f.run_into({"x": X}, [np.ma.masked_array(ones(1, 2))]),
    ),
    Bad(DTypeError, "'x' is f32, found float64", lambda f: f.run({"x": Column()})),
    Bad(NameError, "nothing was given for the input 'x'", lambda f: f.run({})),
    Bad(NameError, "nothing was given for the input 'x'", lambda f: f.run()),
    Bad(NameError, "no input is called 'xx'; did you mean 'x'", lambda f: f.run({"xx": X})),
    Bad(
        NameError,
        "no input is called 'w'; there is 'x'|no input is called 'w'",
        lambda f: f.run({"x": X, "w": W}),
    ),
    Bad(NameError, "no input is called 0", lambda f: f.run({0: X})),
    Bad(GraphError, "inputs .* by name.*found a list", lambda f: f.run([X])),
    Bad(GraphError, "inputs .* by name.*found an ndarray", lambda f: f.run(X)),
    Bad(GraphError, "inputs .* by name.*found a str", lambda f: f.run("x")),
    Bad(ShapeError, r"'x' has shape \[1, 4\], found \[4\]", lambda f: f.run({"x": X[0]})),
    Bad(
        ShapeError,
        r"'x' has shape \[1, 4\], found \[1, 5\]",
        lambda f: f.run({"x": np.ones((1, 5), np.float32)}),
    ),
    Bad(ShapeError, r"found \[0, 4\]", lambda f: f.run({"x": X[:0]})),
    Bad(ShapeError, r"found \[1, 1, 4\]", lambda f: f.run({"x": X[None]})),
    Bad(ShapeError, r"found \[\]", lambda f: f.run({"x": 3})),
    Bad(
        DTypeError,
        'is f32, found float64; convert it with .astype."float32". first',
        lambda f: f.run({"x": X.astype(float)}),
    ),
    Bad(
        DTypeError,
        "'x' is f32, found >f4|'x' is f32, found float32",
        lambda f: f.run({"x": X.astype(">f4")}),
    ),
    Bad(DTypeError, "'x' is f32, found bool", lambda f: f.run({"x": X > 0})),
    Bad(DTypeError, "'x' is f32, found complex64", lambda f: f.run({"x": X * 1j + 0j})),
    Bad(
        DTypeError, "'x' is f32, found complex128 numbers", lambda f: f.run({"x": [[1j, 1, 1, 1]]})
    ),
    Bad(DTypeError, "'x' is f32", lambda f: f.run({"x": "text"})),
    Bad(DTypeError, "'x' is f32", lambda f: f.run({"x": None})),
    Bad(DTypeError, "'x' is f32", lambda f: f.run({"x": [["a", "b", "c", "d"]]})),
    Bad(
        DTypeError,
        "'x' is f32, found a list that is no such array",
        lambda f: f.run({"x": [[1, 2], [3]]}),
    ),
    Bad(DTypeError, "NumPy cannot read", lambda f: f.run({"x": NoDevice()})),
    Bad(
        GraphError,
        "a Value has no elements yet",
        lambda f: f.run({"x": rlx.Graph().input("x", [1, 4])}),
    ),
    Bad(GraphError, "found 0 inputs, expected 1: 'x'", lambda f: f.run_slots()),
    Bad(GraphError, "found 2 inputs, expected 1: 'x'", lambda f: f.run_slots(X, X)),
    Bad(ShapeError, r"'x' has shape \[1, 4\], found \[4\]", lambda f: f.run_slots(X[0])),
    Bad(DTypeError, "'x' is f32, found int32", lambda f: f.run_slots(X.astype(np.int32))),
    Bad(
        GraphError,
        "not C-contiguous|ascontiguousarray",
        lambda f: f.run_slots(np.ones((4, 1), np.float32).T[:, ::-1]),
    ),
    Bad(DTypeError, "'x' is f32, found None", lambda f: f.run_slots(None)),
    Bad(ShapeError, r"'x' has shape \[1, 4\], found \[4\]", lambda f: f.run_slots([1, 2, 3, 4])),
    Bad(
        GraphError,
        "aligned to 4 bytes.*copy",
        lambda f: f.run_slots(
            np.frombuffer(bytes(17), np.uint8)[1:].view(np.float32).reshape(1, 4)
        ),
    ),
]

OUT = np.empty((1, 2), np.float32)
INTO = [
    Bad(ShapeError, "1 outputs expected, found 0", lambda f: f.run_into({"x": X}, [])),
    Bad(
        ShapeError, "1 outputs expected, found 2", lambda f: f.run_into({"x": X}, [OUT, OUT.copy()])
    ),
    Bad(
        GraphError,
        "outputs are NumPy arrays in a list, found None",
        lambda f: f.run_into({"x": X}, None),
    ),
    Bad(
        GraphError, "outputs are NumPy arrays in a list, found 3", lambda f: f.run_into({"x": X}, 3)
    ),
    Bad(
        GraphError,
        "output 0 is a NoneType, expected a NumPy array",
        lambda f: f.run_into({"x": X}, [None]),
    ),
    Bad(
        GraphError,
        "output 0 is a list, expected a NumPy array",
        lambda f: f.run_into({"x": X}, [[1, 2]]),
    ),
    Bad(
        GraphError,
        "output 0 is a bytearray, expected a NumPy array",
        lambda f: f.run_into({"x": X}, [bytearray(8)]),
    ),
    Bad(
        ShapeError,
        r"output '0' has shape \[1, 2\], found \[2\]",
        lambda f: f.run_into({"x": X}, [OUT[0]]),
    ),
    Bad(
        DTypeError,
        "output '0' is f32, found float64",
        lambda f: f.run_into({"x": X}, [OUT.astype(float)]),
    ),
    Bad(
        ShapeError,
        "output 0 must be contiguous and writable",
        lambda f: f.run_into({"x": X}, [np.empty((1, 4), np.float32)[:, ::2]]),
    ),
    Bad(
        ShapeError,
        "output 0 must be contiguous and writable",
        lambda f: f.run_into({"x": X}, [read_only(OUT.copy())]),
    ),
    Bad(
        GraphError,
        "output 0 shares memory with input 'x'",
        lambda f: f.run_into({"x": X}, [X[:, :2]]),
    ),
    Bad(NameError, "nothing was given for the input 'x'", lambda f: f.run_into({}, [OUT])),
    Bad(GraphError, "inputs .* by name.*found a list", lambda f: f.run_into([X], [OUT])),
    Bad(
        GraphError,
        "aligned|align",
        lambda f: f.run_into(
            {"x": X}, [np.frombuffer(bytearray(9), np.uint8)[1:].view(np.float32).reshape(1, 2)]
        ),
    ),
]

ONES = np.ones((2, 2), np.int64)
SYMBOLIC = [
    Bad(
        ShapeError,
        "'y' says batch is 2, another tensor says 3",
        lambda f: f.run({"x": np.ones((3, 1), np.float32), "y": ONES}),
    ),
    Bad(
        ShapeError,
        r"'x' has shape \[batch, seq\], found \[3\]",
        lambda f: f.run({"x": np.ones(3, np.float32), "y": ONES}),
    ),
    Bad(
        ShapeError,
        r"'y' has shape \[2, 2\], found \[2, 3\]",
        lambda f: f.run({"x": np.ones((2, 1), np.float32), "y": np.ones((2, 3), np.int64)}),
    ),
    Bad(
        DTypeError,
        "'y' is i64, found float64 numbers",
        lambda f: f.run({"x": np.ones((1, 1), np.float32), "y": [[1.5, 1]]}),
    ),
    Bad(
        DTypeError,
        "'y' is i64, found object numbers",
        lambda f: f.run({"x": np.ones((1, 1), np.float32), "y": [[2**70, 1]]}),
    ),
    Bad(NameError, "nothing was given for the inputs 'x', 'y'", lambda f: f.run({})),
    Bad(
        NameError,
        "nothing was given for the input 'y'",
        lambda f: f.run({"x": np.ones((1, 1), np.float32)}),
    ),
    Bad(GraphError, "found 1 inputs, expected 2: 'x', 'y'", lambda f: f.run_slots(ONES)),
]


def faulty(op: Any, **feeds: Any) -> Any:
    """Run ``op`` of inputs with the element types of the feeds."""
    g = rlx.Graph("faulty")
    leaves = {n: g.input(n, a.shape, a.dtype) for n, a in feeds.items()}
    g.set_outputs(op(g, **leaves))
    return rlx.Session().compile(g).run(feeds)


TABLE = np.arange(6, dtype=np.float32).reshape(3, 2)
FAULTS = [
    Bad(
        FaultError,
        "gather: an index is out of range|gather",
        lambda: faulty(lambda g, x, i: g.gather(x, i, axis=0), x=TABLE, i=np.array([3])),
    ),
    Bad(
        FaultError,
        "gather",
        lambda: faulty(lambda g, x, i: g.gather(x, i, axis=0), x=TABLE, i=np.array([-4])),
    ),
    Bad(
        FaultError,
        "gather",
        lambda: faulty(lambda g, x, i: g.gather(x, i, axis=1), x=TABLE, i=np.array([2**62])),
    ),
    Bad(
        FaultError,
        "gather",
        lambda: faulty(lambda g, x, i: g.gather(x, i, axis=0), x=TABLE, i=np.array([-(2**63)])),
    ),
    Bad(
        FaultError,
        "scatter_add",
        lambda: faulty(lambda g, u, i: g.scatter_add(u, i, size=3), u=TABLE[:1], i=np.array([7])),
    ),
]


@pytest.fixture(scope="module")
def hello() -> rlx.CompiledGraph:
    f = rlx.Session("cpu").compile(graph())
    f.set_param("w", W)
    return f


@pytest.fixture(scope="module")
def free() -> rlx.CompiledGraph:
    return rlx.Session("cpu").compile(symbolic())


@pytest.mark.parametrize("bad", SESSIONS, ids=ids(SESSIONS))
def test_a_bad_call_of_a_session(bad: Bad) -> None:
    check(bad)


CALLS = PARAMS + RUNS + INTO


@pytest.mark.parametrize("bad", CALLS, ids=ids(CALLS))
def test_a_bad_call_of_a_compiled_graph(bad: Bad, hello: rlx.CompiledGraph) -> None:
    check(bad, hello)
    np.testing.assert_array_equal(hello.run({"x": X})[0], X @ W)  # and it still runs


@pytest.mark.parametrize("bad", SYMBOLIC, ids=ids(SYMBOLIC))
def test_a_bad_call_of_a_graph_with_symbolic_dims(bad: Bad, free: rlx.CompiledGraph) -> None:
    check(bad, free)


@pytest.mark.parametrize("bad", FAULTS, ids=ids(FAULTS))
def test_data_without_a_result(bad: Bad) -> None:
    check(bad)


def test_an_unset_param_is_named() -> None:
    f = rlx.Session("cpu").compile(graph())
    for call in (
        lambda: f.run({"x": X}),
        lambda: f.run_slots(X),
        lambda: f.run_into({"x": X}, [OUT]),
    ):
        check(Bad(NameError, r"no value was set for param 'w'; call set_param\('w', array\)", call))
