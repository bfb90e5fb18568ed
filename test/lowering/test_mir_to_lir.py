"""mir-to-lir: where results, inputs, params and constants lie when they meet at the outputs."""

from __future__ import annotations

import re

import numpy as np
import pytest

import rlx
from rlx.inspect import inspect_pipeline
from support.compiled import agrees


def test_an_output_may_be_anything() -> None:
    g = rlx.Graph("anything")
    x, w = g.input("x", [2, 3]), g.param("w", [2, 3])
    c = g.constant(np.arange(6, dtype=np.float32).reshape(2, 3))
    y = x + w
    g.set_outputs([x, w, c, y, y, x, w, c, y.transpose((1, 0)), x[:, 1:], w.reshape(6), y.sum()])
    agrees(g)


def test_an_output_that_other_ops_read_on() -> None:
    g = rlx.Graph("read")
    x = g.input("x", [4, 4])
    y = x.cumsum(0)
    z = y @ x
    g.set_outputs([y, z, z.softmax(0), y.transpose((1, 0)), (y + z).topk(2, axis=1)[1]])
    agrees(g)


def test_several_results_of_one_op() -> None:
    g = rlx.Graph("results")
    x = g.input("x", [3, 6])
    values, places = x.topk(2, axis=1)
    other, _ = x.topk(3, axis=0)
    _, last = x.topk(1, axis=0, largest=False)
    g.set_outputs([places, values, other * 2.0, last, places])
    agrees(g)


@pytest.mark.parametrize("dispatch", ["native", "common"])
def test_rank_0_all_along(dispatch: str) -> None:
    g = rlx.Graph("scalar")
    x, w = g.input("x", []), g.param("w", [])
    g.set_outputs([x + w, (x * 2.0).exp(), x.reshape(1, 1), x.expand((3,)), x.sum(), w, x.gt(w)])
    f = rlx.Session().compile(g, dispatch=dispatch)
    f.set_param("w", np.float32(3))
    found = f.run({"x": np.float32(1)})
    assert [a.shape for a in found] == [(), (), (1, 1), (3,), (), (), ()]
    assert [float(a.ravel()[0]) for a in found] == pytest.approx([4, np.exp(2), 1, 1, 1, 3, 0])
    agrees(g)


def test_empty_tensors_all_along() -> None:
    g = rlx.Graph("empty")
    x, w = g.input("x", [0, 4]), g.param("w", [4, 3])
    y, e = g.input("y", [2, 0]), g.param("e", [0, 3])
    g.set_outputs(
        [
            x @ w, (x @ w + 1.0).gelu(), y @ e, x.softmax(1), x.sum(axes=0), x.cumsum(0), y.exp(),
            x.transpose((1, 0)), g.concat([x, x], axis=0), y.sum(axes=1), x.rms_norm(axis=1),
            (y @ e).tanh() + 1.0, x.sum(), e.prod(axes=0), x.reshape(2, 0, 7),
        ]
    )  # fmt: skip
    agrees(g)


def test_an_unused_input_stays_in_the_signature() -> None:
    g = rlx.Graph("unused")
    g.input("a", [3])
    x = g.input("x", [2])
    g.param("p", [5])
    g.set_outputs([x.neg()])
    f = rlx.Session().compile(g)
    f.set_param("p", np.zeros(5, np.float32))
    assert f.run({"a": np.zeros(3, np.float32), "x": np.ones(2, np.float32)})[0].tolist() == [
        -1,
        -1,
    ]
    with pytest.raises(rlx.errors.NameError, match="'a'"):
        f.run({"x": np.ones(2, np.float32)})


def test_movement_launches_nothing() -> None:
    g = rlx.Graph("movement")
    x = g.input("x", [4, 6])
    g.set_outputs([x.transpose((1, 0))[1:5:2].expand((3, 2, 4)).exp()])
    lir = inspect_pipeline(g).lir
    assert len(re.findall(r"call @", lir)) == 1
    agrees(g)


