"""The walk over the nodes of a graph, each of which becomes ONNX nodes by its row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rlx.errors import RlxError
from rlx.frontends.common.missing import MissingOps
from rlx.frontends.onnx.export.formulas import FORMULAS
from rlx.frontends.onnx.export.rows import ROWS
from rlx.frontends.onnx.export.writer import Name, Writer, elem_type
from rlx.ir.graph import Graph, topological
from rlx.ir.op import Op, placeholders
from rlx.ir.value import Value
from rlx.ops.control.control import Control
from rlx.ops.movement.slicing import Pad
from rlx.types import f32

__all__ = ["Walk"]


class Walk:
    """One export. What composites are made of is kept, since it is asked for twice."""

    def __init__(self) -> None:
        self._inner: dict[Op, tuple[Value, ...]] = {}
        self._missing = MissingOps(
            "ops, which ONNX has no form for,", "docs/onnx.md lists those that it has one for"
        )

    def refuse_missing(self, graph: Graph) -> None:
        """UnsupportedError that lists all ops of a graph that have no form."""
        self._survey(graph.nodes())
        self._missing.refuse()

    def _survey(self, nodes: Iterable[Op]) -> None:
        for op in nodes:
            if isinstance(op, Control):
                for a in type(op).body_fields():
                    self._survey(op.attrs[a.name].nodes())
            if self._has_row(op):
                continue
            if self._has_inner(op):
                self._survey(topological(self._made(op), set(op.present)))
            else:
                file, line = op.location
                self._missing.add(op.name, f"{file}:{line}")

    @staticmethod
    def _has_row(op: Op) -> bool:
        """Padding between elements alone is written as other ops."""
        return op.name in ROWS and not (isinstance(op, Pad) and any(op.interior))

    @staticmethod
    def _has_inner(op: Op) -> bool:
        return op.name in FORMULAS or type(op).composite()

    def _made(self, op: Op) -> tuple[Value, ...]:
        """What a composite, or an op that is written as a formula, is made of."""
        if op not in self._inner:
            formula = FORMULAS.get(op.name)
            made = op.expansion() if formula is None else formula(op)
            self._inner[op] = made if isinstance(made, tuple) else (made,)
        return self._inner[op]

    def write(self, w: Writer, nodes: Iterable[Op], env: dict[Value, Name]) -> None:
        """Write nodes, operands before users; ``env`` gains the names of their results."""
        for op in nodes:
            if not self._has_row(op):
                made = self._made(op)
                self.write(w, topological(made, env), env)
                env.update(zip(op.results, (env[v] for v in made), strict=True))
                continue
            xs = [None if v is None else env[v] for v in op.operands]
            try:
                names = _written(w, op, xs)
            except RlxError as e:
                raise type(e)(f"{op.name}: {e.message}", op.location) from None
            env.update(zip(op.results, names, strict=False))

    def body(self, w: Writer, graph: Graph, inputs: Sequence[Name]) -> list[Name]:
        """Write a body of control flow; the names of its outputs."""
        env = dict(zip(graph.inputs, inputs, strict=True))
        self.write(w, graph.nodes(), env)
        return [env[v] for v in graph.outputs]


_OF_FLOAT8 = frozenset(("mir.cast", "mir.constant", "mir.reshape"))
"""Ops that the opset has of 8-bit floats."""


def _written(w: Writer, op: Op, xs: Sequence[Name | None]) -> Sequence[Name]:
    """The names of what an op's row writes. What ONNX does not do with 8-bit floats it does with
    the same numbers in f32."""
    row = ROWS[op.name]
    small = [v is not None and v.dtype.is_float8 for v in op.operands]
    if not any(small) or op.name in _OF_FLOAT8 or isinstance(op, Control):
        found = row(w, op, xs)
        return [found] if isinstance(found, str) else found
    types = [None if v is None else v.type.with_dtype(f32) if s else v.type
             for v, s in zip(op.operands, small, strict=True)]  # fmt: skip
    xs = [w.cast(x, f32) if s and x is not None else x for x, s in zip(xs, small, strict=True)]
    wide = type(op)(*placeholders(types), **op.attrs)
    found = row(w, wide, xs)
    names = [found] if isinstance(found, str) else found
    # Without saturation: an inf stays one.
    return [
        w.node("Cast", name, to=elem_type(v.dtype, "a cast"), saturate=0)
        if v.dtype.is_float8
        else name
        for name, v in zip(names, op.results, strict=False)
    ]
