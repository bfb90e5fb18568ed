"""Bad text: IR that does not parse, does not verify, or is not fit for a pass or a stage."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from rlx.errors import DeviceError, IRError, PassError, RlxError, UnsupportedError
from support.text import transformed

T = "tensor<2x3xf32>"


class Text(NamedTuple):
    """Text, what is done to it, and the error that this must give: its class, the line that it
    names (0 for none), and a pattern of its message."""

    error: type[RlxError]
    line: int
    match: str
    text: str
    to: str = ""


def main(body: str, argument: str = f'%x: {T} {{rlx.input = "x"}}', results: str = T) -> str:
    """@main with a body from line 2 on."""
    returned = f"  return %y : {results}" if results else "  return"
    to = f" -> {results}" if results else ""
    return f"func.func @main({argument}){to} {{\n  {body}\n{returned}\n}}"


def mir(op: str, types: str = f"({T}) -> {T}", operands: str = "%x", attrs: str = "") -> str:
    """@main with one op of mir in line 2."""
    return main(f'%y = "mir.{op}"({operands}) {attrs} : {types}')


EXP = mir("exp")

PARSED = [
    Text(IRError, 1, "custom op 'nonsense' is unknown", "nonsense"),
    Text(IRError, 1, "expected", "func.func @main("),
    Text(IRError, 1, "expected", "module {"),
    Text(IRError, 1, "expected", "}"),
    Text(IRError, 1, "the text nests deeper than 256", "[" * 300),
    Text(
        IRError,
        2,
        "%3#2147483648: an op has at most 1000 results",
        EXP.replace("(%x)", "(%3#2147483648)"),
    ),
    Text(
        IRError,
        2,
        "%y:99999999999999: an op has at most 1000 results",
        EXP.replace("%y =", "%y:99999999999999 ="),
    ),
    Text(IRError, 4, "the text nests deeper than 256", "\n\n\n" + "(" * 300),
    Text(IRError, 2, "unregistered operation 'mir.expp'|mir.expp", mir("expp")),
    Text(IRError, 2, "unregistered|hir.exp", EXP.replace("mir.exp", "hir.exp")),
    Text(IRError, 2, "unregistered|nir.exp", EXP.replace("mir.exp", "nir.exp")),
    Text(IRError, 2, "undeclared|undefined", EXP.replace("(%x)", "(%z)")),
    Text(
        IRError,
        3,
        "redefinition",
        EXP.replace(
            "\n  return", '\n  %y = "mir.exp"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>\n  return'
        ),
    ),
    Text(IRError, 2, "expects different type", mir("exp", f"(tensor<3xf32>) -> {T}")),
    Text(IRError, 2, "expected", mir("exp", f"({T} -> {T}")),
    Text(IRError, 2, "invalid|expected", mir("exp", "(tensor<2xx3f32>) -> tensor<2x3xf32>")),
    Text(
        IRError,
        2,
        "result is tensor<3x2xf32>, expected tensor<2x3xf32>",
        main(f'%y = "mir.exp"(%x) : ({T}) -> tensor<3x2xf32>', results="tensor<3x2xf32>"),
    ),
    Text(
        IRError,
        2,
        "result is tensor<2x3xf64>, expected tensor<2x3xf32>",
        main(f'%y = "mir.exp"(%x) : ({T}) -> tensor<2x3xf64>', results="tensor<2x3xf64>"),
    ),
    Text(IRError, 2, "operand|operands", mir("exp", f"() -> {T}", "")),
    Text(IRError, 2, "operand", mir("exp", f"({T}, {T}) -> {T}", "%x, %x")),
    Text(IRError, 2, "result", main(f'%y, %z = "mir.exp"(%x) : ({T}) -> ({T}, {T})')),
    Text(IRError, 2, "inner dims 3 and 2", mir("matmul", f"({T}, {T}) -> {T}", "%x, %x")),
    Text(IRError, 2, "axes", mir("reduce_sum", attrs="{keepdims = false}")),
    Text(
        IRError,
        2,
        "axes|axis 5",
        main(
            f'%y = "mir.reduce_sum"(%x) {{axes = array<i64: 5>, keepdims = false}} : ({T}) -> tensor<2xf32>',
            results="tensor<2xf32>",
        ),
    ),
    Text(IRError, 2, "axes", mir("reduce_sum", attrs="{axes = 1 : i64, keepdims = false}")),
    Text(
        IRError, 2, "keepdims", mir("reduce_sum", attrs='{axes = array<i64: 1>, keepdims = "no"}')
    ),
    Text(IRError, 2, "axis", mir("softmax", attrs="{axis = 7 : i64}")),
    Text(IRError, 2, "axis", mir("softmax")),
    Text(IRError, 2, "axis", mir("softmax", attrs='{axis = "last"}')),
    Text(IRError, 2, "axis", mir("softmax", attrs="{axis = 1.5 : f32}")),
    Text(IRError, 2, "perm", mir("transpose", attrs="{perm = array<i64: 0, 0>}")),
    Text(IRError, 2, "perm", mir("transpose", attrs="{perm = array<i64: 0, 9>}")),
    Text(IRError, 2, "shape", mir("reshape", attrs="{shape = array<i64: 7>}")),
    Text(IRError, 2, "shape", mir("reshape", attrs="{shape = array<i64: -6>}")),
    Text(IRError, 2, "shape", mir("reshape", attrs='{shape = ["a b"]}')),
    Text(IRError, 2, "shape", mir("reshape", attrs="{shape = [1.5]}")),
    Text(IRError, 2, "to", mir("cast", attrs="{to = i7}")),
    Text(IRError, 2, "to", mir("cast", attrs="{to = 3 : i64}")),
    Text(IRError, 2, "to", mir("cast", attrs="{to = complex<f16>}")),
    Text(IRError, 2, "value", main(f'%y = "mir.constant"() : () -> {T}')),
    Text(IRError, 2, "value", main(f'%y = "mir.constant"() {{value = 3 : i64}} : () -> {T}')),
    Text(IRError, 2, "value", main(f'%y = "mir.constant"() {{value = "text"}} : () -> {T}')),
    Text(
        IRError,
        2,
        "complex",
        main(
            '%y = "mir.constant"() {value = dense<(1.0, 0.0)> : tensor<2xcomplex<f32>>} : () -> tensor<2xf32>',
            results="tensor<2xf32>",
        ),
    ),
    Text(
        IRError,
        2,
        "i7",
        main(
            '%y = "mir.constant"() {value = dense<1> : tensor<2xi7>} : () -> tensor<2xi7>',
            results="tensor<2xi7>",
        ),
    ),
    Text(
        IRError,
        2,
        "sparse|value|resource",
        main(
            '%y = "mir.constant"() {value = sparse<0, 1.0> : tensor<2xf32>} : () -> tensor<2xf32>',
            results="tensor<2xf32>",
        ),
    ),
    Text(
        IRError,
        2,
        "value|resource",
        main(
            '%y = "mir.constant"() {value = dense_resource<blob> : tensor<2xf32>} : () -> tensor<2xf32>',
            results="tensor<2xf32>",
        ),
    ),
    Text(
        IRError,
        2,
        "2\\*\\*56 bytes",
        main(
            '%y = "mir.iota"() {shape = array<i64: 4611686018427387904>, axis = 0 : i64, dtype = i64} : () -> tensor<4611686018427387904xi64>',
            results="tensor<4611686018427387904xi64>",
        ),
    ),
    Text(
        IRError,
        2,
        "element type i7 is none of",
        main(
            '%y = "mir.neg"(%x) : (tensor<2xi7>) -> tensor<2xi7>',
            '%x: tensor<2xi7> {rlx.input = "x"}',
            "tensor<2xi7>",
        ),
    ),
    Text(
        IRError,
        2,
        "dynamic dim without a name",
        main(
            '%y = "mir.exp"(%x) : (tensor<?xf32>) -> tensor<?xf32>',
            '%x: tensor<?xf32> {rlx.input = "x"}',
            "tensor<?xf32>",
        ),
    ),
    Text(
        IRError,
        2,
        "ranked|known rank|tensor",
        main(
            '%y = "mir.exp"(%x) : (tensor<*xf32>) -> tensor<*xf32>',
            '%x: tensor<*xf32> {rlx.input = "x"}',
            "tensor<*xf32>",
        ),
    ),
    Text(
        IRError,
        2,
        "tensor",
        main('%y = "mir.exp"(%x) : (f32) -> f32', '%x: f32 {rlx.input = "x"}', "f32"),
    ),
    Text(
        IRError,
        2,
        "'a b' is no dim",
        main(
            '%y = "mir.exp"(%x) : (tensor<?xf32, ["a b"]>) -> tensor<?xf32, ["a b"]>',
            '%x: tensor<?xf32, ["a b"]> {rlx.input = "x"}',
            'tensor<?xf32, ["a b"]>',
        ),
    ),
    Text(
        IRError,
        2,
        "dynamic dim without a name",
        main(
            '%y = "mir.exp"(%x) : (tensor<?xf32, [1]>) -> tensor<?xf32, [1]>',
            '%x: tensor<?xf32, [1]> {rlx.input = "x"}',
            "tensor<?xf32, [1]>",
        ),
    ),
    Text(
        IRError,
        2,
        "dynamic dim without a name",
        main(
            '%y = "mir.exp"(%x) : (tensor<?xf32, "n">) -> tensor<?xf32, "n">',
            '%x: tensor<?xf32, "n"> {rlx.input = "x"}',
            'tensor<?xf32, "n">',
        ),
    ),
    Text(
        IRError,
        2,
        "must end in mir.yield",
        main(f'%y = "mir.fused"() ({{}}) {{kind = "k"}} : () -> {T}'),
    ),
    Text(
        IRError,
        2,
        "must yield its result",
        main(
            f'%y = "mir.fused"() ({{\n    %a = "mir.reduce_sum"(%x) {{axes = array<i64: 1>, keepdims = false}} : ({T}) -> tensor<2xf32>\n    "mir.yield"(%a) : (tensor<2xf32>) -> ()\n  }}) {{kind = "k"}} : () -> {T}'
        ),
    ),
    Text(IRError, 2, "region|body", main(f'%y = "mir.fused"() {{kind = "k"}} : () -> {T}')),
    Text(
        IRError,
        2,
        "kind",
        main(f'%y = "mir.fused"() ({{\n    "mir.yield"(%x) : ({T}) -> ()\n  }}) : () -> {T}'),
    ),
    Text(
        IRError,
        3,
        "has 0 operands, but enclosing function",
        main(f'%y = "mir.exp"(%x) : ({T}) -> {T}').replace(f"return %y : {T}", "return"),
    ),
]

PASSED = [
    Text(PassError, 0, "no pass is called 'fuze'; did you mean 'fuse'", EXP, "--fuze"),
    Text(
        PassError, 0, "no such pass pipeline|no-such|canonicalize", EXP, "--canonicalize{no-such=1}"
    ),
    Text(PassError, 0, "no pass is called ''", EXP, "--"),
    Text(DeviceError, 0, "no target is called 'cpuu'; did you mean 'cpu'", EXP, "lir@cpuu"),
    Text(DeviceError, 0, "unknown CPU 'x86-64-v7'", EXP, "lir@cpu:x86-64-v7"),
    Text(DeviceError, 0, "unknown", EXP, "lir@cuda:sm_1"),
    Text(DeviceError, 0, "unknown|feature", EXP, "lir@vulkan:9.9"),
    Text(
        IRError,
        0,
        "no function @main, which share-inputs starts from",
        EXP.replace("@main", "@other"),
        "lir",
    ),
    Text(IRError, 0, "no function @main", "module {}", "lir"),
    Text(IRError, 0, "no function @main", "", "lir"),
    Text(
        IRError,
        1,
        "argument 0 of @main is neither input nor param",
        main(f'%y = "mir.exp"(%x) : ({T}) -> {T}', f"%x: {T}"),
        "lir",
    ),
    Text(
        IRError,
        1,
        "argument 1 of @main is i32, expected a tensor",
        main(
            f'%y = "mir.exp"(%x) : ({T}) -> {T}',
            f'%x: {T} {{rlx.input = "x"}}, %i: i32 {{rlx.input = "i"}}',
        ),
        "lir",
    ),
    Text(
        IRError,
        1,
        "func @main has 2 blocks, expected one",
        main(f'%y = "mir.exp"(%x) : ({T}) -> {T}\n  cf.br ^b\n^b:'),
        "--simplify",
    ),
    Text(
        IRError,
        1,
        "func @main has 0 blocks, expected one",
        f"func.func private @main({T})",
        "--simplify",
    ),
    Text(
        UnsupportedError,
        1,
        "needs the size of every dim",
        main(
            '%y = "mir.exp"(%x) : (tensor<?xf32, ["n"]>) -> tensor<?xf32, ["n"]>',
            '%x: tensor<?xf32, ["n"]> {rlx.input = "x"}',
            'tensor<?xf32, ["n"]>',
        ),
        "lir",
    ),
    Text(
        IRError,
        1,
        "argument 0 of @main has rlx.input = 3 : i64, expected a name",
        main(f'%y = "mir.exp"(%x) : ({T}) -> {T}', f"%x: {T} {{rlx.input = 3 : i64}}"),
        "lir",
    ),
    Text(
        IRError,
        1,
        'argument 1 of @main has rlx.input = "x", expected a name .* that no other',
        main(
            f'%y = "mir.exp"(%x) : ({T}) -> {T}',
            f'%x: {T} {{rlx.input = "x"}}, %z: {T} {{rlx.input = "x"}}',
        ),
        "lir",
    ),
    Text(
        IRError,
        2,
        "arith.addf is no op of hir or mir, which share-inputs takes",
        main(f"%y = arith.addf %x, %x : {T}"),
        "lir",
    ),
    Text(
        IRError,
        2,
        "@main is no control function",
        main(f"%y = func.call @main(%x) : ({T}) -> {T}"),
        "lir",
    ),
]

TWICE = main(
    f'%y = "mir.fused"() ({{\n    %a = "mir.reduce_sum"(%x) {{axes = array<i64: 1>, keepdims = false}} :'
    f' ({T}) -> tensor<2xf32>\n    %b = "mir.reduce_sum"(%a) {{axes = array<i64: 0>, keepdims = false}} :'
    ' (tensor<2xf32>) -> tensor<f32>\n    "mir.yield"(%b) : (tensor<f32>) -> ()\n  }) {kind = "rowwise"} :'
    " () -> tensor<f32>",
    results="tensor<f32>",
)

PROLOGUE = """func.func @prologue(%w: tensor<2xf32> {rlx.param = "w"}) -> tensor<2xf32> {
  return %w : tensor<2xf32>
}
func.func @main(%x: tensor<2xf32> {rlx.input = "x"}, %w: tensor<2xf32> {rlx.param = "w"}, %p: tensor<2xf32> {rlx.packed = 0 : i64}) -> tensor<2xf32> {
  %y = "mir.add"(%x, %p) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  return %y : tensor<2xf32>
}"""
VIEW = """module {

  func.func @main(%a: memref<64xi8> {lir.role = "arena"}) {
    return
  }
}"""

CASES = [
    Text(
        IRError,
        1,
        '@prologue takes "v"; mir-to-lir needs those of @main: "w"',
        PROLOGUE.replace('"w"', '"v"', 1),
        "--mir-to-lir",
    ),
    Text(
        IRError,
        1,
        "@prologue takes no param; mir-to-lir needs",
        PROLOGUE.replace("rlx.param", "rlx.input", 1),
        "--mir-to-lir",
    ),
    Text(
        IRError,
        4,
        "rlx.packed is 1 : i64, and @prologue gives 1 values",
        PROLOGUE.replace("packed = 0", "packed = 1"),
        "--mir-to-lir",
    ),
    Text(
        IRError,
        4,
        'rlx.packed is "p", and',
        PROLOGUE.replace("packed = 0 : i64", 'packed = "p"'),
        "--mir-to-lir",
    ),
    Text(
        IRError,
        2,
        "a constant of 2147483647xf32 takes more than 1 GiB",
        main(
            '%y = "mir.constant"() {value = dense<0.0> : tensor<2147483647xf32>} : () -> tensor<3xf32>',
            results="tensor<3xf32>",
        ),
    ),
    Text(UnsupportedError, 0, "the input is lir already; fuse takes hir or mir", VIEW, "--fuse"),
    Text(
        IRError,
        4,
        "what lir.test reads must be a lir.view",
        VIEW.replace(
            "    return",
            '    %t = "lir.test"(%a) : (memref<64xi8>) -> i1\n    scf.if %t { }\n    return',
        ),
        "lir",
    ),
    *PARSED,
    *PASSED,
    Text(
        UnsupportedError,
        2,
        "has no kernel on cpu .*rowwise: reductions fold|has no kernel on cpu",
        TWICE,
        "lir",
    ),
]


@pytest.mark.parametrize(
    "case",
    CASES,
    ids=[f"{i}-{re.sub('[^a-z]+', '-', c.match.lower())[:40]}" for i, c in enumerate(CASES)],
)
def test_bad_text(case: Text) -> None:
    with pytest.raises(RlxError) as caught:
        transformed(case.text, case.to)
    error = caught.value
    assert type(error) is case.error, f"{type(error).__name__}: {error}"
    assert re.search(case.match, error.message), error.message
    assert (error.location[1] if error.location else 0) == case.line, str(error)
