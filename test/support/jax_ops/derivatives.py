"""Derivatives by JAX's own transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.derived import SMOOTH, Derived
from support.jax_ops.graphs import evaluated
from support.jax_ops.peer import jax

__all__ = ["derivatives"]


def derivatives(d: Derived) -> Callable[..., list[Any]]:
    """A function of the leaves, as JAX's arrays, that gives the parts one after another."""
    smooth = [i for i, v in enumerate(d.inputs) if v.dtype in SMOOTH]
    given = [i for i, v in enumerate(d.results) if v.dtype in SMOOTH]
    ends = len(d.inputs), len(d.inputs) + len(smooth)

    def function(*leaves: Any) -> list[Any]:
        inputs, tangents, cotangents = leaves[: ends[0]], leaves[slice(*ends)], leaves[ends[1] :]
        at = tuple(inputs[i] for i in smooth)

        def results(*xs: Any) -> list[Any]:
            known = dict(zip(d.inputs, inputs, strict=True))
            return evaluated(d.results, {**known, **dict(zip(d.smooth, xs, strict=True))})

        def f(*xs: Any) -> tuple[Any, ...]:
            found = results(*xs)
            return tuple(found[i] for i in given)

        def back(*xs: Any) -> tuple[Any, ...]:
            return jax.vjp(f, *xs)[1](cotangents)

        def forward(*xs: Any) -> tuple[Any, ...]:
            return jax.jvp(f, xs, tangents)[1]

        out = results(*at)
        if not d.order:
            return out
        firsts = [back, forward] if d.reverse else [forward]
        if d.order == 1:
            return [*out, *(v for first in firsts for v in first(*at))]
        found, second = jax.jvp(firsts[0], at, tangents)
        return [*out, *found, *(v for first in firsts[1:] for v in first(*at)), *second]

    return function
