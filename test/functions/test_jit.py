"""``rlx.jit``: functions of arrays, traced and compiled."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pytest

import rlx
from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.functions import Function, function

F32 = np.float32
RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4), F32)
W = RNG.standard_normal((4, 2), F32)
B = RNG.standard_normal(2, F32)


def mlp(params: Any, x: Any, scale: float = 1.0) -> Any:
    h = x @ params["w"] + params["b"]
    return {"y": h.tanh() * scale, "h": h}


def test_a_function_gives_what_it_computes() -> None:
    f = rlx.jit(mlp)
    found = f({"w": W, "b": B}, X, 2.0)
    h = X @ W + B
    assert list(found) == ["y", "h"]
    np.testing.assert_allclose(found["h"], h, rtol=1e-5)
    np.testing.assert_allclose(found["y"], np.tanh(h) * 2, rtol=1e-5)


def test_calls_that_are_alike_are_compiled_once() -> None:
    f = rlx.jit(mlp)
    params = {"w": W, "b": B}
    for _ in range(3):
        f(params, X)
    f({"b": B, "w": W}, X)
    f(x=X, params=params)
    f(params, x=X.copy())
    f(params, np.asfortranarray(X))
    assert len(f.compiled) == 1
    f(params, X[:2])
    f(params, X, 3.0)
    f(params, X, scale=3.0)
    assert len(f.compiled) == 3
    assert repr(f) == "<rlx.jit of mlp: 3 compiled>"


def test_element_types_and_values_tell_calls_apart() -> None:
    f = rlx.jit(lambda x, n=1: x * n)
    one = np.ones(2)
    for dt in (np.float32, np.float64, np.int32, np.float32):
        assert f(one.astype(dt)).dtype == dt
    assert f(one, 2).tolist() == [2, 2]
    assert f(one, 3).tolist() == [3, 3]
    assert f(one).tolist() == [1, 1]
    assert len(f.compiled) == 5


def test_shapes_take_turns() -> None:
    f = rlx.jit(lambda x: x + 1)
    arrays = [np.zeros(n, F32) for n in (1, 2, 3)]
    for _ in range(3):
        for a in arrays:
            assert f(a).tolist() == [1] * len(a)
    assert len(f.compiled) == 3


def test_strided_arrays_and_scalars() -> None:
    f = rlx.jit(lambda x, y: x * y)
    big = np.arange(24, dtype=F32).reshape(4, 6)
    np.testing.assert_array_equal(f(big[:, ::2], F32(2)), big[:, ::2] * 2)
    np.testing.assert_array_equal(f(big.T[::2].T, np.asarray(F32(3))), big[:, ::2] * 3)
    assert len(f.compiled) == 1


class Foreign:
    """An array of another library: it speaks DLPack and no more."""

    def __init__(self, a: Any) -> None:
        self.a, self.shape, self.dtype = a, a.shape, "foreign.float32"

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self.a.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> Any:
        return self.a.__dlpack_device__()


def test_arrays_of_other_libraries() -> None:
    f = rlx.jit(lambda x: x + 1)
    np.testing.assert_array_equal(f(Foreign(X)), X + 1)
    np.testing.assert_array_equal(f(Foreign(X)), X + 1)
    assert [v.type for v in f.graph(Foreign(X)).inputs] == [rlx.TensorType.of([3, 4], "f32")]


@dataclass
class Layer:
    w: Any
    b: Any = None
    scale: float = 1.0


def test_dataclasses_lists_and_none() -> None:
    @rlx.jit
    def f(layers: list[Layer], x: Any) -> Any:
        for layer in layers:
            x = x @ layer.w * layer.scale
            x = x if layer.b is None else x + layer.b
        return Layer(x, None, 7.0), [x.sum(), (x,)]

    layers = [Layer(W, B), Layer(W.T.copy(), scale=2.0)]
    found, (total, (same,)) = f(layers, X)
    expected = (X @ W + B) @ W.T * 2
    assert isinstance(found, Layer)
    assert (found.b, found.scale) == (None, 7.0)
    np.testing.assert_allclose(found.w, expected, rtol=1e-4)
    np.testing.assert_allclose(total, expected.sum(), rtol=1e-4)
    np.testing.assert_allclose(same, expected, rtol=1e-4)
    f(layers, X)
    assert len(f.compiled) == 1


def test_closures_and_what_python_decides() -> None:
    table = np.arange(4, dtype=F32)

    @rlx.jit
    def f(x: Any, *rest: Any, power: int, **named: Any) -> Any:
        for _ in range(power):
            x = x * table
        for r in (*rest, *named.values()):
            x = x + r
        return x

    one = np.ones(4, F32)
    for _ in range(2):
        assert f(one, one, one, power=2, bias=one).tolist() == [3, 4, 7, 12]
        assert f(one, power=1).tolist() == [0, 1, 2, 3]
    assert len(f.compiled) == 2


def test_static_arguments_are_whole() -> None:
    @rlx.jit(static="shape")
    def f(x: Any, shape: Any) -> Any:
        return x.reshape(shape)

    assert f(X, (4, 3)).shape == (4, 3)
    assert f(X, shape=(2, 6)).shape == (2, 6)
    with pytest.raises(GraphError, match=r"static argument 'shape' is a list, which has no hash"):
        f(X, [4, 3])


def test_a_method() -> None:
    class Model:
        def __init__(self, n: float) -> None:
            self.n = n

        @rlx.jit
        def __call__(self, x: Any) -> Any:
            return x * self.n

    one, two = Model(1.0), Model(2.0)
    assert one(B).tolist() == B.tolist()
    assert two(B).tolist() == (2 * B).tolist()
    assert isinstance(Model.__call__, Function)


def test_functions_are_called_in_the_trace_of_others() -> None:
    inner = rlx.jit(lambda x: x.exp())
    outer = rlx.jit(lambda x: inner(x) + 1)
    np.testing.assert_allclose(outer(X), np.exp(X) + 1, rtol=1e-5)
    assert not inner.compiled
    inner(X)  # the short way is not taken for Values either
    np.testing.assert_allclose(rlx.jit(lambda x: inner(x) + 2)(X), np.exp(X) + 2, rtol=1e-5)
    g = rlx.Graph("g")
    g.set_outputs(inner(g.input("x", [3, 4])))
    np.testing.assert_allclose(rlx.Session("cpu").compile(g)(X)[0], np.exp(X), rtol=1e-5)


def test_results_that_are_no_values() -> None:
    f = rlx.jit(lambda x: (x, np.arange(3), x, "name"))
    x, three, again, name = f(B)
    assert name == "name"
    np.testing.assert_array_equal(x, B)
    np.testing.assert_array_equal(again, B)
    np.testing.assert_array_equal(three, np.arange(3))


def test_the_graph_of_a_call() -> None:
    f = rlx.jit(mlp)
    spec = rlx.TensorType.of([3, 4], "f32")
    g = f.graph({"w": W, "b": B}, spec, 2.0)
    assert [v.name for v in g.inputs] == ["params.b", "params.w", "x"]
    assert g.output_names == ("y", "h")
    compiled = rlx.Session("cpu").compile(g)
    found: Any = compiled(B, W, x=X)
    np.testing.assert_allclose(found["h"], X @ W + B, rtol=1e-5)
    assert g.leaf_location("x")[0] == __file__
    assert "params.w" in f.lower({"w": W, "b": B}, spec).text
    assert "matmul" in f.inspect({"w": W, "b": B}, spec).lir
    assert rlx.jit(lambda x: (x, x)).graph(X).output_names == ()
    assert rlx.jit(lambda x: (x, {"a": x})).graph(X).output_names == ("0", "1.a")
    clash = rlx.jit(lambda p: {"a.b": p["a.b"], "a": {"b": p["a"]["b"]}})
    g = clash.graph({"a.b": X, "a": {"b": W}})
    assert [v.name for v in g.inputs] == ["p.a.b", "p.a.b_2"]
    assert g.output_names == ("a.b", "a.b_2")


def test_symbolic_sizes_by_annotation() -> None:
    @rlx.jit
    def f(x: Annotated[Any, ("batch", None)], w: Any) -> Any:
        return x @ w

    for n in (1, 3, 5, 3):
        x = np.ones((n, 4), F32)
        np.testing.assert_allclose(f(x, W), x @ W, rtol=1e-5)
    assert len(f.compiled) == 1
    assert str(f.graph(X, W).inputs[0].type) == "batchx4xf32"
    with pytest.raises(
        ShapeError, match=r"'x' is annotated \['batch', None\], found .*shape \[2\]"
    ):
        f(B, W)


def test_annotations_that_say_no_dims() -> None:
    def f(x: Annotated[Any, "doc"], y: Annotated[Any, ("n",)]) -> Any:
        return x

    assert rlx.jit(f)(X, B).shape == X.shape
    with pytest.raises(GraphError, match=r"'y' is annotated with dims and is no array"):
        rlx.jit(f)(X, 3)
    f.__annotations__["x"] = "Annotated[Missing, 3]"
    with pytest.raises(GraphError, match=r"the annotations of 'f' cannot be read: name 'Annotated"):
        f.__globals__.pop("Missing", None)
        annotated = f.__globals__.pop("Annotated")
        try:
            rlx.jit(f)
        finally:
            f.__globals__["Annotated"] = annotated


CONCRETE = {
    "bool": (lambda x: 1 if x.sum() > 0 else 2, "no truth value .*where.*rlx.cond"),
    "float": (lambda x: x * float(x.sum()), "no elements yet .*Python number, which is static"),
    "int": (lambda x: x.reshape([int(x.sum())]), "no elements yet"),
    "range": (lambda x: [x for _ in range(x.sum())], "no elements yet"),
    "asarray": (lambda x: np.asarray(x) + 1, "no elements yet"),
    "iter": (lambda x: [max(v) for v in [x]], "not iterable"),
}


@pytest.mark.parametrize(("function", "words"), CONCRETE.values(), ids=CONCRETE)
def test_a_value_that_is_needed_is_refused_at_the_users_line(function: Any, words: str) -> None:
    with pytest.raises((GraphError, TypeError), match=words) as e:
        rlx.jit(function)(X)
    if isinstance(e.value, GraphError):
        assert e.value.location == (__file__, function.__code__.co_firstlineno)


def test_refusals() -> None:
    with pytest.raises(GraphError, match=r"jit takes a function, found 3"):
        rlx.jit(3)  # type: ignore
    with pytest.raises(GraphError, match=r"no parameter: 'pover'; did you mean 'power"):
        rlx.jit(lambda x, power: x, static=["pover"])
    with pytest.raises(GraphError, match=r"the parameters of 'type' cannot be told"):
        rlx.jit(type)
    f = rlx.jit(mlp)
    with pytest.raises(GraphError, match=r"mlp: missing a required argument: 'x'; it takes") as e:
        f({})
    assert e.value.location and e.value.location[0] == __file__
    with pytest.raises(GraphError, match=r"holds no array; return what it computes"):
        rlx.jit(lambda x: None)(X)
    with pytest.raises(GraphError, match=r"gives a Foreign, expected Values and NumPy arrays"):
        rlx.jit(lambda x: Foreign(X))(X)
    with pytest.raises(DTypeError, match=r"argument 'x' is a TensorType, which holds no elements"):
        rlx.jit(lambda x: x)(rlx.TensorType.of([2], "f32"))
    with pytest.raises(DTypeError, match=r"argument 'x' is a masked array, and RLX has no masks"):
        rlx.jit(lambda x: x)(np.ma.array([1.0, 2.0], mask=[False, True]))
    with pytest.raises(DTypeError, match=r"x: unknown dtype"):
        rlx.jit(lambda x: x)(np.array(["a"]))


def test_a_value_that_leaks_is_named() -> None:
    kept: list[Any] = []

    @rlx.jit
    def leak(x: Any) -> Any:
        kept.append(x)
        return x + 1

    leak(X)
    with pytest.raises(GraphError, match=r"and Value 'x': 3x4xf32 of another, 'leak'"):
        rlx.jit(lambda x: x + kept[0])(X)
    with pytest.raises(GraphError, match=r"belongs to another graph"):
        rlx.jit(lambda x: kept[0])(X)


def test_old_entries_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlx.functions.function.MAX_KEPT", 2)
    f = rlx.jit(lambda x: x + 1)
    for n in (1, 2, 3, 1):
        assert f(np.zeros(n, F32)).tolist() == [1] * n
    assert len(f.compiled) == 2


def test_threads_let_old_entries_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function, "MAX_KEPT", 2)
    entries: dict[Any, Any] = {}

    def keep(thread: int) -> None:
        for n in range(20000):
            function._keep(entries, (thread, n % 7), n)  # type: ignore[arg-type]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(keep, range(4)))
    finally:
        sys.setswitchinterval(interval)
    assert len(entries) == 2


def test_an_error_of_the_function_is_its_own() -> None:
    with pytest.raises(ZeroDivisionError):
        rlx.jit(lambda x, n: x * (1 / n))(X, 0)
