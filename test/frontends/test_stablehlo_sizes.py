"""Programs of StableHLO for any sizes: dims that the module leaves open are dims of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import UnsupportedError
from support.stablehlo import check, program

FIXTURES = Path(__file__).parent / "fixtures" / "stablehlo"


def of_any_sizes(w: Any, x: Any) -> dict[str, Any]:
    """The function of the fixture ``sizes.mlirbc`` in NumPy (tools/make_stablehlo_fixtures.py)."""
    h, time = np.tanh(x @ w), x.shape[1]
    return {
        "mean": h.mean(1), "flat": h.reshape(-1, 8), "last": x[:, -1], "every": x[:, ::2],
        "half": x[:, : time // 2], "cut": x[:, 1:], "padded": np.pad(x, ((0, 0), (1, 2), (0, 0))),
        "places": np.arange(time) * 2, "sums": np.cumsum(x, 1), "twice": np.concatenate([x, x], 1),
        "seen": np.tril(np.ones((time, time))), "size": x.sum() / x.shape[0],
    }  # fmt: skip


def test_what_jax_exports_with_symbolic_shapes() -> None:
    g = rlx.from_stablehlo(FIXTURES / "sizes.mlirbc")
    assert [(v.name, str(v.type)) for v in g.inputs] == [
        ("w", "4x8xf32"), ("x", "batch[1..]xtime[1..]x4xf32"),
    ]  # fmt: skip
    shapes = {name: str(v.type) for name, v in zip(g.output_names or (), g.outputs, strict=True)}
    assert shapes["every"] == "batch[1..]x(time[1..]+1)//2x4xf32"
    f = rlx.Session("cpu").compile(g)
    rng = np.random.default_rng(0)
    w = rng.standard_normal((4, 8)).astype(np.float32)
    for batch, time in ((2, 3), (1, 6)):
        x = rng.standard_normal((batch, time, 4)).astype(np.float32)
        found: Any = f.run({"w": w, "x": x})
        for name, wanted in of_any_sizes(w, x).items():
            np.testing.assert_allclose(found[name], wanted, rtol=2e-5, atol=1e-5, err_msg=name)


D = "tensor<?x4xf32>"
ASKED = f"""%one = stablehlo.constant dense<1> : tensor<i32>
%two = stablehlo.constant dense<2> : tensor<i32>
%s = stablehlo.get_dimension_size %a, dim = 0 : ({D}) -> tensor<i32>
"""
N = "tensor<i32>"
# The size less 1 may be 0, and less 2 it may be below, so that these are computed in a run.
COMPUTED = {
    "sign": f"%l = stablehlo.subtract %s, %one : {N}\n%r = stablehlo.sign %l : {N}",
    "less": f"%p = stablehlo.compare LT, %s, %two : ({N}, {N}) -> tensor<i1>\n"
            f"%r = stablehlo.select %p, %one, %two : tensor<i1>, {N}",
    "divide": f"%l = stablehlo.subtract %s, %two : {N}\n%r = stablehlo.divide %l, %two : {N}",
    "differ": f"%l = stablehlo.subtract %s, %two : {N}\n"
              f"%p = stablehlo.compare NE, %l, %one : ({N}, {N}) -> tensor<i1>\n"
              f"%r = stablehlo.select %p, %one, %two : tensor<i1>, {N}",
    "flags": f"%p = stablehlo.compare NE, %s, %one : ({N}, {N}) -> tensor<i1>\n"
             f"%q = stablehlo.compare EQ, %s, %one : ({N}, {N}) -> tensor<i1>\n"
             "%o = stablehlo.or %p, %q : tensor<i1>\n%n = stablehlo.and %p, %o : tensor<i1>\n"
             f"%r = stablehlo.select %n, %s, %two : tensor<i1>, {N}",
    "quotient": f"%q = stablehlo.divide %s, %two : {N}\n%m = stablehlo.remainder %s, %two : {N}\n"
                f"%r = stablehlo.add %q, %m : {N}",
}  # fmt: skip


@pytest.mark.parametrize("body", COMPUTED.values(), ids=COMPUTED)
@pytest.mark.parametrize("size", [1, 4])
def test_sizes_as_data(body: str, size: int) -> None:
    text = program(ASKED + body, D, N)
    check(text, [np.zeros((size, 4), np.float32)])


def test_a_table_of_sizes_is_data_too() -> None:
    body = """%t = stablehlo.constant dense<[[1, 2, 3], [4, 5, 6]]> : tensor<2x3xi32>
