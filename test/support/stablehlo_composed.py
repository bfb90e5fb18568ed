"""More random programs of StableHLO: sizes that are operands, and ops that the reference
interpreter lacks, whose judge is NumPy or SciPy by the text's own words (``ORACLES``)."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import scipy.linalg

from support.stablehlo import Array
from support.stablehlo_cases import (
    ANY,
    FLOATS,
    REAL,
    Program,
    Rng,
    generator,
    pick,
    shape,
    t,
)

__all__ = ["ORACLES"]

ORACLES: dict[str, Callable[[str, list[Array]], list[Array]]] = {}
"""What a program gives, of its text and arrays."""


def _line(name: str, values: list[int]) -> str:
    """A constant vector."""
    of = f"tensor<{len(values)}xi64>"
    listed = ", ".join(map(str, values))
    return f"%{name} = stablehlo.constant dense<[{listed}]> : {of}\n"


def _line_type(values: list[int]) -> str:
    return f"tensor<{len(values)}xi64>"


# -- sizes that are operands ---------------------------------------------------------------


@generator("dynamic_reshape")
def _dynamic_reshape(rng: Rng) -> Program:
    dims, kind = shape(rng, 1), pick(rng, ANY)
    to = [int(np.prod(dims)), 1]
    of, given = t(dims, kind), t(to, kind)
    types = f"({of}, {_line_type(to)}) -> {given}"
    return f"{_line('s', to)}%r = stablehlo.dynamic_reshape %a, %s : {types}", of, given


@generator("dynamic_broadcast_in_dim")
def _dynamic_broadcast(rng: Rng) -> Program:
    to, kind = shape(rng, 1, 4), pick(rng, ANY)
    axes = [int(i) for i in rng.permutation(len(to))[: int(rng.integers(0, len(to) + 1))]]
    of, given = t([to[i] if rng.random() < 0.7 else 1 for i in axes], kind), t(to, kind)
    types = f"({of}, {_line_type(to)}) -> {given}"
    body = f"%r = stablehlo.dynamic_broadcast_in_dim %a, %s, dims = {axes} : {types}"
    return _line("s", to) + body, of, given


@generator("dynamic_iota")
def _dynamic_iota(rng: Rng) -> Program:
    dims = shape(rng, 1)
    to = t(dims, pick(rng, REAL))
    types = f"({_line_type(dims)}) -> {to}"
    body = f"%r = stablehlo.dynamic_iota %s, dim = {rng.integers(len(dims))} : {types}"
    return _line("s", dims) + body, "", to


@generator("dynamic_pad")
def _dynamic_pad(rng: Rng) -> Program:
    dims, kind = shape(rng, 1, empty=False), pick(rng, ANY)
    low, high, between = (rng.integers(0, 3, len(dims)).tolist() for _ in range(3))
    to = [a + b + d + (d - 1) * n for d, a, b, n in zip(dims, low, high, between, strict=True)]
    of, one, line = t(dims, kind), t([], kind), _line_type(dims)
    lines = _line("l", low) + _line("h", high) + _line("i", between)
    types = f"({of}, {one}, {line}, {line}, {line}) -> {t(to, kind)}"
    body = f"%r = stablehlo.dynamic_pad %a, %b, %l, %h, %i : {types}"
    return lines + body, f"{of} {one}", t(to, kind)


@generator("get_dimension_size")
def _get_dimension_size(rng: Rng) -> Program:
    dims = shape(rng, 1)
    of, at = t(dims, pick(rng, REAL)), int(rng.integers(len(dims)))
    types = f"({of}) -> tensor<i32>"
    return f"%r = stablehlo.get_dimension_size %a, dim = {at} : {types}", of, "tensor<i32>"


@generator("optimization_barrier")
def _optimization_barrier(rng: Rng) -> Program:
    of = t(shape(rng), pick(rng, REAL))
    body = f"%x, %y = stablehlo.optimization_barrier %a, %b : {of}, {of}\n"
    return f"{body}%r = stablehlo.subtract %x, %y : {of}", f"{of} {of}", of


@generator("constant")
def _constant(rng: Rng) -> Program:
    kind = pick(rng, FLOATS)
    of = t([3], kind)
    listed = ", ".join(f"{x:.3e}" for x in rng.standard_normal(3))
    body = f"%x = stablehlo.constant dense<[{listed}]> : {of}\n"
    return f"{body}%r = stablehlo.add %x, %a : {of}", of, of


# -- by NumPy ------------------------------------------------------------------------------


def _oracle(name: str) -> Callable[..., Callable[[str, list[Array]], list[Array]]]:
    def f(judge: Callable[[str, list[Array]], list[Array]]) -> Callable[..., list[Array]]:
        ORACLES[name] = judge
        return judge

    return f


@generator("fft")
def _fft(rng: Rng) -> Program:
    part, way = pick(rng, ("f32", "f64")), pick(rng, ("FFT", "IFFT", "RFFT", "IRFFT"))
    rank = int(rng.integers(1, 4))
    dims = [int(d) for d in rng.integers(1, 7, rank + int(rng.integers(0, 2)))]
    lengths, halved = dims[-rank:], [*dims[:-1], dims[-1] // 2 + 1]
    whole, real = t(dims, f"complex<{part}>"), t(dims, part)
    half = t(halved, f"complex<{part}>")
    of, to = {"FFT": (whole, whole), "IFFT": (whole, whole), "RFFT": (real, half),
              "IRFFT": (half, real)}[way]  # fmt: skip
    return (
        f"%r = stablehlo.fft %a, type = {way}, length = {lengths} : ({of}) -> {to}", of, to,
    )  # fmt: skip


@_oracle("fft")
def _by_numpy(text: str, arrays: list[Array]) -> list[Array]:
    found = re.search(r"type = +(\w+), length = \[([\d, ]+)\]", text)
    assert found is not None
    way, lengths = found[1], [int(n) for n in found[2].split(",")]
    x = arrays[0] if len(arrays) == 1 else arrays[0] + 1j * arrays[1]
    axes = tuple(range(x.ndim - len(lengths), x.ndim))
    part = arrays[0].dtype
    y = {"FFT": np.fft.fftn, "IFFT": np.fft.ifftn, "RFFT": np.fft.rfftn,
         "IRFFT": np.fft.irfftn}[way](x, lengths, axes)  # fmt: skip
    return [y.astype(part)] if way == "IRFFT" else [y.real.astype(part), y.imag.astype(part)]


@generator("cholesky")
def _cholesky(rng: Rng) -> Program:
    part, n, lower = pick(rng, ("f32", "f64")), int(rng.integers(1, 6)), rng.random() < 0.5
    of = t([n, n], part)
    return (
        f"%p = stablehlo.dot_general %a, %a, contracting_dims = [1] x [1] : ({of}, {of}) -> {of}\n"
        f"%e = stablehlo.constant dense<{_eye(n)}> : {of}\n%s = stablehlo.add %p, %e : {of}\n"
        f"%r = stablehlo.cholesky %s, lower = {str(lower).lower()} : {of}", of, of,
    )  # fmt: skip


def _eye(n: int) -> str:
    rows = ("[" + ", ".join("2.0" if i == j else "0.0" for j in range(n)) + "]" for i in range(n))
    return f"[{', '.join(rows)}]"


@_oracle("cholesky")
def _lower_or_upper(text: str, arrays: list[Array]) -> list[Array]:
    """The other triangle is the implementation's: here the product leaves it as it was."""
    (a,) = arrays
    found = np.linalg.cholesky(a @ a.T + 2 * np.eye(len(a), dtype=a.dtype))
    return [found if "lower = true" in text else found.T]


