"""Regions with several results: which values join, where the region stands, and the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.autodiff import gradients
from rlx.dialects.context import make_context
from rlx.dialects.export import to_mlir
from rlx.inspect import inspect_mir_with_diff
from rlx.ir.graph import Graph
from rlx.ir.value import Value
from rlx.lowering.compilation import Compilation, Options
from rlx.lowering.levels import passes_between
from rlx.lowering.passes.fuse import MOST_RESULTS
from rlx.lowering.passes.mir_to_lir import MirToLir
from rlx.lowering.passes.placement import EARLIER
from rlx.lowering.pipeline import run_passes
from rlx.lowering.report import MissReason
from rlx.lowering.select.rowwise.select import LONGEST_ROW
from rlx.schedule.steps import launches
from rlx.targets import find_target
from support.compiled import agrees, arrays

Build = Callable[[Graph], Any]


def made(build: Build) -> Graph:
    g = Graph("several")
    g.set_outputs(build(g))
    return g


def rows(g: Graph, dt: str = "f32", width: int = 64) -> tuple[Value, Value]:
    return g.input("x", [6, width], dt), g.input("r", [6, width], dt)


def fused(g: Graph) -> dict[str, int]:
    """The regions of a compile, and how many there are of each."""
    return dict(rlx.Session("cpu").compile(g).reports[0].compilation.fusion.fused)


def missed(g: Graph) -> list[tuple[str, MissReason]]:
    found = rlx.Session("cpu").compile(g).reports[0].compilation.fusion.missed
    return [(m.reason, m.kind) for m in found]


def residual(norm: str, dt: str) -> Build:
    """What a pre-norm layer has where its branch does not end in a product."""

    def build(g: Graph) -> Any:
        x, r = rows(g, dt)
        h = x + r.tanh()
        scale, shift = g.param("gamma", [64], dt), g.param("beta", [64], dt)
        y = h.softmax(-1) if norm == "softmax" else getattr(h, norm)(scale, shift)
        return h.transpose((1, 0)), y

    return build


@pytest.mark.parametrize("dt", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("norm", ["rms_norm", "layer_norm", "softmax"])
def test_a_residual_and_its_norm_are_one_launch(norm: str, dt: str) -> None:
    g = made(residual(norm, dt))
    report = rlx.Session("cpu").compile(g).reports[0].compilation
    assert report.fusion.fused[f"rowwise: tanh+add+{norm} (2 results)"] == 1
    assert not [n for n in report.dispatch.native if n.startswith("elementwise")]
    assert report.dispatch.native[f"rowwise: tanh+add+{norm} (2 results)"] == 1
    agrees(g)


@pytest.mark.parametrize("dt", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("width", [1, 7, 64, 700])
@pytest.mark.parametrize("norm", ["rms_norm", "layer_norm", "softmax"])
def test_fused_and_apart_give_the_same_bits(norm: str, width: int, dt: str) -> None:
    def build(g: Graph) -> Any:
        x, r = rows(g, dt, width)
        h = x + r
        y = h.softmax(-1) if norm == "softmax" else getattr(h, norm)(g.param("gamma", [width], dt))
        return h, y, h.transpose((1, 0))

    g = made(build)
    given = arrays(g)
    runs = []
    for fuse in (True, False):
        f = rlx.Session("cpu").compile(g, fuse=fuse)
        for v in g.params:
            f.set_param(str(v.name), given[str(v.name)])
        runs.append([a.tobytes() for a in f.run({n: given[n] for n in ("x", "r")})])
    assert fused(g) == {f"rowwise: add+{norm} (2 results)": 1}
    assert runs[0] == runs[1]


def test_a_value_and_its_statistics_are_one_launch() -> None:
    def build(g: Graph) -> Any:
        x, r = rows(g)
        h = (x * r).exp()
        return h, h.mean(axes=-1, keepdims=True), h.transpose((1, 0))

    g = made(build)
    assert fused(g) == {"rowwise: mul+exp+reduce_mean (2 results)": 1}
    agrees(g)


def momentum(g: Graph) -> Any:
    p, m, v, d = (g.input(n, [37, 70]) for n in ("p", "m", "v", "d"))
    m, v = m * 0.9 + d * 0.1, v.abs() * 0.99 + d * d * 0.01
    return p - m / (v.sqrt() + 1e-3), m, v


def test_a_step_of_an_optimiser_is_one_launch_that_writes_over_its_state() -> None:
    g = made(momentum)
    (name,) = fused(g)
    assert name.startswith("elementwise: ") and name.endswith(" (3 results)")
    agrees(g)
    given = arrays(g)
    expected = rlx.Session("cpu").compile(g, fuse=False).run(given)
    f = rlx.Session("cpu").compile(g, donate=((0, 0), (1, 1), (2, 2)))
    assert not f.reports[0].compilation.dispatch.native["copy: donated outputs"]
    state = {n: given[n].copy() for n in ("p", "m", "v")}
    f.run_in_place({"d": given["d"]}, state)
    for found, e in zip(state.values(), expected, strict=True):
        assert found.tobytes() == e.tobytes()


def test_the_rows_of_a_gradient_that_goes_on_past_a_norm() -> None:
    """What comes from above is read by the norm's own gradient and by that of its scale."""
    g = Graph("backward")
    h = g.input("x", [8, 32])
    scales = [g.input(f"gamma{i}", [32]) for i in range(3)]
    for gamma in scales:
        h = (h + h.tanh()).layer_norm(gamma)
    g.set_outputs(gradients((h * h).mean(), scales))
    assert any("layer_norm_grad" in n and "results" in n for n in fused(g)), fused(g)
    agrees(g)