%u = stablehlo.slice %t [0:2, 1:3] : (tensor<2x3xi32>) -> tensor<2x2xi32>
%r = stablehlo.broadcast_in_dim %u, dims = [1, 0] : (tensor<2x2xi32>) -> tensor<2x2xi32>
"""
    check(program(body, D, "tensor<2x2xi32>"), [np.zeros((3, 4), np.float32)])


def test_dims_that_must_be_equal_are_one() -> None:
    text = """func.func @main(%a: tensor<?xf32>, %b: tensor<?xf32>) -> tensor<?xf32> {
  %m = stablehlo.get_dimension_size %a, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %n = stablehlo.get_dimension_size %b, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %p = stablehlo.compare EQ, %n, %m : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.custom_call @shape_assertion(%p) {has_side_effect = true} : (tensor<i1>) -> ()
  %r = stablehlo.add %a, %b : tensor<?xf32>
  return %r : tensor<?xf32>
}"""
    assert [str(v.type) for v in rlx.from_stablehlo(text).inputs] == ["x0_0xf32", "x0_0xf32"]


def test_a_reduction_of_nothing_keeps_the_other_dims() -> None:
    text = program(
        "%z = stablehlo.constant dense<0.0> : tensor<f32>\n%r = stablehlo.reduce(%a init: %z)"
        " applies stablehlo.add across dimensions = [1] : (tensor<?x0xf32>, tensor<f32>)"
        " -> tensor<?xf32>", "tensor<?x0xf32>", "tensor<?xf32>",
    )  # fmt: skip
    assert rlx.from_stablehlo(text).outputs[0].shape == rlx.from_stablehlo(text).inputs[0].shape[:1]


J = "tensor<1xi32>"
LINE = f"""%s = stablehlo.get_dimension_size %a, dim = 0 : (tensor<?xf32>) -> {N}
%n = stablehlo.reshape %s : ({N}) -> {J}
%0 = stablehlo.constant dense<0> : {J}
%1 = stablehlo.constant dense<1> : {J}
%z = stablehlo.constant dense<0.0> : tensor<f32>
"""
REFUSED = {
    "sizes from data": (
        f"%r = stablehlo.dynamic_iota %b, dim = 0 : ({J}) -> tensor<?xf32>",
        "dynamic_iota: its sizes are computed from data",
    ),
    "strides": (
        f"%r = stablehlo.real_dynamic_slice %a, %0, %n, %n : (tensor<?xf32>, {J}, {J}, {J})"
        " -> tensor<?xf32>", "its strides are sizes",
    ),
    "interior": (
        f"%r = stablehlo.dynamic_pad %a, %z, %n, %n, %1 : (tensor<?xf32>, tensor<f32>, {J}, {J},"
        f" {J}) -> tensor<?xf32>", "its interior padding is no number",
    ),
    "windows": (
        f"""%k = stablehlo.concatenate %n, %n, dim = 0 : ({J}, {J}) -> tensor<2xi32>
%p = stablehlo.reshape %k : (tensor<2xi32>) -> tensor<1x2xi32>
%r = stablehlo.custom_call @stablehlo.dynamic_reduce_window(%a, %z, %n, %1, %1, %1, %p)
 {{called_computations = [@sum]}} : (tensor<?xf32>, tensor<f32>, {J}, {J}, {J}, {J},
 tensor<1x2xi32>) -> tensor<?xf32>""", "windows of any size are read where",
    ),
    "a region": (
        """%q = "stablehlo.reduce"(%a, %z) ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %u = stablehlo.add %x, %y : tensor<f32>
    %v = stablehlo.tanh %u : tensor<f32>
    stablehlo.return %v : tensor<f32>
}) {dimensions = array<i64: 0>} : (tensor<?xf32>, tensor<f32>) -> tensor<f32>
%r = stablehlo.add %a, %a : tensor<?xf32>""", "by a region of several ops along x0_0 elements",
    ),
}  # fmt: skip
SUM = """func.func private @sum(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {
  %s = stablehlo.add %x, %y : tensor<f32>
  return %s : tensor<f32>
}
}"""


@pytest.mark.parametrize(("body", "words"), REFUSED.values(), ids=REFUSED)
def test_refusals(body: str, words: str) -> None:
    text = program(LINE + body, f"tensor<?xf32> {J}", "tensor<?xf32>")
    with pytest.raises(UnsupportedError, match=words):
        rlx.from_stablehlo(text.rstrip().removesuffix("}") + SUM)


def test_padding_by_sizes() -> None:
    body = f"""%p = stablehlo.dynamic_pad %a, %z, %n, %m, %0
 : (tensor<?xf32>, tensor<f32>, {J}, {J}, {J}) -> tensor<?xf32>
%r = stablehlo.add %p, %p : tensor<?xf32>"""
    body = f"%m = stablehlo.constant dense<-1> : {J}\n{body}"
    check(program(LINE + body, "tensor<?xf32>", "tensor<?xf32>"), [np.array([1, 2, 3], np.float32)])
