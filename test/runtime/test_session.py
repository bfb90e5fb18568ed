"""Sessions and compiled graphs: what they refuse and how they say it, and that no call sees what
another left behind."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
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
    UnsupportedError,
)
from rlx.runtime.backend import InterpreterBackend, _registry
from rlx.types import DTYPES

DEVICES = ["cpu", "interpret"]
X = np.array([[1, 2, 3, 4]], np.float32)
W = np.array([[1, 0], [0, 1], [1, 0], [0, 1]], np.float32)


def hello(device: str = "cpu", weight: Any = W) -> rlx.CompiledGraph:
    g = rlx.Graph("hello")
    x, w = g.input("x", [1, 4]), g.param("w", [4, 2])
    g.set_outputs([x @ w])
    compiled = rlx.Session(device).compile(g)
    if weight is not None:
        compiled.set_param("w", weight)
    return compiled


def here(offset: int = 0) -> str:
    """``file:line`` of the caller, some lines on, as errors write it."""
    frame = sys._getframe(1)
    return f"{frame.f_code.co_filename}:{frame.f_lineno + offset}"


def refused(kind: type[Exception], call: Callable[[], Any], *parts: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    for part in parts:
        assert part in str(caught.value)


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_a_wrong_input_is_named_with_what_was_found_and_expected(device: str) -> None:
    f = hello(device)
    out = [np.empty((1, 2), np.float32)]

    def check(call: Callable[[dict[str, Any]], Any]) -> None:
        refused(ShapeError, lambda: call({"x": X[0]}), "'x'", "[1, 4]", "found [4]")
        wide = {"x": X.astype(float)}
        refused(DTypeError, lambda: call(wide), "'x'", "f32", "float64", "astype")
        refused(NameError, lambda: call({"xx": X}), "no input", "'xx'", "did you mean 'x'")
        refused(NameError, lambda: call({}), "nothing was given for the input 'x'")

    where = here(1)
    refused(ShapeError, lambda: f.run({"x": X[0]}), where)
    check(f.run)
    check(lambda feeds: f.run_into(feeds, out))


@pytest.mark.parametrize("device", DEVICES)
def test_a_wrong_positional_input_is_refused_as_a_named_one_is(device: str) -> None:
    f = hello(device)
    where = here(1)
    refused(GraphError, lambda: f.run_slots(*()), where, "found 0 inputs, expected 1: 'x'")
    refused(GraphError, lambda: f.run_slots(X, X), "found 2 inputs, expected 1: 'x'")
    refused(ShapeError, lambda: f.run_slots(X[0]), "'x'", "[1, 4]", "found [4]")
    refused(DTypeError, lambda: f.run_slots(X.astype(np.int32)), "'x'", "f32", "int32")
    refused(NameError, lambda: hello(device, None).run_slots(X), "set_param('w', array)")
    np.testing.assert_array_equal(f.run_slots(X)[0], [[4, 6]])


@pytest.mark.parametrize("device", DEVICES)
def test_params_are_refused_by_name(device: str) -> None:
    f = hello(device, None)
    where = here(1)
    refused(NameError, lambda: f.run({"x": X}), where, "'w'", "call set_param('w', array)")
    refused(NameError, lambda: f.set_param("v", W), "no param", "'v'", "'w'")
    refused(ShapeError, lambda: f.set_param("w", W.T), "'w'", "[4, 2]", "found [2, 4]")
    refused(ShapeError, lambda: f.set_param("w", W.ravel()[:7]), "'w'", "8 elements", "7 found")
    refused(DTypeError, lambda: f.set_param("w", W.astype(np.float16)), "'w'", "f32", "float16")
    refused(DTypeError, lambda: f.set_param("w", np.float64(1)), "'w'", "f32", "float64")
    refused(NameError, lambda: f.run({"x": X}), "'w'")  # nothing of that was kept


def test_python_numbers_take_the_type_only_if_nothing_is_lost() -> None:
    g = rlx.Graph()
    i, u, b = g.input("i", [2], "i32"), g.input("u", [2], "u8"), g.input("b", [2], "bf16")
    g.set_outputs([i, u, b])
    f = rlx.Session().compile(g)
    good = {"i": [1, -2], "u": [True, 255], "b": [1, 2.5]}
    found = f.run(good)
    assert [a.dtype for a in found] == [np.int32, np.uint8, ml_dtypes.bfloat16]
    assert [a.tolist() for a in found] == [[1, -2], [1, 255], [1, 2.5]]
    refused(DTypeError, lambda: f.run({**good, "i": [1.5, 2]}), "'i'", "i32", "float64", "NumPy")
    refused(DTypeError, lambda: f.run({**good, "u": [256, 0]}), "'u'", "u8", "256")
    refused(DTypeError, lambda: f.run({**good, "u": [-1, 0]}), "'u'", "u8")
    refused(DTypeError, lambda: f.run({**good, "b": ["1", "2"]}), "'b'", "bf16")
    refused(DTypeError, lambda: f.run({**good, "b": [[1], [2, 3]]}), "'b'", "bf16")
    refused(DTypeError, lambda: f.run({**good, "i": object()}), "'i'", "i32")


def test_graphs_and_devices_that_cannot_be() -> None:
    g = rlx.Graph("empty")
    g.input("x", [1])
    call = lambda: rlx.Session().compile(g)
    where = here(-1)
    refused(GraphError, call, where, "'empty'", "call set_outputs first")
    refused(GraphError, lambda: g.set_outputs([]), "at least one output")
    refused(DeviceError, lambda: rlx.Session("cpi"), "'cpi'", "did you mean 'cpu'")
    refused(DeviceError, lambda: rlx.Session("directx"), "'directx'", "not available", "cpu")
    refused(GraphError, lambda: rlx.Session(precision="f8"), "'f8'", "'f32'")


@pytest.mark.parametrize("device", DEVICES)
def test_outputs_of_run_into_are_checked(device: str) -> None:
    f = hello(device)
    out = np.zeros((1, 2), np.float32)
    f.run_into({"x": X}, [out])
    assert out.tolist() == [[4, 6]]
    refused(ShapeError, lambda: f.run_into({"x": X}, []), "1 outputs expected, found 0")
    refused(ShapeError, lambda: f.run_into({"x": X}, [out.ravel()]), "output '0'", "[1, 2]", "[2]")
    refused(DTypeError, lambda: f.run_into({"x": X}, [out.astype(float)]), "output '0'", "float64")
    refused(
        ShapeError, lambda: f.run_into({"x": X}, [np.zeros((1, 4), np.float32)[:, ::2]]), "contig"
    )
    nested: Any = [[[0, 0]]]
    refused(GraphError, lambda: f.run_into({"x": X}, nested), "output 0 is a list")
    frozen = np.zeros((1, 2), np.float32)
    frozen.setflags(write=False)
    refused(ShapeError, lambda: f.run_into({"x": X}, [frozen]), "writable")


@pytest.mark.parametrize("device", DEVICES)
def test_run_into_writes_over_nothing_else(device: str) -> None:
    g = rlx.Graph()
    x, w = g.input("x", [2]), g.param("w", [2])
    g.set_outputs([x + w, x * w])
    f = rlx.Session(device).compile(g)
    given, weight = np.ones(2, np.float32), np.ones(2, np.float32)
    f.set_param("w", weight)
    a, b = np.empty(2, np.float32), np.empty(2, np.float32)
    refused(GraphError, lambda: f.run_into({"x": given}, [a, given]), "output 1", "input 'x'")
    f.run_into({"x": given}, [weight, a])  # the param is a copy of what was given for it
    assert f.run({"x": given})[0].tolist() == [2, 2]
    refused(GraphError, lambda: f.run_into({"x": given}, [a, a]), "output 1", "output 0")
    f.run_into({"x": given}, [a, b])
    assert (a.tolist(), b.tolist()) == ([2, 2], [1, 1])


# -- params and inputs -----------------------------------------------------------------------------


class Exported:
    """An object that offers DLPack and nothing else."""

    def __init__(self, a: np.ndarray[Any, Any]) -> None:
        self.a = a

    def __dlpack__(self, **given: Any) -> Any:
        return self.a.__dlpack__(**given)

    def __dlpack_device__(self) -> Any:
        return self.a.__dlpack_device__()


class Unreadable(Exported):
    def __dlpack__(self, **given: Any) -> Any:
        raise BufferError("it requires grad")


@pytest.mark.parametrize("device", DEVICES)
def test_params_are_taken_in_every_form(device: str) -> None:
    f = hello(device, None)
    backwards = np.ascontiguousarray(W[::-1, ::-1])[::-1, ::-1]
    for w in (W, W.ravel(), W.tolist(), W.ravel().tolist(), Exported(W), backwards):
        f.set_param("w", np.zeros_like(W))
        assert f.run({"x": X})[0].tolist() == [[0, 0]]
        f.set_param("w", w)
        assert f.run({"x": X})[0].tolist() == [[4, 6]]
        assert f.run({"x": Exported(X)})[0].tolist() == [[4, 6]]
        assert f.run({"x": X.tolist()})[0].tolist() == [[4, 6]]
    refused(
        DTypeError, lambda: f.set_param("w", Unreadable(W)), "'w'", "Unreadable", "grad", "NumPy"
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rank_0_and_empty_values_keep_their_shape_and_type(device: str, dtype: str) -> None:
    g = rlx.Graph()
    shapes = {"scalar": (), "one": (1,), "none": (0,), "hollow": (2, 0, 3)}
    for name, shape in shapes.items():
        g.input(name, shape, dtype)
        g.param(f"{name}_w", shape, dtype)
    g.set_outputs([*g.inputs, *g.params])
    f = rlx.Session(device).compile(g)
    arrays = {n: np.ones(s, DTYPES[dtype].numpy) for n, s in shapes.items()}
    for name, a in arrays.items():
        f.set_param(f"{name}_w", a)
    for a, e in zip(f.run(arrays), [*arrays.values()] * 2, strict=True):
        assert (a.dtype, a.shape, a.tobytes()) == (e.dtype, e.shape, e.tobytes())


def test_set_input_serves_the_calls_that_leave_it_out() -> None:
    g = rlx.Graph()
    x, y = g.input("x", [2]), g.input("y", [2])
    g.set_outputs([x - y])
    f = rlx.Session().compile(g)
    one, two = np.ones(2, np.float32), np.full(2, 2, np.float32)
    refused(NameError, lambda: f.set_input("z", one), "no input", "'z'", "'x', 'y'")
    refused(ShapeError, lambda: f.set_input("y", np.ones(3, np.float32)), "'y'", "[2]", "found [3]")
    refused(DTypeError, lambda: f.set_input("y", np.ones(2)), "'y'", "f32", "float64")
    f.set_input("y", one)
    assert f.run({"x": two})[0].tolist() == [1, 1]
    assert f.run({"x": two, "y": two})[0].tolist() == [0, 0]
    assert f.run({"x": one})[0].tolist() == [0, 0]  # the value given once is not kept
    refused(NameError, f.run, "input 'x'")


@pytest.mark.parametrize("device", DEVICES)
def test_results_are_new_arrays(device: str) -> None:
    g = rlx.Graph()
    x, w = g.input("x", [4]), g.param("w", [4])
    c = g.constant(np.arange(4, dtype=np.float32))
    g.set_outputs([x, w, c, x.reshape(2, 2), w[1:3], x, c.reshape(2, 2), x.expand((3, 4))])
    f = rlx.Session(device).compile(g)
    given, weight = np.arange(4, dtype=np.float32), np.full(4, 7, np.float32)
    f.set_param("w", weight)
    before = [a.copy() for a in f.run({"x": given})]
    for a in f.run({"x": given}):
        a[...] = -1
    assert given.tolist() == [0, 1, 2, 3] and weight.tolist() == [7, 7, 7, 7]
    for a, b in zip(f.run({"x": given}), before, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("device", DEVICES)
def test_a_changed_param_is_seen_by_all_that_depends_on_it(device: str) -> None:
    g = rlx.Graph()
    x, w, v = g.input("x", [1, 4]), g.param("w", [4, 2]), g.param("v", [2])
    twice = (w * 2.0).transpose((1, 0)).transpose((1, 0))
    g.set_outputs([x @ twice + v.exp(), w.sum(), v * 1.0, x @ w])
    f = rlx.Session(device).compile(g)
    rng = np.random.default_rng(0)
    a, b = W, np.zeros(2, np.float32)
    for step in range(6):
        if step != 3:
            a = rng.standard_normal((4, 2)).astype(np.float32)
            f.set_param("w", a)
        if step % 2:
            b = rng.standard_normal(2).astype(np.float32)
        f.set_param("v", b)
        found = f.run({"x": X})
        expected = [X @ (2 * a) + np.exp(b), a.sum(), b, X @ a]
        for p, q in zip(found, expected, strict=True):
            np.testing.assert_allclose(p, q, rtol=1e-4, atol=1e-5)


def test_a_param_changed_in_place_is_read_again_once_it_is_set() -> None:
    f, w = hello(weight=None), W.copy()
    f.set_param("w", w)
    f.run({"x": X})
    w *= 10
    f.set_param("w", w)
    assert f.run({"x": X})[0].tolist() == [[40, 60]]


# -- symbolic dims ---------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_bf16_is_not_given_as_its_bits(device: str) -> None:
    g = rlx.Graph()
    g.set_outputs([g.input("x", [3], "bf16") * 2.0, g.input("n", [3], "u16") + 1])
    f = rlx.Session(device).compile(g)
    half, bits = np.ones(3, rlx.bf16.numpy), np.ones(3, np.uint16)
    refused(DTypeError, lambda: f.run_slots(bits, bits), "'x' is bf16, found uint16")
    refused(DTypeError, lambda: f.run_slots(half, half), "'n' is u16, found bfloat16")
    refused(DTypeError, lambda: f.run_slots(bits, half), "'x' is bf16, found uint16")
    assert [a.tolist() for a in f.run_slots(half, bits)] == [[2, 2, 2], [2, 2, 2]]


@pytest.mark.parametrize("device", DEVICES)
def test_symbols_are_bound_call_by_call(device: str) -> None:
    g = rlx.Graph()
    x, y = g.input("x", ["n", 3]), g.input("y", ["n", "m"])
    g.set_outputs([x.transpose((1, 0)) @ y])
    f = rlx.Session(device).compile(g)
    rng = np.random.default_rng(1)
    for n, m in ((2, 5), (4, 1), (2, 5), (0, 2), (1, 0)):
        a, b = rng.standard_normal((n, 3)), rng.standard_normal((n, m))
        a, b = a.astype(np.float32), b.astype(np.float32)
        np.testing.assert_allclose(f.run({"x": a, "y": b})[0], a.T @ b, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(f.run_slots(a, b)[0], f.run({"x": a, "y": b})[0])
    short, long = np.ones((2, 3), np.float32), np.ones((3, 3), np.float32)
    refused(ShapeError, lambda: f.run({"x": short, "y": long}), "'y'", "n is 3", "2")
    refused(ShapeError, lambda: f.run({"x": short[0], "y": long}), "'x'", "[n, 3]", "found [3]")
    refused(ShapeError, lambda: f.run({"x": short[:, :2], "y": short}), "'x'", "[2, 3]", "[2, 2]")
    refused(GraphError, lambda: f.run_slots(short), "found 1 inputs, expected 2: 'x', 'y'")
    ragged = {"x": [[1, 2, 3], [4]], "y": long}
    refused(DTypeError, lambda: f.run(ragged), "'x'", "f32", "no such array")
    refused(DTypeError, lambda: f.set_input("x", ragged["x"]), "'x'", "f32", "no such array")
    refused(NameError, lambda: rlx.Session(device).compile(g, dims={"k": 1}), "'k'", "m, n")


@pytest.mark.parametrize("device", DEVICES)
def test_a_param_of_another_size_replaces_the_first(device: str) -> None:
    g = rlx.Graph()
    x, w = g.input("x", [1, "k"]), g.param("w", ["k", 2])
    g.set_outputs([x @ w])
    f = rlx.Session(device).compile(g)
    for k in (4, 3, 4):
        f.set_param("w", np.ones((k, 2), np.float32))
        assert f.run({"x": np.ones((1, k), np.float32)})[0].tolist() == [[k, k]]
    refused(ShapeError, lambda: f.run({"x": np.ones((1, 3), np.float32)}), "k is 4", "3")


# -- faults ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_a_bad_index_names_the_line_and_the_session_goes_on(device: str) -> None:
    g = rlx.Graph()
    table, at = g.param("table", [5, 2]), g.input("at", [3], "i64")
    where = here(1)
    rows = table.gather(at)
    g.set_outputs([rows + 1.0])
    f = rlx.Session(device).compile(g)
    f.set_param("table", np.arange(10, dtype=np.float32).reshape(5, 2))
    good = np.array([0, -1, 4])
    expected = f.run({"at": good})[0]
    for bad in ([0, 5, 0], [-6, 0, 0], [0, 0, 2**40]):
        refused(FaultError, lambda bad=bad: f.run({"at": np.array(bad)}), where, "axis 0 of 5")
        refused(FaultError, lambda bad=bad: f.run_slots(np.array(bad)), where, "axis 0 of 5")
        np.testing.assert_array_equal(f.run({"at": good})[0], expected)


@pytest.mark.parametrize("device", DEVICES)
def test_a_fault_on_params_alone_is_raised_until_they_are_right(device: str) -> None:
    g = rlx.Graph()
    table, at, x = g.param("table", [5]), g.param("at", [2], "i64"), g.input("x", [2])
    g.set_outputs([table.gather(at) + x])
    f = rlx.Session(device).compile(g)
    f.set_param("table", np.arange(5, dtype=np.float32))
    x0 = np.zeros(2, np.float32)
    for _ in range(2):
        f.set_param("at", np.array([1, 9]))
        for _ in range(3):
            refused(FaultError, lambda: f.run({"x": x0}), "axis 0 of 5")
        f.set_param("at", np.array([1, 3]))
        assert f.run({"x": x0})[0].tolist() == [1, 3]


# -- threads, processes, backends ------------------------------------------------------------------


def test_one_compiled_graph_serves_many_threads() -> None:
    f = hello()
    wrong: list[Any] = []

    def work(n: int) -> None:
        x = X + n
        expected = (x @ W).tobytes()
        for _ in range(10_000):
            if f.run_slots(x)[0].tobytes() != expected:
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_threads_that_need_scratch_do_not_share_it() -> None:
    g = rlx.Graph()
    x = g.input("x", ["n", 16])
    g.set_outputs([(x.softmax(-1).transpose((1, 0)) @ x).softmax(0).sum(axes=1)])
    f = rlx.Session().compile(g)
    arrays = [
        np.random.default_rng(n).standard_normal((5 + n % 3, 16)).astype(np.float32)
        for n in range(6)
    ]
    expected = [f.run({"x": a})[0] for a in arrays]
    wrong: list[int] = []

    def work(n: int) -> None:
        for i in range(300):
            k = (n + i) % len(arrays)
            if f.run({"x": arrays[k]})[0].tobytes() != expected[k].tobytes():
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_process_runs_what_its_parent_compiled() -> None:
    f = hello()
    f.run({"x": X})
    child = os.fork()
    if child == 0:
        os._exit(0 if f.run({"x": X})[0].tolist() == [[4, 6]] else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_the_number_of_threads_changes_no_bit() -> None:
    g = rlx.Graph()
    x, w = g.input("x", [61, 96]), g.param("w", [96, 200])
    y = (x @ w).gelu()
    g.set_outputs([y, y.softmax(-1), y.sum(), y.sum(axes=0), y.transpose((1, 0)).cumsum(1)])
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((61, 96), (96, 200)))
    from rlx.runtime import _native

    before = _native.num_threads()
    try:
        found = []
        for threads in (1, 2):
            f = rlx.Session(threads=threads).compile(g)
            f.set_param("w", b)
            found.append([r.tobytes() for r in f.run({"x": a})])
    finally:
        _native.set_threads(before)
    assert found[0] == found[1]


def test_a_backend_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    from rlx.runtime.interpreted import Interpreted

    class Doubling(Interpreted):
        def run_slots(self, *inputs: Any) -> tuple[Any, ...]:
            return tuple(2 * a for a in super().run_slots(*inputs))

    class Toy(rlx.Backend):
        name = "toy"

        def load(self, graph: rlx.Graph, options: Any, shared: Any) -> Any:
            return Doubling(graph)

    class Duck:
        name = "duck"
        load = Toy.load

    monkeypatch.setattr("rlx.runtime.backend._registry", dict(_registry))
    refused(DeviceError, lambda: rlx.Session("toy"), "'toy'")
    rlx.register_backend("toy", Toy)
    assert hello("toy").run({"x": X})[0].tolist() == [[8, 12]]
    refused(DeviceError, lambda: rlx.register_backend("toy", Toy), "'toy'", "already")
    refused(DeviceError, lambda: rlx.register_backend("cpu", Toy), "'cpu'", "already")
    duck: Any = Duck
    rlx.register_backend("duck", duck)
    refused(DeviceError, lambda: rlx.Session("duck"), "makes a Duck", "an rlx.Backend")


def test_what_a_backend_from_outside_has_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading artifacts and arrays of its own memory, of which the base class knows nothing."""
    monkeypatch.setattr("rlx.runtime.backend._registry", dict(_registry))
    rlx.register_backend("webgpu", InterpreterBackend)
    session = rlx.Session("webgpu", threads=1)
    g = rlx.Graph()
    g.set_outputs(g.input("x", [2]) + 1)
    artifact = rlx.compile_artifact(g, "webgpu")
    refused(UnsupportedError, lambda: session.load(artifact), "'interpret' runs no artifacts")
    g = rlx.Graph()
    g.set_outputs(g.input("x", ["n"]) + 1)
    many = replace(rlx.compile_artifact(g), target="webgpu")
    refused(UnsupportedError, lambda: session.load(many), "'loaded_variants'", "dims=")
    refused(UnsupportedError, lambda: session.to_device(X), "the host's memory")
    f = session.compile(g)
    assert [f.run({"x": np.zeros(n, np.float32)})[0].size for n in (2, 3)] == [2, 3]


