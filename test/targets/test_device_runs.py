"""Graphs on software devices: params, control flow, faults, and what a run needs beside kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.compiler.driver import compile_program
from rlx.errors import FaultError, GraphError
from rlx.ir.interpreter import interpret
from rlx.schedule.steps import Launch
from rlx.targets import find_target
from rlx.targets.gpu.program import bind, groups
from support.device import APIS, compiled
from support.tolerances import assert_close

rng = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return rng.standard_normal(shape).astype(np.float32)


def agrees(api: str, build: Callable[[rlx.Graph], Any], feeds: dict[str, Any]) -> None:
    """Check a graph against the interpreter, twice: a run leaves nothing behind."""
    g = rlx.Graph("g")
    out = build(g)
    g.set_outputs(out if isinstance(out, list) else [out])
    f = compiled(api, g)
    for _ in range(2):
        for found, expected in zip(f.run(feeds), interpret(g, feeds), strict=True):
            assert_close(found, expected)


@pytest.mark.parametrize("api", APIS)
def test_params_are_packed_again_when_they_are_set(api: str) -> None:
    g = rlx.Graph("g")
    x, w = g.input("x", [3, 5]), g.param("w", [7, 5])
    g.set_outputs(x @ (w * 2.0).transpose([1, 0]))
    f = compiled(api, g)
    a = floats(3, 5)
    for b in (floats(7, 5), floats(7, 5)):
        f.set_param("w", b)
        assert_close(f.run({"x": a})[0], a @ (2 * b).T)
    out = np.empty((3, 7), np.float32)
    f.run_into({"x": a}, [out])
    assert_close(out, a @ (2 * b).T)
    found = f.profile({"x": a}, 3)
    assert 0 < found.seconds <= found.median
    assert not found.rows
    assert "the fastest of 3 runs on " in str(found)
    with pytest.raises(GraphError, match="found 0 inputs, expected 1"):
        f.run_slots()


@pytest.mark.parametrize("api", APIS)
def test_rows_that_a_block_shares(api: str) -> None:
    def build(g: rlx.Graph) -> list[rlx.Value]:
        x, w = g.input("x", [3, 300]), g.input("w", [300])
        return [x.softmax(axis=-1), g.layer_norm(x, w, w), x.max(axis=1), x.sum(axis=[0, 1])]

    agrees(api, build, {"x": floats(3, 300), "w": floats(300)})


@pytest.mark.parametrize("api", APIS)
def test_views_start_at_any_element(api: str) -> None:
    # A slice of an input, and parts of small elements that share words.
    def build(g: rlx.Graph) -> list[rlx.Value]:
        x, b = g.input("x", [70, 3]), g.input("b", [71], "i8")
        return [x.slice([1, 1], [68, 2]) * 2.0, b.narrow(0, 1, 5) + 1, g.concat([b, b], axis=0)]

    agrees(api, build, {"x": floats(70, 3), "b": rng.integers(-9, 9, 71).astype(np.int8)})


@pytest.mark.parametrize("api", APIS)
def test_more_groups_than_a_row_of_the_grid_has(api: str) -> None:
    n = (1 << 15) * 128 + 1000
    agrees(api, lambda g: g.input("x", [n], "i32") + 1, {"x": np.arange(n, dtype=np.int32)})


@pytest.mark.parametrize("api", APIS)
def test_the_traps_of_floats(api: str) -> None:
    values = np.array(
        [np.nan, np.inf, -np.inf, -0.0, 0.0, 1.5, -88.0, 88.0, 1e-30, 3e38], np.float32
    )

    def build(g: rlx.Graph) -> list[rlx.Value]:
        x, y = g.input("x", [10]), g.input("y", [10])
        return [x.maximum(y), x.minimum(y), x.isnan(), x.exp(), x.tanh(), x.ne(y), x.cast("f16")]

    agrees(api, build, {"x": values, "y": values[::-1].copy()})


@pytest.mark.parametrize("api", APIS)
def test_the_host_decides_branches_and_loops(api: str) -> None:
    def build(g: rlx.Graph) -> list[rlx.Value]:
        x, flag, rows = g.input("x", [4, 4]), g.input("flag", [], "bool"), g.input("r", [3, 4, 4])
        either = rlx.cond(flag, lambda v: v @ v, lambda v: v + 1.0, x)
        (grown,) = rlx.while_loop(lambda v: v.max() < 50.0, lambda v: (v @ v + 1.0,), (x.abs(),))
        last, stack = rlx.scan(lambda c, r: (c @ r, c + r), x, rows)
        return [either, grown, last, stack]

    feeds = {"x": floats(4, 4), "r": floats(3, 4, 4)}
    for flag in (True, False):
        agrees(api, build, {**feeds, "flag": np.bool_(flag)})


@pytest.mark.parametrize("api", APIS)
def test_a_fault_names_the_user_s_line(api: str) -> None:
    g = rlx.Graph("g")
    x, i = g.input("x", [4, 2]), g.input("i", [3], "i32")
    g.set_outputs(g.gather(x, i, axis=0, mode="fault"))
    f = compiled(api, g)
    a = floats(4, 2)
    with pytest.raises(FaultError, match=r"test_device_runs\.py:\d+: .*out of range for axis 0"):
        f.run({"x": a, "i": np.array([0, 4, 1], np.int32)})
    assert_close(f.run({"x": a, "i": np.array([0, 3, 1], np.int32)})[0], a[[0, 3, 1]])


@pytest.mark.parametrize("api", [*APIS, "webgpu"])
def test_a_fault_of_what_params_alone_decide_is_one_of_every_run(api: str) -> None:
    g = rlx.Graph("g")
    table, i = g.param("table", [3, 2]), g.param("i", [2], "i32")
    g.set_outputs(g.input("x", [2, 2]) + table.gather(i))
    f = compiled(api, g)
    f.set_param("table", floats(3, 2))
    f.set_param("i", np.int32([1, 3]))
    feeds = {"x": np.zeros((2, 2), np.float32)}
    for _ in range(2):
        with pytest.raises(FaultError, match="gather: index out of range"):
            f.run(feeds)
    f.set_param("i", np.int32([1, 2]))
    assert_close(f.run(feeds)[0], interpret(g, feeds, f._params)[0])


def test_a_program_is_plain_data() -> None:
    g = rlx.Graph("g")
    x = g.input("x", [300, 200])
    g.set_outputs((x @ g.param("w", [200, 8]) + 1.0).softmax(axis=-1))
    program, report = compile_program(g, find_target("opencl"))
    assert report.kernels_made == len(program.kernels)
    assert [m.role for m in program.memories].count("param") == 1
    for step in program.main:
        assert isinstance(step, Launch)
        kernel = program.kernels[step.kernel]
        written = [p.base for p, b in zip(step.places, kernel.bindings, strict=True)
                   if b.access == "read_write"]  # fmt: skip
        read = [p.base for p, b in zip(step.places, kernel.bindings, strict=True)
                if b.access == "read"]  # fmt: skip
        assert written and not set(written) & set(read), "no buffer is written and read at once"
        offsets, params = bind(step, kernel, 256)
        assert len(params) == 4 * kernel.params and all(at % 256 == 0 for at in offsets)


def test_groups_come_in_rows() -> None:
    assert groups(1, 128) == (1, 1, 1) and groups(129, 128) == (2, 1, 1)
    assert groups((1 << 15) * 128, 128) == (1 << 15, 1, 1)
    assert groups((1 << 15) * 128 + 1, 128) == (1 << 15, 2, 1)
