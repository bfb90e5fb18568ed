"""Reductions of columns: every kind and element type, ragged and strided operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.kernels.reduce import emit as reduce
from rlx.kernels.reduce.emit import ReduceConfig
from rlx.targets.cpu import emit
from rlx.targets.cpu.features import preset
from rlx.targets.cpu.target import kernel_target
from rlx.types import DTYPES, FLOATS, DType, bool_, f32, i32
from support.runkernel import element_strides, run_launch

Array = np.ndarray[Any, Any]
KINDS = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "mean": np.sum}
INTEGERS = [d for d in DTYPES.values() if d.is_int]
CASES = [(kind, dt) for kind in KINDS for dt in FLOATS]
CASES += [(kind, dt) for kind in ("sum", "prod", "max", "min") for dt in INTEGERS]
CASES += [("max", bool_), ("min", bool_)]


def data(dt: DType, *shape: int) -> Array:
    rng = np.random.default_rng(len(shape))
    if dt.is_float:
        return rng.uniform(0.5, 1.5, shape).astype(dt.numpy)
    if dt is bool_:
        return rng.random(shape) < 0.5
    info = np.iinfo(dt.numpy)
    return rng.integers(info.min, info.max, shape, dt.numpy, endpoint=True)


def run(kind: str, x: Array, dt: DType, pieces: int = 1) -> Array:
    config = ReduceConfig(kind, dt, dt)  # type: ignore[arg-type]
    launch = reduce.launch(x.shape, element_strides(x))
    outer, _, inner = x.shape
    out = np.zeros(outer * inner + 1, x.dtype)
    run_launch(reduce, config, launch, [x, out], pieces)
    assert out[-1] == 0
    return out[:-1].reshape(outer, inner)


def expected(kind: str, x: Array, dt: DType) -> Array:
    if not dt.is_float:
        return (
            KINDS[kind](x, axis=1, dtype=x.dtype)
            if kind in ("sum", "prod")
            else KINDS[kind](x, axis=1)
        )
    out = KINDS[kind](x.astype(np.float64), axis=1)
    return out / x.shape[1] if kind == "mean" else out


def check(kind: str, x: Array, dt: DType, pieces: int = 1) -> None:
    found, wanted = run(kind, x, dt, pieces), expected(kind, x, dt)
    if dt.is_float:
        relative = 2.0 ** {"f16": -10, "bf16": -7, "f32": -19, "f64": -48}[dt.name]
        np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=relative)
    else:
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("kind", "dt"), CASES, ids=str)
def test_every_kind_and_type(kind: str, dt: DType) -> None:
    for shape in ((2, 9, 37), (1, 5, 64), (3, 1, 8), (1, 11, 200), (2, 4, 1), (1, 3, 7)):
        check(kind, data(dt, *shape), dt)


@pytest.mark.parametrize("inner", [1, 15, 16, 17, 31, 63, 64, 65, 127, 129, 300])
def test_ragged_columns(inner: int) -> None:
    check("sum", data(f32, 2, 10, inner), f32)
    check("max", data(i32, 2, 10, inner), i32)


def test_strided_operands() -> None:
    whole = data(f32, 6, 20, 100)
    for x in (
        whole[::2, 3:15:2, 10:90],
        whole.transpose(1, 0, 2),
        np.broadcast_to(whole[:, :1], whole.shape),
        whole[:, :, 5:6],
    ):
        check("mean", x, f32)


def test_nan_wins() -> None:
    x = np.ones((1, 4, 20), np.float32)
    x[0, 1, 3] = np.nan
    for kind in KINDS:
        assert np.isnan(run(kind, x, f32)[0, 3]) and not np.isnan(run(kind, x, f32)[0, 4])


def test_an_empty_axis_gives_the_identity() -> None:
    x = np.ones((2, 0, 20), np.float32)
    assert (run("sum", x, f32) == 0).all() and (run("prod", x, f32) == 1).all()
    assert np.isnan(run("mean", x, f32)).all()


def test_the_order_of_a_sum_is_that_of_the_axis() -> None:
    x = np.random.default_rng(3).standard_normal((1, 1000, 150)).astype(np.float32)
    total = np.zeros(150, np.float32)
    for row in x[0]:
        total += row
    np.testing.assert_array_equal(run("sum", x, f32, pieces=3)[0], total)


def test_only_a_sum_has_weights() -> None:
    with pytest.raises(ValueError, match="weights are those of a sum, not of max"):
        ReduceConfig("max", f32, f32, weighted=True)


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4", "aarch64"])
def test_compiles_for(cpu: str) -> None:
    features = preset(cpu)
    kernels = [
        reduce.emit(f"k{n}", ReduceConfig(kind, dt, dt), kernel_target(features))  # type: ignore[arg-type]
        for n, (kind, dt) in enumerate([("sum", f32), ("max", bool_), ("mean", DTYPES["bf16"])])
    ]
    assert emit.compile_kernels(kernels, features).startswith(b"\x7fELF")


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", ["reduce_max", "reduce_min"])
def test_an_extreme_is_nan_wherever_the_nan_lies_and_nowhere_else(name: str, axis: int) -> None:
    """Vectors collect nans beside the extreme; the last elements of a row are no vector."""
    n = 131
    x = np.random.default_rng(0).standard_normal((n, n), np.float32)
    x[np.arange(n - 1), np.arange(n - 1)] = np.nan
    x[n - 1, :] = x[:, n - 1] = np.inf if name == "reduce_max" else -np.inf
    g = rlx.Graph(name)
    g.set_outputs(getattr(g, name)(g.input("x", x.shape), axes=axis))
    (found,) = rlx.Session("cpu").compile(g).run({"x": x})
    want = np.full(n, np.nan, np.float32)
    want[n - 1] = x[n - 1, n - 1]
    np.testing.assert_array_equal(found, want)
