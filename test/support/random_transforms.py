"""Random graphs under random nestings of transforms.

``transformed(seed)`` is a case as ``random_case`` makes them, of the graph that the transforms
give: every node of it is evaluated and shaken, so its tolerances are those of a derivative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import rlx
from rlx.errors import UnsupportedError
from rlx.ir.clone import leaves_of
from rlx.ir.graph import Graph
from rlx.ir.interpreter import interpret
from rlx.ir.value import Value
from rlx.ops.rules import carries_derivative
from rlx.types import DType, bool_, f64, i64
from support.random_graphs import Array, Builder, Case, Skip, case_again, random_case
from support.random_ops import MOTIFS
from support.samples import op_classes

__all__ = ["Precise", "Small", "Step", "Transformed", "apply", "scalar", "steps_of", "transformed"]

LARGEST = 600
"""Nodes of a graph that is transformed once more."""
ELEMENTS = 64
"""Elements of what a Jacobian is taken of or by."""


class Small(Builder):
    """Few elements, so that Jacobians stay small; mostly of types with a derivative."""

    dims = (1, 2, 2, 3, 3, 4)


class Precise(Small):
    """Floats in f64 alone, so that another way of computing can be compared closely."""

    def dtype(self, allowed: Iterable[DType]) -> DType:
        taken = [d for d in allowed if d in (f64, i64, bool_)]
        if not taken:
            raise Skip("no f64")
        return self.one_of([f64] * 5 * (f64 in taken) + taken)


@dataclass(frozen=True)
class Step:
    """One transform with what it is given: names of leaves, and axes."""

    name: str
    wrt: tuple[str, ...] = ()
    in_axes: Mapping[str, int] = field(default_factory=dict[str, int])
    out_axes: tuple[int, ...] = ()
    size: int = 0


def scalar(g: Graph) -> Graph:
    """One number of all outputs with a derivative, each element with a weight of its own."""
    made, env = leaves_of(g, lambda v: v.type)
    for op in g.nodes():
        node = op.with_operands([None if v is None else env[v] for v in op.operands])
        env.update(zip(op.results, node.results, strict=True))
    total: Value | None = None
    for v in g.outputs:
        if carries_derivative(v):
            y = env[v].real() if v.dtype.is_complex else env[v]
            flat = y.reshape(-1).cast("f64")
            weights = (made.iota(flat.shape).cast("f64") + 1).sin()
            part = (flat * weights).sum()
            total = part if total is None else total + part
    assert total is not None
    made.set_outputs(total)
    return made


def apply(g: Graph, step: Step) -> Graph:
    """The graph that a step gives."""
    wrt = list(step.wrt)
    match step.name:
        case "vmap":
            return rlx.vmap(g, dict(step.in_axes), step.size, list(step.out_axes))
        case "grad" | "value_and_grad" | "hvp" | "hessian":
            return getattr(rlx, step.name)(scalar(g), wrt)
        case _:
            return getattr(rlx, step.name)(g, wrt)


def steps_of(
    g: Graph, rng: np.random.Generator, count: int, made: Callable[[Graph, Step], Graph] = apply
) -> tuple[Graph, list[Step]]:
    """A graph under ``count`` transforms, or fewer where it grows too large or one refuses, and
    these."""
    steps: list[Step] = []
    for _ in range(count):
        step = _choose(g, rng)
        if step is None:
            break
        try:
            g = made(g, step)
        except UnsupportedError:
            continue
        steps.append(step)
        if len(g) > LARGEST:
            break
    return g, steps


def _choose(g: Graph, rng: np.random.Generator) -> Step | None:
    leaves = [*g.inputs, *g.params]
    floats = [v for v in leaves if v.dtype.is_float]
    if not floats or not any(v.dtype.is_float for v in g.outputs):
        return None
    names = ["grad", "value_and_grad", "vjp", "jvp", "vmap", "vmap", "hvp"]
    sizes = [int(str(v.type.size)) for v in floats]
    small = [v for v, n in zip(floats, sizes, strict=True) if n <= 8]
    if small and sum(int(str(v.type.size)) for v in g.outputs) <= ELEMENTS:
        names += ["jacfwd", "jacrev", "hessian"]
    name = names[int(rng.integers(len(names)))]
    if name == "vmap":
        return _vmap(g, leaves, rng)
    taken = small if name in ("jacfwd", "jacrev", "hessian") else floats
    count = 1 if name == "hessian" else int(rng.integers(1, min(3, len(taken)) + 1))
    picked = rng.permutation(len(taken))[:count]
    return Step(name, tuple(str(taken[int(i)].name) for i in picked))


def _vmap(g: Graph, leaves: list[Value], rng: np.random.Generator) -> Step:
    some = [v for v in leaves if rng.random() < 0.5] or [leaves[int(rng.integers(len(leaves)))]]
    return Step(
        "vmap",
        in_axes={str(v.name): int(rng.integers(-v.rank - 1, v.rank + 1)) for v in some},
        out_axes=tuple(int(rng.integers(0, v.rank + 1)) for v in g.outputs),
        size=int(rng.integers(1, 4)),
    )


@dataclass
class Transformed:
    """The case of a transformed graph, the graph that it was made from, and the steps between."""

    case: Case
    source: Case
    steps: list[Step]

    def __str__(self) -> str:
        names = [s.name + (f"({', '.join(s.wrt)})" if s.wrt else "") for s in self.steps]
        return " -> ".join(names)


def arrays_of(source: Case, g: Graph, steps: list[Step], rng: np.random.Generator) -> Any:
    """Arrays for the leaves of a transformed graph: examples near those of the source."""
    given: dict[str, Array] = {**source.feeds, **source.params}
    g2 = source.graph
    for step in steps:
        for name, axis in step.in_axes.items():
            given[name] = _examples(given[name], axis, step.size, rng)
        g2 = apply(g2, step)
        for v in g2.inputs:
            if str(v.name) not in given:  # a direction
                a = rng.standard_normal(v.type.static_shape)
                given[str(v.name)] = np.asarray(a, v.dtype.numpy)
    return given


def _examples(a: Array, axis: int, size: int, rng: np.random.Generator) -> Array:
    """The array again and again; what is float is larger or smaller by a little each time."""
    if a.dtype.kind in "iub":
        return np.stack([a] * size, axis=axis)
    scaled = [(a * (1 + 0.1 * rng.random())).astype(a.dtype) for _ in range(size)]
    return np.stack(scaled, axis=axis)


def transformed(
    seed: int, kind: type[Builder] = Small, ops: list[str] | None = None
) -> Transformed | None:
    """The transformed case of a seed; None where the graph takes no transform, or is badly
    conditioned under it."""
    rng = np.random.default_rng([seed, 2])
    names = [*(op.name for op in op_classes()), *sorted(MOTIFS) * 12]
    source = random_case(seed, int(rng.integers(1, 8)), kind, ops or names)
    g, steps = steps_of(source.graph, rng, int(rng.integers(1, 4)))
    if not steps:
        return None
    arrays = arrays_of(source, g, steps, rng)
    interpret(g, arrays)  # a graph that fails is a finding, and no case that is badly conditioned
    case = case_again(seed, g, arrays)
    return None if case is None else Transformed(case, source, steps)
