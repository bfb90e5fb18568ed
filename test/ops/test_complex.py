"""Complex element types: values that are hard, promotion, refusals, JAX's derivatives, the way out
of the process and back."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import DTypeError, GraphError, IRError
from rlx.ir.graph import Graph
from rlx.ir.interpreter import interpret
from rlx.runtime.artifact import Artifact
from rlx.types import COMPLEX, DTYPES, promote
from support import ad
from support.compiled import agrees
from support.tolerances import assert_close

Array = np.ndarray[Any, Any]

INF, NAN = float("inf"), float("nan")
# No product of these overflows: NumPy's own differ there by whether they are fused.
EDGES = (0.0, -0.0, 1.0, -2.5, 1e15, -1e-15, INF, -INF, NAN)
POINTS = np.array([complex(*z) for z in itertools.product(EDGES, EDGES)], np.complex128)


def same_parts(found: Array, expected: Array, tolerance: float) -> None:
    """Equal part by part: nan where nan is, infinities of one sign, numbers closely for their
    modulus."""
    with np.errstate(all="ignore"):
        size = np.abs(expected)
    size = np.where(np.isfinite(size), np.maximum(size, 1e-30), 1.0)
    for f, e in ((found.real, expected.real), (found.imag, expected.imag)):
        np.testing.assert_allclose(f / size, e / size, rtol=tolerance, atol=tolerance)


# -- values --------------------------------------------------------------------------------


@pytest.mark.parametrize("dispatch", ["native", "common"])
@pytest.mark.parametrize("dt", COMPLEX, ids=str)
def test_arithmetic_at_the_edges_is_numpys(dt: Any, dispatch: str) -> None:
    """Infinities, nan, zeros of both signs, large and small numbers: every pair."""
    x, y = (a.reshape(-1).astype(dt.numpy) for a in np.meshgrid(POINTS, POINTS))
    g = rlx.Graph("edges")
    a, b = g.input("x", x.shape, dt), g.input("y", y.shape, dt)
    g.set_outputs([a + b, a - b, a * b, a / b, -a, a.eq(b), a.ne(b), a.conj()])
    found = rlx.Session("cpu").compile(g, dispatch=dispatch).run({"x": x, "y": y})
    with np.errstate(all="ignore"):
        expected = [x + y, x - y, x * y, x / y, -x, x == y, x != y, np.conj(x)]
    tolerance = 1e-5 if dt.bits == 64 else 1e-14
    for f, e in zip(found, expected, strict=True):
        same_parts(f, e, tolerance)


def test_functions_at_the_edges_are_numpys() -> None:
    x = POINTS
    g = rlx.Graph("edges")
    a = g.input("x", x.shape, "c128")
    g.set_outputs([a.abs(), a.angle(), a.log(), a.real(), a.imag(), a.complex_norm_sq()])
    found = rlx.Session("cpu").compile(g).run({"x": x})
    with np.errstate(all="ignore"):
        square = x.real**2 + x.imag**2
        expected = [np.abs(x), np.angle(x), np.log(x), x.real, x.imag, square]
    for f, e in zip(found, expected, strict=True):
        same_parts(f, e, 1e-14)


def test_exp_and_sqrt_at_the_edges_follow_annex_g() -> None:
    """Where C99 leaves a sign open, either is right: those points are left out."""
    exp_points = [complex(*z) for z in itertools.product((0.0, 1.0, -INF, INF), (0.0, -0.0, 2.0))]
    exp_points += [complex(-INF, INF), complex(1.0, INF), complex(NAN, 0.0), complex(709.9, 0.5)]
    sqrt_points = [z for z in POINTS if not (np.isnan(z.real) or np.isnan(z.imag))]
    sqrt_points += [complex(NAN, INF), complex(1e308, 1e308), complex(-4.0, -0.0), complex(3, 4)]
    for points, name in ((exp_points, "exp"), (sqrt_points, "sqrt")):
        x = np.array(points)
        g = rlx.Graph(name)
        g.set_outputs(getattr(g.input("x", x.shape, "c128"), name)())
        (found,) = rlx.Session("cpu").compile(g).run({"x": x})
        with np.errstate(all="ignore"):
            expected = getattr(np, name)(x)
        same_parts(found, expected, 1e-14)
        if name == "sqrt":
            np.testing.assert_array_equal(np.signbit(found.imag), np.signbit(expected.imag))


def test_numbers_make_what_they_meet_complex() -> None:
    g = rlx.Graph("numbers")
    x, h, d = g.input("x", [3], "f32"), g.input("h", [3], "f16"), g.input("d", [3], "f64")
    n = g.input("n", [3], "i64")
    rows = {x * 1j: "c64", 2 - h * 1j: "c64", d + 1j: "c128", n * 1j: "c128", x.fft() / 2: "c64"}
    assert [v.dtype.name for v in rows] == list(rows.values())
    g.set_outputs(list(rows))
    agrees(g)


@pytest.mark.parametrize(
    ("a", "b"),
    [(a, b) for a, b in itertools.product(COMPLEX, DTYPES.values()) if not b.is_float8],
    ids=str,
)
def test_promotion_is_numpys(a: Any, b: Any) -> None:
    """But for integers of 32 bits, which meet f32 as f32 here, and so c64 as c64."""
    found = promote(a, b)
    assert found is promote(b, a)
    if b.name == "bf16" or (b.name in ("i32", "u32") and a.name == "c64"):
        assert found is a
        return
    assert found.numpy == np.promote_types(a.numpy, b.numpy)


def test_whole_programs() -> None:
    """Products, reductions, movement, choice and constants in one graph, in every way."""
    g = rlx.Graph("program")
    x, w = g.input("x", [2, 3, 4], "c64"), g.param("w", [4, 5], "c128")
    y = (x @ w) * g.constant(np.arange(5) * (1 - 2j)) + g.constant(3 + 1j, "c128")
    chosen = y.real().gt(0).where(y, 1j)
    g.set_outputs([
        y.sum(axes=(0, 2)), y.mean(axes=1), y.prod(axes=2), chosen,
        x.transpose(2, 0, 1).reshape(6, 4).pad(1, 0, 2.0), g.concat([x, -x], axis=1),
        w.T[:, 1:3], x.gather([1, 0, 0], axis=2), w.gather([3, 3], axis=0),
        w.cast(to="c64"), x.cast(to="bool"), y.complex_norm_sq().sum(),
    ])  # fmt: skip
    agrees(g)


def test_a_loop_carries_complex_values() -> None:
    g = rlx.Graph("loop")
    z = g.input("z", [3], "c64")
    start = g.constant(np.zeros((), np.int64))
    _, out = rlx.while_loop(
        lambda i, v: i.lt(3), lambda i, v: (i + 1, v * v + 0.1j), (start, z), limit=5
    )
    g.set_outputs(out)
    given = np.array([0.5j, 0.1, -0.2 + 0.1j], np.complex64)
    (found,) = rlx.Session("cpu").compile(g).run({"z": given})
    (expected,) = interpret(g, {"z": given})
    assert_close(found, expected)


# -- the way out and back ------------------------------------------------------------------


def test_text_keeps_every_bit(tmp_path: Any) -> None:
    """Graphs with complex leaves and constants: ours, MLIR's, and the artifact."""
    payload = np.array([NAN, complex(INF, -0.0), 1e-40 + 1j], np.complex64)
    for value in (payload, np.full(4, 1 - 2j), np.zeros((2, 0), np.complex64), np.ones(40) * 1j):
        g = rlx.Graph("text")
        g.param("w", value=value)
        x = g.input("x", value.shape, value.dtype)
        g.set_outputs([x * g.constant(value), g.params[0] + x])
        rlx.save(g, tmp_path / "g.rlx.mlir")
        again = rlx.load(tmp_path / "g.rlx.mlir")
        rlx.save(again, tmp_path / "again.rlx.mlir")
        texts = [(tmp_path / n).read_text() for n in ("g.rlx.mlir", "again.rlx.mlir")]
        assert texts[0] == texts[1]
        (kept,) = again.param_values.values()
        assert kept.tobytes() == value.tobytes()
        artifact = Artifact.from_bytes(bytes(rlx.compile_artifact(again)))
        loaded = rlx.Session("cpu").load(artifact)
        given = {"x": np.full(value.shape, 2.0, value.dtype)}
        found, expected = loaded.run(given), interpret(again, given, again.param_values)
        for a, b in zip(found, expected, strict=True):
            same_parts(a, b, 1e-6)


