"""The samples of op classes as concrete graphs and arrays: what the generated tests run on."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from rlx.ir.graph import Graph
from rlx.ir.interpreter import interpret
from rlx.ir.op import Op, Sample, registry, type_of
from rlx.ir.value import Value
from rlx.ops import OP_MODULES, load_all
from rlx.ops.control.control import Control
from rlx.ops.pointwise.cast import converted
from rlx.types import DType, TensorType, bf16, bool_, f8e5m2, f16, f32

__all__ = [
    "Case", "additive_mask", "array_of", "cases", "cases_of", "forms", "kind_of", "least",
    "op_classes", "run",
]  # fmt: skip

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """One sample of one op, with T bound to an element type (None if the sample has no T)."""

    op: type[Op]
    number: int
    sample: Sample
    dtype: DType | None

    def __str__(self) -> str:
        """The test id: ``mir.add-f32-0``."""
        kind = () if self.dtype is None else (self.dtype.name,)
        return "-".join([self.op.name, *kind, str(self.number)])

    @property
    def types(self) -> tuple[TensorType | None, ...]:
        """The operand types; optional operands that the sample leaves out are None."""
        given = [None if t is None else type_of(t, self.dtype) for t in self.sample.types]
        return (*given, *[None] * (len(self.op.operand_fields) - len(given)))

    def node(self) -> Op:
        """The op on inputs ``x0``, ``x1``, … of a fresh graph, numbered by operand."""
        return self._in(Graph(self.op.name))

    def graph(self) -> Graph:
        """A graph of such inputs and the op alone."""
        g = Graph(self.op.name)
        g.set_outputs(self._in(g).results)
        return g

    def _in(self, g: Graph) -> Op:
        leaves = [
            None if t is None else g.input(f"x{i}", t.shape, t.dtype)
            for i, t in enumerate(self.types)
        ]
        return self.op(*leaves, **self.sample.attrs)

    def arrays(self, seed: int = 0) -> list[Array | None]:
        """An array for every operand; the same seed gives the same ones."""
        rng = np.random.default_rng([seed, self.number, *self.op.name.encode()])
        return [
            None if t is None else array_of(t, self.sample.data.get(i, "normal"), rng)
            for i, t in enumerate(self.types)
        ]


def op_classes() -> list[type[Op]]:
    """Every op of the library, by name, but control flow: its samples would be graphs, and it has
    tests of its own (``test_control``)."""
    load_all()
    return [registry[n] for n in sorted(OP_MODULES) if not issubclass(registry[n], Control)]


def cases(*dtypes: DType) -> Iterator[Case]:
    """Every sample of every op with every element type it takes, or those of ``dtypes`` that it
    takes; a sample without T comes once."""
    for op in op_classes():
        yield from cases_of(op, *dtypes)


def cases_of(op: type[Op], *dtypes: DType) -> Iterator[Case]:
    """The cases of one op."""
    for number, s in enumerate(op.samples):
        if not any(t is not None and t.endswith("T") for t in s.types):
            yield Case(op, number, s, None)
            continue
        for dt in op.dtypes:
            if dt is f8e5m2 and not op.pointwise:
                continue  # what moves elements moves bytes, and f8e4m3fn is a case
            if not dtypes or dt in dtypes:
                yield Case(op, number, s, dt)


def forms(case: Case) -> Iterator[Hashable]:
    """What differs between the samples of an op in more than sizes: how many dims operands have,
    which attributes there are, and each word of one."""
    yield (case.op, *(None if t is None else t.rank for t in case.types))
    for name, value in case.sample.attrs.items():
        yield case.op, name, value if isinstance(value, str) else type(value)


def kind_of(case: Case) -> str:
    """The kind of a case's element type; empty if its sample has none."""
    return "" if case.dtype is None else case.dtype.kind