@generator("triangular_solve")
def _triangular_solve(rng: Rng) -> Program:
    part, n, m = pick(rng, ("f32", "f64")), int(rng.integers(1, 5)), int(rng.integers(1, 4))
    left, lower, unit = (rng.random() < 0.5 for _ in range(3))
    way = pick(rng, ("NO_TRANSPOSE", "TRANSPOSE"))
    of, by = t([n, n], part), t([n, m] if left else [m, n], part)
    words = {True: "true", False: "false"}
    return (
        f"%e = stablehlo.constant dense<{_eye(n)}> : {of}\n%x = stablehlo.add %e, %e : {of}\n"
        f"%y = stablehlo.add %x, %x : {of}\n%s = stablehlo.add %a, %y : {of}\n"
        f'%r = "stablehlo.triangular_solve"(%s, %b) {{left_side = {words[left]},'
        f" lower = {words[lower]}, unit_diagonal = {words[unit]},"
        f" transpose_a = #stablehlo<transpose {way}>}} : ({of}, {by}) -> {by}", f"{of} {by}", by,
    )  # fmt: skip


@_oracle("triangular_solve")
def _by_scipy(text: str, arrays: list[Array]) -> list[Array]:
    a, b = arrays
    a = a + 8 * np.eye(len(a), dtype=a.dtype)
    lower, unit, left = (f"{w} = true" in text for w in ("lower", "unit_diagonal", "left_side"))
    turned = "<transpose TRANSPOSE>" in text
    if not left:  # x a = b is aT xT = bT
        b, turned = b.T, not turned
    x = scipy.linalg.solve_triangular(a, b, int(turned), lower, unit)
    return [(x if left else x.T).astype(b.dtype)]


