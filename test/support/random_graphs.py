"""Random graphs of all ops, and what they must give, and how closely.

``random_case(seed)`` builds a graph and evaluates it as it goes. Every value has, beside its array,
a few *shaken* ones: the same computation with each operand and result of an inexact op moved by a
few units in its last place. How far they lie apart is how far another right way of computing may
end, so the tolerance follows the graph's conditioning and needs no guess. What would be too badly
conditioned, or too large for its type, is not taken into the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import ml_dtypes
import numpy as np

from rlx.errors import RlxError
from rlx.ir.graph import Graph
from rlx.ir.interpreter import evaluate
from rlx.ir.op import Op, registry
from rlx.ir.value import Value
from rlx.ops.pointwise.base import INEXACT
from rlx.types import (
    DType,
    TensorType,
    bf16,
    bool_,
    c64,
    c128,
    dtype,
    f16,
    f32,
    f64,
    i32,
    i64,
    u8,
)
from support.op_graphs import unsaid
from support.random_ops import MOTIFS, computed_weight, is_exact, make
from support.samples import array_of, op_classes
from support.tolerances import TOLERANCES

__all__ = ["Builder", "Case", "case_again", "random_case"]

Array = np.ndarray[Any, Any]
T = TypeVar("T")

DIMS = (1, 1, 2, 3, 4, 5, 7, 8, 16, 17, 33, 37, 64)
LARGEST = 6000
"""Elements of a value."""
SHAKES = 4
WILD = 1e-2
"""A node that shaking moves further than this, relative to its largest element, is not taken."""
LIMIT = {f16: 500.0, bf16: 1e4, f32: 1e5, f64: 1e8, c64: 1e5, c128: 1e8}
UNDERFLOWS = 16
"""Roundings of a result below the normal numbers, where each is as large as the least of them."""

EPSILON = {
    f16: 2.0**-10, bf16: 2.0**-7, f32: 2.0**-23, f64: 2.0**-52, c64: 2.0**-23, c128: 2.0**-52,
}  # fmt: skip
WIDE = (f32, f64, c64, c128)
COMMON = (f32, f32, f32, f32, f64, f16, bf16, i32, i64, u8, bool_, c64)


OFTEN = (
    "mir.matmul", "hir.linear", "mir.add", "mir.mul", "mir.transpose", "mir.reshape", "mir.slice",
    "mir.expand", "mir.concat", "mir.softmax", "mir.layer_norm", "mir.reduce_sum",
)  # fmt: skip
"""Ops that passes look for; they come twice as often as others."""


class Skip(Exception):
    """An op that was not taken; the builder tries another."""


@dataclass
class Case:
    """A graph with arrays for its inputs and params, and for its outputs their tolerances."""

    seed: int
    graph: Graph
    feeds: dict[str, Array]
    params: dict[str, Array]
    expected: list[Array]
    allowed: list[Array]
    values: dict[Value, Array] = field(repr=False, default_factory=dict)
    slack: dict[Value, Array] = field(repr=False, default_factory=dict)


class Builder:
    """A graph that grows, with an array for every value; see the module docstring."""

    dims: Sequence[int] = DIMS
    likely: Sequence[DType] = COMMON

    def __init__(self, seed: int, special: bool = False) -> None:
        self.rng = np.random.default_rng(seed)
        self.special = special
        self.graph = Graph(f"random_{seed}")
        self.values: dict[Value, Array] = {}
        self.shaken: dict[Value, list[Array]] = {}
        self.exact: set[Value] = set()
        self.feeds: dict[str, Array] = {}
        self.params: dict[str, Array] = {}
        self.empty = self.chance(0.04)

    # -- choices ---------------------------------------------------------------------------

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def one_of(self, items: Sequence[T]) -> T:
        return items[int(self.rng.integers(len(items)))]

    def between(self, low: int, high: int) -> int:
        """A number in [low, high]."""
        return int(self.rng.integers(low, high + 1))

    def dtype(self, allowed: Iterable[DType]) -> DType:
        taken = tuple(allowed)
        likely = [d for d in self.likely if d in taken]
        return self.one_of(likely) if likely and self.chance(0.9) else self.one_of(taken)

    def dim(self) -> int:
        return 0 if self.empty and self.chance(0.15) else self.one_of(self.dims)

    def shape(self, min_rank: int = 0, max_rank: int = 4) -> tuple[int, ...]:
        return tuple(self.dim() for _ in range(self.between(min_rank, max_rank)))

    def axis(self, x: Value) -> int:
        return self.between(0, x.rank - 1)

    # -- operands --------------------------------------------------------------------------

    def value(
        self,
        dtypes: Iterable[DType],
        *,
        shape: tuple[int, ...] | None = None,
        min_rank: int = 0,
        exact: bool = False,
        full: bool = False,
    ) -> Value:
        """A value of the graph that fits, or a new leaf; ``full`` asks for no empty axis."""
        allowed = tuple(dtypes)
        fit = [
            v
            for v in self.values
            if v.dtype in allowed
            and v.rank >= min_rank
            and (shape is None or v.shape == shape)
            and (not exact or v in self.exact or v.dtype not in INEXACT)
            and not (full and 0 in v.shape)
        ]
        if fit and self.chance(0.8):
            return fit[max(self.between(0, len(fit) - 1), self.between(0, len(fit) - 1))]
        if shape is None:
            shape = self.shape(min_rank)
            if full:
                shape = tuple(max(d, 1) for d in shape)
        return self.leaf(shape, self.dtype(allowed))

    def of_type(self, t: TensorType, kind: str, *, exact: bool = False) -> Value:
        if kind == "normal":
            return self.value((t.dtype,), shape=t.static_shape, exact=exact)
        return self.leaf(t.static_shape, t.dtype, kind)

    def partner(self, x: Value, *, dtype: DType | None = None, exact: bool = False) -> Value:
        """A value that broadcasts with ``x``: of its shape, or a part of it, or a larger one."""
        dt, shape = dtype or x.dtype, x.type.static_shape
        if self.chance(0.1):
            return self._number(dt)
        if self.chance(0.4):
            shape = tuple(d if self.chance(0.6) else 1 for d in shape)
            shape = shape[self.between(0, len(shape)) :] if self.chance(0.5) else shape
        if len(shape) < 4 and self.chance(0.05):
            shape = (self.dim(), *shape)
        return self.value((dt,), shape=shape, exact=exact)

    def weight(self, shape: tuple[int, ...], dt: DType) -> Value:
        """Mostly a param, so that it is packed, or a value computed from params."""
        if self.chance(0.2):
            return self.value((dt,), shape=shape)
        if self.chance(0.3):
            return computed_weight(self, shape, lambda part: self._param(part, dt))
        return self._param(shape, dt)

    def _param(self, shape: tuple[int, ...], dt: DType) -> Value:
        name = f"p{len(self.params)}"
        self.params[name] = self._shrink(self.array(shape, dt), shape)
        return self._known(self.graph.param(name, shape, dt), self.params[name])

    def literal(self, shape: tuple[int, ...], dt: DType) -> Value:
        return self.take(registry["mir.constant"](self.array(shape, dt)))

    def leaf(self, shape: tuple[int, ...], dt: DType, kind: str = "normal") -> Value:
        """A new input, param or constant."""
        if self.chance(0.1) and kind == "normal":
            return self.literal(shape, dt)
        a = self.array(shape, dt, kind)
        into, declare, letter = self.one_of(
            ((self.feeds, self.graph.input, "x"), (self.params, self.graph.param, "p"))
        )
        name = f"{letter}{len(into)}"
        into[name] = a
        return self._known(declare(name, shape, dt), a)

    def array(self, shape: tuple[int, ...], dt: DType, kind: str = "normal") -> Array:
        if int(np.prod(shape)) > LARGEST:
            raise Skip(f"{shape} is too large")
        a = array_of(TensorType.of(shape, dt), kind, self.rng)
        if self.special and kind == "normal" and dt.is_float and a.ndim:
            places = self.rng.random(shape) < 0.1
            picked = self.rng.choice([np.nan, np.inf, -np.inf, -0.0, 0.0], shape)
            a = np.where(places, picked.astype(a.dtype), a)
        return a

    def tame(self, x: Value, kind: str) -> Value:
        """``x`` brought, by ops of the graph, to where an op is defined and behaves well."""
        if self.special or kind == "normal" or x.type.size == 0 or x.dtype.is_complex:
            return x
        if kind == "unit":
            return self.take(registry["mir.sigmoid"](x))
        top = 3.0 if x.dtype.is_float else 100
        x = self.take(registry["mir.abs"](x))
        x = self.take(registry["mir.minimum"](x, self._number(x.dtype, top)))
        bottom = 1 if not x.dtype.is_float else 1.5 if kind == "above_one" else 0.5
        return self.take(registry["mir.maximum"](x, self._number(x.dtype, bottom)))

    def masked(self, x: Value) -> Value:
        """Scores, to which mostly nothing and sometimes a mask is added: whole, or one of a row."""
        if 0 in x.shape or not x.rank or self.chance(0.8):
            return x
        shape = x.type.static_shape
        mask = self.leaf(shape[-1:] if self.chance(0.3) else shape, x.dtype, "mask")
        return self.take(registry["mir.add"](x, mask))

    def _number(self, dt: DType, value: float | None = None) -> Value:
        numbers = (0, 1, 2, 77) if dt.kind in ("uint", "bool") else (0.0, -0.0, 1, -1, 2, -3, 0.7)
        picked = self.one_of(numbers) if value is None else value
        return self.take(registry["mir.constant"](np.asarray(picked).astype(dt.numpy)))

    def _shrink(self, a: Array, shape: tuple[int, ...]) -> Array:
        """Weights are scaled so that products keep the size of what they multiply."""
        if dtype(a.dtype) not in INEXACT or len(shape) < 2:
            return a
        return (a / np.sqrt(max(shape[-2], 1))).astype(a.dtype)

    def _known(self, v: Value, a: Array) -> Value:
        self.values[v], self.shaken[v] = a, [a] * SHAKES
        self.exact.add(v)
        return v

    # -- growth ----------------------------------------------------------------------------

    def take(self, op: Op) -> Value:
        """Evaluate a node and add it to the graph, or refuse it; returns its first result."""
        if any(v.type.size > LARGEST for v in op.results):  # type: ignore[operator]
            raise Skip(f"{op!r} is too large")
        exact = is_exact(op) and all(v in self.exact or v.dtype not in INEXACT for v in op.present)
        out = evaluate(op, [None if v is None else self.values[v] for v in op.operands])
        if exact or not any(v.dtype in INEXACT for v in op.results):
            moved = [out] * SHAKES
        else:
            moved = [self._shaken(op, n) for n in range(SHAKES)]
        for v, a, *others in zip(op.results, out, *moved, strict=True):
            self._refuse_wild(op, v, a, others)
        for v, a, *others in zip(op.results, out, *moved, strict=True):
            self.values[v], self.shaken[v] = a, others
            if exact or v.dtype not in INEXACT:
                self.exact.add(v)
        return op.out

    def _shaken(self, op: Op, n: int) -> list[Array]:
        operands = [None if v is None else self.shaken[v][n] for v in op.operands]
        if not is_exact(op):
            operands = [None if a is None else self._shake(a, WIDE) for a in operands]
        out = evaluate(op, operands)
        if is_exact(op) and op.name != "mir.cast":
            return out
        return [self._shake(a, INEXACT) for a in out]

    def _shake(self, a: Array, dtypes: Sequence[DType]) -> Array:
        dt = dtype(a.dtype)
        if dt not in dtypes:
            return a
        step = (6 if dt in WIDE else 1.5) * EPSILON[dt]
        wide = widened(a)
        kept = _hides(wide, dt)
        # Small elements too carry the rounding errors of what cancelled inside the op.
        size = np.where(kept, 0.0, np.abs(wide))
        size = size + 0.25 * size[~kept].mean() if not kept.all() else size
        with np.errstate(all="ignore"):
            noise = self.rng.uniform(-step, step, a.shape)
            if dt.is_complex:
                noise = noise + 1j * self.rng.uniform(-step, step, a.shape)
            return np.where(kept, a, (wide + size * noise).astype(a.dtype))

    def _refuse_wild(self, op: Op, v: Value, a: Array, others: list[Array]) -> None:
        if v.dtype not in INEXACT or a.size == 0:
            return
        wide = widened(a)
        finite, usual = np.isfinite(a), ~_hides(wide, v.dtype)
        open_ = any(unsaid(op.name, i, o.dtype) for i, o in enumerate(op.operands) if o is not None)
        if not finite.all() and (not self.special or open_):
            raise Skip(f"{op!r} gives what is not finite")
        if np.abs(wide[usual]).max(initial=0.0) > LIMIT[v.dtype]:
            raise Skip(f"{op!r} gives large numbers")
        moved = _spread(a, others)[finite].max(initial=0.0)
        if moved > max(WILD, 8 * EPSILON[v.dtype]) * max(
            np.abs(wide[usual]).max(initial=0.0), 1e-3
        ):
            raise Skip(f"{op!r} is badly conditioned")

    def finish(self, seed: int) -> Case:
        """Choose outputs: values that nothing uses, some that others use, leaves, twins."""
        used = {v for x in self.values if x.op is not None for v in x.op.present}
        ends = [v for v in self.values if v not in used and (v.op is not None or self.chance(0.1))]
        outs = ends or list(self.values)[-1:]
        outs += [v for v in self.values if v in used and self.chance(0.06)]
        outs += [self.one_of(outs)] if self.chance(0.1) else []
        order = [outs[int(i)] for i in self.rng.permutation(len(outs))]
        named = self.chance(0.3)
        self.graph.set_outputs({f"y{n}": v for n, v in enumerate(order)} if named else order)
        return self.case(seed)

    def case(self, seed: int) -> Case:
        """The case of the graph, whose outputs are set."""
        order = self.graph.outputs
        slack = {v: _allowed(a, self.shaken[v], v in self.exact) for v, a in self.values.items()}
        return Case(
            seed, self.graph, self.feeds, self.params, [self.values[v] for v in order],
            [slack[v] for v in order], self.values, slack,
        )  # fmt: skip


def _hides(wide: Array, dt: DType) -> Array:
    """Which elements are near the largest or the least number of a type, as those by which a mask
    hides, or are not finite. They are kept, and do not count where values are measured."""
    return ~(np.abs(wide) < min(0.99 * float(ml_dtypes.finfo(dt.numpy).max), 3e38))


def widened(a: Array) -> Array:
    """Numbers in double precision."""
    return a.astype(np.complex128 if np.iscomplexobj(a) else np.float64)


def parts(a: Array) -> Array:
    """The real and imaginary parts of complex numbers, along a further axis."""
    return np.stack([a.real, a.imag], axis=-1)


def _spread(a: Array, others: Sequence[Array]) -> Array:
    wide = widened(a)
    with np.errstate(invalid="ignore"):
        moved = [np.abs(widened(o) - wide) for o in others]
    return np.max(moved, axis=0)


def _allowed(a: Array, others: Sequence[Array], exact: bool) -> Array:
    """How far each element may be off; inf where shaking changes whether it is finite."""
    dt = dtype(a.dtype)
    if dt not in INEXACT or exact or a.size == 0:
        return np.zeros(a.shape)
    if np.iscomplexobj(a):
        return _allowed(parts(a), [parts(o) for o in others], exact).max(axis=-1)
    wide, finite = np.abs(widened(a)), np.isfinite(a)
    spread = _spread(a, others)
    stable = np.all([np.isfinite(o) == finite for o in others], axis=0)
    typical = spread[finite & stable].mean() if (finite & stable).any() else 0.0
    scale = min(1.0, wide[finite].max(initial=0.0))
    t = TOLERANCES[dt]
    allowed = t.relative * wide + t.absolute * scale + 8 * np.maximum(spread, typical)
    allowed += UNDERFLOWS * float(ml_dtypes.finfo(a.dtype).smallest_subnormal)
    return np.where(stable, np.where(finite, allowed, 0.0), np.inf)


def random_case(
    seed: int,
    size: int | None = None,
    kind: type[Builder] = Builder,
    ops: Sequence[str] | None = None,
) -> Case:
    """The case of a seed: always the same graph and the same arrays. ``ops`` are the names of those
    to choose from, of motifs too; by default all."""
    rng = np.random.default_rng([seed, 1])
    b = kind(seed, special=_is_special(rng) and kind is Builder)
    names = ops or [*(op.name for op in op_classes()), *sorted(MOTIFS) * 4, *OFTEN]
    wanted = size or int(rng.integers(2, 14))
    for _ in range(20 * wanted):
        if wanted == 0:
            break
        before = dict(b.values)
        try:
            b.take(make(b, names[int(rng.integers(len(names)))]))
            wanted -= 1
        except (Skip, RlxError):
            # What was made on the way stays out of the graph, but for leaves: they are declared.
            b.values = {v: a for v, a in b.values.items() if v in before or v.op is None}
    return b.finish(seed)


def _is_special(rng: np.random.Generator) -> bool:
    return bool(rng.random() < 0.08)


def case_again(seed: int, graph: Graph, arrays: Mapping[str, Array]) -> Case | None:
    """The case of a graph that was made from that of a seed; None if it is badly conditioned."""
    b = Builder(seed, special=_is_special(np.random.default_rng([seed, 1])))
    b.graph = graph
    for into, leaves in ((b.feeds, graph.inputs), (b.params, graph.params)):
        for v in leaves:
            into[str(v.name)] = arrays[str(v.name)]
            b._known(v, arrays[str(v.name)])
    try:
        for op in graph.nodes():
            b.take(op)
    except (Skip, RlxError):
        return None
    return b.case(seed)
