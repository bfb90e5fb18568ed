"""Whole programs of StableHLO: what JAX exports, loops that become scans, and what is refused."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx._mlir import stablehlo
from rlx.errors import (
    GraphError,
    IRError,
    ModelError,
    RlxError,
    ToolchainError,
    UnsupportedError,
)
from rlx.types import dtype
from support.stablehlo import check, drawn, program, reference

FIXTURES = Path(__file__).parent / "fixtures" / "stablehlo"
RNG = np.random.default_rng(0)
W = RNG.standard_normal((3, 4, 4)).astype(np.float32)
X = RNG.standard_normal((2, 4)).astype(np.float32)


def layers(w: Any, x: Any) -> tuple[Any, Any]:
    sums = []
    for each in w:
        sums.append(x.sum())
        x = np.tanh(x @ each)
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True), np.array(sums)


def controls(g: rlx.Graph) -> list[str]:
    return [op.short for op in g.nodes() if op.name.startswith("control")]


def test_a_file_of_text() -> None:
    g = rlx.from_stablehlo(FIXTURES / "scan.mlir")
    assert (g.name, [v.name for v in g.inputs]) == ("scan", ["p.w", "x"])
    assert g.output_names == ("sums", "y")
    assert controls(g) == ["scan"]
    scan = next(op for op in g.nodes() if op.name == "control.scan")
    assert (scan.attrs["carries"], scan.attrs["scanned"]) == (1, 2)  # what is carried, p.w, count
    assert "dynamic" not in g.inspect()
    y, sums = layers(W, X)
    for device in ("interpret", "cpu"):
        found = rlx.Session(device).compile(g)(W, X)
        np.testing.assert_allclose(found["y"], y, rtol=1e-5)  # type: ignore
        np.testing.assert_allclose(found["sums"], sums, rtol=1e-5)  # type: ignore


def test_a_portable_artifact_of_a_gradient() -> None:
    data = (FIXTURES / "scan_grad.mlirbc").read_bytes()
    g = rlx.from_stablehlo(data)
    assert controls(g) == ["scan", "scan"]
    assert [bool(op.attrs["reverse"]) for op in g.nodes() if op.short == "scan"] == [False, True]
    assert "dynamic" not in g.inspect()
    f = rlx.Session("cpu").compile(g)
    value, slope = f(W, X)
    np.testing.assert_allclose(value, layers(W, X)[0][:, 0].sum(), rtol=1e-5)
    step = RNG.standard_normal(W.shape)
    wide = [layers(W + s * 1e-5 * step, X.astype(np.float64))[0][:, 0].sum() for s in (1, -1)]
    np.testing.assert_allclose((slope * step).sum(), (wide[0] - wide[1]) / 2e-5, rtol=1e-3)
    again = rlx.from_stablehlo(str(FIXTURES / "scan_grad.mlirbc"))
    np.testing.assert_array_equal(rlx.Session("cpu").compile(again)(W, X)[1], slope)


LOOP = """
%zero = stablehlo.constant dense<{start}> : tensor<i32>
%one = stablehlo.constant dense<{step}> : tensor<i32>
%n = stablehlo.constant dense<{stop}> : tensor<i32>
%nought = stablehlo.constant dense<0> : tensor<i32>
%r0, %r1, %r2 = stablehlo.while(%i = %zero, %c = %a, %o = %b) : tensor<i32>, tensor<4xf32>, tensor<5x4xf32>
cond {{
  %g = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.return %g : tensor<i1>
}} do {{
  {place}
  %row = stablehlo.dynamic_slice %b, %k, %nought, sizes = [1, 4] : (tensor<5x4xf32>, tensor<i32>, tensor<i32>) -> tensor<1x4xf32>
  %flat = stablehlo.reshape %row : (tensor<1x4xf32>) -> tensor<4xf32>
  %sum = stablehlo.add %c, %flat : tensor<4xf32>
  %wide = stablehlo.reshape %sum : (tensor<4xf32>) -> tensor<1x4xf32>
  %after = stablehlo.dynamic_update_slice %o, %wide, {write}, %nought : (tensor<5x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<5x4xf32>
  %j = stablehlo.add %i, %one : tensor<i32>
  stablehlo.return %j, %sum, %after : tensor<i32>, tensor<4xf32>, tensor<5x4xf32>
}}"""
SAME = "%k = stablehlo.add %i, %nought : tensor<i32>"
BACK = (
    "%m = stablehlo.subtract %n, %i : tensor<i32>\n %k = stablehlo.subtract %m, %one : tensor<i32>"
)
TWICE = "%k = stablehlo.add %i, %i : tensor<i32>"
LOOPS = {
    "forward": ({"place": SAME}, True),
    "backward": ({"place": BACK, "write": "%k"}, True),
    "read backward": ({"place": BACK}, True),
    "read at other places": ({"place": TWICE}, False),
    "fewer rounds than rows": ({"place": SAME, "stop": 3}, False),
    "from another number": ({"place": SAME, "start": 2}, False),
    "another step": ({"place": SAME, "step": 2}, False),
    "no rounds": ({"place": SAME, "start": 7}, None),
}


@pytest.mark.parametrize(("fields", "whole"), LOOPS.values(), ids=LOOPS)
def test_loops_that_count_become_scans(fields: dict[str, Any], whole: bool | None) -> None:
    filled = LOOP.format(**{"start": 0, "step": 1, "stop": 5, "write": "%i", **fields})
    text = program(
        filled, "tensor<4xf32> tensor<5x4xf32>", "tensor<i32> tensor<4xf32> tensor<5x4xf32>"
    )
    check(text, drawn(text, np.random.default_rng(0)))
    check(text, drawn(text, np.random.default_rng(1)), "cpu")
    g = rlx.from_stablehlo(text)
    if whole is None:
        assert not controls(g)
        return
    assert controls(g) == ["scan"]
    assert ("dynamic" not in g.inspect()) is whole


def test_a_loop_without_a_known_count_stays_one() -> None:
    text = program(
        "%r = stablehlo.while(%i = %a) : tensor<i32> cond {\n"
        "  %g = stablehlo.compare LT, %i, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
        "  stablehlo.return %g : tensor<i1>\n} do {\n"
        "  %j = stablehlo.add %i, %i : tensor<i32>\n  stablehlo.return %j : tensor<i32>\n}",
        "tensor<i32> tensor<i32>", "tensor<i32>",
    )  # fmt: skip
    assert controls(rlx.from_stablehlo(text)) == ["while_loop"]
    check(text, [np.int32(3), np.int32(100)])  # type: ignore


def test_functions_and_composites() -> None:
    text = """module {
  func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
    %0 = func.call @twice(%x) : (tensor<3xf32>) -> tensor<3xf32>
    %1 = stablehlo.composite "chlo.erf" %0 {decomposition = @twice} : (tensor<3xf32>) -> tensor<3xf32>
    %2 = stablehlo.composite "mine.double" %1 {decomposition = @twice} : (tensor<3xf32>) -> tensor<3xf32>
    return %2 : tensor<3xf32>
  }
  func.func private @twice(%x: tensor<3xf32>) -> tensor<3xf32> {
    %0 = stablehlo.add %x, %x : tensor<3xf32>
    return %0 : tensor<3xf32>
  }
}"""
    g = rlx.from_stablehlo(text)
    assert [op.short for op in g.nodes()] == ["add", "erf", "add"]
    assert [v.name for v in g.inputs] == ["x0"]


def test_the_complement_of_erf_keeps_its_digits() -> None:
    g = rlx.from_stablehlo("""module {
  func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.composite "chlo.erfc" %x {decomposition = @none} : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
  func.func private @none(%x: tensor<4xf32>) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
}""")
    x = np.array([-3.0, 0.2, 5.0, 9.0], np.float32)
    expected = [math.erfc(v) for v in x]
    np.testing.assert_allclose(rlx.interpret(g, {"x0": x})[0], expected, 1e-6)


def test_bits_of_floats() -> None:
    for kind, dt in (("f32", np.float32), ("f64", np.float64), ("f16", np.float16)):
        bits = np.dtype(dt).itemsize * 8
        text = program(
            f"%r = stablehlo.bitcast_convert %a : (tensor<9xi{bits}>) -> tensor<9x{kind}>",
            f"tensor<9xi{bits}>", f"tensor<9x{kind}>",
        )  # fmt: skip
        tiny = np.finfo(dt).smallest_subnormal
        floats = np.array([0.0, -0.0, 1.5, -3.25, np.inf, -np.inf, np.nan, tiny, 0.1], dt)
        found = rlx.Session("interpret").compile(rlx.from_stablehlo(text))(
            floats.view(f"i{bits // 8}")
        )[0]
        np.testing.assert_array_equal(found, floats)
        np.testing.assert_array_equal(np.signbit(found[:2]), [False, True])


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_bits_of_floats_of_16_bits(kind: str) -> None:
    """All of them, but for what the bits of a nan say beyond its sign."""
    bits = np.arange(1 << 16, dtype=np.uint16)
    t = f"tensor<{bits.size}x"
    text = program(f"%r = stablehlo.bitcast_convert %a : ({t}{kind}>) -> {t}ui16>", f"{t}{kind}>",
                   f"{t}ui16>")  # fmt: skip
    floats = bits.view(dtype(kind).numpy)
    (found,) = rlx.Session("cpu").compile(rlx.from_stablehlo(text))(floats)
    numbers = ~np.isnan(floats.astype(np.float32))
    np.testing.assert_array_equal(found[numbers], bits[numbers])
    assert np.isnan(found[~numbers].view(dtype(kind).numpy).astype(np.float32)).all()


# -- linear algebra, as JAX calls it on CPUs -----------------------------------------------

M = (RNG.standard_normal((4, 4)) * 0.3 + 3 * np.eye(4)).astype(np.float32)
P = (M @ M.T).astype(np.float32)


def routine(name: str, settings: dict[str, str], inputs: str, outputs: list[str]) -> str:
    letters = ", ".join(f"{k} = {ord(v)} : ui8" for k, v in settings.items())
    count = inputs.count("tensor")
    names = ", ".join("%" + "ab"[i] for i in range(count))
    results = ", ".join(f"%r{i}" for i in range(len(outputs))) if len(outputs) > 1 else "%r"
    given = inputs.replace("> tensor", ">, tensor")
    many = f"({', '.join(outputs)})" if len(outputs) > 1 else outputs[0]
    return program(
        f"{results} = stablehlo.custom_call @{name}_ffi({names})"
        f" {{mhlo.backend_config = {{{letters}}}}} : ({given}) -> {many}",
        inputs, " ".join(outputs),
    )  # fmt: skip


def run(text: str, *arrays: Any) -> list[Any]:
    return list(rlx.Session("interpret").compile(rlx.from_stablehlo(text))(*arrays))


S, V, N = "tensor<4x4xf32>", "tensor<4xf32>", "tensor<i32>"


def test_routines_of_lapack() -> None:
    for uplo in "LU":
        found, info = run(routine("lapack_spotrf", {"uplo": uplo}, S, [S, N]), P)
        factor = np.tril(found) if uplo == "L" else np.triu(found).T
        np.testing.assert_allclose(factor @ factor.T, P, rtol=1e-4)
        assert info == 0
        vectors, values, _ = run(
            routine("lapack_ssyevd", {"mode": "V", "uplo": uplo}, S, [S, V, N]), P
        )
        np.testing.assert_allclose(P @ vectors, vectors * values, rtol=1e-3, atol=1e-4)
        for side in "LR":
            for way in "NT":
                settings = {"side": side, "uplo": uplo, "trans_x": way, "diag": "N"}
                (x,) = run(routine("blas_strsm", settings, f"{S} {S}", [S]), M, P)
                a = np.tril(M) if uplo == "L" else np.triu(M)
                a = a if way == "N" else a.T
                np.testing.assert_allclose(a @ x if side == "L" else x @ a, P, rtol=1e-3, atol=1e-4)
    packed, pivots, _ = run(routine("lapack_sgetrf", {}, S, [S, "tensor<4xi32>", N]), M)
    rows = np.arange(4)
    for i, p in enumerate(pivots - 1):
        rows[[i, p]] = rows[[p, i]]
    product = (np.tril(packed, -1) + np.eye(4)) @ np.triu(packed)
    np.testing.assert_allclose(product, M[rows], rtol=1e-4, atol=1e-5)
    for mode in "AS":
        _, s, u, vt, _ = run(routine("lapack_sgesdd", {"mode": mode}, S, [S, V, S, S, N]), M)
        np.testing.assert_allclose(u * s @ vt, M, rtol=1e-4, atol=1e-5)
    found = run(routine("lapack_sgesdd", {"mode": "N"}, S, [S, V, S, S, N]), M)
    np.testing.assert_allclose(found[1], np.linalg.svd(M)[1], rtol=1e-5)


def test_linear_algebra_of_stablehlo() -> None:
    text = program(f"%r = stablehlo.cholesky %a, lower = true : {S}", S, S)
    np.testing.assert_allclose(run(text, P)[0], np.linalg.cholesky(P), rtol=1e-4, atol=1e-5)
    text = program(f"%r = stablehlo.cholesky %a, lower = false : {S}", S, S)
    np.testing.assert_allclose(run(text, P)[0], np.linalg.cholesky(P).T, rtol=1e-4, atol=1e-5)
    for left in (True, False):
        for way in ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"):
            text = program(
                '%r = "stablehlo.triangular_solve"(%a, %b) <{left_side = '
                f"{str(left).lower()}, lower = true, unit_diagonal = false,"
                f" transpose_a = #stablehlo<transpose {way}>}}> : ({S}, {S}) -> {S}",
                f"{S} {S}", S,
            )  # fmt: skip
            a = np.tril(M) if way == "NO_TRANSPOSE" else np.tril(M).T
            (x,) = run(text, M, P)
            np.testing.assert_allclose(a @ x if left else x @ a, P, rtol=1e-3, atol=1e-4)


def test_fourier_transforms() -> None:
    x = RNG.standard_normal((3, 8)).astype(np.float32)
    text = program(
        "%f = stablehlo.fft %a, type = RFFT, length = [8]"
        " : (tensor<3x8xf32>) -> tensor<3x5xcomplex<f32>>\n"
        "%r0 = stablehlo.real %f : (tensor<3x5xcomplex<f32>>) -> tensor<3x5xf32>\n"
        "%r1 = stablehlo.fft %f, type = IRFFT, length = [8]"
        " : (tensor<3x5xcomplex<f32>>) -> tensor<3x8xf32>",
        "tensor<3x8xf32>", "tensor<3x5xf32> tensor<3x8xf32>",
    )  # fmt: skip
    real, again = run(text, x)
    np.testing.assert_allclose(real, np.fft.rfft(x).real, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(again, x, rtol=1e-4, atol=1e-5)
    text = program(
        "%c = stablehlo.complex %a, %a : tensor<3x8xcomplex<f32>>\n"
        "%f = stablehlo.fft %c, type = FFT, length = [3, 8]"
        " : (tensor<3x8xcomplex<f32>>) -> tensor<3x8xcomplex<f32>>\n"
        "%g = stablehlo.fft %f, type = IFFT, length = [8]"
        " : (tensor<3x8xcomplex<f32>>) -> tensor<3x8xcomplex<f32>>\n"
        "%r = stablehlo.imag %g : (tensor<3x8xcomplex<f32>>) -> tensor<3x8xf32>",
        "tensor<3x8xf32>", "tensor<3x8xf32>",
    )  # fmt: skip
    wanted = np.fft.ifft(np.fft.fft2(x + 1j * x)).imag
    np.testing.assert_allclose(run(text, x)[0], wanted, rtol=1e-4, atol=1e-4)


def test_top_k() -> None:
    text = program(
        '%r0, %r1 = stablehlo.composite "chlo.top_k" %a {composite_attributes = {k = 2 : i64},'
        " decomposition = @none} : (tensor<2x4xf32>) -> (tensor<2x2xf32>, tensor<2x2xi32>)",
        "tensor<2x4xf32>", "tensor<2x2xf32> tensor<2x2xi32>",
    )  # fmt: skip
    text = text.replace("\n}\n}", "\n}\n" + (
        "func.func private @none(%x: tensor<2x4xf32>) -> (tensor<2x2xf32>, tensor<2x2xi32>) {\n"
        "%v = stablehlo.constant dense<0.0> : tensor<2x2xf32>\n"
        "%i = stablehlo.constant dense<0> : tensor<2x2xi32>\n"
        "return %v, %i : tensor<2x2xf32>, tensor<2x2xi32>\n}\n}"
    ))  # fmt: skip
    values, places = run(text, X)
    np.testing.assert_array_equal(places, np.argsort(-X)[:, :2])
    np.testing.assert_array_equal(values, -np.sort(-X)[:, :2])


# -- refusals ------------------------------------------------------------------------------

F = "tensor<3xf32>"


def sort(compare: str, dt: str = "i32") -> str:
    t = f"tensor<3x{dt}>"
    return program(
        f'%r = "stablehlo.sort"(%a) <{{dimension = 0 : i64}}> ({{\n'
        f"^bb0(%x: tensor<{dt}>, %y: tensor<{dt}>):\n{compare}\n"
        f"stablehlo.return %g : tensor<i1>\n}}) : ({t}) -> {t}", t, t,
    )  # fmt: skip


def window(body: str, size: int = 2) -> str:
    return program(
        f'%i = stablehlo.constant dense<0.0> : tensor<f32>\n%r = "stablehlo.reduce_window"(%a, %i)'
        f" <{{window_dimensions = array<i64: {size}>}}> ({{\n^bb0(%x: tensor<f32>, %y:"
        f" tensor<f32>):\n{body}\nstablehlo.return %z : tensor<f32>\n}}) : (tensor<900xf32>,"
        f" tensor<f32>) -> tensor<{901 - size}xf32>",
        "tensor<900xf32>", f"tensor<{901 - size}xf32>",
    )  # fmt: skip


def scattered(body: str, updates: str = F, operand: str = F) -> str:
    return program(
        f'%r = "stablehlo.scatter"(%a, %b, %c) <{{scatter_dimension_numbers = #stablehlo.scatter<'
        "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}>"
        f" ({{\n^bb0(%x: tensor<f32>, %y: tensor<f32>):\n{body}\n}}) : ({operand},"
        f" tensor<3x1xi32>, {updates}) -> {operand}",
        f"{operand} tensor<3x1xi32> {updates}", operand,
    )  # fmt: skip


REFUSED = {
    "a missing op": (
        program(
            f"%r = stablehlo.cbrt %a : {F}\n"
            f"%0 = stablehlo.custom_call @f(%r) : ({F}) -> {F}\n"
            f"%1 = stablehlo.uniform_quantize %r : ({F}) -> tensor<3x!quant.uniform<i8:f32, 0.1>>",
            F, F,
        ),
        UnsupportedError, r"these ops of StableHLO are not there yet: .*'f' x 1, stablehlo.uniform_quantize",
    ),
    "an unknown call": (
        program(f"%r = stablehlo.custom_call @f(%a) : ({F}) -> {F}", F, F),
        UnsupportedError, "stablehlo.custom_call of 'f' x 1",
    ),
    "complex reflections": (
        program("%r0, %r1 = stablehlo.custom_call @lapack_cgeqrf_ffi(%a) : (tensor<3x3xcomplex<f32>>)"
                " -> (tensor<3x3xcomplex<f32>>, tensor<3xcomplex<f32>>)", "tensor<3x3xcomplex<f32>>",
                "tensor<3x3xcomplex<f32>> tensor<3xcomplex<f32>>"),
        UnsupportedError, "of complex matrices",
    ),
    "a product of complex reflections": (
        program("%r = stablehlo.custom_call @lapack_cungqr_ffi(%a, %b) : (tensor<3x3xcomplex<f32>>,"
                " tensor<3xcomplex<f32>>) -> tensor<3x3xcomplex<f32>>",
                "tensor<3x3xcomplex<f32>> tensor<3xcomplex<f32>>", "tensor<3x3xcomplex<f32>>"),
        UnsupportedError, "of complex matrices",
    ),
    "an element type": (
        program("%r = stablehlo.negate %a : tensor<3xf8E3M4>", "tensor<3xf8E3M4>",
                "tensor<3xf8E3M4>"),
        UnsupportedError, "RLX has no element type f8E3M4",
    ),
    "arithmetic of 8-bit floats": (
        program("%r = stablehlo.negate %a : tensor<3xf8E4M3FN>", "tensor<3xf8E4M3FN>",
                "tensor<3xf8E4M3FN>"),
        RlxError, "found f8e4m3fn. Cast the operand",
    ),
    "a token": (
        "module { func.func @main(%t: !stablehlo.token) -> !stablehlo.token {\n"
        "return %t : !stablehlo.token } }",
        UnsupportedError, "is no tensor that RLX has",
    ),
    "the bits of a float": (
        program("%r = stablehlo.bitcast_convert %a : (tensor<3xf32>) -> tensor<3x2xi16>",
                "tensor<3xf32>", "tensor<3x2xi16>"),
        UnsupportedError, "RLX reads the bits of f32 as i16 by no op yet",
    ),
    "a precision": (
        program(f"%r = stablehlo.reduce_precision %a, format = e3m4 : {F}", F, F),
        UnsupportedError, "no type of 3 exponent and 4 mantissa bits",
    ),
    "an order": (
        sort("%h = stablehlo.add %x, %x : tensor<i32>\n"
             "%g = stablehlo.compare LT, %h, %y : (tensor<i32>, tensor<i32>) -> tensor<i1>"),
        UnsupportedError, "compares otherwise than by the order of some operands",
    ),
    "an order of complex numbers": (
        sort("%u = stablehlo.real %x : (tensor<complex<f32>>) -> tensor<f32>\n"
             "%g = stablehlo.compare LT, %u, %u : (tensor<f32>, tensor<f32>) -> tensor<i1>",
             "complex<f32>"),
        UnsupportedError, "complex numbers have no order",
    ),
    "a large window": (
        window("%z = stablehlo.subtract %x, %y : tensor<f32>", 500),
        UnsupportedError, "a window of 500 places, expected 400 at most",
    ),
    "what is scattered": (
        scattered("%z = stablehlo.subtract %x, %y : tensor<f32>\n"
                  "stablehlo.return %z : tensor<f32>"),
        UnsupportedError, "by a region other than one of add",
    ),
    "no main": (
        "module { func.func @f(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }\n"
        "func.func @g(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> } }",
        ModelError, "no function 'main', and not one alone is public; there are 'f', 'g'",
    ),
    "a function that calls itself": (
        "module { func.func @main(%x: tensor<f32>) -> tensor<f32> {\n"
        "%r = func.call @f(%x) : (tensor<f32>) -> tensor<f32>\n return %r : tensor<f32> }\n"
        "func.func private @f(%x: tensor<f32>) -> tensor<f32> {\n"
        "%r = func.call @f(%x) : (tensor<f32>) -> tensor<f32>\n return %r : tensor<f32> } }",
        ModelError, "the function 'f' calls itself",
    ),
    "no result": (
        "module {\nfunc.func @main(%x: tensor<f32>) { return } }", ModelError, "gives nothing",
    ),
    "no text of a module": ("module {\n func.func @main( }", IRError, "cannot parse the MLIR text"),
    "bytes": (b"\xff\xfe\x00", ModelError, "neither the text of a module nor bytecode"),
    "a file": ("missing.mlir", ModelError, "'missing.mlir' cannot be read: No such file"),
    "a number": (3, GraphError, "takes a path, text or bytes, found 3"),
    "broken bytecode": (b"ML\xefR\x00\x00", IRError, "cannot parse the MLIR text"),
}  # fmt: skip


@pytest.mark.parametrize(("source", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_refusals(source: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        rlx.from_stablehlo(source)


def test_more_refusals() -> None:
    pair = program(
        '%r0, %r1 = "stablehlo.scatter"(%a, %a, %b, %c, %c) <{scatter_dimension_numbers ='
        " #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],"
        " index_vector_dim = 1>}> ({\n^bb0(%x: tensor<f32>, %y: tensor<f32>, %u: tensor<f32>, %v:"
        f" tensor<f32>):\nstablehlo.return %u, %v : tensor<f32>, tensor<f32>\n}}) : ({F}, {F},"
        f" tensor<3x1xi32>, {F}, {F}) -> ({F}, {F})",
        f"{F} tensor<3x1xi32> {F}", f"{F} {F}",
    )  # fmt: skip
    with pytest.raises(UnsupportedError, match="of 2 operands at once; one is read"):
        rlx.from_stablehlo(pair)
    tuples = (
        "module { func.func @main(%x: tensor<f32>) -> tuple<tensor<f32>> {\n"
        "%r = stablehlo.tuple %x : tuple<tensor<f32>>\n return %r : tuple<tensor<f32>> } }"
    )
    with pytest.raises(UnsupportedError, match="tuples are not read; export the program anew"):
        rlx.from_stablehlo(tuples)
    one = program(
        '%r = "stablehlo.scatter"(%a, %b, %c) <{scatter_dimension_numbers = #stablehlo.scatter<'
        "index_vector_dim = 0>}> ({\n^bb0(%x: tensor<f32>, %y: tensor<f32>):\n"
        "stablehlo.return %y : tensor<f32>\n}) : (tensor<f32>, tensor<0xi32>, tensor<f32>)"
        " -> tensor<f32>",
        "tensor<f32> tensor<0xi32> tensor<f32>", "tensor<f32>",
    )  # fmt: skip
    with pytest.raises(UnsupportedError, match="scatter: into a scalar"):
        rlx.from_stablehlo(one)
    for size, op, words in ((500, "add", "a window of 500 places"), (2, "multiply", "is added up")):
        text = program(
            "%i = stablehlo.constant dense<0.0> : tensor<f32>\n"
            f'%r = "stablehlo.select_and_scatter"(%a, %b, %i) <{{window_dimensions = array<i64: {size}>'
            "}> ({\n^bb0(%x: tensor<f32>, %y: tensor<f32>):\n"
            "  %g = stablehlo.compare GE, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
            "  stablehlo.return %g : tensor<i1>\n}, {\n^bb0(%x: tensor<f32>, %y: tensor<f32>):\n"
            f"  %z = stablehlo.{op} %x, %y : tensor<f32>\n  stablehlo.return %z : tensor<f32>\n}})"
            f" : (tensor<900xf32>, tensor<{901 - size}xf32>, tensor<f32>) -> tensor<900xf32>",
            f"tensor<900xf32> tensor<{901 - size}xf32>", "tensor<900xf32>",
        )  # fmt: skip
        with pytest.raises(UnsupportedError, match=words):
            rlx.from_stablehlo(text)
    with pytest.raises(GraphError, match="from_jax takes a function, found 3"):
        rlx.from_jax(3)


def test_without_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    stablehlo.cache_clear()
    with monkeypatch.context() as m:
        m.setitem(sys.modules, "torch_mlir._mlir_libs._stablehlo", None)
        with pytest.raises(ToolchainError, match="this MLIR package has no StableHLO"):
            rlx.from_stablehlo(FIXTURES / "scan.mlir")
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ToolchainError, match="from_jax needs JAX, which cannot be imported"):
        rlx.from_jax(lambda x: x, X)


def test_what_the_judge_is() -> None:
    text = program(f"%r = stablehlo.add %a, %a : {F}", F, F)
    (found,) = reference(text, [np.array([1, 2, 3], np.float32)])
    assert found.tolist() == [2, 4, 6]