@generator("batch_norm_inference")
def _batch_norm(rng: Rng) -> Program:
    dims, part = shape(rng, 1, empty=False), pick(rng, ("f32", "f64"))
    axis = int(rng.integers(len(dims)))
    of, line = t(dims, part), t([dims[axis]], part)
    types = f"({of}, {', '.join([line] * 4)}) -> {of}"
    return (
        f"%v = stablehlo.multiply %e, %e : {line}\n"
        '%r = "stablehlo.batch_norm_inference"(%a, %b, %c, %d, %v)'
        f" {{epsilon = 0.5 : f32, feature_index = {axis} : i64}} : {types}",
        " ".join([of, *[line] * 4]), of,
    )  # fmt: skip


def _feature(text: str) -> int:
    """The axis that a norm does not measure along."""
    return int(text.split("feature_index = ")[1].split(" ", maxsplit=1)[0])


@_oracle("batch_norm_inference")
def _norm(text: str, arrays: list[Array]) -> list[Array]:
    axis = _feature(text)
    x, *lines = arrays
    scale, offset, mean, root = (
        v.reshape([-1 if i == axis else 1 for i in range(x.ndim)]) for v in lines
    )
    return [((x - mean) / np.sqrt(root * root + 0.5) * scale + offset).astype(x.dtype)]


@generator("batch_norm_training")
def _batch_norm_training(rng: Rng) -> Program:
    dims, part = shape(rng, 1, empty=False), pick(rng, ("f32", "f64"))
    axis = int(rng.integers(len(dims)))
    of, line = t(dims, part), t([dims[axis]], part)
    return (
        '%r0, %r1, %r2 = "stablehlo.batch_norm_training"(%a, %b, %c)'
        f" {{epsilon = 0.5 : f32, feature_index = {axis} : i64}}"
        f" : ({of}, {line}, {line}) -> ({of}, {line}, {line})",
        f"{of} {line} {line}", f"{of} {line} {line}",
    )  # fmt: skip


@_oracle("batch_norm_training")
def _measured_norm(text: str, arrays: list[Array]) -> list[Array]:
    axis = _feature(text)
    x, scale, offset = arrays
    rest = tuple(i for i in range(x.ndim) if i != axis)
    mean, variance = x.mean(rest, keepdims=True), x.var(rest, keepdims=True)
    scale, offset = (v.reshape(mean.shape) for v in (scale, offset))
    y = (x - mean) / np.sqrt(variance + 0.5) * scale + offset
    return [v.astype(x.dtype) for v in (y, mean.ravel(), variance.ravel())]


@generator("batch_norm_grad")
def _batch_norm_grad(rng: Rng) -> Program:
    dims, part = shape(rng, 1, empty=False), pick(rng, ("f32", "f64"))
    axis = int(rng.integers(len(dims)))
    of, line = t(dims, part), t([dims[axis]], part)
    return (
        f"%v = stablehlo.multiply %d, %d : {line}\n"
        '%r0, %r1, %r2 = "stablehlo.batch_norm_grad"(%a, %b, %c, %v, %e)'
        f" {{epsilon = 0.5 : f32, feature_index = {axis} : i64}}"
        f" : ({of}, {line}, {line}, {line}, {of}) -> ({of}, {line}, {line})",
        f"{of} {line} {line} {line} {of}", f"{of} {line} {line}",
    )  # fmt: skip


@_oracle("batch_norm_grad")
def _norm_adjoint(text: str, arrays: list[Array]) -> list[Array]:
    """By the specification of StableHLO, in whose words mean and variance are operands."""
    axis = _feature(text)
    x, dy = arrays[0].astype("f8"), arrays[4].astype("f8")
    rest = tuple(i for i in range(x.ndim) if i != axis)
    lines = [-1 if i == axis else 1 for i in range(x.ndim)]
    scale, mean, root = (v.astype("f8").reshape(lines) for v in arrays[1:4])
    centred, deviation = x - mean, np.sqrt(root * root + 0.5)
    moved = dy * x.size / x.shape[axis] - dy.sum(rest, keepdims=True)
    moved -= (dy * centred).sum(rest, keepdims=True) * centred / deviation**2
    dx = moved * scale / deviation / (x.size / x.shape[axis])
    dscale = (dy * centred / deviation).sum(rest)
    return [v.astype(arrays[0].dtype) for v in (dx, dscale, dy.sum(rest))]
