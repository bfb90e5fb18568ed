"""gather and scatter_add: NumPy's meaning, faults with a place, and determinism."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rlx.errors import DTypeError, FaultError, GraphError, ShapeError
from rlx.ir.graph import Graph
from rlx.ir.op import placeholders, type_of
from rlx.kernels.fallback import emit as common
from rlx.ops.indexing.gather import Gather
from rlx.ops.indexing.scatter import ScatterAdd
from support.evaluate import call
from support.runkernel import run_launch

RNG = np.random.default_rng(0)
TABLE = RNG.standard_normal((2, 5, 3))


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2])
@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (0,)])
def test_gather_is_take(axis: int, shape: tuple[int, ...]) -> None:
    n = TABLE.shape[axis]
    indices = RNG.integers(-n, n, shape)
    got = call(lambda t, i: t.gather(i, axis), TABLE, indices)
    assert np.array_equal(got, np.take(TABLE, indices, axis))


@pytest.mark.parametrize("dt", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
def test_every_integer_type_is_an_index(dt: str) -> None:
    assert call(lambda t, i: t.gather(i), np.arange(300), np.array([3, 100], dt)).tolist() == [
        3,
        100,
    ]


def test_a_number_or_a_list_is_an_index() -> None:
    assert call(lambda t: t.gather([1, -1], axis=1), TABLE).shape == (2, 2, 3)
    assert call(lambda t: t.gather(1), TABLE).shape == (5, 3)


def test_clip_takes_the_nearest() -> None:
    indices = np.array([-9, -1, 2, 9])
    got = call(lambda t, i: t.gather(i, 1, mode="clip"), TABLE, indices)
    assert np.array_equal(got, np.take(TABLE, indices, 1, mode="clip"))


def test_batch_dims_give_every_batch_its_own_indices() -> None:
    indices = RNG.integers(0, 5, (2, 4))
    got = call(lambda t, i: t.gather(i, 1, batch_dims=1), TABLE, indices)
    assert np.array_equal(got, np.take_along_axis(TABLE, indices[..., None], 1))


def test_float_indices_are_refused_with_the_remedy() -> None:
    with pytest.raises(DTypeError, match="found f32; cast them to i64"):
        call(lambda t, i: t.gather(i), TABLE, np.zeros(2, np.float32))


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(GraphError, match="found 'drop'"):
        call(lambda t, i: t.gather(i, mode="drop"), TABLE, np.zeros(2, int))


@pytest.mark.parametrize("index", [5, -6, 2**62])
def test_an_index_out_of_range_is_a_fault_at_the_users_line(index: int) -> None:
    with pytest.raises(FaultError, match=f"axis 1 of 5 elements: found {index}") as e:
        call(lambda t, i: t.gather(i, 1), TABLE, np.array([0, index]))
    assert e.value.location is not None
    assert e.value.location[0] == __file__
    with pytest.raises(FaultError, match="scatter_add"):
        call(lambda u, i: u.scatter_add(i, 5), np.ones(2), np.array([0, index]))


def test_an_empty_axis_is_refused() -> None:
    with pytest.raises(ShapeError, match="axis 0 is empty"):
        call(lambda t, i: t.gather(i), np.ones((0, 2)), np.zeros(1, int))


def test_scatter_add_sums_duplicates() -> None:
    indices = np.array([[2, 0], [2, -1]])
    updates = RNG.standard_normal((3, 2, 2, 4))
    want = np.zeros((3, 5, 4))
    np.add.at(want, (slice(None), indices), updates)
    got = call(lambda u, i: u.scatter_add(i, 5, axis=1), updates, indices)
    np.testing.assert_allclose(got, want)


def test_scatter_add_rounds_once() -> None:
    ones = np.ones(1000, ml_dtypes.bfloat16)
    got = call(lambda u, i: u.scatter_add(i, 1), ones, np.zeros(1000, int))
    assert got[0] == 1000  # a bf16 accumulator would stop at 256
    wrapped = call(lambda u, i: u.scatter_add(i, 1), np.full(3, 100, np.int8), np.zeros(3, int))
    assert wrapped[0] == 44


def test_symbolic_sizes() -> None:
    g = Graph()
    table = g.input("table", ["vocab", 8])
    ids = g.input("ids", ["batch", "seq"], "i32")
    out = table.gather(ids)
    assert str(out.type) == "batchxseqx8xf32"
    assert ids.op is None
    grad = out.scatter_add(ids, "vocab")
    assert grad.shape == table.shape


def _faulting(node: Any, arrays: list[Any]) -> tuple[Any, Any]:
    """Run the op's own loops: its result and the error record."""
    config = common.CommonConfig.of(node)
    out = np.zeros(node.out.type.static_shape, node.out.dtype.numpy)
    error = np.zeros(2, np.int64)
    extra = [error] if common.faults(config) else []
    run_launch(common, config, common.launch(config, site=7), [*arrays, out, *extra])
    return out, error


@pytest.mark.parametrize("dt", ["i8", "i64", "u64"])
def test_loops_record_a_fault_and_touch_nothing_outside(dt: str) -> None:
    node = Gather(*placeholders([type_of("5xf32"), type_of(f"3x{dt}")]))
    bad = np.array([4, 2**64 - 1 if dt == "u64" else -6, 2], node.indices.dtype.numpy)
    out, error = _faulting(node, [np.arange(5, dtype=np.float32), bad])
    assert error.tolist() == [1, 7]
    assert out[[0, 2]].tolist() == [4, 2]


@pytest.mark.parametrize("kind", [Gather, ScatterAdd])
@pytest.mark.parametrize("dt", ["i8", "i64", "u8", "u64"])
def test_loops_clip(kind: Any, dt: str) -> None:
    size = {} if kind is Gather else {"size": 5}
    types = placeholders([type_of("5xf32" if kind is Gather else "3xf32"), type_of(f"3x{dt}")])
    node = kind(*types, mode="clip", **size)
    indices = np.array([100, -1 if dt[0] == "i" else 7, 2], node.indices.dtype.numpy)
    data = np.arange(node.operands[0].shape[0], dtype=np.float32)
    out, _ = _faulting(node, [data, indices])
    assert np.array_equal(out, node.reference(data, indices))