def test_a_chain_of_steps_takes_two_buffers() -> None:
    g = rlx.Graph("chain")
    x = g.input("x", [64, 64])
    for _ in range(8):
        x = x.cumsum(0) * 0.1
    g.set_outputs([x.sum()])
    f = rlx.Session().compile(g, fuse=False)
    assert next(iter(f._bound.values())).variant.arena_bytes <= 2 * 64 * 64 * 4
    agrees(g)


@pytest.mark.parametrize("steps", [(2, 1), (1, 3), (2, 2)])
def test_strided_slices_of_transposes_reach_every_family(steps: tuple[int, int]) -> None:
    g = rlx.Graph("strided")
    x, w = g.input("x", [9, 8]), g.param("w", [9, 8])
    a, b = (v.transpose((1, 0))[:: steps[0], :: steps[1]] for v in (x, w))
    k = a.shape[1]
    v = g.param("v", [16, k])[::2]
    g.set_outputs(
        [a @ b.transpose((1, 0)), a.softmax(0), a * b, a.cumsum(1), a @ v.transpose((1, 0)), v]
    )
    agrees(g)


@pytest.mark.parametrize(
    ("m", "k", "n", "packs"),
    [(40, 30, 64, 0), (1, 30, 64, 0), (40, 30, 40, 1), (33, 16, 66000, 1), (32, 16, 66000, 0)],
)
def test_a_right_operand_is_read_where_it_lies(m: int, k: int, n: int, packs: int) -> None:
    """Unless it has fewer columns than a panel, or is large and used by many rows."""
    g = rlx.Graph("inputs")
    a, b = g.input("a", [m, k]), g.input("b", [k, n])
    g.set_outputs([(a @ b).relu()])
    lir = inspect_pipeline(g, "cpu:x86-64-v4").lir
    assert lir.count('lir.family = "pack"') == packs, lir
    agrees(g)


def test_batches_of_right_operands_are_read_where_they_lie() -> None:
    g = rlx.Graph("batches")
    a, b = g.input("a", [2, 3, 9, 20]), g.input("b", [2, 3, 20, 70])
    c, w = g.input("c", [3, 20, 70]), g.param("w", [20, 70])
    g.set_outputs([a @ b, a @ c, a @ b[:, 1:2, :, 3:], a @ w])
    assert inspect_pipeline(g).lir.count('lir.family = "pack"') == 1
    agrees(g)


@pytest.mark.parametrize(
    ("columns", "turned"), [((48, 96, 20), 3), ((48, 20, 48), 1), ((20, 48, 48), 0)]
)
def test_parts_of_a_turned_matrix_that_fill_panels_are_packed_by_squares(
    columns: tuple[int, ...], turned: int
) -> None:
    """A part that begins or ends inside a panel goes element by element."""
    g = rlx.Graph("parts")
    x = g.input("x", [9, 35])
    parts = [g.param(f"w{i}", [n, 35]).transpose((1, 0)) for i, n in enumerate(columns)]
    g.set_outputs([x @ g.concat(parts, axis=1)])
    lir = inspect_pipeline(g, "cpu:x86-64-v4").lir
    assert lir.count("call @pack_strided") == turned, lir
    assert lir.count("call @pack") == len(columns)
    agrees(g)


def test_params_may_be_worked_on_as_deep_as_one_likes() -> None:
    """What waits for what in the prologue is no depth of Python's stack."""
    g = rlx.Graph("deep")
    w = v = g.param("w", [2, 2], value=np.full((2, 2), 0.5, np.float32))
    for _ in range(400):
        v = (v @ w).softmax(-1)
    g.set_outputs([g.input("x", [2, 2]) @ v])
    (found,) = rlx.Session("cpu").compile(g).run({"x": np.ones((2, 2), np.float32)})
    np.testing.assert_allclose(found, np.ones((2, 2)), rtol=1e-6)
