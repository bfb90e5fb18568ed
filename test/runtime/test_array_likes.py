"""Arrays of every kind at every door: what is computed is that of the plain array, or it is
refused, and what is kept does not follow the memory that it was taken from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.compiler.aot import compile_artifact
from rlx.errors import DTypeError, GraphError, OutOfMemoryError
from rlx.ir.arrays import fixed
from rlx.ir.interpreter import interpret
from support.array_likes import ArrayLike, array_likes, lazily_flagged

Array = np.ndarray[Any, Any]
Run = Callable[[], Array]

A = np.float32([[1, -2, 3], [4, 5, -6]])
SAME = np.float32([[1, 2, 3]] * 4)


def of_leaf(declare: Callable[[rlx.Graph], rlx.Value]) -> rlx.Graph:
    g = rlx.Graph()
    v = declare(g)
    g.set_outputs((v * 3.0).exp2() + v)  # a part that a prologue computes, and one that reads it
    return g


def with_input(v: Any, shape: list[Any], call: Callable[[rlx.CompiledGraph, Any], Any]) -> Run:
    f = rlx.Session().compile(of_leaf(lambda g: g.input("x", shape)))
    found = call(f, v)
    return lambda: found


def with_param(v: Any, shape: tuple[int, ...], make: Callable[[rlx.Graph], Any]) -> Run:
    f = make(of_leaf(lambda g: g.param("x", shape)))
    f.set_param("x", v)
    return lambda: f.run({})[0] if isinstance(f, rlx.CompiledGraph) else f.run("cpu", {})[0]


def compiled_now(g: rlx.Graph) -> Run:
    f = rlx.Session().compile(g)
    return lambda: f.run({})[0]


def compiled_later(g: rlx.Graph) -> Run:
    return lambda: rlx.Session().compile(g).run({})[0]


def interpreted(g: rlx.Graph, v: Any) -> Run:
    found = interpret(g, {"x": v})[0]
    return lambda: found


def artifact(v: Any, shape: tuple[int, ...]) -> Run:
    made = compile_artifact(of_leaf(lambda g: g.param("x", shape)), params={"x": v})
    return lambda: rlx.Session().load(made).run({})[0]


DOORS: dict[str, Callable[[Any, tuple[int, ...]], Run]] = {
    "run": lambda v, s: with_input(v, [*s], lambda f, v: f.run({"x": v})[0]),
    "run, any size": lambda v, s: with_input(v, ["n", s[1]], lambda f, v: f.run({"x": v})[0]),
    "set_param": lambda v, s: with_param(v, s, rlx.Session().compile),
    "devices": lambda v, s: with_param(v, s, rlx.GraphDevices),
    "param": lambda v, s: compiled_later(of_leaf(lambda g: g.param("x", s, "f32", v))),
    "param, compiled": lambda v, s: compiled_now(of_leaf(lambda g: g.param("x", s, "f32", v))),
    "constant": lambda v, s: compiled_later(of_leaf(lambda g: g.constant(v, "f32"))),
    "artifact": artifact,
    "interpret": lambda v, s: interpreted(of_leaf(lambda g: g.input("x", s)), v),
}


def check(door: str, like: ArrayLike, a: Array) -> None:
    expected = rlx.Session().compile(of_leaf(lambda g: g.input("x", a.shape))).run({"x": a})[0]
    try:
        run = DOORS[door](like.value, a.shape)
    except GraphError as e:
        assert not like.native, f"{like.name}: {e}"
        return
    found = run()
    np.testing.assert_allclose(found, expected, rtol=1e-6, err_msg=like.name)
    like.spoil()
    assert run().tobytes() == found.tobytes(), f"{like.name}: {door} follows memory of others"


@pytest.mark.parametrize("door", DOORS)
def test_every_kind_of_array_at_every_door(door: str, tmp_path: Path) -> None:
    for a in (A, SAME):
        for like in array_likes(a, tmp_path):
            check(door, like, a)


@pytest.mark.parametrize("door", DOORS)
def test_tensors_of_pytorch_at_every_door(door: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: it is a peer of bench/")
    for like in lazily_flagged(torch, A):
        check(door, like, A)


class Tensor:
    """What a lazily flagged tensor of PyTorch does, where PyTorch is not installed: its memory has
    other numbers than it says."""

    def __init__(self, memory: Array, neg: bool = False, conj: bool = False) -> None:
        self.memory, self.neg, self.conj = memory, neg, conj

    def is_neg(self) -> bool:
        return self.neg

    def is_conj(self) -> bool:
        return self.conj

    def resolve_neg(self) -> Tensor:
        return Tensor(-self.memory, False, self.conj) if self.neg else self

    def resolve_conj(self) -> Tensor:
        return Tensor(self.memory.conj(), self.neg) if self.conj else self

    def __dlpack__(self, **options: Any) -> Any:
        if self.conj:
            raise BufferError("it has the conjugate bit")
        return self.memory.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.memory.__dlpack_device__()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        if self.neg or self.conj:
            raise RuntimeError("resolve it first")
        return self.memory


@pytest.mark.parametrize("door", DOORS)
def test_what_is_negated_by_a_flag_is_read_as_it_says(door: str) -> None:
    check(door, ArrayLike("negated", Tensor(-A, neg=True)), A)


def test_what_is_conjugated_by_a_flag_is_read_as_it_says() -> None:
    z = np.complex64([1 + 2j, 3 - 4j])
    g = rlx.Graph()
    g.set_outputs([g.input("x", [2], "c64") * 1.0, g.param("w", value=Tensor(z, conj=True)) * 1.0])
    for neg in (False, True):
        found = rlx.Session().compile(g).run({"x": Tensor(z, neg=neg, conj=True)})
        assert found[0].tolist() == (z.conj() * (-1 if neg else 1)).tolist()
        assert found[1].tolist() == z.conj().tolist()


@pytest.mark.parametrize("flag", ["neg", "conj"])
def test_state_is_not_written_over_a_flag(flag: str) -> None:
    g = rlx.Graph()
    g.set_outputs(g.input("x", [2, 3]) * 2)
    f = rlx.Session().compile(g, donate=((0, 0),))
    state = Tensor(A.copy(), **{flag: True})
    with pytest.raises(
        rlx.RlxError, match=rf"state 'x' is a tensor whose is_{flag}.*resolve_{flag}"
    ):
        f.run_in_place({}, {"x": state})


def test_an_array_that_lies_nowhere_is_refused() -> None:
    class Meta(Tensor):
        def __dlpack_device__(self) -> Any:
            raise ValueError("unknown device type meta")

        def __dlpack__(self, **options: Any) -> Any:
            raise ValueError("unknown device type meta")

    f = rlx.Session().compile(of_leaf(lambda g: g.input("x", ["n", 3])))
    with pytest.raises(DTypeError, match=r"'x' is f32, found a Meta .*device type meta"):
        f.run({"x": Meta(A)})


def test_an_array_method_that_lies_or_fails_is_an_error_of_rlx() -> None:
    class Lies:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return [1, 2]

    class Fails:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            raise AssertionError("gone")

    f = rlx.Session().compile(of_leaf(lambda g: g.input("x", A.shape)))
    for bad in (Lies(), Fails()):
        with pytest.raises(DTypeError, match=r"'x' is f32, found a .* that NumPy cannot read"):
            f.run({"x": bad})
        with pytest.raises(DTypeError, match="no array of numbers"):
            rlx.Graph().constant(bad)
        with pytest.raises(DTypeError, match="no such array"):
            rlx.Graph().constant([bad], "f32")


def test_an_array_method_without_memory_is_an_error_of_memory() -> None:
    class Full:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            raise MemoryError("128 GiB")

    g = of_leaf(lambda g: g.input("x", A.shape))
    f = rlx.Session().compile(g)
    told = r"no memory to read .* as an array: 128 GiB"
    for read in (
        lambda: f.run({"x": Full()}),
        lambda: rlx.interpret(g, {"x": Full()}),
        lambda: rlx.Graph().constant(Full()),
        lambda: rlx.Graph().constant([Full()], "f32"),
        lambda: f.run({"x": [Full()]}),
    ):
        with pytest.raises(OutOfMemoryError, match=told):
            read()


def test_memory_that_nobody_can_write_is_not_copied(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", A)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    g = rlx.Graph()
    w = g.param("w", value=mapped)
    g.set_outputs(w + 1.0)
    assert np.shares_memory(g.param_values["w"], mapped)
    for a in (np.frombuffer(A.tobytes(), np.float32).reshape(A.shape), mapped, mapped[:1]):
        assert np.shares_memory(fixed(a), a) and fixed(fixed(a)) is fixed(a)
    copied = fixed(A)
    assert not np.shares_memory(copied, A) and fixed(copied) is copied
    with pytest.raises(ValueError, match="WRITEABLE"):
        copied.flags.writeable = True
    for small in (np.zeros((0, 3), np.float32), np.float32(2) * np.ones(())):
        assert fixed(np.asarray(small)).shape == np.shape(small)


def test_a_copy_that_no_memory_holds_is_an_error_of_memory() -> None:
    g = rlx.Graph()
    x = g.input("x", ["n", 4])
    g.set_outputs(x.sum(axis=0))
    rows = np.broadcast_to(np.float32(1), (2**40, 4))
    with pytest.raises(OutOfMemoryError, match=f"'x' does not lie row by row.* {2**44} bytes"):
        rlx.Session().compile(g).run({"x": rows})