def test_a_param_set_while_others_run_is_seen_whole_or_not_at_all() -> None:
    g = rlx.Graph()
    x, w = g.input("x", [1, 64]), g.param("w", [64, 96])
    g.set_outputs([x @ w + w.sum(axes=0)])
    f = rlx.Session().compile(g)
    ones = np.ones((1, 64), np.float32)
    weights = [np.full((64, 96), n, np.float32) for n in (1, 2)]
    f.set_param("w", weights[0])
    right = {(n * np.full((1, 96), 128, np.float32)).tobytes() for n in (1, 2)}
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(1000):
            (y,) = f.run_slots(ones)
            if y.tobytes() not in right:
                wrong.append(y)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for n in range(200):
        f.set_param("w", weights[n % 2])
    for t in threads:
        t.join()
    assert not wrong


def test_a_fault_of_one_call_is_not_that_of_another() -> None:
    g = rlx.Graph()
    table, at = g.input("table", [5]), g.input("at", [1], "i64")
    g.set_outputs([table.gather(at)])
    f = rlx.Session().compile(g)
    values = np.arange(5, dtype=np.float32)
    wrong: list[Any] = []

    def work(index: int) -> None:
        for _ in range(1000):
            try:
                fine = f.run_slots(values, np.array([index]))[0].tolist() == [index]
            except FaultError:
                fine = index > 4
            if not fine:
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(n,)) for n in (1, 7, 3, 9)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