def test_siblings_of_a_stored_value_join_and_it_is_stored_no_more() -> None:
    def build(g: Graph) -> Any:
        shared = g.input("x", [300]).exp()
        return shared.sqrt(), shared.neg().tanh()

    g = made(build)
    assert fused(g) == {"elementwise: exp+sqrt+neg+tanh (2 results)": 1}
    agrees(g)


@pytest.mark.parametrize("shape", [(4096 * 33 + 5,), (300, 400)])
def test_results_over_dying_values(shape: tuple[int, ...]) -> None:
    """Large values of which nothing else reads the last: each result takes another's memory."""

    def build(g: Graph) -> Any:
        a, b = (g.input(n, shape).softmax(-1) for n in ("a", "b"))
        s = a + b
        t = s * a
        return s.sum(axes=0), t.sum(axes=0)

    agrees(made(build))


def test_an_operand_that_lies_across() -> None:
    def build(g: Graph) -> Any:
        x, y = g.input("x", [130, 70]), g.input("y", [70, 130]).transpose((1, 0))
        s = x * y
        return s, s.tanh() + y, s.transpose((1, 0))

    g = made(build)
    assert fused(g) == {"elementwise: mul+tanh+add (2 results)": 1}
    agrees(g)


# -- where a region can stand ----------------------------------------------------------------------


def test_a_norm_whose_sum_another_op_has_read_before_moves_in_front_of_that() -> None:
    def build(g: Graph) -> Any:
        x, r = rows(g)
        h = x + r
        before = h @ g.param("w", [64, 3])
        return h.rms_norm() * 2.0, before

    g = made(build)
    assert "rowwise: add+rms_norm+mul (2 results)" in fused(g)
    agrees(g)


def test_what_waits_for_a_reader_of_the_sum_does_not_join() -> None:
    """The norm's scale is computed from the sum: fused, each would wait for the other."""

    def build(g: Graph) -> Any:
        x, r = rows(g)
        h = x + r
        scale = (h @ g.param("w", [64, 1])).sum(axes=0).expand((64,))
        return h.rms_norm(scale), h

    g = made(build)
    assert not any("rms_norm" in n and "results" in n for n in fused(g))
    agrees(g)


def test_a_region_does_not_move_far_to_the_front() -> None:
    def build(between: int) -> Graph:
        g = Graph("far")
        x, r = rows(g)
        h = x + r
        w = g.param("w", [64, 64])
        y = h @ w
        for _ in range(between):
            y = (y @ w).softmax(-1)
        g.set_outputs([y, h.rms_norm()])
        return g

    near, far = (any("results" in n for n in fused(build(n))) for n in (2, EARLIER + 1))
    assert near and not far
    agrees(build(EARLIER + 1))


def test_the_next_residual_is_no_missed_fusion() -> None:
    """It reads what is computed from the product's result in between: no epilogue could have it."""
    g = Graph("layers")
    x = g.input("x", [8, 64])
    for i in range(2):
        x = x + x.rms_norm() @ g.param(f"w{i}", [64, 64])
    g.set_outputs([x])
    assert missed(g) == []
    assert fused(g) == {"contraction: matmul+add": 2, "rowwise: rms_norm": 2}


# -- what a region cannot have ---------------------------------------------------------------------


def test_a_product_has_one_result() -> None:
    def build(g: Graph) -> Any:
        y = g.input("x", [4, 8]) @ g.param("w", [8, 8])
        return y.tanh(), y

    g = made(build)
    assert ("its result has 2 uses (return, tanh)", MissReason.SEVERAL_USES) in missed(g)
    agrees(g)


def test_results_of_three_types_are_not_one_region() -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", [300])
        a = x.tanh()
        b = a.gt(0.25)
        return a, b, b.cast("i32") + 1

    g = made(build)
    assert ("its results are of several types", MissReason.SEVERAL_USES) in missed(g)
    agrees(g)


def test_the_result_of_another_type_comes_first() -> None:
    def build(g: Graph) -> Any:
        a = g.input("x", [300]).tanh()
        b = a.gt(0.25)
        return a, b, b.where(a, 0.0)

    g = made(build)
    assert fused(g) == {"elementwise: tanh+gt+where (3 results)": 1}
    text = rlx.inspect_pipeline(g).fused
    assert "-> (tensor<300xi1>, tensor<300xf32>, tensor<300xf32>)" in text
    agrees(g)


