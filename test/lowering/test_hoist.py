"""hoist: what depends on params alone runs once, and again only for the param that changed."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.inspect import inspect_pipeline
from support.compiled import agrees


def parts(g: rlx.Graph) -> tuple[str, str]:
    """The text of the prologue and of main, after fusion."""
    text = inspect_pipeline(g).fused
    halves = dict(re.findall(r"func\.func @(\w+)\((.*?)(?=func\.func|\Z)", text, re.DOTALL))
    return halves.get("prologue", ""), halves["main"]


def variant(f: rlx.CompiledGraph) -> Any:
    return next(iter(f._bound.values())).variant


def test_param_only_work_leaves_main() -> None:
    g = rlx.Graph("work")
    x, w = g.input("x", [3, 4]), g.param("w", [4])
    g.set_outputs([x * (w.exp() + 1.0) + w.cumsum(0)])
    prologue, main = parts(g)
    for op in ('"mir.exp"', '"mir.cumsum"'):
        assert op in prologue and op not in main
    assert "mir.mul" in main and "mir.mul" not in prologue
    agrees(g)


def test_what_an_input_reaches_stays() -> None:
    g = rlx.Graph("stays")
    x, w = g.input("x", [4]), g.param("w", [4])
    g.set_outputs([(x * w).exp(), x.log()])
    prologue, _ = parts(g)
    assert prologue == ""
    agrees(g)


def test_constants_alone_are_not_param_work() -> None:
    g = rlx.Graph("constants")
    x = g.input("x", [3])
    g.set_outputs([x + g.iota([3], 0, "f32").exp()])
    assert parts(g)[0] == ""
    agrees(g)


def test_only_the_steps_of_the_changed_param_follow_it() -> None:
    g = rlx.Graph("follow")
    x = g.input("x", [1, 2])
    a, b, c = (g.param(n, [2, 2]) for n in "abc")
    g.set_outputs([x @ a.exp(), x @ b.cumsum(0), x @ c, x @ (a.exp() @ b.cumsum(0))])
    f = rlx.Session().compile(g)
    follows = [set(params) for _, params in variant(f).prologue]
    assert {0} in follows and {1} in follows and {2} in follows
    assert {0, 1} in follows and {0, 1, 2} not in follows
    for n in "abc":
        f.set_param(n, np.eye(2, dtype=np.float32))
    one = np.ones((1, 2), np.float32)
    before = f.run({"x": one})
    f.set_param("b", np.zeros((2, 2), np.float32))
    after = f.run({"x": one})
    assert before[0].tobytes() == after[0].tobytes() and before[2].tobytes() == after[2].tobytes()
    assert after[1].tolist() == [[0, 0]] and after[3].tolist() == [[0, 0]]


def test_a_broadcast_is_not_stored() -> None:
    g = rlx.Graph("broadcast")
    x, w = g.input("x", [512, 64]), g.param("w", [64])
    g.set_outputs([x + w.exp()])
    f = rlx.Session().compile(g)
    assert variant(f).packed_bytes == 64 * 4
    agrees(g)


def test_a_bias_that_is_computed_is_read_as_a_row() -> None:
    g = rlx.Graph("bias")
    x, w, b = g.input("x", [2, 512, 16]), g.param("w", [16, 48]), g.param("b", [48])
    bias = b.exp().expand((512, 48)).expand((2, 512, 48))
    g.set_outputs([(x @ w + bias).tanh()])
    assert "contraction: matmul+add+tanh" in inspect_pipeline(g).fusion
    assert variant(rlx.Session().compile(g)).packed_bytes < 512 * 48
    agrees(g)


def test_a_broadcast_of_a_broadcast_is_not_stored() -> None:
    g = rlx.Graph("twice")
    x, w = g.input("x", [16, 32, 64]), g.param("w", [64])
    wide = w.exp().expand((32, 64))
    g.set_outputs([x + wide.expand((16, 32, 64)), x[0] * wide])
    assert variant(rlx.Session().compile(g)).packed_bytes == 64 * 4
    agrees(g)


def test_one_packing_serves_all_uses_of_a_weight() -> None:
    g = rlx.Graph("uses")
    x, y, w = g.input("x", [2, 16]), g.input("y", [3, 16]), g.param("w", [16, 48])
    g.set_outputs([x @ w, y @ w, x.exp() @ w])
    once = rlx.Graph("use")
    once.set_outputs([once.input("x", [2, 16]) @ once.param("w", [16, 48])])
    sizes = [variant(rlx.Session().compile(h)).packed_bytes for h in (g, once)]
    assert sizes[0] == sizes[1]
    agrees(g)


@pytest.mark.parametrize("as_output", [True, False])
def test_param_work_that_is_an_output_is_copied_out_each_run(as_output: bool) -> None:
    g = rlx.Graph("out")
    x, w = g.input("x", [4]), g.param("w", [4])
    h = w.exp()
    g.set_outputs([h, x + h, h] if as_output else [x + h])
    f = rlx.Session().compile(g)
    f.set_param("w", np.zeros(4, np.float32))
    for _ in range(2):
        results = f.run({"x": np.zeros(4, np.float32)})
        for a in results:
            assert a.tolist() == [1, 1, 1, 1]
            a[...] = 5  # a result is the caller's
    agrees(g)


def test_a_graph_of_params_alone() -> None:
    g = rlx.Graph("alone")
    w = g.param("w", [3, 4])
    values, places = (w * 2.0).topk(2, axis=1)
    g.set_outputs([values, places, w.transpose((1, 0)) @ w])
    agrees(g)


def test_every_result_of_an_op_on_literals_reaches_the_prologue() -> None:
    """Work on literals alone that param work reads is copied to it, and leaves main if nothing
    there reads it."""
    g = rlx.Graph("literals")
    c = g.constant(np.array([3, 1, 2, 5, 4], np.float32))
    values, places = c.topk(2)
    w, u, x = g.param("w", [5]), g.param("u", [2]), g.input("x", [2])
    g.set_outputs([w.gather(places) + x, u * values + x])
    prologue, main = parts(g)
    assert '"mir.topk"' in prologue and '"mir.topk"' not in main
    agrees(g)
    g.set_outputs([w.gather(places) + x, places, values * x])
    agrees(g)


def looped(reverse: bool = False, rounds: int = 3) -> rlx.Graph:
    """A scan whose body computes on captures: params, inputs, and what is made of both."""
    g = rlx.Graph("looped")
    w, b, y = g.param("w", [16, 8]), g.param("b", [8]), g.input("y", [8, 8])
    x, h = g.input("x", [rounds, 2, 8]), g.input("h", [2, 8])

    def step(h: rlx.Value, e: rlx.Value) -> Any:
        first, second = w.narrow(0, 0, 8), w.narrow(0, 8, 8)
        gate = (h @ first.T + b).sigmoid()
        new = gate * h + (e @ (second + y).tanh()) * (w.sum() * 0.1)
        return new, (new, gate)

    state, ys = rlx.scan(step, h, x, reverse=reverse)
    g.set_outputs([state, *ys])
    return g


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_what_is_invariant_leaves_a_scan(reverse: bool, rounds: int) -> None:
    g = looped(reverse, rounds)
    agrees(g)
    prologue, main = parts(g)
    assert '"mir.transpose"' in prologue and '"mir.tanh"' in main


def test_an_invariant_is_made_of_another_s_broadcast() -> None:
    g = rlx.Graph("of_broadcasts")
    x, m = g.input("x", [2, 40]), g.input("m", [3, 40])
    g.set_outputs([rlx.fori(3, lambda _, v: v * 0.5 + (m - m.mean(axes=0)).exp().sum(0), x)])
    agrees(g)


def test_invariants_of_derivatives_and_of_nested_loops() -> None:
    g = looped()
    agrees(rlx.grad(rlx_sum(g), ["w", "h", "y"]))
    n = rlx.Graph("nested")
    x, y, c = n.input("x", [8, 8]), n.input("y", [8, 8]), n.input("c", [], "i64")

    def outer(i: rlx.Value, v: rlx.Value) -> rlx.Value:
        z = y.T @ y
        inner = lambda _, u: (u @ z.exp().softmax(axis=1) + (v + z).tanh()) * 0.5
        return rlx.fori(i, inner, v)

    n.set_outputs([rlx.fori(c, outer, x)])
    for rounds in (0, 1, 4):
        given = {k: np.full((8, 8), s, np.float32) for k, s in (("x", 0.1), ("y", 0.2))}
        agrees(n, {**given, "c": np.asarray(rounds)})


def rlx_sum(g: rlx.Graph) -> rlx.Graph:
    """The graph with the sum of its outputs as its output."""
    g.set_outputs([sum((v.sum() for v in g.outputs[1:]), g.outputs[0].sum())])
    return g


def test_a_loop_that_runs_no_round_reaches_no_fault_of_its_body() -> None:
    g = rlx.Graph("faults")
    x, i, n = g.input("x", [8, 8]), g.input("i", [8], "i64"), g.input("n", [], "i64")
    g.set_outputs([rlx.fori(n, lambda _, v: v + g.gather(x, i), x)])
    f = rlx.Session("cpu").compile(g)
    feeds: dict[str, Any] = {"x": np.ones((8, 8), np.float32), "i": np.full(8, 99)}
    assert (f.run({**feeds, "n": np.asarray(0)})[0] == 1).all()
    with pytest.raises(rlx.errors.FaultError):
        f.run({**feeds, "n": np.asarray(1)})


SHARED = """
func.func private @body(%i: tensor<i64>, %v: tensor<8x8xf32>, %y: tensor<8x8xf32>)
    -> tensor<8x8xf32> {
  %e = "mir.exp"(%y) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %s = "mir.add"(%v, %e) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %s : tensor<8x8xf32>
}
func.func private @scan(tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32> attributes {
  body = @body, carries = 1 : i64, length = array<i64: 2>, reverse = false,
  rlx.control = "scan", scanned = 0 : i64}
func.func @main(%x: tensor<8x8xf32> {rlx.input = "x"}, %y: tensor<8x8xf32> {rlx.input = "y"})
    -> tensor<8x8xf32> {
  %0 = call @scan(%x, %y) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = call @scan(%0, %x) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %1 : tensor<8x8xf32>
}
"""


def test_a_body_that_two_calls_share_stays_as_it_is() -> None:
    module = rlx.GraphModule.parse(SHARED)
    f = rlx.Session("cpu").compile_module(module)
    x, y = (np.random.default_rng(n).standard_normal((8, 8)).astype(np.float32) for n in (0, 1))
    (found,) = f.run({"x": x, "y": y})
    np.testing.assert_allclose(found, x + 2 * np.exp(x) + 2 * np.exp(y), rtol=1e-5, atol=1e-6)
