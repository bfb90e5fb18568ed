"""Graphs as functions of JAX, and transforms of graphs as JAX's own: an outside judge.

A function takes a dict of named arrays and gives a list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.ir.graph import Graph
from support.jax_ops import OPS
from support.jax_ops.graphs import evaluated
from support.jax_ops.peer import jax, jnp
from support.random_graphs import widened
from support.random_transforms import Precise, Step, Transformed, apply, transformed

__all__ = ["Unable", "case_for_jax", "disagreement", "function_of"]

Given = Mapping[str, Any]
Function = Callable[[Given], list[Any]]


class Unable(Exception):
    """JAX itself fails on a function."""


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

# What makes complex numbers is left out: the number that ``_scalar`` makes of outputs has none.
# JAX has no derivative of nextafter.
LEFT_OUT = ("mir.constant", "mir.iota", "mir.complex", "mir.rfft", "mir.nextafter")
NAMES = [*(name for name in OPS if name not in LEFT_OUT), *["control"] * 20]


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
