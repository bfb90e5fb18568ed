"""What graphs ask of devices at the edges: narrow elements, ragged sizes, long grids, large
tensors, and views that lie over one another."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.codegen.control import ROW
from rlx.compiler.driver import compile_program
from rlx.errors import FaultError, UnsupportedError
from rlx.ir.interpreter import interpret
from rlx.lowering.compilation import Options
from rlx.ops.sugar import concat
from rlx.schedule.steps import Launch
from rlx.targets import best_features, find_target
from rlx.targets.gpu.drivers import shared_driver
from rlx.targets.gpu.loop_limit import most_rounds
from rlx.types import DTYPES, bool_, i64
from support import web
from support.conformance import facts, gpu_targets, loses_products_with_zero, runnable
from support.device import compiled, device_of
from support.drivers import STAND_INS
from support.sweeps import pairs
from support.tolerances import assert_close

rng = np.random.default_rng(0)

RUNNABLE = runnable() or ("vulkan",)
"""Those that this machine has a device for; where there is none, one test a kind says so."""

NARROW = ("f16", "bf16", "i8", "u8", "i16", "bool")


def agrees(target: str, g: rlx.Graph, feeds: dict[str, Any]) -> None:
    found = compiled(target, g).run(feeds)
    for a, b in zip(found, interpret(g, feeds), strict=True):
        assert_close(a, b)


def values(shape: tuple[int, ...], dt: str) -> Any:
    if dt == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    return (rng.standard_normal(shape) * 5).astype(DTYPES[dt].numpy)


MADE: dict[str, Callable[[rlx.Value], rlx.Value]] = {
    "transpose": lambda x: x.transpose([1, 0]),
    "concat": lambda x: concat([x, x], axis=1),
    "narrow": lambda x: x.narrow(1, 0, x.shape[1]),
    "double": lambda x: ~x if x.dtype is bool_ else x + x,
    "max": lambda x: x.cast("i32").sum(axis=1) if x.dtype is bool_ else x.max(axis=1),
    "sum": lambda x: x.cast("f32").sum(axis=0),
}


NARROW_CASES = pairs(NARROW, (1, 2, 3, 5, 127, 129, 257), MADE)


@pytest.mark.parametrize("target", RUNNABLE)
def test_narrow_elements_of_ragged_sizes(target: str) -> None:
    # Elements of less than a word share one with their neighbours, and with another thread's.
    g = rlx.Graph("g")
    feeds: dict[str, Any] = {}
    outputs: list[rlx.Value] = []
    for dt, n, made in NARROW_CASES:
        feeds[name := f"{dt}_{n}_{made}"] = values((3, n), dt)
        outputs.append(MADE[made](g.input(name, [3, n], dt)))
    g.set_outputs(outputs)
    agrees(target, g, feeds)


@pytest.mark.parametrize("target", RUNNABLE)
def test_a_result_beside_another_is_left_alone(target: str) -> None:
    # Writes of single bytes into one array: a kernel that stores whole words would lose some.
    g = rlx.Graph("g")
    x, i = g.input("x", [13], "i8"), g.input("i", [7], "i32")
    g.set_outputs([g.scatter(x, i, g.input("v", [7], "i8"), axis=0), x.flip([0])])
    at = rng.permutation(13)[:7].astype(np.int32)
    agrees(target, g, {"x": values((13,), "i8"), "i": at, "v": values((7,), "i8")})


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("dispatch", ["native", "common"])
def test_more_rows_than_a_grid_has_along_one_dimension(target: str, dispatch: str) -> None:
    # A block a row, and 65,535 blocks are the most along x: so they stand in several rows.
    n = 65_535 + 3 * ROW // 2 + 1
    g = rlx.Graph("g")
    x = g.input("x", [n, 3], "f32")
    g.set_outputs([x.softmax(axis=-1), x.sum(axis=1)])
    a = rng.standard_normal((n, 3)).astype(np.float32)
    compiled_graph = compiled(target, g, dispatch=dispatch)
    for found, expected in zip(compiled_graph.run({"x": a}), interpret(g, {"x": a}), strict=True):
        assert_close(found, expected)


@pytest.mark.parametrize("target", gpu_targets())
def test_no_grid_is_longer_than_devices_allow(target: str) -> None:
    n = 1 << 23
    g = rlx.Graph("g")
    x = g.input("x", [n, 64], "f32")
    g.set_outputs([x.softmax(axis=-1), x + 1.0])
    try:
        program, _ = compile_program(g, find_target(target))
    except UnsupportedError as e:
        pytest.fail(f"{target}: {e}")
    for step in program.main:
        assert isinstance(step, Launch)
        assert all(1 <= k <= 65_535 for k in step.grid)
        threads = program.kernels[step.kernel].workgroup[0]
        assert step.grid[0] * step.grid[1] * threads >= n


@pytest.mark.parametrize("target", gpu_targets())
@pytest.mark.parametrize(
    "build",
    [
        lambda g: g.input("x", [1 << 31], "i8") + 1,
        lambda g: g.input("x", [1 << 16, 1 << 15], "f16").sum(axis=1),
        lambda g: g.input("x", [1 << 30], "c64").conj(),
        lambda g: g.input("x", [1, 1 << 12], "f32").expand([1 << 20, 1 << 12]) + 1.0,
        lambda g: g.concat([g.input("x", [1 << 30], "i8"), g.input("y", [1 << 30], "i8")], axis=0),
        lambda g: g.gather(g.input("x", [1 << 31], "i8"), g.input("i", [2], "i32"), axis=0),
    ],
    ids=["pointwise", "rows", "complex", "expand", "concat", "gather"],
)
def test_what_needs_longer_indices_is_refused_or_has_them(target: str, build: Any) -> None:
    """With 2^31 elements, their number is none that 32 bits with a sign can say."""
    g = rlx.Graph("g")
    g.set_outputs(build(g))
    try:
        compile_program(g, find_target(target))
    except UnsupportedError as e:
        assert re.search(r"indices of \S+ have 32 bits|take 32-bit sizes|lacks", e.message), e
    else:
        assert find_target(target).kernels.index_bits == 64


@pytest.mark.parametrize("target", ["vulkan", "opencl"])
def test_the_last_round_of_a_loop_stays_within_32_bits(target: str) -> None:
    g = rlx.Graph("g")
    g.set_outputs(g.input("x", [(1 << 31) - 300], "i8").max(axes=[0]))
    with pytest.raises(UnsupportedError, match="take 32-bit sizes"):
        compile_program(g, find_target(target))


@pytest.mark.parametrize("target", gpu_targets())
def test_the_longest_tensor_that_fits_is_taken(target: str) -> None:
    n = (1 << 31) - 2 * ROW * 256
    g = rlx.Graph("g")
    g.set_outputs(g.input("x", [n], "f32") + 1.0)
    program, _ = compile_program(g, find_target(target))
    (step,) = program.main
    assert isinstance(step, Launch) and all(k <= 65_535 for k in step.grid)


@pytest.mark.parametrize("target", RUNNABLE)
def test_a_literal_zero_and_a_number_less_itself_are_no_zero_of_what_is_not_finite(
    target: str,
) -> None:
    g = rlx.Graph("g")
    x = g.input("x", [6, 1])
    g.set_outputs([x - x, x / x, x.leaky_relu(0.0), g.linear_recurrence(x, x, axis=1)])
    a = np.array([[np.nan], [np.inf], [-np.inf], [-1], [0], [2]], np.float32)
    if facts(target).runs and loses_products_with_zero(target):
        assert target == "vulkan", "the code that RLX writes there must hide the zero"
        g.set_outputs(g.outputs[:2])
    agrees(target, g, {"x": a})


@pytest.mark.parametrize("target", RUNNABLE)
def test_views_that_lie_over_one_another(target: str) -> None:
    # Parts of one array, read and written again: a result may not lie where another is still read.
    g = rlx.Graph("g")
    x = g.input("x", [8, 6])
    y = x * 2.0
    left, right = y.narrow(1, 0, 4), y.narrow(1, 2, 4)
    turned = y.transpose([1, 0]).reshape([8, 6])
    swapped = g.concat([right, left], axis=1)
    g.set_outputs([
        left + right, turned + y, swapped, y.flip([0]) - y, y, y,
        g.dynamic_update_slice(y, left.narrow(0, 0, 2), [g.input("at", [], "i32"), 1]),
    ])  # fmt: skip
    agrees(target, g, {"x": rng.standard_normal((8, 6)).astype(np.float32), "at": np.int32(3)})
    agrees(target, g, {"x": rng.standard_normal((8, 6)).astype(np.float32), "at": np.int32(0)})


@pytest.mark.parametrize("target", RUNNABLE)
def test_arrays_that_lie_over_one_another_are_inputs(target: str) -> None:
    g = rlx.Graph("g")
    a, b = g.input("a", [5, 4]), g.input("b", [4, 5])
    g.set_outputs([a @ b, a])
    base = rng.standard_normal((6, 5)).astype(np.float32)
    x, y = base[:5, 1:], base[1:5]
    before = base.copy()
    f = compiled(target, g)
    found = f.run({"a": x, "b": y})
    assert_close(found[0], x @ y)
    np.testing.assert_array_equal(found[1], x)
    np.testing.assert_array_equal(base, before, "an input was written")
    found[1][...] = 0
    np.testing.assert_array_equal(f.run({"a": x, "b": y})[1], x)


@pytest.mark.parametrize("target", RUNNABLE)
def test_remainders_of_the_least_integer_keep_its_sign(target: str) -> None:
    g = rlx.Graph("g")
    feeds: dict[str, Any] = {}
    outputs: list[rlx.Value] = []
    for dt in ("i8", "i16", "i32"):
        x, y = g.input(f"x_{dt}", [4], dt), g.input(f"y_{dt}", [4], dt)
        least = np.iinfo(dt.replace("i", "int")).min
        feeds[f"x_{dt}"] = np.array([least, least, least + 1, -7], dt.replace("i", "int"))
        feeds[f"y_{dt}"] = np.array([5, -7, 3, 2], dt.replace("i", "int"))
        outputs += [g.fmod(x, y), g.remainder(x, y)]
    g.set_outputs(outputs)
    agrees(target, g, feeds)


def cut(target: str) -> bool:
    """Whether the device of a target ends loops before their time."""
    return most_rounds(facts(target).device) is not None


def long_loops(n: int) -> tuple[rlx.Graph, dict[str, Any]]:
    g = rlx.Graph("g")
    g.set_outputs(g.input("x", [n]).cumsum(0))
    a = np.ones(n, np.float32)
    a[-1] = 5
    return g, {"x": a}


def image(channels: int) -> tuple[rlx.Graph, dict[str, Any]]:
    shape = (1, channels, 7, 7)
    g = rlx.Graph("g")
    g.set_outputs(g.conv2d(g.input("x", shape), g.input("w", shape)))
    a = np.ones(shape, np.float32)
    a[0, -1, -1, -1] = 1000
    return g, {"x": a, "w": np.ones(shape, np.float32)}


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize(
    ("build", "fits", "over"),
    [(long_loops, 65_534, 65_537), (image, 1_300, 2_000)],
    ids=["one loop", "loops in loops"],
)
def test_no_loop_is_cut(target: str, build: Any, fits: int, over: int) -> None:
    if target == web.NAME:
        pytest.skip("a browser does not say what it runs on")
    agrees(target, *build(fits))
    if not cut(target):
        agrees(target, *build(over))
        return
    with pytest.raises(UnsupportedError, match=r"makes up to \d+ rounds .* 65536 in all") as e:
        compiled(target, build(over)[0])
    assert e.value.location is not None and e.value.location[0] == __file__


def gaussians(n: int) -> tuple[rlx.Graph, dict[str, Any]]:
    """So many that reach all pixels of one tile, and hide little of what is behind them."""
    g = rlx.Graph("g")
    feeds = {
        "means": np.full((n, 2), 8, np.float32),
        "conics": np.tile(np.array([1, 0, 1], np.float32), (n, 1)),
        "colors": np.ones((n, 1), np.float32),
        "opacities": np.full(n, 0.02, np.float32),
        "radii": np.full(n, 16, np.int32),
    }
    given = [g.input(name, a.shape, str(a.dtype)) for name, a in feeds.items()]
    g.set_outputs(g.rasterize_gaussians(*given, width=16, height=16))
    return g, feeds


@pytest.mark.parametrize("target", RUNNABLE)
def test_a_loop_whose_rounds_depend_on_data_tells_that_it_was_cut(target: str) -> None:
    if target == web.NAME:
        pytest.skip("a browser does not say what it runs on")
    agrees(target, *gaussians(20))
    graph, feeds = gaussians(300)
    if not cut(target):
        agrees(target, graph, feeds)
        return
    run = compiled(target, graph)
    with pytest.raises(FaultError, match="more rounds than the 65536") as e:
        run.run(feeds)
    assert e.value.location is not None and e.value.location[0] == __file__
    assert run.run({**feeds, "radii": np.zeros(300, np.int32)})[0].max() == 0


@pytest.mark.parametrize("target", RUNNABLE)
def test_what_was_compiled_elsewhere_is_refused_where_its_loops_may_be_cut(target: str) -> None:
    if target == web.NAME or not cut(target):
        pytest.skip(f"{target}: its device cuts no loops, or does not say so")
    if target in STAND_INS:
        pytest.skip(f"{target}: sessions load no artifacts for what stands for it")
    found = rlx.Session(device_of(target))
    features = best_features(target, shared_driver(target).features)
    name = f"{target}:{features.name}"
    for build, n, match in (
        (long_loops, 65_537, "up to 65538 rounds"), (gaussians, 20, "most_rounds=65536"),
    ):  # fmt: skip
        graph, feeds = build(n)
        with pytest.raises(UnsupportedError, match=match):
            found.load(rlx.compile_artifact(graph, name))
    told = found.load(rlx.compile_artifact(graph, name, most_rounds=65_536))
    assert_close(told.run(feeds)[0], interpret(graph, feeds)[0])


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda g: g.input("x", [999]) + 1.0, 0),
        # A loop's rounds, and the one that ends it.
        (lambda g: g.input("x", [999]).cumsum(0), 1_000),
        (lambda g: g.input("x", [3, 20, 40]).sum(axis=[1, 2]), 20 * (1 + 41) + 1),
        (lambda g: g.input("x", [999]).sort(0), None),  # as the data has it
    ],
    ids=["no loop", "one loop", "loops in loops", "data"],
)
def test_rounds_of_kernels(build: Any, expected: int | None) -> None:
    g = rlx.Graph("g")
    g.set_outputs(build(g))
    program, _ = compile_program(g, find_target("vulkan"), Options(dispatch="common"))
    assert program.rounds[-1] == expected


@pytest.mark.parametrize("target", RUNNABLE)
def test_loops_that_data_may_skip_run_on_a_device_that_cuts_them(target: str) -> None:
    # Of 32,000 elements few are among the largest that were met: only those are put in their place.
    g = rlx.Graph("g")
    x = g.input("x", [32_000])
    g.set_outputs(x.topk(5))
    feeds = {"x": rng.standard_normal(32_000).astype(np.float32)}
    if i64 in find_target(target).kernels.lacks:
        pytest.skip(f"{target} has no i64, the type of indices")
    agrees(target, g, feeds)


def test_a_thread_of_a_large_tensor_makes_few_rounds() -> None:
    # Its loop is from a multiple of its number to what that is with a block, or the tensor's end.
    g = rlx.Graph("g")
    g.set_outputs(g.input("x", [1 << 20]) * 2.0)
    program, _ = compile_program(g, find_target("vulkan"))
    assert program.rounds == (2,)