def test_arrays_are_bound_as_they_are() -> None:
    g = rlx.Graph("bound")
    g.set_outputs(g.input("x", [3], "c128") * 2.0)
    f = rlx.Session("cpu").compile(g)
    x = np.arange(4) * (1 + 1j)
    out = np.empty(3, np.complex128)
    f.run_into({"x": x[1:]}, [out])  # begins at a multiple of 16 bytes, and the next does not
    np.testing.assert_array_equal(out, 2 * x[1:])
    words = np.zeros(7)
    words[1:] = [1, 2, 3, 4, 5, 6]
    (found,) = f.run({"x": words[1:].view(np.complex128)})
    np.testing.assert_array_equal(found, 2 * words[1:].view(np.complex128))
    (listed,) = f.run({"x": [1, 2j, 3.5]})
    np.testing.assert_array_equal(listed, [2, 4j, 7])
    with pytest.raises((DTypeError, GraphError), match=r"convert it with \.astype"):
        f.run({"x": np.zeros(3, np.complex64)})
    with pytest.raises(DTypeError, match="found complex128 numbers"):
        real = rlx.Graph("real")
        real.set_outputs(real.input("x", [1], "f32") * 2.0)
        rlx.Session("cpu").compile(real).run({"x": [1j]})


BAD_TEXT = {
    "a complex array is of pairs of f32 or f64, found f32": "[dense<1.0> : tensor<3xf32>]",
    "a complex array is of pairs of f32 or f64, found i32": "[dense<1> : tensor<3x2xi32>]",
    "']'": "[dense<1.0> : tensor<3x2xf32>, dense<1.0> : tensor<3x2xf32>]",
    "element type complex<f16> is none of": "[dense<1.0> : tensor<3x2xcomplex<f16>>]",
}


