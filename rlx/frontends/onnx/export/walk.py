"""The walk over the nodes of a graph, each of which becomes ONNX nodes by its row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rlx.errors import RlxError
from rlx.frontends.common.missing import MissingOps
from rlx.frontends.onnx.export.formulas import FORMULAS
from rlx.frontends.onnx.export.rows import ROWS
from rlx.frontends.onnx.export.writer import Name, Writer
from rlx.ir.graph import Graph, topological
from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.ops.control.control import Control
from rlx.ops.movement.slicing import Pad

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
                found = ROWS[op.name](w, op, xs)
            except RlxError as e:
                raise type(e)(f"{op.name}: {e.message}", op.location) from None
            names = [found] if isinstance(found, str) else found
            env.update(zip(op.results, names, strict=False))

    def body(self, w: Writer, graph: Graph, inputs: Sequence[Name]) -> list[Name]:
        """Write a body of control flow; the names of its outputs."""
        env = dict(zip(graph.inputs, inputs, strict=True))
        self.write(w, graph.nodes(), env)
        return [env[v] for v in graph.outputs]