def array_of(t: TensorType, kind: str, rng: np.random.Generator) -> Array:
    """Random values of a type; ``kind`` as in ``rlx.ir.op.Sample.data``."""
    shape = t.static_shape
    if kind.startswith("index:"):
        return rng.integers(0, int(kind[6:]), shape).astype(t.dtype.numpy)
    if kind in ("hidden", "mask"):
        return additive_mask(shape, t.dtype, rng, minima=kind == "mask")
    if kind == "bool" or t.dtype is bool_:
        return rng.integers(0, 2, shape).astype(t.dtype.numpy)
    draw = _NUMBERS[not t.dtype.is_int, kind]
    if t.dtype.is_complex:
        # Both parts; of a positive number the real one is, and nothing of a unit is beyond it.
        re, im = draw(rng, shape), rng.uniform(-0.3, 0.3, shape)
        return np.asarray(re + 1j * im).astype(t.dtype.numpy)
    return converted(np.asarray(draw(rng, shape)), t.dtype)


def least(dt: DType) -> float:
    """The least finite number of a type of floats."""
    return float(ml_dtypes.finfo(dt.numpy).min)


def additive_mask(
    shape: tuple[int, ...], dt: DType, rng: np.random.Generator, minima: bool = True
) -> Array:
    """What may be added to scores: zeros or small numbers, with -inf for some elements and for
    whole rows, the first one included; with ``minima`` also the least finite numbers of types."""
    out = rng.standard_normal(shape) * rng.integers(0, 2)
    fills = [-np.inf]
    if minima:
        fills += [x for x in map(least, (dt, f32, bf16, f16)) if x >= least(dt)]
    out = np.where(rng.random(shape) < 0.3, rng.choice(fills, shape), out)
    if shape and out.size:
        # A row at the least number of f16 still has scores, badly rounded ones.
        fills = [x for x in fills if x < least(f16) or dt is f16]
        rows = rng.random((*shape[:-1], 1)) < 0.3
        rows.flat[0] = True
        alike = rng.choice(fills, (*shape[:-1], 1))
        out = np.where(rows, alike if rng.random() < 0.7 else rng.choice(fills, shape), out)
    return converted(out, dt)


def _signs(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.choice([-1, 1], shape)


def _matrices(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> Array:
    """Well conditioned matrices: symmetric positive definite ones, with a large diagonal, or with
    eigenvalues and singular values that lie apart."""
    x, n = rng.standard_normal(shape), min(shape[-2:])
    if kind == "spd":
        return x @ np.swapaxes(x, -1, -2) + n * np.eye(n)
    line = np.diag(2.0 * np.arange(n) if kind == "spread" else np.full(n, n + 1.0))
    return x + np.pad(line, [(0, d - n) for d in shape[-2:]])


# (whether floats, kind) -> values. Integers are few and small, so that they tie and divide; as
# unsigned ones the negative values saturate to 0, but for "nonzero", which says what it says.
_NUMBERS: dict[tuple[bool, str], Any] = {
    (True, "normal"): lambda rng, shape: rng.standard_normal(shape),
    (True, "positive"): lambda rng, shape: rng.uniform(0.5, 2.0, shape),
    (True, "unit"): lambda rng, shape: rng.uniform(-0.95, 0.95, shape),
    (True, "above_one"): lambda rng, shape: rng.uniform(1.1, 3.0, shape),
    **{
        (True, kind): lambda rng, shape, kind=kind: _matrices(rng, shape, kind)
        for kind in ("spd", "dominant", "spread")
    },
    (True, "nonzero"): lambda rng, shape: rng.uniform(0.5, 2.0, shape) * _signs(rng, shape),
    (False, "normal"): lambda rng, shape: rng.integers(-9, 10, shape) * 1.0,
    (False, "positive"): lambda rng, shape: rng.integers(1, 10, shape),
    (False, "unit"): lambda rng, shape: rng.integers(0, 1, shape),
    (False, "nonzero"): lambda rng, shape: rng.integers(1, 10, shape) * _signs(rng, shape),
}


def run(outputs: list[Value], feeds: dict[Value, Array]) -> list[Array]:
    """Interpret values of a graph, given arrays for the inputs they are computed from."""
    graph = next(iter(feeds)).graph if feeds else Graph()
    assert graph is not None
    graph.set_outputs(outputs)
    names = {v.name: a for v, a in feeds.items() if v.name is not None}
    return interpret(graph, names)