@pytest.mark.parametrize("match", BAD_TEXT)
def test_text_that_is_no_complex_array(match: str, tmp_path: Any) -> None:
    g = rlx.Graph("text")
    g.set_outputs(g.input("x", [3], "c64") + g.constant(np.arange(3).astype(np.complex64)))
    rlx.save(g, tmp_path / "g.rlx.mlir")
    text = (tmp_path / "g.rlx.mlir").read_text()
    start = text.index("[dense")
    end = text.index("]", text.index(": tensor", start)) + 1
    (tmp_path / "bad.rlx.mlir").write_text(text[:start] + BAD_TEXT[match] + text[end:])
    with pytest.raises(IRError, match=re.escape(match)):
        rlx.load(tmp_path / "bad.rlx.mlir")


@pytest.mark.parametrize("count", [0, 2])
def test_mlir_attribute_that_is_no_complex_array(count: int) -> None:
    from rlx._mlir import ir
    from rlx.dialects.context import make_context
    from rlx.dialects.convert import from_attr

    with make_context():
        one = ir.Attribute.parse("dense<1.0> : tensor<3x2xf32>")
        with pytest.raises(IRError, match=f"one array of pairs in brackets, found {count}"):
            from_attr(ir.ArrayAttr.get([one] * count), "Array")


# -- refusals ------------------------------------------------------------------------------

REFUSED = {
    "lt takes .*found c64. Take its real": lambda x: x.lt(x),
    "maximum takes .*found c64. Take its real": lambda x: x.maximum(0),
    "reduce_max takes .*found c64": lambda x: x.max(),
    "relu takes .*found c64": lambda x: x.relu(),
    "erf takes .*found c64": lambda x: x.erf(),
    "floor takes .*found c64": lambda x: x.floor(),
    "fmod takes .*found c64": lambda x: x.fmod(2.0),
    "c64 has no value in f32. Take its real": lambda x: x.cast(to="f32"),
    "complex takes f32, f64; found c64": lambda x: x.complex(x),
    "conj takes c64, c128; found f32": lambda x: type(x.conj().op)(x.real()),
    "does not fit": lambda x: x.real().cast(to="i32") + 0.5,
}


@pytest.mark.parametrize("match", REFUSED)
def test_what_complex_numbers_do_not_have(match: str) -> None:
    x = rlx.Graph("g").input("x", [2], "c64")
    with pytest.raises(DTypeError, match=match):
        REFUSED[match](x)


# -- derivatives ---------------------------------------------------------------------------

