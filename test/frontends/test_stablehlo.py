"""Ops of StableHLO, judged by the reference interpreter of the MLIR package."""

from __future__ import annotations

import numpy as np
import pytest

from support.stablehlo import check, drawn, program

FLOATS, INTS = ("f32", "f64", "bf16"), ("i32", "ui8", "i64")

UNARY: dict[str, tuple[tuple[str, ...], float, float]] = {
    **{
        n: (FLOATS, -3, 3)
        for n in (
            "ceil", "cosine", "exponential", "exponential_minus_one", "floor", "logistic",
            "round_nearest_afz", "round_nearest_even", "sine", "tanh", "cbrt",
        )
    },
    **{n: (FLOATS, 0.1, 3) for n in ("log", "log_plus_one", "rsqrt", "sqrt")},
    "tan": (FLOATS, -1, 1),
    "abs": ((*FLOATS, "i32", "i64"), -5, 5),
    "negate": ((*FLOATS, *INTS), -5, 5),
    "sign": ((*FLOATS, "i32"), -5, 5),
    "not": (("i32", "ui8", "i1"), -5, 5),
    "popcnt": (INTS, -9, 9),
    "count_leading_zeros": (INTS, -9, 9),
}  # fmt: skip
BINARY: dict[str, tuple[tuple[str, ...], float, float]] = {
    **{n: ((*FLOATS, *INTS, "i1"), -5, 5) for n in ("add", "multiply", "maximum", "minimum")},
    "subtract": ((*FLOATS, *INTS), -5, 5),
    "divide": ((*FLOATS, "i32", "ui8"), 1, 7),
    "remainder": ((*FLOATS, "i32", "ui8"), 1, 7),
    "power": ((*FLOATS, "i32"), 1, 4),
    "atan2": (FLOATS, -3, 3),
    **{n: (("i32", "ui8", "i1"), -5, 5) for n in ("and", "or", "xor")},
    **{
        n: (("i32", "ui8", "i64"), 0, 40)
        for n in ("shift_left", "shift_right_logical", "shift_right_arithmetic")
    },
}


def elementwise() -> list[tuple[str, str, float, float]]:
    found: list[tuple[str, str, float, float]] = []
    for table, operands in ((UNARY, "%a"), (BINARY, "%a, %b")):
        for op, (types, low, high) in table.items():
            for dt in types:
                t = f"tensor<3x5x{dt}>"
                inputs = " ".join([t] * operands.count("%"))
                text = program(f"%r = stablehlo.{op} {operands} : {t}", inputs, t)
                found.append((f"{op}-{dt}", text, low, high))
    return found


ELEMENTWISE = elementwise()


@pytest.mark.parametrize(
    ("text", "low", "high"), [row[1:] for row in ELEMENTWISE], ids=[row[0] for row in ELEMENTWISE]
)
def test_elementwise(text: str, low: float, high: float) -> None:
    check(text, drawn(text, np.random.default_rng(0), low, high))


def region(op: str, dt: str = "f32") -> str:
    return f"""({{
  ^bb0(%x: tensor<{dt}>, %y: tensor<{dt}>):
    %z = stablehlo.{op} %x, %y : tensor<{dt}>
    stablehlo.return %z : tensor<{dt}>
  }})"""


