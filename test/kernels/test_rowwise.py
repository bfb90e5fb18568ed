"""Row-wise kernels: regions built from ops, against the interpreter and in double precision."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlx._mlir import context, parse_module
from rlx.codegen.builder import KernelTarget
from rlx.codegen.family import Launch
from rlx.codegen.probe import step_cost
from rlx.codegen.program import Step
from rlx.errors import PassError
from rlx.ir.graph import Graph
from rlx.ir.interpreter import interpret
from rlx.ir.value import Value
from rlx.kernels.rowwise import config as rowwise
from rlx.kernels.rowwise.emit import GROUP
from rlx.kernels.rowwise.plan import Reduce, RowProgram, RowwiseConfig, Slot, plan
from rlx.kernels.rowwise.region import NotRowwise, RowRegion
from rlx.lowering.select.rowwise.match import row_region
from rlx.ops.movement.constant import Constant
from rlx.targets.cpu import emit
from rlx.targets.cpu.features import preset
from rlx.targets.cpu.target import kernel_target
from rlx.types import FLOATS, DType, bf16, bool_, f16, f32, f64, i32, u64
from support.jit import host
from support.runkernel import compiled, element_strides, guarded, run_launch
from support.tolerances import Tolerance, assert_close

Array = np.ndarray[Any, Any]
Build = Callable[..., Any]
Shapes = list[tuple[int, ...]]


class Built:
    """A graph over inputs of the given shapes, its region, and arrays to run both on."""

    def __init__(self, build: Build, shapes: Shapes, dt: DType = f32) -> None:
        self.graph = Graph()
        values = [self.graph.input(f"x{i}", s, dt) for i, s in enumerate(shapes)]
        out = build(*values)
        self.outputs: list[Value] = list(out) if isinstance(out, tuple) else [out]
        self.graph.set_outputs(self.outputs)
        self.found = row_region(self.graph.nodes(), self.outputs)
        rng = np.random.default_rng(sum(map(sum, shapes)))
        self.feeds = {
            f"x{i}": rng.standard_normal(s).astype(dt.numpy) for i, s in enumerate(shapes)
        }

    @property
    def region(self) -> RowRegion:
        assert isinstance(self.found, RowRegion), self.found
        return self.found

    @property
    def plan(self) -> Any:
        return plan(self.region.launch(*self.region.dense_strides())[0])

    def run(self, pieces: int = 1) -> list[Array]:
        config, launch = self.region.launch(*self.region.dense_strides())
        inputs = [
            self.feeds[i.value.name] if i.value.name else i.value.op.value  # type: ignore[union-attr]
            for i in self.region.inputs
        ]
        results = [np.full(v.type.static_shape, 77, v.dtype.numpy) for v in self.outputs]
        run_launch(rowwise, config, launch, [*inputs, *results], pieces)
        return results

    def check(self, tolerance: Tolerance | None = None) -> None:
        for found, expected in zip(self.run(), interpret(self.graph, self.feeds), strict=True):
            assert_close(found, expected, tolerance)


def constant(value: Array) -> Value:
    return Constant(value=value).out


def softmax(x: Value) -> Value:
    return x.softmax()


def layer_norm(x: Value, g: Value, b: Value) -> Value:
    return x.layer_norm(g, b)


def norm_shapes(*shape: int) -> Shapes:
    return [shape, shape[-1:], shape[-1:]]


SHAPES = [(5, 37), (3, 4, 128), (1, 1), (7,), (2, 3, 1), (9, 1000), (1, 64), (0, 6), (64, 16)]


@pytest.mark.parametrize("dt", FLOATS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_softmax(shape: tuple[int, ...], dt: DType) -> None:
    Built(softmax, [shape], dt).check()


@pytest.mark.parametrize("dt", FLOATS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_layer_norm(shape: tuple[int, ...], dt: DType) -> None:
    Built(layer_norm, norm_shapes(*shape), dt).check()


REGIONS: dict[str, tuple[Build, Shapes]] = {
    "rms norm": (lambda x, g: x.rms_norm(g), [(3, 5, 48), (48,)]),
    "residual and norm": (
        lambda x, y, g, b: (x + y).layer_norm(g, b),
        [(3, 5, 48), (3, 5, 48), (48,), (48,)],
    ),
    "norm of an activation, between pointwise ops, two results": (
        lambda x, y, g, b: ((x + y).gelu().layer_norm(g, b) * 2.0 + y, x + y),
        [(3, 5, 48), (3, 5, 48), (48,), (48,)],
    ),
    "masked softmax": (lambda x, m: (x * 0.3 + m).softmax(), [(2, 3, 4, 33), (2, 1, 1, 33)]),
    "log softmax": (
        lambda x: x - x.exp().sum(axes=-1, keepdims=True).log(),
        [(4, 33)],
    ),
    "l2 normalise": (lambda x: x / (x * x).sum(axes=-1, keepdims=True).sqrt(), [(4, 5, 33)]),
    "statistics alone": (
        lambda x: (x.mean(axes=-1), x.max(axes=-1, keepdims=True), x.prod(axes=-1)),
        [(4, 5, 33)],
    ),
    "a reduced value without its axis": (lambda x, b: x.exp().sum(axes=-1) + b, [(4, 33), (4,)]),
    "put back by reshape": (
        lambda x: x - x.mean(axes=-1).reshape((4, 1)),
        [(4, 33)],
    ),
    "two axes": (lambda x, b: (x + b).sum(axes=(1, 2), keepdims=True) * x, [(4, 3, 11), (3, 11)]),
    "all axes": (lambda x: x.mean(), [(4, 33, 2)]),
    "one value a row": (lambda x, y: (x * y).softmax(), [(4, 33), (4, 1)]),
    "a scalar input": (lambda x, y: (x * y).softmax(), [(4, 33), ()]),
    "no reduction": (lambda x, y: x * y + 1.0, [(4, 33), (33,)]),
    "spread over the row": (
        lambda x: x.max(axes=-1, keepdims=True).expand((4, 33)),
        [(4, 33)],
    ),
    "two values kept, for one result": (
        lambda x: (
            x.exp() / x.exp().sum(axes=-1, keepdims=True)
            + x.tanh() * x.tanh().sum(axes=-1, keepdims=True)
        ),
        [(4, 70)],
    ),
    "three levels": (
        lambda x: ((x - x.mean(axes=-1, keepdims=True)).softmax() * x).softmax(),
        [(4, 70)],
    ),
}


@pytest.mark.parametrize("name", REGIONS)
def test_regions(name: str) -> None:
    Built(*REGIONS[name]).check()


@pytest.mark.parametrize("name", REGIONS)
def test_pieces_of_the_range_give_the_same_bits(name: str) -> None:
    built = Built(*REGIONS[name])
    rows = built.region.launch(*built.region.dense_strides())[1].range
    for whole, cut in zip(built.run(), built.run(pieces=rows), strict=True):
        assert whole.tobytes() == cut.tobytes()


@pytest.mark.parametrize("name", REGIONS)
def test_kept_values_have_places_of_their_own(name: str) -> None:
    slots = Built(*REGIONS[name]).plan.slots
    assert len(set(slots.values())) == len(slots)


def test_extremes_do_not_start_from_zero() -> None:
    built = Built(lambda x: (x.max(axes=-1), x.min(axes=-1)), [(2, 37)])
    x = built.feeds["x0"] = np.abs(built.feeds["x0"]) + 1
    x[0] *= -1
    top, low = built.run()
    np.testing.assert_array_equal(top, x.max(-1))
    np.testing.assert_array_equal(low, x.min(-1))


def test_a_row_does_not_depend_on_the_others() -> None:
    built = Built(layer_norm, norm_shapes(6, 100))
    whole = built.run()[0]
    alone = Built(layer_norm, norm_shapes(1, 100))
    alone.feeds = {**built.feeds, "x0": built.feeds["x0"][3:4]}
    assert alone.run()[0].tobytes() == whole[3].tobytes()


@pytest.mark.parametrize("dt", [i32, u64, bool_], ids=str)
def test_extremes_of_other_types(dt: DType) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (5, 70)).astype(dt.numpy)
    if dt.is_int:
        x = rng.integers(np.iinfo(dt.numpy).min, np.iinfo(dt.numpy).max, (5, 70), dt.numpy)
    steps = tuple(Reduce(kind, 0, dt, dt) for kind in ("max", "min"))
    outs = [np.zeros((5, 1), dt.numpy) for _ in steps]
    config, launch = rowwise.launch(
        RowProgram((dt,), steps, (1, 2)), (5, 70), [(70, 1)], [(1, 0), (1, 0)]
    )
    run_launch(rowwise, config, launch, [x, *outs])
    np.testing.assert_array_equal(outs[0], x.max(-1, keepdims=True))
    np.testing.assert_array_equal(outs[1], x.min(-1, keepdims=True))


@pytest.mark.parametrize("at", [0, 20, 36])
def test_nan_and_infinity(at: int) -> None:
    """A nan anywhere in a row, vector or tail, spoils that row and no other."""
    built = Built(lambda x: (x.max(axes=-1), x.softmax()), [(3, 37)])
    built.feeds["x0"][1, at] = np.nan
    built.feeds["x0"][2, at] = -np.inf
    top, soft = built.run()
    assert np.isnan(top[1]) and np.isnan(soft[1]).all()
    assert np.isfinite(top[[0, 2]]).all() and np.isfinite(soft[[0, 2]]).all()
    assert soft[2, at] == 0


CPUS = ["x86-64-v3", "x86-64-v4"]


def columns_around(lanes: int) -> list[int]:
    """Every rest of a vector, after no vector and after rounds of several."""
    return [*range(1, 2 * lanes + 2), *range(6 * lanes - 1, 7 * lanes + 1)]


@pytest.mark.parametrize("cpu", CPUS)
def test_every_rest_of_a_row(cpu: str) -> None:
    """The last elements of a row are read and written, and none beyond: the pages behind inputs and
    results cannot be touched."""
    features = preset(cpu)
    if not features.has <= host().has:
        pytest.skip(f"code for {cpu} does not run here")
    for build, count in ((lambda x: (x.softmax(), x.max(axes=-1), x.sum(axes=-1)), 0),
                         (lambda x, g, b: x.layer_norm(g, b), 2)):  # fmt: skip
        for columns in columns_around(features.vector_bits // 32):
            built = Built(build, [(3, columns), *[(columns,)] * count])
            config, launch = built.region.launch(*built.region.dense_strides())
            results = [guarded(np.full(v.type.static_shape, 7, np.float32)) for v in built.outputs]
            inputs = [guarded(built.feeds[i.value.name or ""]) for i in built.region.inputs]
            run_launch(rowwise, config, launch, [*inputs, *results], features=features)
            for found, expected in zip(results, interpret(built.graph, built.feeds), strict=True):
                assert_close(found, expected)


@pytest.mark.parametrize("dt", [f16, bf16, f64, i32], ids=str)
def test_rests_of_other_types(dt: DType) -> None:
    for columns in (1, 5, 8, 15, 17, 47):
        x = (np.random.default_rng(columns).standard_normal((3, columns)) * 9).astype(dt.numpy)
        out, top = guarded(np.zeros_like(x)), np.zeros((3, 1), dt.numpy)
        steps = (
            Step("mir.add", (0, 0), (dt, dt), dt),
            Reduce("max", 0, f32 if dt.bits == 16 else dt, dt),
        )
        config, launch = rowwise.launch(
            RowProgram((dt,), steps, (1, 2)), x.shape, [(columns, 1)], [(columns, 1), (1, 0)]
        )
        run_launch(rowwise, config, launch, [guarded(x), out, top])
        np.testing.assert_array_equal(out, x + x)
        np.testing.assert_array_equal(top, x.max(-1, keepdims=True))


@pytest.mark.parametrize("columns", [5, 33, 128, 1024, 1025])
def test_a_row_beside_another_has_the_bits_of_one_alone(columns: int) -> None:
    for build, shapes in ((softmax, [(5, columns)]), (layer_norm, norm_shapes(5, columns))):
        built = Built(build, shapes)
        assert built.run()[0].tobytes() == built.run(pieces=5)[0].tobytes()


def far_and_near(built: Built) -> tuple[RowwiseConfig, RowwiseConfig, Launch]:
    config, launch = built.region.launch(*built.region.dense_strides())
    assert not config.far
    return replace(config, far=True), config, launch


FAR_REGIONS = {
    "rms_norm": (lambda x, g: x.rms_norm(g), 1),
    "layer_norm": (lambda x, y, g, b: (x + y).layer_norm(g, b), 2),
    "softmax": (softmax, 0),
}


@pytest.mark.parametrize("name", FAR_REGIONS)
@pytest.mark.parametrize("columns", [33, 1024, 1500])
def test_rows_that_are_asked_for_ahead_have_the_same_bits(name: str, columns: int) -> None:
    """Also those behind the last: the pages there cannot be touched."""
    build, fixed = FAR_REGIONS[name]
    moving = build.__code__.co_argcount - fixed
    built = Built(build, [(5, columns)] * moving + [(columns,)] * fixed)
    far, near, launch = far_and_near(built)
    inputs = [guarded(built.feeds[i.value.name or ""]) for i in built.region.inputs]
    results = [guarded(np.zeros((5, columns), np.float32)) for _ in range(2)]
    for config, out in zip((far, near), results, strict=True):
        run_launch(rowwise, config, launch, [*inputs, out])
    assert results[0].tobytes() == results[1].tobytes()


def test_large_operands_are_asked_for_ahead() -> None:
    """Each line once, those to be written too, and never the gain, which all rows share."""
    program = Built(FAR_REGIONS["rms_norm"][0], [(5, 1024), (1024,)]).region.program

    def launched(rows: int, columns: int = 1024, **kind: bool) -> RowwiseConfig:
        strides = [(columns, 1), (0, 1)]
        return rowwise.launch(program, (rows, columns), strides, [(columns, 1)], **kind)[0]

    assert launched(2048).far and not launched(2047).far  # 2 x 8 MiB
    assert not launched(1024, 8193).far and not launched(8192, 511).far
    assert not launched(2048, blocks=True).far
    texts = [rowwise.emit("k", c, kernel_target(preset("x86-64-v4"))).text for c in (
        launched(2048), launched(8)
    )]  # fmt: skip
    asked = [re.findall(r"prefetch %(\w+)\[.*?\], (\w+)", text) for text in texts]
    assert set(asked[0]) == {("in0", "read"), ("out0", "write")}
    assert not asked[1]


def test_nans_leave_out_a_maximum_that_a_sum_makes_good() -> None:
    assert Built(softmax, [(5, 40)]).plan.numbers
    alone = Built(lambda x: (x.softmax(), x.max(axes=-1)), [(5, 40)])
    assert not alone.plan.numbers  # the maximum is a result itself
    shifted = Built(lambda x: (x - x.max(axes=-1, keepdims=True)).exp(), [(5, 40)])
    assert not shifted.plan.numbers  # no sum takes the nan to the other elements
    other = Built(lambda x, y: (x - y.max(axes=-1, keepdims=True)).softmax(), [(5, 40), (5, 40)])
    assert len(other.plan.numbers) == 1  # y's nans have no other way


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [slice(0, 1), slice(36, 37), slice(None)])
def test_softmax_of_what_is_not_finite(value: float, at: slice) -> None:
    built = Built(softmax, [(3, 37)])
    built.feeds["x0"][1, at] = value
    with np.errstate(invalid="ignore"):
        expected = interpret(built.graph, built.feeds)
    assert_close(built.run()[0], expected[0])


def test_sums_of_16_bits_accumulate_in_f32() -> None:
    x = np.full((2, 4096), 1.0, np.float16)
    for dt in (f16, bf16):
        built = Built(lambda x: x.sum(axes=-1), [x.shape], dt)
        built.feeds["x0"] = x.astype(dt.numpy)
        np.testing.assert_array_equal(built.run()[0].astype(np.float32), 4096)


def test_strided_rows() -> None:
    """Slices, and rows that run along another axis in memory."""
    program = Built(softmax, [(5, 7)]).region.program
    base = np.random.default_rng(1).standard_normal((40, 60)).astype(np.float32)
    for x in (base[2:30:3, 5:42], base.T, base.T[7:, :33], base[None, :, :8].transpose(1, 0, 2)):
        for out in (np.zeros(x.shape, np.float32), np.zeros_like(x)):
            config, launch = rowwise.launch(
                program, x.shape, [element_strides(x)], [element_strides(out)]
            )
            run_launch(rowwise, config, launch, [x, out])
            e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
            assert_close(out, (e / e.sum(-1, keepdims=True)).astype(np.float32))


def test_one_kernel_serves_every_shape() -> None:
    shapes = [(5, 7), (3, 4, 128), (2, 1000)]
    regions = [Built(layer_norm, norm_shapes(*s)).region for s in shapes]
    assert len({r.launch(*r.dense_strides())[0] for r in regions}) == 1


# -- plans ---------------------------------------------------------------------------------


def test_softmax_keeps_its_exponentials_in_the_result() -> None:
    p = Built(softmax, [(5, 40)]).plan
    assert len(p.passes) == 3
    assert list(p.slots.values()) == [Slot("output", 0)]


def test_a_result_of_another_type_leaves_them_in_scratch() -> None:
    built = Built(softmax, [(5, 40)], bf16)
    assert list(built.plan.slots.values()) == [Slot("scratch", 0)]
    launch = built.region.launch(*built.region.dense_strides())[1]
    assert launch.scratch == 192 * GROUP  # 40 f32 in whole cache lines
    long = Built(softmax, [(5, 4000)], bf16).region
    assert long.launch(*long.dense_strides())[1].scratch == 16_000


def test_cheap_values_are_computed_again() -> None:
    assert not Built(layer_norm, norm_shapes(5, 40)).plan.slots


def test_a_residual_is_added_once_and_read_back_from_its_result() -> None:
    p = Built(lambda x, y: (x + y, (x + y).softmax()), [(5, 40), (5, 40)]).plan
    assert set(p.slots.values()) == {Slot("output", 0), Slot("output", 1)}


def test_without_keeping_every_pass_starts_afresh() -> None:
    region = Built(softmax, [(5, 40)]).region
    config, _ = region.launch(*region.dense_strides())
    fresh = plan(config, keep=False)
    assert not fresh.slots
    assert all(not p.reload and not p.keep for p in fresh.passes)


def test_step_costs() -> None:
    costs = [
        step_cost(Step(f"mir.{op}", tuple(range(n)), (f32,) * n, f32))
        for op, n in (("add", 2), ("div", 2), ("exp", 1))
    ]
    assert costs == sorted(costs) and costs[0] == 1
    assert step_cost(Step.literal(1.0, f32)) == 0


# -- refusals ------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Build, Shapes, str]] = {
    "another axis": (lambda x: x.sum(axes=0), [(4, 5)], "not the last"),
    "different axes": (
        lambda x: x.sum(axes=1).sum(axes=0) + x.sum(axes=(0, 1)),
        [(4, 5)],
        "reductions fold|folds",
    ),
    "a product": (lambda x: x @ x, [(4, 4)], "neither pointwise"),
    "one value a row, folded": (
        lambda x: x + x.sum(axes=1, keepdims=True).sum(axes=1, keepdims=True),
        [(4, 5)],
        "one value a row",
    ),
    "rows mixed": (lambda x: x.exp().reshape((2, 10)).softmax(), [(4, 5)], "changes the rows"),
    "an axis lost": (lambda x: x + x.exp().sum(axes=1), [(5, 5)], "shared by rows"),
    "a row computed for all": (lambda x, y: (x + y.exp()).softmax(), [(4, 5), (5,)], "shared by"),
    "bools": (lambda x: (x > 0.0).max(axes=-1), [(4, 5)], "of bools"),
    "a part of the axes": (
        lambda x, y: (x * y).sum(axes=(1, 2)),
        [(4, 5, 6), (5, 1)],
        "a part of the axes",
    ),
    "a shared result": (lambda x, y: (x + y.exp(), y.exp()), [(4, 5), (5,)], "shared by rows"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_why(name: str) -> None:
    build, shapes, reason = REFUSED[name]
    found = Built(build, shapes).found
    assert isinstance(found, NotRowwise)
    assert any(part in found.reason for part in reason.split("|")), found.reason


SPLATS: dict[str, Build] = {
    "whole": lambda x: x.sum(axes=-1, keepdims=True) + x * np.full((4, 33), 2, np.float32),
    "spread": lambda x: (x * constant(np.full((4, 1), 2, np.float32)).expand((4, 33))).softmax(),
    "reshaped": lambda x: (x + constant(np.full((33,), 2, np.float32)).reshape((1, 33))).softmax(),
    "beside a value without its axis": lambda x: (
        x.sum(axes=-1) + constant(np.full((4,), 2, np.float32))
    ),
}


@pytest.mark.parametrize("name", SPLATS)
def test_a_constant_of_one_number_is_no_input(name: str) -> None:
    built = Built(SPLATS[name], [(4, 33)])
    assert len(built.region.inputs) == 1
    built.check()


def test_an_input_tells_the_shapes_that_it_takes() -> None:
    built = Built(lambda x, y: x.softmax() * y.expand((3, 4)).reshape((12,)), [(5, 12), (3, 1)])
    (i,) = (i for i in built.region.inputs if i.through)
    assert (i.through, i.shape) == (((3, 1), (3, 4)), (12,))


def test_axes_that_do_not_merge() -> None:
    region = Built(lambda x: x.sum(axes=(1, 2)), [(4, 5, 6)]).region
    with pytest.raises(PassError, match="do not merge"):
        region.launch([(30, 1, 5)], [(1, 0, 0)])


def test_a_gpu_kernel_takes_no_scratch() -> None:
    region = Built(softmax, [(5, 40)], bf16).region
    math = kernel_target(host()).math
    target = KernelTarget("gpu", 0, 0, math, frame="gpu")
    text = rowwise.emit("k", region.launch(*region.dense_strides())[0], target)
    assert not text.scratch
    assert text.sizes[-1] == "range"
    parse_module(f"gpu.module @m {{\n{text.text}\n}}", context())


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4", "aarch64"])
def test_compiles_for(cpu: str) -> None:
    features = preset(cpu)
    regions = [Built(softmax, [(5, 40)], dt).region for dt in (f32, f64, bf16)]
    regions.append(Built(layer_norm, norm_shapes(5, 40), f16).region)
    kernels = [
        rowwise.emit(f"k{n}", r.launch(*r.dense_strides())[0], kernel_target(features))
        for n, r in enumerate(regions)
    ]
    assert emit.compile_kernels(kernels, features).startswith(b"\x7fELF")


def test_narrow_vectors_give_the_values_too() -> None:
    """AVX2 and AVX-512 sum in another order, so close and not equal."""
    built = Built(layer_norm, norm_shapes(5, 100))
    config, launch = built.region.launch(*built.region.dense_strides())
    out = np.zeros((5, 100), np.float32)
    call = compiled(rowwise, config, preset("x86-64-v3"))
    inputs = [built.feeds[n] for n in ("x0", "x1", "x2")]
    call(0, launch.range, [*inputs, out], launch.sizes, launch.scratch)
    assert_close(out, built.run()[0])