LOSSES: dict[str, Any] = {
    "norm": lambda z: z.complex_norm_sq().sum(),
    "real of a product": lambda z: (z * z[::-1] * (2 - 1j)).real().sum(),
    "imag": lambda z: (z.exp() / (z + 3.0)).imag().sum(),
    "abs": lambda z: z.abs().sum(),
    "angle": lambda z: z.angle().sum(),
    "conj": lambda z: (z.conj() * z.log()).real().sum(),
    "fft": lambda z: (z.fft() * z.ifft(norm="ortho")).real().sum(),
    "rfft": lambda z: z.real().rfft().complex_norm_sq().sum() + z.irfft(n=5).mean(),
    "matmul": lambda z: (z.reshape(2, 2) @ z.reshape(2, 2).conj()).abs().sum(),
    "sqrt": lambda z: z.sqrt().real().sum(),
    "cast": lambda z: (z.real() * z).abs().sum(),
    "elementary": lambda z: (z.sin() * z.tanh() + z.asin() * z.log1p() + z.atan()).real().sum(),
    "power": lambda z: (z ** (z * 0.5) + z.sigmoid() * z.sign()).imag().sum(),
}
Z = np.array([0.5 + 1.0j, -1.2 + 0.3j, 0.7 - 0.8j, 1.5 + 0.2j])


def gradient(loss: Any, z: Array) -> Array:
    g = Graph("loss")
    leaf = g.input("z", z.shape, z.dtype)
    (found,) = ad.grad(loss(leaf), [leaf])
    g.set_outputs(found)
    return interpret(g, {"z": z})[0]


@pytest.mark.parametrize("name", [n for n in LOSSES if n != "real of a product"])
def test_gradient_is_conjugate_of_the_steepest_direction(name: str) -> None:
    """dL/dx - i dL/dy, by differences: the convention as the documentation states it."""

    def value(z: Array) -> float:
        g = Graph("loss")
        leaf = g.input("z", z.shape, z.dtype)
        g.set_outputs(LOSSES[name](leaf))
        return float(interpret(g, {"z": z})[0])

    expected = np.empty_like(Z)
    for i, step in itertools.product(range(len(Z)), (1e-6, 1e-6j)):
        d = np.zeros_like(Z)
        d[i] = step
        slope = (value(Z + d) - value(Z - d)) / 2e-6
        if step == 1e-6:
            expected[i] = slope
        else:
            expected[i] -= 1j * slope
    np.testing.assert_allclose(gradient(LOSSES[name], Z), expected, rtol=1e-7, atol=1e-7)


def test_gradients_are_jaxs() -> None:
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    jnp, fft = jax.numpy, jax.numpy.fft
    theirs = {
        "norm": lambda z: (z * z.conj()).real.sum(),
        "imag": lambda z: (jnp.exp(z) / (z + 3.0)).imag.sum(),
        "abs": lambda z: jnp.abs(z).sum(),
        "angle": lambda z: jnp.angle(z).sum(),
        "conj": lambda z: (z.conj() * jnp.log(z)).real.sum(),
        "fft": lambda z: (fft.fft(z) * fft.ifft(z, norm="ortho")).real.sum(),
        "rfft": lambda z: (jnp.abs(fft.rfft(z.real)) ** 2).sum() + fft.irfft(z, n=5).mean(),
        "matmul": lambda z: jnp.abs(z.reshape(2, 2) @ z.reshape(2, 2).conj()).sum(),
        "sqrt": lambda z: jnp.sqrt(z).real.sum(),
        "cast": lambda z: jnp.abs(z.real * z).sum(),
        "elementary": lambda z: (
            jnp.sin(z) * jnp.tanh(z) + jnp.arcsin(z) * jnp.log1p(z) + jnp.arctan(z)).real.sum(),
        "power": lambda z: (z ** (z * 0.5) + jnp.sign(z) / (1 + jnp.exp(-z))).imag.sum(),
    }  # fmt: skip
    for name, loss in theirs.items():
        np.testing.assert_allclose(gradient(LOSSES[name], Z), jax.grad(loss)(Z), rtol=1e-9)


@pytest.mark.parametrize("part", ["f32", "f64"])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (5, 19), (13, 65)])
def test_complex_numbers_in_the_epilogue_of_a_product(part: str, m: int, n: int) -> None:
    """Their last columns are a part of a vector, where the CPU has masks."""
    g = Graph("epilogue")
    product = g.input("a", [m, 7], part) @ g.input("b", [7, n], part)
    z = g.input("z", [m, n], {"f32": "c64", "f64": "c128"}[part])
    g.set_outputs([g.complex(product, product.relu()) * z])
    agrees(g)