F = "tensor<3x4xf32>"
OPS: dict[str, tuple[str, str, str]] = {
    "compare": (
        f"%r = stablehlo.compare LT, %a, %b : ({F}, {F}) -> tensor<3x4xi1>", f"{F} {F}",
        "tensor<3x4xi1>",
    ),
    "compare of bools": (
        "%r = stablehlo.compare GT, %a, %b : (tensor<9xi1>, tensor<9xi1>) -> tensor<9xi1>",
        "tensor<9xi1> tensor<9xi1>", "tensor<9xi1>",
    ),
    "is_finite": (f"%r = stablehlo.is_finite %a : ({F}) -> tensor<3x4xi1>", F, "tensor<3x4xi1>"),
    "select": (
        f"%r = stablehlo.select %a, %b, %c : tensor<3x4xi1>, {F}", f"tensor<3x4xi1> {F} {F}", F,
    ),
    "select by one": (
        f"%r = stablehlo.select %a, %b, %c : tensor<i1>, {F}", f"tensor<i1> {F} {F}", F,
    ),
    "clamp": (
        f"%r = stablehlo.clamp %a, %b, %c : (tensor<f32>, {F}, tensor<f32>) -> {F}",
        f"tensor<f32> {F} tensor<f32>", F,
    ),
    "convert": (
        f"%r = stablehlo.convert %a : ({F}) -> tensor<3x4xi32>", F, "tensor<3x4xi32>",
    ),
    "convert to bool": (
        "%r = stablehlo.convert %a : (tensor<9xi32>) -> tensor<9xi1>", "tensor<9xi32>",
        "tensor<9xi1>",
    ),
    "bits of an integer": (
        "%r = stablehlo.bitcast_convert %a : (tensor<9xi32>) -> tensor<9xui32>", "tensor<9xi32>",
        "tensor<9xui32>",
    ),
    "product of bools": (
        "%r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]"
        " : (tensor<3x2xi1>, tensor<2x3xi1>) -> tensor<3x3xi1>", "tensor<3x2xi1> tensor<2x3xi1>",
        "tensor<3x3xi1>",
    ),
    "windows of bools": (
        """%z = stablehlo.constant dense<true> : tensor<i1>
%r = "stablehlo.reduce_window"(%a, %z) ({
  ^bb0(%x: tensor<i1>, %y: tensor<i1>):
    %m = stablehlo.minimum %x, %y : tensor<i1>
    stablehlo.return %m : tensor<i1>
}) {window_dimensions = array<i64: 2, 2>} : (tensor<4x6xi1>, tensor<i1>) -> tensor<3x5xi1>""",
        "tensor<4x6xi1>", "tensor<3x5xi1>",
    ),
    "bits of its own type": (
        "%r = stablehlo.bitcast_convert %a : (tensor<9xi1>) -> tensor<9xi1>", "tensor<9xi1>",
        "tensor<9xi1>",
    ),
    "a window that fits nowhere": (
        "%r = stablehlo.convolution(%a, %b) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0],"
        " window = {rhs_dilate = [4]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}"
        " : (tensor<2x3x5xf32>, tensor<4x3x3xf32>) -> tensor<2x4x0xf32>",
        "tensor<2x3x5xf32> tensor<4x3x3xf32>", "tensor<2x4x0xf32>",
    ),
    "reduce_precision": (
        f"%r = stablehlo.reduce_precision %a, format = e5m10 : {F}", F, F,
    ),
    "iota": ("%r = stablehlo.iota dim = 1 : tensor<3x4xf32>", "", F),
    "constant": ("%r = stablehlo.constant dense<[[1, 2], [3, 4]]> : tensor<2x2xi16>", "",
                 "tensor<2x2xi16>"),
    "constant of bools": ("%r = stablehlo.constant dense<[true, false, true]> : tensor<3xi1>", "",
                          "tensor<3xi1>"),
    "splat": ("%r = stablehlo.constant dense<1.5> : tensor<2x3xbf16>", "", "tensor<2x3xbf16>"),
    **{
        f"complex {name}": (
            "%c = stablehlo.complex %a, %b : tensor<9xcomplex<f32>>\n"
            "%k = stablehlo.constant dense<(1.0, -2.0)> : tensor<9xcomplex<f32>>\n"
            f"%d = stablehlo.{name} {operands} : tensor<9xcomplex<f32>>\n"
            "%r0 = stablehlo.real %d : (tensor<9xcomplex<f32>>) -> tensor<9xf32>\n"
            "%r1 = stablehlo.imag %d : (tensor<9xcomplex<f32>>) -> tensor<9xf32>",
            "tensor<9xf32> tensor<9xf32>", "tensor<9xf32> tensor<9xf32>",
        )
        for name, operands in {
            "negate": "%c", "exponential": "%c", "add": "%c, %k", "multiply": "%c, %k",
            "divide": "%c, %k", "power": "%c, %k", "log": "%c",
        }.items()
    },
    "reshape": (f"%r = stablehlo.reshape %a : ({F}) -> tensor<2x6xf32>", F, "tensor<2x6xf32>"),
    "transpose": (
        "%r = stablehlo.transpose %a, dims = [2, 0, 1] : (tensor<2x3x4xf32>) -> tensor<4x2x3xf32>",
        "tensor<2x3x4xf32>", "tensor<4x2x3xf32>",
    ),
    "broadcast_in_dim": (
        "%r = stablehlo.broadcast_in_dim %a, dims = [2, 0]"
        " : (tensor<3x1xf32>) -> tensor<5x2x3xf32>",
        "tensor<3x1xf32>", "tensor<5x2x3xf32>",
    ),
    "concatenate": (
        "%r = stablehlo.concatenate %a, %b, dim = 1 : (tensor<3x4xf32>, tensor<3x2xf32>)"
        " -> tensor<3x6xf32>", "tensor<3x4xf32> tensor<3x2xf32>", "tensor<3x6xf32>",
    ),
    "reverse": (f"%r = stablehlo.reverse %a, dims = [0, 1] : {F}", F, F),
    "slice": (
        f"%r = stablehlo.slice %a [1:3, 0:4:2] : ({F}) -> tensor<2x2xf32>", F, "tensor<2x2xf32>",
    ),
    "pad": (
        "%r = stablehlo.pad %a, %b, low = [1, -1], high = [-2, 2], interior = [1, 2]"
        f" : ({F}, tensor<f32>) -> tensor<4x11xf32>", f"{F} tensor<f32>", "tensor<4x11xf32>",
    ),
    "dynamic_slice": (
        "%r = stablehlo.dynamic_slice %a, %b, %c, sizes = [2, 3]"
        f" : ({F}, tensor<i32>, tensor<i32>) -> tensor<2x3xf32>",
        f"{F} tensor<i32> tensor<i32>", "tensor<2x3xf32>",
    ),
    "dynamic_update_slice": (
        f"%r = stablehlo.dynamic_update_slice %a, %b, %c, %d : ({F}, tensor<2x3xf32>, tensor<ui8>,"
        f" tensor<ui8>) -> {F}", f"{F} tensor<2x3xf32> tensor<ui8> tensor<ui8>", F,
    ),
    "dot_general": (
        "%r = stablehlo.dot_general %a, %b, batching_dims = [0] x [1], contracting_dims = [2] x [0]"
        " : (tensor<2x3x4xf32>, tensor<4x2x5xf32>) -> tensor<2x3x5xf32>",
        "tensor<2x3x4xf32> tensor<4x2x5xf32>", "tensor<2x3x5xf32>",
    ),
    "dot_general of integers": (
        "%r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]"
        " : (tensor<2x3xi8>, tensor<3x4xi8>) -> tensor<2x4xi32>",
        "tensor<2x3xi8> tensor<3x4xi8>", "tensor<2x4xi32>",
    ),
    "convolution": (
        "%r = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],"
        " window = {stride = [2, 1], pad = [[1, 0], [0, 2]], rhs_dilate = [1, 2]}"
        " {batch_group_count = 1 : i64, feature_group_count = 2 : i64}"
        " : (tensor<2x7x6x4xf32>, tensor<3x2x2x6xf32>) -> tensor<2x3x6x6xf32>",
        "tensor<2x7x6x4xf32> tensor<3x2x2x6xf32>", "tensor<2x3x6x6xf32>",
    ),
    "convolution of spread images": (
        "%r = stablehlo.convolution(%a, %b) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0],"
        " window = {pad = [[-1, 2]], lhs_dilate = [2], reverse = [true]}"
        " {batch_group_count = 1 : i64, feature_group_count = 1 : i64}"
        " : (tensor<2x3x5xf32>, tensor<4x3x3xf32>) -> tensor<2x4x8xf32>",
        "tensor<2x3x5xf32> tensor<4x3x3xf32>", "tensor<2x4x8xf32>",
    ),
    "convolution of groups of images": (
        "%r = stablehlo.convolution(%a, %b) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0],"
        " window = {} {batch_group_count = 2 : i64, feature_group_count = 1 : i64}"
        " : (tensor<4x3x5xf32>, tensor<6x3x2xf32>) -> tensor<2x6x4xf32>",
        "tensor<4x3x5xf32> tensor<6x3x2xf32>", "tensor<2x6x4xf32>",
    ),
    "gather rows": (
        '%r = "stablehlo.gather"(%a, %b) <{dimension_numbers = #stablehlo.gather<'
        "offset_dims = [2], collapsed_slice_dims = [0], start_index_map = [0],"
        " index_vector_dim = 2>, slice_sizes = array<i64: 1, 4>}>"
        " : (tensor<3x4xf32>, tensor<2x5x1xi32>) -> tensor<2x5x4xf32>",
        "tensor<3x4xf32> tensor<2x5x1xi32>", "tensor<2x5x4xf32>",
    ),
    "gather columns": (
        '%r = "stablehlo.gather"(%a, %b) <{dimension_numbers = #stablehlo.gather<'
        "offset_dims = [0], collapsed_slice_dims = [1], start_index_map = [1],"
        " index_vector_dim = 1>, slice_sizes = array<i64: 3, 1>}>"
        " : (tensor<3x4xf32>, tensor<5xi32>) -> tensor<3x5xf32>",
        "tensor<3x4xf32> tensor<5xi32>", "tensor<3x5xf32>",
    ),
    "gather windows": (
        '%r = "stablehlo.gather"(%a, %b) <{dimension_numbers = #stablehlo.gather<'
        "offset_dims = [1, 2], start_index_map = [1, 0],"
        " index_vector_dim = 1>, slice_sizes = array<i64: 2, 3>}>"
        " : (tensor<3x4xf32>, tensor<5x2xi32>) -> tensor<5x2x3xf32>",
        "tensor<3x4xf32> tensor<5x2xi32>", "tensor<5x2x3xf32>",
    ),
    "gather in batches": (
        '%r = "stablehlo.gather"(%a, %b) <{dimension_numbers = #stablehlo.gather<'
        "offset_dims = [2], collapsed_slice_dims = [1], operand_batching_dims = [0],"
        " start_indices_batching_dims = [1], start_index_map = [1], index_vector_dim = 2>,"
        " slice_sizes = array<i64: 1, 1, 2>}>"
        " : (tensor<3x4x2xf32>, tensor<5x3x1xi64>) -> tensor<5x3x2xf32>",
        "tensor<3x4x2xf32> tensor<5x3x1xi64>", "tensor<5x3x2xf32>",
    ),
    "scatter": (
        '%r = "stablehlo.scatter"(%a, %b, %c) <{scatter_dimension_numbers = #stablehlo.scatter<'
        "update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],"
        f" index_vector_dim = 1>}}> {region('add')}"
        " : (tensor<3x4xf32>, tensor<5x1xi32>, tensor<5x4xf32>) -> tensor<3x4xf32>",
        "tensor<3x4xf32> tensor<5x1xi32> tensor<5x4xf32>", "tensor<3x4xf32>",
    ),
    "scatter windows": (
        '%r = "stablehlo.scatter"(%a, %b, %c) <{scatter_dimension_numbers = #stablehlo.scatter<'
        "update_window_dims = [1, 2], scatter_dims_to_operand_dims = [0, 1],"
        f" index_vector_dim = 1>}}> {region('maximum')}"
        " : (tensor<3x4xf32>, tensor<5x2xi32>, tensor<5x2x3xf32>) -> tensor<3x4xf32>",
        "tensor<3x4xf32> tensor<5x2xi32> tensor<5x2x3xf32>", "tensor<3x4xf32>",
    ),
    "reduce": (
        "%i = stablehlo.constant dense<2.0> : tensor<f32>\n"
        "%r = stablehlo.reduce(%a init: %i) applies stablehlo.add across dimensions = [1]"
        f" : ({F}, tensor<f32>) -> tensor<3xf32>", F, "tensor<3xf32>",
    ),
    "reduce of nothing": (
        "%i = stablehlo.constant dense<2.0> : tensor<f32>\n"
        "%r = stablehlo.reduce(%a init: %i) applies stablehlo.maximum across dimensions = [1]"
        " : (tensor<3x0xf32>, tensor<f32>) -> tensor<3xf32>", "tensor<3x0xf32>", "tensor<3xf32>",
    ),
    "reduce of bools": (
        "%i = stablehlo.constant dense<false> : tensor<i1>\n"
        "%r = stablehlo.reduce(%a init: %i) applies stablehlo.or across dimensions = [0]"
        " : (tensor<3x4xi1>, tensor<i1>) -> tensor<4xi1>", "tensor<3x4xi1>", "tensor<4xi1>",
    ),
    "reduce by xor": (
        "%i = stablehlo.constant dense<5> : tensor<i32>\n"
        "%r = stablehlo.reduce(%a init: %i) applies stablehlo.xor across dimensions = [0, 1]"
        " : (tensor<3x5xi32>, tensor<i32>) -> tensor<i32>", "tensor<3x5xi32>", "tensor<i32>",
    ),
    "reduce of pairs": (
        "%i = stablehlo.constant dense<-9.0> : tensor<f32>\n"
        "%j = stablehlo.constant dense<0> : tensor<i32>\n"
        '%r0, %r1 = "stablehlo.reduce"(%a, %b, %i, %j) <{dimensions = array<i64: 1>}> ({\n'
        "^bb0(%v: tensor<f32>, %k: tensor<i32>, %w: tensor<f32>, %l: tensor<i32>):\n"
        "  %g = stablehlo.compare GE, %v, %w : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
        "  %x = stablehlo.select %g, %v, %w : tensor<i1>, tensor<f32>\n"
        "  %y = stablehlo.select %g, %k, %l : tensor<i1>, tensor<i32>\n"
        "  stablehlo.return %x, %y : tensor<f32>, tensor<i32>\n"
        f"}}) : ({F}, tensor<3x4xi32>, tensor<f32>, tensor<i32>) -> (tensor<3xf32>, tensor<3xi32>)",
        f"{F} tensor<3x4xi32>", "tensor<3xf32> tensor<3xi32>",
    ),
    "reduce_window": (
        "%i = stablehlo.constant dense<0.5> : tensor<f32>\n"
        '%r = "stablehlo.reduce_window"(%a, %i) <{window_dimensions = array<i64: 2, 3>,'
        " window_strides = array<i64: 1, 2>, base_dilations = array<i64: 2, 1>,"
        " window_dilations = array<i64: 2, 1>, padding = dense<[[1, 1], [0, 1]]>"
        f" : tensor<2x2xi64>}}> {region('add')} : ({F}, tensor<f32>) -> tensor<5x2xf32>",
        F, "tensor<5x2xf32>",
    ),
    "running sum": (
        "%i = stablehlo.constant dense<0.0> : tensor<f32>\n"
        '%r = "stablehlo.reduce_window"(%a, %i) <{window_dimensions = array<i64: 1, 4>,'
        f" padding = dense<[[0, 0], [3, 0]]> : tensor<2x2xi64>}}> {region('add')}"
        f" : ({F}, tensor<f32>) -> {F}", F, F,
    ),
    "running maximum from the end": (
        "%i = stablehlo.constant dense<0xFF800000> : tensor<f32>\n"
        '%r = "stablehlo.reduce_window"(%a, %i) <{window_dimensions = array<i64: 3, 1>,'
        f" padding = dense<[[0, 2], [0, 0]]> : tensor<2x2xi64>}}> {region('maximum')}"
        f" : ({F}, tensor<f32>) -> {F}", F, F,
    ),
    "map": (
        '%r = "stablehlo.map"(%a, %b) <{dimensions = array<i64: 0, 1>}> '
        f"{region('multiply')} : ({F}, {F}) -> {F}", f"{F} {F}", F,
    ),
    "select_and_scatter": (
        "%i = stablehlo.constant dense<0.0> : tensor<f32>\n"
        '%r = "stablehlo.select_and_scatter"(%a, %b, %i) <{window_dimensions = array<i64: 2, 2>,'
        " window_strides = array<i64: 1, 2>, padding = dense<[[1, 0], [0, 0]]> : tensor<2x2xi64>}>"
        " ({\n^bb0(%x: tensor<f32>, %y: tensor<f32>):\n"
        "  %g = stablehlo.compare GE, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
        f"  stablehlo.return %g : tensor<i1>\n}}, {region('add')[1:]}"
        f" : ({F}, tensor<3x2xf32>, tensor<f32>) -> {F}", f"{F} tensor<3x2xf32>", F,
    ),
    "sort": (
        '%r = "stablehlo.sort"(%a) <{dimension = 1 : i64, is_stable = true}> ({\n'
        "^bb0(%x: tensor<f32>, %y: tensor<f32>):\n"
        "  %g = stablehlo.compare GT, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
        f"  stablehlo.return %g : tensor<i1>\n}}) : ({F}) -> {F}", F, F,
    ),
    "sort by two keys": (
        '%r0, %r1, %r2 = "stablehlo.sort"(%a, %b, %c) <{dimension = 0 : i64, is_stable = true}> ({\n'
        "^bb0(%x: tensor<i32>, %y: tensor<i32>, %u: tensor<ui8>, %v: tensor<ui8>, %p: tensor<f32>,"
        " %q: tensor<f32>):\n"
        "  %e = stablehlo.compare EQ, %u, %v : (tensor<ui8>, tensor<ui8>) -> tensor<i1>\n"
        "  %l = stablehlo.compare LT, %x, %y : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
        "  %h = stablehlo.compare GT, %u, %v : (tensor<ui8>, tensor<ui8>) -> tensor<i1>\n"
        "  %g = stablehlo.select %e, %l, %h : tensor<i1>, tensor<i1>\n"
        "  stablehlo.return %g : tensor<i1>\n})"
        " : (tensor<20xi32>, tensor<20xui8>, tensor<20xf32>)"
        " -> (tensor<20xi32>, tensor<20xui8>, tensor<20xf32>)",
        "tensor<20xi32> tensor<20xui8> tensor<20xf32>",
        "tensor<20xi32> tensor<20xui8> tensor<20xf32>",
    ),
    "optimization_barrier": (
        f"%r0, %r1 = stablehlo.optimization_barrier %a, %b : {F}, {F}", f"{F} {F}", f"{F} {F}",
    ),
    "if": (
        '%r = "stablehlo.if"(%a) ({\n'
        f"  stablehlo.return %b : {F}\n}}, {{\n  stablehlo.return %c : {F}\n}})"
        f" : (tensor<i1>) -> {F}", f"tensor<i1> {F} {F}", F,
    ),
    "case": (
        '%r = "stablehlo.case"(%a) ({\n'
        f"  stablehlo.return %b : {F}\n}}, {{\n  stablehlo.return %c : {F}\n}}, {{\n"
        f"  %n = stablehlo.negate %b : {F}\n  stablehlo.return %n : {F}\n}})"
        f" : (tensor<i32>) -> {F}", f"tensor<i32> {F} {F}", F,
    ),
    "while": (
        "%z = stablehlo.constant dense<10.0> : tensor<f32>\n"
        "%r = stablehlo.while(%x = %a) : tensor<f32>\n cond {\n"
        "  %g = stablehlo.compare LT, %x, %z : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
        "  stablehlo.return %g : tensor<i1>\n } do {\n"
        "  %y = stablehlo.add %x, %z : tensor<f32>\n  stablehlo.return %y : tensor<f32>\n }",
        "tensor<f32>", "tensor<f32>",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OPS)
def test_an_op(name: str) -> None:
    text = program(*OPS[name])
    for seed in range(4):
        check(text, drawn(text, np.random.default_rng(seed)))


def test_compiled() -> None:
    for name in ("dot_general", "gather rows", "scatter", "reduce of pairs", "sort by two keys"):
        text = program(*OPS[name])
        check(text, drawn(text, np.random.default_rng(0)), "cpu")
