"""Functions and points at which derivatives are held against those of JAX.

The points are where a derivative is a matter of choice (ties, bends, poles, ends of a domain) and
where it is not. ``tools/make_derivative_fixtures.py`` evaluates the side of JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import rlx

__all__ = ["ROWS", "Row", "direction"]

Array = np.ndarray[Any, Any]

NAN, INF = float("nan"), float("inf")


class Row(NamedTuple):
    """A function of Values, the same as an expression of x, y and z for JAX, and operands."""

    name: str
    ours: Callable[..., rlx.Value]
    jax: str
    operands: tuple[Array, ...]


def direction(like: Array) -> Array:
    """A tangent or cotangent: 1, 2, 3, and so on, of complex values times 1 + i/2."""
    count = np.arange(1, like.size + 1).reshape(like.shape) * 1.0
    return count * (1 + 0.5j) if np.iscomplexobj(like) else count


def _row(name: str, ours: Callable[..., rlx.Value], jax: str, *operands: Any) -> Row:
    arrays = (np.asarray(a) for a in operands)
    return Row(name, ours, jax, tuple(a if a.dtype.kind == "c" else a * 1.0 for a in arrays))


# -- element by element --------------------------------------------------------------------

REAL = [-1000.0, -6.0, -3.0, -2.0, -1.0, -0.5, 0.5, 1.0, 2.0, 3.0, 6.0, 1000.0]
WITH_ZERO = [*REAL, 0.0, -0.0]
POSITIVE = [1e-300, 0.5, 1.0, 7.0, 1e300]
UNIT = [-0.99, -0.5, 0.0, 0.5, 0.99]

UNARY = {
    "neg": "-x", "exp": "jnp.exp(x)", "sin": "jnp.sin(x)", "cos": "jnp.cos(x)",
    "tan": "jnp.tan(x)", "atan": "jnp.arctan(x)", "expm1": "jnp.expm1(x)", "exp2": "jnp.exp2(x)",
    "sinh": "jnp.sinh(x)", "cosh": "jnp.cosh(x)", "asinh": "jnp.arcsinh(x)", "ceil": "jnp.ceil(x)",
    "trunc": "jnp.trunc(x)", "floor": "jnp.floor(x)", "round": "jnp.round(x)",
    "sign": "jnp.sign(x)", "tanh": "jnp.tanh(x)", "sigmoid": "nn.sigmoid(x)", "silu": "nn.silu(x)",
    "gelu": "nn.gelu(x, approximate=False)", "gelu_approx": "nn.gelu(x)", "erf": "special.erf(x)",
    "relu": "nn.relu(x)", "relu6": "nn.relu6(x)", "softplus": "nn.softplus(x)",
    "mish": "nn.mish(x)", "elu": "nn.elu(x)", "selu": "nn.selu(x)",
    "leaky_relu": "nn.leaky_relu(x)", "hard_sigmoid": "nn.hard_sigmoid(x)",
    "hard_swish": "nn.hard_swish(x)",
}  # fmt: skip

DOMAIN = {
    "abs": ("jnp.abs(x)", REAL),
    "celu": ("nn.celu(x)", REAL),
    "softsign": ("nn.soft_sign(x)", REAL),
    "log": ("jnp.log(x)", [0.0, *POSITIVE]),
    "log2": ("jnp.log2(x)", [0.0, *POSITIVE]),
    "log1p": ("jnp.log1p(x)", [-1.0, *UNIT, 1e300]),
    "sqrt": ("jnp.sqrt(x)", [0.0, *POSITIVE]),
    "rsqrt": ("lax.rsqrt(x)", [0.5, 1.0, 7.0]),
    "asin": ("jnp.arcsin(x)", [-1.0, *UNIT, 1.0]),
    "acos": ("jnp.arccos(x)", [-1.0, *UNIT, 1.0]),
    "acosh": ("jnp.arccosh(x)", [1.0, 1.5, 1e150]),
    "atanh": ("jnp.arctanh(x)", UNIT),
    "erfinv": ("special.erfinv(x)", UNIT),
    "lgamma": ("special.gammaln(x)", [0.25, 0.5, 1.0, 1.5, 2.0, 7.0, 100.0]),
    "digamma": ("special.digamma(x)", [0.25, 0.5, 1.0, 1.5, 2.0, 7.0, 100.0]),
    "bessel_i0e": ("special.i0e(x)", [-20.0, *REAL[1:-1], 0.0, 20.0]),
    "bessel_i1e": ("special.i1e(x)", [-20.0, *REAL[1:-1], 0.0, 20.0]),
}

_GRID = [-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0]
PAIRS = tuple(v.ravel() for v in np.meshgrid(_GRID, _GRID))
OVER = tuple(v.ravel() for v in np.meshgrid(_GRID, [v for v in _GRID if v]))
POWERS = tuple(v.ravel() for v in np.meshgrid([0.5, 1.0, 2.0, 3.0], _GRID))

BINARY = {
    "add": ("x + y", PAIRS), "sub": ("x - y", PAIRS), "mul": ("x * y", PAIRS),
    "div": ("x / y", OVER), "maximum": ("jnp.maximum(x, y)", PAIRS),
    "minimum": ("jnp.minimum(x, y)", PAIRS), "pow": ("jnp.power(x, y)", POWERS),
    "atan2": ("jnp.arctan2(x, y)", OVER), "copysign": ("jnp.copysign(x, y)", PAIRS),
    "remainder": ("jnp.remainder(x, y)", OVER),
    "fmod": ("jnp.fmod(x, y)", OVER), "floor_divide": ("jnp.floor_divide(x, y)", OVER),
}  # fmt: skip


def _pointwise() -> Iterator[Row]:
    for name, jax in UNARY.items():
        yield _row(name, lambda x, name=name: getattr(x, name)(), jax, WITH_ZERO)
    for name, (jax, points) in DOMAIN.items():
        yield _row(name, lambda x, name=name: getattr(x, name)(), jax, points)
    for name, (jax, points) in BINARY.items():
        yield _row(name, lambda x, y, name=name: getattr(x, name)(y), jax, *points)
    for k in (0, 1, 2, 3, 0.5, -1):
        points = _GRID if k not in (0.5, -1) else [v for v in _GRID if v > 0]
        yield _row(f"x**{k}", lambda x, k=k: x**k, f"x**{k}", points)
    yield _row("clip", lambda x: x.clip(-1.0, 2.0), "jnp.clip(x, -1.0, 2.0)", [*_GRID, NAN])
    yield _row(
        "where, nan not taken", lambda x: x.gt(0).where(x.sqrt(), 0.0),
        "jnp.where(x > 0, jnp.sqrt(x), 0.0)", [-1.0, 0.0, 2.0, NAN],
    )  # fmt: skip


# -- along an axis -------------------------------------------------------------------------

TIES = [[1, 3, 3, 2], [2, 2, 2, 2], [0, 1, -1, 0.5], [0, 5, 0, -3]]
APART = [[1, 3, 4, 2], [0, 1, -1, 0.5]]
LINES = {
    "sum": ("jnp.sum(x, 1)", TIES), "mean": ("jnp.mean(x, 1)", TIES),
    "max": ("jnp.max(x, 1)", [*TIES, [1, NAN, 3, 3]]),
    "min": ("jnp.min(x, 1)", [*TIES, [1, NAN, 3, 3]]), "prod": ("jnp.prod(x, 1)", TIES),
    "logsumexp": ("special.logsumexp(x, 1)", [*TIES, [1000, 0, -1000, -INF]]),
    "cumsum": ("lax.cumsum(x, 1)", TIES), "cumprod": ("lax.cumprod(x, 1)", TIES),
    "cummax": ("lax.cummax(x, 1)", APART), "cummin": ("lax.cummin(x, 1)", APART),
    "logcumsumexp": ("lax.cumlogsumexp(x, 1)", TIES),
    "sort": ("jnp.sort(x, 1)", [*TIES, [1, NAN, 3, 3]]),
    "softmax": ("nn.softmax(x, 1)", [*TIES, [1000, 0, -1000, 1000]]),
    "log_softmax": ("nn.log_softmax(x, 1)", [*TIES, [1000, 0, -1000, 1000]]),
    "var": ("jnp.var(x, 1)", TIES), "std": ("jnp.std(x, 1)", APART),
    "norm": ("jnp.linalg.norm(x, axis=1)", TIES),
}  # fmt: skip
ALONG_1: dict[str, Callable[[rlx.Value], rlx.Value]] = {
    "sort": lambda x: x.sort(1),
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(1),
    **{
        name: lambda x, name=name: getattr(x, name)(1)
        for name in ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp")
    },
}
AT = [0, 2, 2, 1]


def _lines() -> Iterator[Row]:
    for name, (jax, points) in LINES.items():
        folded = lambda x, name=name: getattr(x, name)(axes=1)
        yield _row(name, ALONG_1.get(name, folded), jax, points)
    yield _row("topk", lambda x: x.topk(2)[0], "lax.top_k(x, 2)[0]", TIES)
    yield _row("topk, nan", lambda x: x.topk(2)[0], "lax.top_k(x, 2)[0]", [[1, NAN, 3, 3]])
    yield _row(
        "max_pool", lambda x: x.max_pool(2, 1),
        "lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2), (1, 1, 1), 'VALID')",
        [[[1, 3, 3, 2, 2, 2]]],
    )  # fmt: skip
    yield _row("gather", lambda x: x.gather(np.array(AT)), f"x[jnp.array({AT})]", [1, 2, 3])
    for how, jax in (("add", "add"), ("min", "min"), ("max", "max")):
        yield _row(
            f"scatter, {how}",
            lambda x, y, how=how: x.scatter(np.array(AT), y, reduction=how),
            f"x.at[jnp.array({AT})].{jax}(y)", [1, 2, 3], [4, 5, -6, 0],
        )  # fmt: skip
    for how, jax in (("set", "set"), ("mul", "multiply")):
        yield _row(
            f"scatter, {how}",
            lambda x, y, how=how: x.scatter(np.array([0, 2]), y, reduction=how),
            f"x.at[jnp.array([0, 2])].{jax}(y, unique_indices=True)", [1, 2, 0], [0, 5],
        )  # fmt: skip


# -- matrices and windows ------------------------------------------------------------------

_RNG = np.random.default_rng(5)
SQUARE = _RNG.standard_normal((2, 3, 3)) + 4 * np.eye(3)
GRAM = SQUARE @ np.swapaxes(SQUARE, 1, 2)
OTHER = _RNG.standard_normal((2, 3, 2))
IMAGE, KERNEL = _RNG.standard_normal((1, 2, 5, 4)), _RNG.standard_normal((3, 2, 2, 2))

MATRICES: dict[str, tuple[Callable[..., rlx.Value], str, tuple[Array, ...]]] = {
    "matmul": (lambda x, y: x @ y, "x @ y", (SQUARE, OTHER)),
    "matmul, broadcast": (lambda x, y: x @ y, "x @ y", (SQUARE, OTHER[0])),
    "einsum": (
        lambda x, y: rlx.Graph().einsum("bij,bjk->ki", x, y), "jnp.einsum('bij,bjk->ki', x, y)",
        (SQUARE, OTHER),
    ),
    "conv": (
        lambda x, y: x.conv(y, stride=2, padding=1),
        "lax.conv(x, y, (2, 2), [(1, 1), (1, 1)])", (IMAGE, KERNEL),
    ),
    "cholesky": (lambda x: (x + x.mT).cholesky(), "jnp.linalg.cholesky(x + x.mT)", (GRAM,)),
    "eigvalsh": (lambda x: (x + x.mT).eigvalsh(), "jnp.linalg.eigvalsh(x + x.mT)", (GRAM,)),
    "svdvals": (lambda x: x.svdvals(), "jnp.linalg.svdvals(x)", (OTHER,)),
    "det": (lambda x: x.det(), "jnp.linalg.det(x)", (SQUARE,)),
    "slogdet": (lambda x: x.slogdet()[1], "jnp.linalg.slogdet(x)[1]", (SQUARE,)),
    "inv": (lambda x: x.inv(), "jnp.linalg.inv(x)", (SQUARE,)),
    "pinv": (lambda x: x.pinv(), "jnp.linalg.pinv(x)", (OTHER,)),
    "solve": (lambda x, y: x.solve(y), "jnp.linalg.solve(x, y)", (SQUARE, OTHER)),
    "lu": (lambda x: x.lu()[0], "lax.linalg.lu(x)[0]", (SQUARE,)),
    "qr": (lambda x: x.qr()[1] ** 2, "jnp.linalg.qr(x)[1] ** 2", (OTHER,)),
    "triangular_solve": (
        lambda x, y: x.triangular_solve(y, lower=True),
        "lax.linalg.triangular_solve(x, y, left_side=True, lower=True)", (SQUARE, OTHER),
    ),
    "layer_norm": (
        lambda x, y: x.layer_norm(y),
        "(x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) * y",
        (SQUARE, SQUARE[0, 0]),
    ),
    "attention": (
        lambda x, y, z: x.attention(y, z, layout="bshd"),
        # dot_product_attention would compute the softmax in f32.
        "jnp.einsum('bhqk,bkhd->bqhd',"
        " nn.softmax(jnp.einsum('bqhd,bkhd->bhqk', x, y) / jnp.sqrt(3.0)), z)",
        tuple(_RNG.standard_normal((3, 1, 4, 2, 3))),
    ),
}  # fmt: skip


# -- complex numbers -----------------------------------------------------------------------

TURNS = np.array([1, -1, 1j, -1j, 1 + 2j, -3 + 0.5j])
COMPLEX = {
    "exp": "jnp.exp(x)", "log": "jnp.log(x)", "sqrt": "jnp.sqrt(x)", "neg": "-x",
    "abs": "jnp.abs(x)", "real": "jnp.real(x)", "imag": "jnp.imag(x)", "conj": "jnp.conj(x)",
    "angle": "jnp.angle(x)", "complex_norm_sq": "jnp.real(x * jnp.conj(x))",
    "fft": "jnp.fft.fft(x)", "ifft": "jnp.fft.ifft(x)", "irfft": "jnp.fft.irfft(x)",
}  # fmt: skip


def _complex() -> Iterator[Row]:
    for name, jax in COMPLEX.items():
        yield _row(f"complex {name}", lambda x, name=name: getattr(x, name)(), jax, TURNS)
    for name, jax in (("add", "x + y"), ("sub", "x - y"), ("mul", "x * y"), ("div", "x / y")):
        ours = lambda x, y, name=name: getattr(x, name)(y)
        yield _row(f"complex {name}", ours, jax, TURNS, TURNS[::-1].copy())
    yield _row("complex matmul", lambda x, y: x @ y, "x @ y",
               TURNS.reshape(2, 3), TURNS.reshape(3, 2))  # fmt: skip
    yield _row("complex prod", lambda x: x.prod(axes=0), "jnp.prod(x, 0)", TURNS)
    yield _row("complex", lambda x, y: x.complex(y), "lax.complex(x, y)", [1, 2], [3, 4])
    yield _row("rfft", lambda x: x.rfft(), "jnp.fft.rfft(x)", [1, 2, 3, 4, 5, 7])


ROWS: dict[str, Row] = {
    row.name: row
    for row in (
        *_pointwise(),
        *_lines(),
        *(_row(name, ours, jax, *points) for name, (ours, jax, points) in MATRICES.items()),
        *_complex(),
    )
}
