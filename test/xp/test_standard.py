"""The array API's functions one by one against NumPy's namespace, eager and traced."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import xp
from rlx.errors import GraphError

RNG = np.random.default_rng(0)
F = RNG.standard_normal((3, 4)).astype(np.float32)
D = RNG.standard_normal((3, 4))
P = np.abs(D) + 0.5
U = RNG.uniform(-0.9, 0.9, (3, 4))
I = RNG.integers(-5, 6, (3, 4))  # noqa: E741
J = RNG.integers(1, 6, (3, 4)).astype(np.int32)
K = RNG.integers(0, 6, 4).astype(np.uint8)
B = RNG.integers(0, 2, (3, 4)).astype(bool)
C = D + 1j * RNG.standard_normal((3, 4))
S = np.array([0.0, -0.0, 1.5, -2.5, np.inf, -np.inf, np.nan, 0.5])
T = np.array([1.0, -1.0, -0.0, 3.0, np.inf, 1.0, 2.0, -2.0])

Args = tuple[Any, ...]
CASES: dict[str, list[Args]] = {
    **{
        name: [(D,), (F,), (C,)]
        for name in (
            "abs", "atan", "asinh", "cos", "cosh", "exp", "expm1", "negative", "positive", "sign",
            "sin", "sinh", "square", "tan", "tanh",
        )
    },
    **{name: [(P,), (C,)] for name in ("log", "log10", "log1p", "log2", "reciprocal", "sqrt")},
    **{name: [(U,), (C,)] for name in ("acos", "asin", "atanh")},
    "acosh": [(P + 1,), (C,)],
    **{name: [(D * 3,), (S,), (I,)] for name in ("ceil", "floor", "round", "trunc")},
    **{name: [(S,), (I,), (S + 1j,)] for name in ("isfinite", "isinf", "isnan")},
    **{name: [(C,), (D,)] for name in ("conj", "real", "imag")},
    **{
        name: [(D, P), (F, F[0]), (I, J), (F, 2.0), (3, I)]
        for name in ("add", "multiply", "subtract", "maximum", "minimum")
    },
    **{
        name: [(D, P), (I, J), (I, 2), (B, B[0]), (S, T)]
        for name in ("equal", "greater", "greater_equal", "less", "less_equal", "not_equal")
    },
    **{name: [(I, J), (K, K), (B, B[0])] for name in ("bitwise_and", "bitwise_or", "bitwise_xor")},
    "bitwise_invert": [(I,), (K,), (B,)],
    "bitwise_left_shift": [(I, J), (K, 2)],
    "bitwise_right_shift": [(I, J), (K, 2)],
    **{name: [(B, B[0])] for name in ("logical_and", "logical_or", "logical_xor")},
    "logical_not": [(B,)],
    "divide": [(D, P), (I, J), (1.0, P), (C, P)],
    "floor_divide": [(D, P), (I, J)],
    "remainder": [(D, P), (I, J), (K, 4)],
    "atan2": [(D, P), (S, T)],
    "pow": [(P, D), (C, D), (2.0, C), (I, J), (K, K), (I, 3), (2, K), (J, np.int32(40))],
    "hypot": [(D, P), (S, T), (np.array([1e300, 3e-300]), np.array([1e300, 4e-300]))],
    "logaddexp": [(D, P), (S, T), (S, S)],
    "signbit": [(S[:6],)],
    "copysign": [(D, P), (S[:6], T[:6]), (P, -1.0)],
    "nextafter": [(D, P), (S[:6], T[:6]), (P, -1.0)],
    "clip": [(D, -0.5, 0.5), (D, None, P), (I, -2, None), (K, 1, 4)],
    "where": [(B, D, P), (B, I, 0), (B, 1.0, F)],
    # -- making arrays
    "asarray": [(D,), ([1, 2, 3],), ([1.5],)],
    "zeros": [(3,), ((2, 3),)],
    "ones": [((2, 3),)],
    "full": [((2, 3), 7), (2, 1.5), ((), True)],
    "eye": [(3,), (2, 4)],
    "arange": [(5,), (1, 7, 2), (0.0, 1.0, 0.25)],
    "linspace": [(0.0, 1.0, 5)],
    "zeros_like": [(D,), (I,)],
    "ones_like": [(D,), (I,)],
    "full_like": [(D, 3.0), (I, 2)],
    "tril": [(D,)],
    "triu": [(D,)],
    "meshgrid": [(D[0], P[1], np.arange(3.0)), (D[0],), (D[0], P[1])],
    "astype": [(D, np.float32), (I, np.float64), (B, np.int8)],
    # -- shapes
    "broadcast_arrays": [(D, P[0])],
    "broadcast_to": [(D, (2, 3, 4))],
    "concat": [((D, P),), ((I, J),)],
    "expand_dims": [],
    "flip": [(D,)],
    "moveaxis": [(D, 0, 1), (D[None], (0, 1), (1, 2))],
    "permute_dims": [(D, (1, 0)), (D[None], (2, -3, 1))],
    "matrix_transpose": [(D,)],
    "repeat": [(D, 2), (D[0], [1, 0, 2, 3]), (D[0], np.array([1, 0, 2, 3]))],
    "reshape": [(D, (4, 3)), (D, (-1,))],
    "roll": [(D, 2)],
    "squeeze": [(D[None], 0)],
    "stack": [((D, P),)],
    "tile": [(D, (2, 1)), (D[0], (2, 2))],
    "unstack": [(D,)],
    # -- products
    "matmul": [(D, P.T), (I, J.T), (D[0], P.T), (C, C.T)],
    "tensordot": [(D, np.stack([D, P]).transpose(1, 2, 0))],
    "vecdot": [(D, P), (C, C)],
    # -- reductions
    **{name: [(D,), (I,), (K,), (B,), (C,)] for name in ("sum", "prod")},
    **{name: [(D,), (I,), (S,)] for name in ("max", "min")},
    "mean": [(D,), (I,), (C,)],
    **{name: [(D,), (F,)] for name in ("std", "var")},
    **{name: [(B,), (D,), (C,), (np.zeros((2, 0)),)] for name in ("all", "any")},
    "count_nonzero": [(I,), (B,), (C,)],
    **{name: [(D[0],), (K,), (C[0],)] for name in ("cumulative_sum", "cumulative_prod")},
    **{name: [(D,), (I,)] for name in ("argmax", "argmin")},
    "argsort": [(D,), (I[0],)],
    "sort": [(D,), (I,)],
    "diff": [(D,), (I,), (B,), (D[:, :1],)],
    "searchsorted": [(np.sort(D[0]), D)],
    "take": [(D[0], np.array([0, 3, 1])), (D[0], np.array([0, -1]))],
    "take_along_axis": [(D, np.argsort(D))],
}  # fmt: skip

AXES: list[tuple[str, Args, dict[str, Any]]] = [
    *[(name, (D,), {"axis": 0}) for name in ("sum", "prod", "max", "min", "mean", "std", "var")],
    *[(name, (D,), {"axis": (0, -1), "keepdims": True}) for name in ("sum", "max", "mean", "var")],
    *[(name, (B,), {"axis": 1, "keepdims": True}) for name in ("all", "any", "count_nonzero")],
    ("sum", (D,), {"axis": ()}),
    ("sum", (I,), {"dtype": np.float32}),
    ("prod", (K,), {"dtype": np.int16}),
    ("std", (D,), {"correction": 1}),
    ("var", (D,), {"axis": 0, "correction": 0.5}),
    *[(name, (D,), {"axis": 1}) for name in ("argmax", "argmin")],
    *[(name, (D,), {"keepdims": True}) for name in ("argmax", "argmin")],
    *[(name, (D,), {"axis": 0, "keepdims": True}) for name in ("argmax", "argmin")],
    *[
        (name, (D,), {"axis": 1, "include_initial": True})
        for name in ("cumulative_sum", "cumulative_prod")
    ],
    ("cumulative_sum", (I,), {"axis": -1, "dtype": np.int8}),
    ("sort", (D,), {"axis": 0}),
    ("argsort", (D,), {"axis": 0}),
    ("diff", (D,), {"axis": 0, "n": 2}),
    ("diff", (D,), {"prepend": D[:, :1], "append": P}),
    ("diff", (D,), {"n": 9}),
    ("searchsorted", (D[0], P), {"side": "right", "sorter": np.argsort(D[0])}),
    ("take", (D, np.array([1, 0])), {"axis": 1}),
    ("take_along_axis", (D, np.argsort(D, axis=0)), {"axis": 0}),
    ("concat", ((D, P),), {"axis": None}),
    ("concat", ((D, P),), {"axis": -1}),
    ("expand_dims", (D,), {"axis": (0, -1)}),
    ("flip", (D,), {"axis": 1}),
    ("repeat", (D, 3), {"axis": 1}),
    ("roll", (D, 1), {"axis": (0, 1)}),
    ("roll", (D, (1, -2)), {"axis": (0, 1)}),
    ("stack", ((D, P),), {"axis": -1}),
    ("unstack", (D,), {"axis": 1}),
    ("tensordot", (D, P), {"axes": ((0, 1), (0, 1))}),
    ("vecdot", (D, P), {"axis": 0}),
    ("meshgrid", (D[0], P[1]), {"indexing": "ij"}),
    ("tril", (D,), {"k": -1}),
    ("triu", (D,), {"k": 1}),
    ("eye", (3,), {"k": 1, "dtype": np.int32}),
    ("zeros", ((2,),), {"dtype": np.int8}),
    ("ones", ((2,),), {"dtype": bool}),
    ("full", ((2,), 3), {"dtype": np.float32}),
    ("arange", (5,), {"dtype": np.float32}),
    ("linspace", (0.0, 1.0, 4), {"endpoint": False, "dtype": np.float32}),
    ("zeros_like", (D,), {"dtype": np.int8}),
    ("full_like", (I, 1.5), {"dtype": np.float32}),
    ("asarray", (D,), {"dtype": np.float32, "copy": True}),
]

ALL = [
    *((name, args, dict[str, Any]()) for name, rows in CASES.items() for args in rows),
    *AXES,
]
IDS = [f"{name}{n}" for n, (name, _, _) in enumerate(ALL)]

OPEN = {"empty", "empty_like", "from_dlpack"}
"""Functions with a test of their own."""
TYPES = {"can_cast", "finfo", "iinfo", "isdtype", "result_type"}
REFUSED = {
    "nonzero", "unique_all", "unique_counts", "unique_inverse", "unique_values",
}  # fmt: skip


def expected(name: str, args: Args, kwargs: dict[str, Any]) -> Any:
    with np.errstate(all="ignore"):
        return getattr(np, name)(*args, **kwargs)


def check(found: Any, wanted: Any) -> None:
    if isinstance(wanted, tuple | list):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            check(one, other)
        return
    wanted = np.asarray(wanted)
    assert isinstance(found, np.ndarray)
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    if wanted.dtype.kind in "fc":
        tolerance = 2e-5 if wanted.dtype in (np.float32, np.complex64) else 1e-11
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance / 10)
        np.testing.assert_array_equal(np.signbit(found.real[found == 0]),
                                      np.signbit(wanted.real[wanted == 0]))  # fmt: skip
    else:
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("name", "args", "kwargs"), ALL, ids=IDS)
def test_as_in_numpy(name: str, args: Args, kwargs: dict[str, Any]) -> None:
    wanted = expected(name, args, kwargs)
    check(getattr(xp, name)(*args, **kwargs), wanted)


@pytest.mark.parametrize(("name", "args", "kwargs"), ALL, ids=IDS)
def test_in_a_trace(name: str, args: Args, kwargs: dict[str, Any]) -> None:
    arrays = {k: v for k, v in kwargs.items() if isinstance(v, np.ndarray)}
    static = {k: v for k, v in kwargs.items() if k not in arrays}
    count = 1 if name == "repeat" else len(args)  # how often is no array of the trace

    def call(*given: Any, **named: Any) -> Any:
        return getattr(xp, name)(*given, *args[count:], **named, **static)

    found = rlx.jit(call, device="interpret")(*args[:count], **arrays)
    check(found, expected(name, args, kwargs))


def test_every_function_has_a_case() -> None:
    functions = {n for n in xp.__all__ if callable(getattr(xp, n)) and not n.startswith("__")}
    assert functions == {*CASES, *OPEN, *TYPES, *REFUSED}


STANDARD = {
    "abs", "acos", "acosh", "add", "all", "any", "arange", "argmax", "argmin", "argsort",
    "asarray", "asin", "asinh", "astype", "atan", "atan2", "atanh", "bitwise_and",
    "bitwise_invert", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor",
    "broadcast_arrays", "broadcast_to", "can_cast", "ceil", "clip", "concat", "conj",
    "copysign", "cos", "cosh", "count_nonzero", "cumulative_prod", "cumulative_sum", "diff",
    "divide", "empty", "empty_like", "equal", "exp", "expand_dims", "expm1", "eye", "finfo",
    "flip", "floor", "floor_divide", "from_dlpack", "full", "full_like", "greater",
    "greater_equal", "hypot", "iinfo", "imag", "isdtype", "isfinite", "isinf", "isnan", "less",
    "less_equal", "linspace", "log", "log10", "log1p", "log2", "logaddexp", "logical_and",
    "logical_not", "logical_or", "logical_xor", "matmul", "matrix_transpose", "max", "maximum",
    "mean", "meshgrid", "min", "minimum", "moveaxis", "multiply", "negative", "nextafter",
    "nonzero", "not_equal", "ones", "ones_like", "permute_dims", "positive", "pow", "prod",
    "real", "reciprocal", "remainder", "repeat", "reshape", "result_type", "roll", "round",
    "searchsorted", "sign", "signbit", "sin", "sinh", "sort", "sqrt", "square", "squeeze",
    "stack", "std", "subtract", "sum", "take", "take_along_axis", "tan", "tanh", "tensordot",
    "tile", "tril", "triu", "trunc", "unique_all", "unique_counts", "unique_inverse",
    "unique_values", "unstack", "var", "vecdot", "where", "zeros", "zeros_like",
}  # fmt: skip


def test_the_standard_is_all_there() -> None:
    assert not STANDARD - {*xp.__all__}
    constants = {"e", "inf", "nan", "newaxis", "pi", "bool", "complex64", "float32", "uint64"}
    assert not constants - {*xp.__all__}
    assert xp.__array_api_version__ == "2024.12"


def test_positions_and_names_of_parameters_are_the_standards() -> None:
    """Arrays come by position alone, axes by name alone."""
    for name in ("sum", "argsort", "concat", "flip", "tril", "cumulative_sum", "stack"):
        kinds = [p.kind for p in inspect.signature(getattr(xp, name)).parameters.values()]
        assert kinds[0] is inspect.Parameter.POSITIONAL_ONLY, name
        assert inspect.Parameter.POSITIONAL_OR_KEYWORD not in kinds, name


def test_arrays_of_any_elements() -> None:
    assert xp.empty((2, 3)).shape == xp.empty_like(D[:2, :3]).shape == (2, 3)
    assert xp.empty_like(D, dtype=xp.int8).dtype == np.int8
    assert xp.from_dlpack(D) is not None
    with pytest.raises(GraphError, match=r"on the device 'cpu', found 'gpu'; .*rlx.jit"):
        xp.zeros(3, device="gpu")


def test_types() -> None:
    assert xp.finfo(xp.float32).bits == 32
    assert xp.finfo(rlx.bf16).bits == 16
    assert xp.finfo(C).bits == 64
    assert xp.iinfo("i8").max == 127
    assert xp.iinfo(I).bits == 64
    assert xp.isdtype(xp.float32, "real floating")
    assert xp.isdtype(rlx.i8, ("bool", "signed integer"))
    assert not xp.isdtype(xp.int8, rlx.i16)
    assert xp.can_cast(xp.int8, xp.int16) and not xp.can_cast(D, xp.int16)
    assert xp.result_type(F, 1.0) == xp.float32
    assert xp.result_type(xp.int8, xp.uint8, 3) == xp.int16
    assert xp.result_type(F, 1j) == xp.complex64
    assert xp.result_type(1, 2.0) == xp.float64


def test_the_namespace_says_what_it_can() -> None:
    info = xp.__array_namespace_info__()
    assert info.capabilities()["data-dependent shapes"] is False
    assert info.default_device() == "cpu" and info.devices() == ["cpu"]
    assert info.default_dtypes()["integral"] == xp.int64
    assert set(info.dtypes(kind="complex floating")) == {"complex64", "complex128"}
    assert len(info.dtypes()) == 13


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_has_a_shape_by_its_elements_is_refused(name: str) -> None:
    with pytest.raises(GraphError, match=f"xp.{name} "):
        getattr(xp, name)(D)


def test_refusals() -> None:
    with pytest.raises(GraphError, match=r"exp: 'x' is 3.0, expected Operand"):
        xp.exp(3.0)
    with pytest.raises(GraphError, match=r"xp.add takes arrays, and was given none"):
        xp.add(3.0, 4.0)
    with pytest.raises(GraphError, match=r"repeat: how often is a number or a list of them"):
        xp.repeat(D, D)
    with pytest.raises(GraphError, match=r"take from an array of several axes needs an axis"):
        xp.take(D, np.array([0]))
    with pytest.raises(GraphError, match=r"cumulative_sum of an array of several axes needs an"):
        xp.cumulative_sum(D)
    with pytest.raises(GraphError, match=r"depends; found a Value"):
        rlx.jit(xp.repeat)(D[0], K)
    x = rlx.Graph("g").input("x", ["n", 4])
    with pytest.raises(GraphError, match=r"isdtype: the kind is 'wide': "):
        xp.isdtype(xp.int8, "wide")
    with pytest.raises(GraphError, match=r"from_dlpack takes an array that speaks DLPack, found 3"):
        xp.from_dlpack(3)
    with pytest.raises(GraphError, match=r"take: 'x' is 's', expected Operand"):
        xp.take("s", K)
    with pytest.raises(GraphError, match=r"attribute 'shape': a Value has no elements"):
        xp.full(x, 1)
    with pytest.raises(GraphError, match=r"diff along an axis of the dim n needs a known size"):
        xp.diff(x, axis=0)
    with pytest.raises(GraphError, match=r"var with the correction 0.5 needs known sizes"):
        xp.var(x, correction=0.5)


UFUNCS = {
    **{n: (D,) for n in ("exp", "absolute", "sin", "negative", "tanh", "rint", "fabs", "isnan")},
    **{n: (U,) for n in ("arccos", "arcsin", "arctanh")},
    "conjugate": (C,),
    "invert": (I,),
    "power": (P, D),
    "arctan2": (D, P),
    "add": (D, P),
    "true_divide": (D, P),
    "left_shift": (I, J),
    "matmul": (D, P.T),
    "hypot": (D, P),
}


@pytest.mark.parametrize(("name", "args"), UFUNCS.items(), ids=UFUNCS)
def test_ufuncs_of_numpy_on_values(name: str, args: Args) -> None:
    ufunc = getattr(np, name)
    check(rlx.jit(lambda *v: ufunc(v[0], *v[1:]))(*args), ufunc(*args))
    if len(args) == 2:  # with an array on either side
        check(rlx.jit(lambda v: ufunc(v, args[1]))(args[0]), ufunc(*args))
        check(rlx.jit(lambda v: ufunc(args[0], v))(args[1]), ufunc(*args))


def test_what_ufuncs_cannot_do_with_values() -> None:
    x = rlx.Graph("g").input("x", [3, 4], "f64")
    with pytest.raises(GraphError, match=r"np.add.reduce computes on arrays.*; write ops on it"):
        np.add.reduce(x)
    with pytest.raises(GraphError, match=r"np.frexp computes on arrays"):
        np.frexp(x)
    with pytest.raises(GraphError, match=r"np.exp computes on arrays.*which makes a Value"):
        np.exp(x, out=np.zeros((3, 4)))
    with pytest.raises(GraphError, match=r"np.exp computes on arrays.*write xp.exp\(x\)"):
        np.exp(x, dtype=np.float64)
    assert x.__array_namespace__() is xp
    assert x.__array_namespace__(api_version="2023.12") is xp
    with pytest.raises(GraphError, match=r"of 2024.12 and before, found '2030.12'"):
        x.__array_namespace__(api_version="2030.12")
    assert (x.size, x.mT.shape) == (12, (4, 3))


def test_a_function_of_the_standard_is_compiled_once() -> None:
    """Code that takes its namespace from the array runs on Values and on arrays."""

    def softmax(x: Any) -> Any:
        space = x.__array_namespace__() if isinstance(x, rlx.Value) else xp
        e = space.exp(x - space.max(x, axis=-1, keepdims=True))
        return e / space.sum(e, axis=-1, keepdims=True)

    check(rlx.jit(softmax)(D), softmax(D))
    assert len(rlx.jit(softmax).graph(D).outputs) == 1