def test_a_region_has_so_many_results_at_most() -> None:
    def build(g: Graph) -> Any:
        values = [g.input("x", [300])]
        for _ in range(MOST_RESULTS + 2):
            values.append(values[-1].tanh())
        return values[1:]

    g = made(build)
    reason = f"it has {MOST_RESULTS + 1} results, and a region {MOST_RESULTS} at most"
    assert (reason, MissReason.SEVERAL_USES) in missed(g)
    assert sorted(n.rpartition("(")[2] for n in fused(g)) == ["2 results)", "8 results)"]
    agrees(g)


def test_rows_that_are_too_long_for_one_thread() -> None:
    def build(width: int) -> Graph:
        g = Graph("long")
        h = g.input("x", [2, width]) + g.input("r", [2, width])
        g.set_outputs([h, h.sum(axes=-1)])
        return g

    assert fused(build(LONGEST_ROW)) == {"rowwise: add+reduce_sum (2 results)": 1}
    g = build(LONGEST_ROW + 1)
    assert any(r.startswith("one thread would write 2 rows of 16385") for r, _ in missed(g))
    agrees(g)


def test_params_alone_are_computed_apart() -> None:
    """Where nothing asks for one of them it is not made, and what is made is kept."""
    g = Graph("packed")
    x, w = g.input("x", [8, 64]), g.param("w", [64, 64])
    a = w.tanh()
    g.set_outputs([x @ (a * 2.0), x @ a])
    assert not any("results" in n for n in fused(g))
    agrees(g)


# -- what looks at regions -------------------------------------------------------------------------


def test_a_loop_carries_what_one_region_makes() -> None:
    def build(g: Graph) -> Any:
        x, w = g.input("x", [6, 64]), g.input("w", [6, 64])

        def step(_: Value, c: tuple[Value, Value]) -> tuple[Value, Value]:
            a = c[0] * 0.5 + c[1]
            return a, a.tanh() + c[1]

        return rlx.fori(3, step, (x, w))

    agrees(made(build))


def norm_and_sum(g: Graph) -> Any:
    x, r = rows(g)
    h = x + r
    return h.rms_norm(), h


def test_launches_move_fewer_bytes() -> None:
    """A sum that is stored by the kernel that norms it is not read again."""
    moved = []
    for fuse in (True, False):
        compilation = Compilation(find_target("cpu"), Options(fuse=fuse))
        with make_context() as context:
            module = to_mlir(made(norm_and_sum), context)
            lowered = run_passes(module, passes_between("hir", "fused"), compilation)
            schedule = MirToLir().schedule(lowered, compilation)
        steps = list(launches(schedule.main))
        moved.append((len(steps), sum(int(s.origin.bytes) for s in steps)))
    size = 6 * 64 * 4
    assert moved == [(1, 4 * size), (2, 5 * size)]


def test_a_listing_names_every_result() -> None:
    text = str(inspect_mir_with_diff(made(norm_and_sum)))
    assert "%0.0, %0.1 = fused rowwise" in text, text


@pytest.mark.parametrize("family", ["contraction", "conv"])
def test_a_region_that_is_given_with_several_results_needs_a_family_that_writes_them(
    family: str,
) -> None:
    module = rlx.GraphModule.parse(GIVEN.replace("KIND", family))
    with pytest.raises(rlx.errors.UnsupportedError, match="contraction: it has 2 results, and a"):
        rlx.Session("cpu").compile_module(module)


GIVEN = """
func.func @main(%x: tensor<4x8xf32> {rlx.input = "x"}, %w: tensor<8x8xf32> {rlx.input = "w"})
    -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %r:2 = "mir.fused"() ({
    %y = "mir.matmul"(%x, %w) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %z = "mir.tanh"(%y) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    "mir.yield"(%y, %z) : (tensor<4x8xf32>, tensor<4x8xf32>) -> ()
  }) {kind = "KIND"} : () -> (tensor<4x8xf32>, tensor<4x8xf32>)
  return %r#0, %r#1 : tensor<4x8xf32>, tensor<4x8xf32>
}
"""


def test_given_regions_of_several_results_run() -> None:
    """Those of rows and of elements, however they are named, and one that gives a value twice."""
    text = GIVEN.replace('"mir.matmul"(%x, %w) : (tensor<4x8xf32>, tensor<8x8xf32>)', "EXP")
    text = text.replace("EXP", '"mir.exp"(%x) : (tensor<4x8xf32>)')
    x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    feeds = {"x": x, "w": np.zeros((8, 8), np.float32)}
    for given in (text, text.replace('"mir.yield"(%y, %z)', '"mir.yield"(%z, %z)')):
        first, second = rlx.Session("cpu").compile_module(rlx.GraphModule.parse(given)).run(feeds)
        np.testing.assert_allclose(second, np.tanh(np.exp(x)), rtol=1e-6)
        expected = second if given is not text else np.exp(x)
        np.testing.assert_allclose(first, expected, rtol=1e-6)
