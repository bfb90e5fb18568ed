"""Rows written by index: every reduction, type and index type, faults, parts and blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlx.ir.op import placeholders
from rlx.kernels.index import scatter
from rlx.ops.indexing.scatter import Scatter
from rlx.ops.indexing.scatter_common import REDUCTIONS
from rlx.targets.cpu import emit
from rlx.targets.cpu.features import preset
from rlx.targets.cpu.target import kernel_target
from rlx.types import TensorType, dtype
from support.runkernel import compiled, run_launch
from support.tolerances import assert_close

Array = np.ndarray[Any, Any]
SITE = 7


def random(dt: str, shape: tuple[int, ...]) -> Array:
    rng = np.random.default_rng(0)
    if dt == "bool":
        return rng.integers(0, 2, shape) > 0
    return rng.integers(1, 9, shape).astype(dtype(dt).numpy)


def run(
    tensor: Array, indices: Array, updates: Array, reduction: str = "set", mode: str = "fault",
    start: scatter.Start = "tensor", backwards: bool = False, **how: int,
) -> tuple[Array, Array]:  # fmt: skip
    """The result [batch, outer, length, row], and the error record; ``backwards`` runs the tasks
    one by one from the last."""
    config, launch = scatter.launch(
        dtype(tensor.dtype), dtype(indices.dtype), reduction, mode, tensor.shape,
        indices.shape[1], start=start, site=SITE, **how,
    )  # fmt: skip
    # One element more, to see that nothing is written behind the end.
    out = np.zeros(tensor.size + 1, tensor.dtype)
    if start == "result":
        out[:-1] = tensor.ravel()
    error = np.zeros(2, np.int64)
    arrays = [tensor] if start == "tensor" else []
    arrays += [indices, updates, out]
    if config.accumulator is not config.dtype:
        arrays.append(np.empty(tensor.shape, config.accumulator.numpy))
    arrays += [error] if mode == "fault" else []
    if backwards:
        for t in reversed(range(launch.range)):
            compiled(scatter, config)(t, t + 1, arrays, launch.sizes, launch.scratch)
    else:
        run_launch(scatter, config, launch, arrays)
    assert out[-1] == 0
    return out[:-1].reshape(tensor.shape), error


def expected(
    tensor: Array, indices: Array, updates: Array, reduction: str = "set", mode: str = "fault"
) -> Array:
    """What the op's reference says."""
    t, i, u = (TensorType.of(a.shape, a.dtype) for a in (tensor, indices, updates))
    flat = u.with_shape((*tensor.shape[:2], indices.shape[1], tensor.shape[3]))
    node = Scatter(*placeholders([t, i, flat]), 2, reduction, mode, 1)
    return node.reference(tensor, indices, updates.reshape(flat.static_shape))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("row", [1, 3, 16, 37, 100, 700])
@pytest.mark.parametrize("dt", ["f32", "bf16", "i8"])
def test_rows(row: int, reduction: str, dt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks and parts change nothing, to the bit."""
    monkeypatch.setattr(scatter, "SHARE", 1)
    tensor, updates = random(dt, (2, 3, 11, row)), random(dt, (2, 3, 30, row))
    indices = np.random.default_rng(1).integers(-11, 11, (2, 30))
    want = expected(tensor, indices, updates, reduction)
    for how in ({}, {"block": 16, "tasks": 1000}, {"tasks": 1 << 30}):
        for backwards, start in ((False, "tensor"), (True, "tensor"), (True, "result")):
            out, error = run(
                tensor, indices, updates, reduction, start=start, backwards=backwards, **how
            )
            np.testing.assert_array_equal(out, want)
            assert list(error) == [0, 0]


@pytest.mark.parametrize("dt", ["f16", "f64", "u64", "bool"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_types(dt: str, reduction: str) -> None:
    if dt == "bool" and reduction in ("add", "mul"):
        return
    tensor, updates = random(dt, (1, 1, 5, 70)), random(dt, (1, 1, 9, 70))
    indices = np.random.default_rng(1).integers(0, 5, (1, 9))
    out, _ = run(tensor, indices, updates, reduction)
    assert_close(out, expected(tensor, indices, updates, reduction))


@pytest.mark.parametrize("dt", ["i1", "i4", "i8", "u1", "u8"])
@pytest.mark.parametrize("mode", ["clip", "wrap", "fill"])
def test_modes(dt: str, mode: str) -> None:
    info = np.iinfo(dt)
    indices = np.array([[3, info.max, info.min, 5, 100, 2]], dt)
    tensor, updates = random("i32", (1, 2, 5, 20)), random("i32", (1, 2, 6, 20))
    out, _ = run(tensor, indices, updates, mode=mode)
    np.testing.assert_array_equal(out, expected(tensor, indices, updates, mode=mode))


def test_on_zeros() -> None:
    tensor, updates = random("f16", (1, 2, 5, 33)), random("f16", (1, 2, 9, 33))
    indices = np.random.default_rng(1).integers(0, 5, (1, 9))
    out, _ = run(tensor, indices, updates, "add", start="zeros")
    np.testing.assert_array_equal(out, expected(tensor * 0, indices, updates, "add"))


@pytest.mark.parametrize("bad", [5, -6, 1 << 40, -(1 << 63)])
def test_an_index_out_of_range_is_recorded(bad: int) -> None:
    tensor, updates = random("f32", (1, 1, 5, 20)), random("f32", (1, 1, 3, 20))
    out, error = run(tensor, np.array([[1, bad, 2]]), updates)
    assert list(error) == [1, SITE]
    np.testing.assert_array_equal(out[0, 0, [1, 2]], updates[0, 0, [0, 2]])
    np.testing.assert_array_equal(out[0, 0, 3:], tensor[0, 0, 3:])


def test_nothing_to_write() -> None:
    for shape, count in (((1, 2, 4, 0), 3), ((1, 0, 4, 2), 3), ((1, 1, 0, 2), 0)):
        found = scatter.launch(dtype("f32"), dtype("i64"), "set", "fault", shape, count)[1]
        assert found.range == 0
    tensor = random("f32", (1, 2, 4, 3))
    out, _ = run(tensor, np.zeros((1, 0), np.int64), tensor[:, :, :0])
    np.testing.assert_array_equal(out, tensor)


def test_the_places_of_one_long_row_are_shared_out() -> None:
    f32, i64 = dtype("f32"), dtype("i64")
    tall = scatter.launch(f32, i64, "add", "clip", (1, 1, 30000, 384), 2048)[1]
    assert tall.range == scatter.TASKS
    # Not where looking at an index takes as long as writing what it brings.
    assert scatter.launch(f32, i64, "add", "clip", (1, 1, 30000, 1), 30000)[1].range == 1


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4", "aarch64"])
def test_compiles_for(cpu: str) -> None:
    features = preset(cpu)
    kernels = [
        scatter.emit(
            f"k{n}",
            scatter.ScatterConfig(dtype(dt), dtype("i32"), reduction, mode, n == 0, n == 1),
            kernel_target(features),
        )
        for n, (dt, reduction, mode) in enumerate(
            [("bf16", "add", "fault"), ("u8", "set", "fill"), ("f64", "max", "wrap")]
        )
    ]
    assert emit.compile_kernels(kernels, features).startswith(b"\x7fELF")
