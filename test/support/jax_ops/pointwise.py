"""Ops that work element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.jax_ops.peer import Table, jnp, lax, nn, special

__all__ = ["FLAT", "OPS"]


def _named(module: Any, name: str) -> Callable[..., Any]:
    return lambda n, *xs: getattr(module, name)(*xs)


def _div(n: Any, x: Any, y: Any) -> Any:
    return lax.div(*jnp.broadcast_arrays(x, y)) if n.out.dtype.is_int else x / y


def _hard_sigmoid(n: Any, x: Any) -> Any:
    return jnp.clip(n.alpha * x + n.beta, 0.0, 1.0)


OPS: Table = {
    **{
        f"mir.{name}": _named(jnp, name)
        for name in (
            "abs", "acos", "acosh", "add", "angle", "asin", "asinh", "atan", "atan2", "atanh",
            "conj", "cos", "cosh", "exp", "exp2", "expm1", "fmod", "imag", "log", "log1p", "log2",
            "maximum", "minimum", "real", "remainder", "sin", "sinh", "sqrt", "tan", "tanh",
            "where",
        )
    },
    **{
        f"mir.{ours}": _named(jnp, theirs)
        for ours, theirs in (
            ("mul", "multiply"), ("neg", "negative"), ("pow", "power"), ("sub", "subtract"),
        )
    },
    **{
        f"mir.{name}": _named(nn, name)
        for name in (
            "hard_swish", "mish", "relu", "relu6", "selu", "sigmoid", "silu", "softplus",
        )
    },
    "mir.bessel_i0e": _named(special, "i0e"),
    "mir.bessel_i1e": _named(special, "i1e"),
    "mir.cast": lambda n, x: x.astype(n.to.numpy),
    "mir.celu": lambda n, x: nn.celu(x, n.alpha),
    "mir.complex": lambda n, x, y: lax.complex(*jnp.broadcast_arrays(x, y)),
    "mir.copysign": _named(jnp, "copysign"),
    "mir.digamma": _named(special, "digamma"),
    "mir.complex_norm_sq": lambda n, x: jnp.real(x) ** 2 + jnp.imag(x) ** 2,
    "mir.div": _div,
    "mir.elu": lambda n, x: nn.elu(x, n.alpha),
    "mir.erf": lambda n, x: special.erf(x),
    "mir.erfinv": lambda n, x: special.erfinv(x),
    "mir.gelu": lambda n, x: nn.gelu(x, approximate=False),
    "mir.gelu_approx": lambda n, x: nn.gelu(x, approximate=True),
    "mir.hard_sigmoid": _hard_sigmoid,
    "mir.igamma": lambda n, a, x: special.gammainc(*jnp.broadcast_arrays(a, x)),
    "mir.igammac": lambda n, a, x: special.gammaincc(*jnp.broadcast_arrays(a, x)),
    "mir.igamma_grad_a": lambda n, a, x: lax.igamma_grad_a(*jnp.broadcast_arrays(a, x)),
    "mir.leaky_relu": lambda n, x: nn.leaky_relu(x, n.alpha),
    "mir.lgamma": _named(special, "gammaln"),
    "mir.polygamma": lambda n, x: special.polygamma(n.n, x),
    "mir.rsqrt": lambda n, x: lax.rsqrt(x),
    "mir.softsign": lambda n, x: nn.soft_sign(x),
}  # fmt: skip

FLAT: Table = {
    "mir.bitcast": lambda n, x: lax.bitcast_convert_type(x, n.to.numpy),
    "mir.nextafter": _named(jnp, "nextafter"),
    "mir.popcount": _named(lax, "population_count"),
    **{
        f"mir.{name}": _named(jnp, name)
        for name in (
            "ceil", "floor", "isfinite", "isinf", "isnan", "logical_and", "logical_not",
            "logical_or", "logical_xor", "round", "sign", "trunc",
        )
    },
    **{
        f"mir.{ours}": _named(jnp, theirs)
        for ours, theirs in (
            ("eq", "equal"), ("ge", "greater_equal"), ("gt", "greater"), ("le", "less_equal"),
            ("lt", "less"), ("ne", "not_equal"),
        )
    },
}  # fmt: skip
"""Those that have no derivative: comparisons and what is flat between its jumps."""
