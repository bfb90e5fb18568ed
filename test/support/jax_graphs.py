"""Graphs as functions of JAX, and transforms of graphs as JAX's own: an outside judge.

A function takes a dict of named arrays and gives a list. Ops that are not in the table are those of
their expansions; a graph with another op is refused by ``Unknown``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.graph import Graph, topological
from rlx.ops.base import Op
from rlx.ops.value import Value
from support.random_graphs import widened
from support.random_transforms import Precise, Step, Transformed, apply, transformed

__all__ = ["OPS", "Unable", "Unknown", "case_for_jax", "disagreement", "function_of"]

# By name: JAX is a peer that need not be installed, of which type checkers know nothing.
jax: Any = importlib.import_module("jax")
jnp: Any = jax.numpy
lax: Any = jax.lax
jax.config.update("jax_enable_x64", True)

Given = Mapping[str, Any]
Function = Callable[[Given], list[Any]]


class Unknown(Exception):
    """An op that the table has not."""


class Unable(Exception):
    """JAX itself fails on a function."""


def _flip(n: Any, x: Any) -> Any:
    return jnp.flip(x, n.axis) if n.reverse else x


def _running(f: Callable[..., Any]) -> Callable[..., Any]:
    def run(n: Any, x: Any) -> Any:
        y = f(_flip(n, x), n.axis)
        if getattr(n, "exclusive", False):
            first = jnp.full_like(
                lax.slice_in_dim(y, 0, 1, axis=n.axis), 0 if f is jnp.cumsum else 1
            )
            rest = lax.slice_in_dim(y, 0, y.shape[n.axis] - 1, axis=n.axis)
            y = jnp.concatenate([first, rest], n.axis)
        return _flip(n, y)

    return run


def _reduce(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda n, x: f(x, axis=n.axes, keepdims=n.keepdims)


def _layer_norm(n: Any, x: Any, gamma: Any, beta: Any, centred: bool = True) -> Any:
    shape = [1] * x.ndim
    shape[n.axis] = -1
    x = x - x.mean(n.axis, keepdims=True) if centred else x
    y = x / jnp.sqrt((x * x).mean(n.axis, keepdims=True) + n.eps)
    y = y if gamma is None else y * gamma.reshape(shape)
    return y if beta is None else y + beta.reshape(shape)


def _slice(n: Any, x: Any) -> Any:
    parts = zip(n.starts, n.sizes, n.steps, strict=True)
    return x[
        tuple(slice(a, a + max(0, (s - 1) * t + 1), t) if s else slice(0, 0) for a, s, t in parts)
    ]


def _pad(n: Any, x: Any, fill: Any) -> Any:
    return lax.pad(x, fill, list(zip(n.low, n.high, n.interior, strict=True)))


def _topk(n: Any, x: Any) -> Any:
    y = jnp.moveaxis(x if n.largest else -x, n.axis, -1)
    values, places = lax.top_k(y, n.k)
    values = values if n.largest else -values
    return jnp.moveaxis(values, -1, n.axis), jnp.moveaxis(places, -1, n.axis).astype(np.int64)


def _recurrence(n: Any, a: Any, x: Any) -> Any:
    a, x = (jnp.moveaxis(_flip(n, v), n.axis, 0) for v in (a, x))
    _, y = lax.scan(lambda c, e: (e[0] * c + e[1],) * 2, jnp.zeros_like(x[0]), (a, x))
    return _flip(n, jnp.moveaxis(y, 0, n.axis))


def _div(n: Any, x: Any, y: Any) -> Any:
    return x / y if n.out.dtype.is_float else lax.div(*jnp.broadcast_arrays(x, y))


def _argmax(n: Any, x: Any) -> Any:
    if n.select_last_index:
        raise Unknown("argmax of the last among equals")
    return jnp.argmax(x, n.axis, keepdims=n.keepdims)


def _plain(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda n, *xs: f(*xs)


OPS: dict[str, Callable[..., Any]] = {
    **{
        f"mir.{name}": _plain(getattr(jnp, name))
        for name in (
            "abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "cos",
            "cosh", "exp", "exp2", "expm1", "floor", "isfinite", "isinf", "isnan", "log", "log1p",
            "log2", "logical_and", "logical_not", "logical_or", "logical_xor", "maximum",
            "minimum", "round", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc", "where",
            "remainder", "matmul",
        )
    },
    **{
        f"mir.{name}": _plain(getattr(jax.nn, name))
        for name in (
            "sigmoid", "silu", "relu", "softplus", "selu", "mish", "hard_swish", "relu6",
        )
    },
    "mir.softsign": _plain(jax.nn.soft_sign),
    "mir.elu": lambda n, x: jax.nn.elu(x, n.alpha),
    "mir.celu": lambda n, x: jax.nn.celu(x, n.alpha),
    "mir.leaky_relu": lambda n, x: jax.nn.leaky_relu(x, n.alpha),
    "mir.gelu": _plain(lambda x: jax.nn.gelu(x, approximate=False)),
    "mir.gelu_approx": _plain(jax.nn.gelu),
    "mir.erf": _plain(lax.erf),
    "mir.erfinv": _plain(lax.erf_inv),
    "mir.rsqrt": _plain(lax.rsqrt),
    "mir.add": _plain(jnp.add), "mir.sub": _plain(jnp.subtract), "mir.mul": _plain(jnp.multiply),
    "mir.div": _div,
    "mir.pow": _plain(jnp.power), "mir.neg": _plain(jnp.negative),
    **{
        f"mir.{name}": _plain(f)
        for name, f in (
            ("eq", jnp.equal), ("ne", jnp.not_equal), ("lt", jnp.less), ("le", jnp.less_equal),
            ("gt", jnp.greater), ("ge", jnp.greater_equal),
        )
    },
    "mir.cast": lambda n, x: x.astype(n.to.numpy),
    "mir.constant": lambda n: jnp.asarray(n.value),
    "mir.iota": lambda n: lax.broadcasted_iota(n.dtype.numpy, n.shape, n.axis),
    "mir.reshape": lambda n, x: x.reshape(n.shape),
    "mir.transpose": lambda n, x: x.transpose(n.perm),
    "mir.expand": lambda n, x: jnp.broadcast_to(x, n.shape),
    "mir.flip": lambda n, x: jnp.flip(x, n.axes),
    "mir.slice": _slice,
    "mir.concat": lambda n, a, b: jnp.concatenate([a, b], n.axis),
    "mir.pad": _pad,
    "mir.reduce_sum": _reduce(jnp.sum), "mir.reduce_mean": _reduce(jnp.mean),
    "mir.reduce_max": _reduce(jnp.max), "mir.reduce_min": _reduce(jnp.min),
    "mir.reduce_prod": _reduce(jnp.prod),
    "mir.cumsum": _running(jnp.cumsum), "mir.cumprod": _running(jnp.cumprod),
    "mir.logcumsumexp": _running(lax.cumlogsumexp),
    "mir.linear_recurrence": _recurrence,
    "mir.softmax": lambda n, x: jax.nn.softmax(x, n.axis),
    "mir.log_softmax": lambda n, x: jax.nn.log_softmax(x, n.axis),
    "mir.logsumexp": lambda n, x: jax.nn.logsumexp(x, axis=n.axes, keepdims=n.keepdims),
    "mir.layer_norm": _layer_norm,
    "mir.rms_norm": lambda n, x, gamma, beta: _layer_norm(n, x, gamma, beta, centred=False),
    "mir.argmax": _argmax,
    "mir.topk": _topk,
    "mir.triangular_solve": lambda n, a, b: lax.linalg.triangular_solve(
        a, b, left_side=n.left_side, lower=n.lower, transpose_a=n.transpose,
        unit_diagonal=n.unit_diagonal,
    ),
    "hir.stop_gradient": _plain(lax.stop_gradient),
}  # fmt: skip
"""What each op is in JAX: of the node and its operands."""


def _body(graph: Graph) -> Callable[..., list[Any]]:
    return lambda *xs: evaluated(graph.outputs, dict(zip(graph.inputs, xs, strict=True)))


def _scan(n: Any, *args: Any) -> tuple[Any, ...]:
    at, end = n.carries, len(args) - n.scanned
    body = _body(n.body)

    def one(carry: Any, given: Any) -> Any:
        i, xs = given
        out = body(i, *carry, *args[at:end], *xs)
        return tuple(out[:at]), tuple(out[at:])

    numbers = jnp.arange(n.rounds, dtype=np.int64)
    ends, ys = lax.scan(one, tuple(args[:at]), (numbers, tuple(args[end:])), n.rounds, n.reverse)
    return (*ends, *ys)


def _while(n: Any, *args: Any) -> tuple[Any, ...]:
    fixed = args[n.carries :]
    return lax.while_loop(
        lambda c: _body(n.test)(*c, *fixed)[0].reshape(()),
        lambda c: tuple(_body(n.body)(*c, *fixed)),
        tuple(args[: n.carries]),
    )


CONTROL: dict[str, Callable[..., Any]] = {
    "control.cond": lambda n, pred, *args: tuple(
        lax.cond(pred.reshape(()), _body(n.then), _body(n.otherwise), *args)
    ),
    "control.scan": _scan,
    "control.while_loop": _while,
    "control.checkpoint": lambda n, *args: tuple(jax.checkpoint(_body(n.body))(*args)),
}


def evaluated(outputs: Sequence[Value], given: Mapping[Value, Any]) -> list[Any]:
    """Values from those of what they are computed from."""
    env = dict(given)
    for op in topological(outputs, stop=set(env)):
        args = [None if v is None else env[v] for v in op.operands]
        env.update(zip(op.results, _results(op, args), strict=True))
    return [env[v] for v in outputs]


def _results(op: Op, args: list[Any]) -> Sequence[Any]:
    known = OPS.get(op.name) or CONTROL.get(op.name)
    if known is not None:
        out = known(op, *args)
        return out if isinstance(out, tuple) else (out,)
    if not op.composite():
        raise Unknown(op.name)
    made = op.expand()
    outs = list(made) if isinstance(made, tuple) else [made]
    return evaluated(outs, {v: a for v, a in zip(op.operands, args, strict=True) if v is not None})


def function_of(graph: Graph) -> Function:
    """A graph as a function of JAX."""
    leaves = [*graph.inputs, *graph.params]
    return lambda d: evaluated(graph.outputs, {v: d[str(v.name)] for v in leaves})


# -- transforms ----------------------------------------------------------------------------


def _scalar(f: Function, floats: Sequence[bool]) -> Callable[[Mapping[str, Any]], Any]:
    """As ``random_transforms.scalar``."""

    def total(d: Mapping[str, Any]) -> Any:
        parts = [y for y, has in zip(f(d), floats, strict=True) if has]
        return sum(jnp.sum(y.reshape(-1) * jnp.sin(jnp.arange(y.size) + 1.0)) for y in parts)

    return total


class Under:
    """The function of ``before`` under the transform that has made ``after`` of it: the method that
    is called as the step is."""

    def __init__(self, f: Function, before: Graph, after: Graph, step: Step) -> None:
        self.f, self.step, self.wrt = f, step, step.wrt
        self.floats = [v.dtype.is_float for v in before.outputs]
        old = {v.name for v in before.inputs}
        self.new = [str(v.name) for v in after.inputs if v.name not in old]
        self.number = _scalar(f, self.floats)

    def by(self, d: Given) -> dict[str, Any]:
        """What the derivative is by."""
        return {n: d[n] for n in self.wrt}

    def directions(self, d: Given) -> dict[str, Any]:
        """The tangents."""
        return dict(zip(self.wrt, (d[n] for n in self.new), strict=True))

    def some(self, d: Given) -> Function:
        """The outputs of floats, of what the derivative is by alone."""
        return lambda w: [y for y, has in zip(self.f({**d, **w}), self.floats, strict=True) if has]

    def one(self, d: Given) -> Callable[[Given], Any]:
        """One number, of what the derivative is by alone."""
        return lambda w: self.number({**d, **w})

    def value_and_grad(self, d: Given) -> list[Any]:
        y, gs = jax.value_and_grad(self.one(d))(self.by(d))
        return [y, *(gs[n] for n in self.wrt)]

    def grad(self, d: Given) -> list[Any]:
        return self.value_and_grad(d)[1:]

    def vjp(self, d: Given) -> list[Any]:
        _, pull = jax.vjp(self.some(d), self.by(d))
        (gs,) = pull([d[n] for n in self.new])
        return [*self.f(d), *(gs[n] for n in self.wrt)]

    def jvp(self, d: Given) -> list[Any]:
        _, ts = jax.jvp(self.some(d), (self.by(d),), (self.directions(d),))
        return [*self.f(d), *ts]

    def hvp(self, d: Given) -> list[Any]:
        def inner(w: Given) -> list[Any]:
            return self.value_and_grad({**d, **w})

        ys, ts = jax.jvp(inner, (self.by(d),), (self.directions(d),))
        return [*ys, *ts]

    def jacfwd(self, d: Given) -> list[Any]:
        return [block[n] for block in jax.jacfwd(self.some(d))(self.by(d)) for n in self.wrt]

    def jacrev(self, d: Given) -> list[Any]:
        return [block[n] for block in jax.jacrev(self.some(d))(self.by(d)) for n in self.wrt]

    def hessian(self, d: Given) -> list[Any]:
        found = jax.hessian(self.one(d))(self.by(d))
        return [found[a][b] for a in self.wrt for b in self.wrt]

    def vmap(self, d: Given) -> list[Any]:
        axes = {n: self.step.in_axes.get(n) for n in d}
        return jax.vmap(self.f, in_axes=(axes,), out_axes=list(self.step.out_axes))(dict(d))


# -- comparison ----------------------------------------------------------------------------

NAMES = [
    *(name for name in OPS if name not in ("mir.constant", "mir.iota")), *["control"] * 20,
    "mir.attention", "mir.dot_general", "hir.swiglu", "hir.linear", "hir.group_norm",
]  # fmt: skip


def case_for_jax(seed: int) -> Transformed | None:
    """A random graph of ops that JAX has, under random transforms, in f64."""
    return transformed(seed, Precise, NAMES)


def disagreement(x: Transformed) -> str | None:
    """How JAX's results differ from those of the interpreter, or None. Unable where JAX fails."""
    g, f = x.source.graph, function_of(x.source.graph)
    for step in x.steps:
        after = apply(g, step)
        f, g = getattr(Under(f, g, after, step), step.name), after
    given = {k: np.asarray(v) for k, v in {**x.case.feeds, **x.case.params}.items()}
    try:
        found = jax.jit(f)(given)
    except Exception as e:
        raise Unable(f"{type(e).__name__}: {e}") from e
    for i, (y, e) in enumerate(zip(found, x.case.expected, strict=True)):
        a = np.asarray(y)
        if a.shape != e.shape:
            return f"output {i} has the shape {a.shape}, here {e.shape}"
        if e.dtype.kind != "f":
            wrong = a != e
        else:
            # Both are f64; what they round differently grows as shaking does.
            room = 1e-7 * max(1.0, float(np.abs(e).max(initial=0))) + 8 * x.case.allowed[i]
            with np.errstate(invalid="ignore"):
                wrong = ~((np.abs(widened(a) - e) <= room) | (np.isnan(a) & np.isnan(e)))
        if wrong.any():
            return f"output {i}: JAX has {a[wrong][:3]}, here {e[wrong][:3]}"
    return None
