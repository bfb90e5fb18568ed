"""A value of an ONNX graph: what it is in ours, and what is known of it while importing.

Shapes are data in ONNX: a reshape takes its shape as a tensor. So every value may be asked for its
elements now. Those of a constant and an initialiser are there; a shape with symbolic dims is an
array of dims; and what was computed from such alone is evaluated when a shape needs it, and only
then. The nodes of such arithmetic then hang on no output, and are not in the graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.errors import UnsupportedError
from rlx.frontends.common.values import size_value
from rlx.ir.graph import Graph, topological
from rlx.ir.interpreter import evaluate
from rlx.ir.op import Op
from rlx.ir.replay import replay
from rlx.ir.value import Value
from rlx.ops.control.control import Control, WhileLoop
from rlx.ops.movement.constant import Constant
from rlx.ops.sugar import concat
from rlx.types import DType, Shape, SymDim, TensorType, dtype, i64

__all__ = ["STEP", "Edge", "Evaluator", "is_symbolic"]

Array = np.ndarray[Any, Any]

LIMIT = 1 << 22
"""The most elements of a tensor that is evaluated while importing."""

ROUNDS = 1 << 12
"""The most rounds of a loop in such an evaluation."""
WORK = 1 << 26
"""The most elements that an import computes, all nodes together; a node counts as STEP at least."""
STEP = 1 << 10


def is_symbolic(a: Array) -> bool:
    """Whether an array holds dims, of which some are symbolic."""
    return a.dtype == object


class Edge:
    """A value under import. ``value`` is the node in the graph, made when it is first needed.

    ``known`` holds its elements where they are there without computing: an array, or one of dims
    (of NumPy's dtype ``object``, for i64) if some are symbolic. ``narrow`` says that they have 4
    bits, of which the type, i8 or u8, knows nothing.
    """

    __slots__ = ("_make", "_value", "known", "narrow", "type")

    def __init__(
        self,
        type: TensorType,
        value: Value | None = None,
        known: Array | None = None,
        make: Callable[[], Value] | None = None,
        narrow: bool = False,
    ) -> None:
        self.type, self._value, self.known, self._make = type, value, known, make
        self.narrow = narrow

    @staticmethod
    def of(value: Value) -> Edge:
        """The edge of a node's result."""
        known = value.op.value if isinstance(value.op, Constant) else None
        return Edge(value.type, value, known)

    @staticmethod
    def literal(a: Array) -> Edge:
        """The edge of elements that are known; an array of dims is i64."""
        if is_symbolic(a) and all(isinstance(d, int) for d in a.flat):
            a = a.astype(np.int64)
        return Edge(TensorType(a.shape, i64 if is_symbolic(a) else dtype(a.dtype)), known=a)

    @property
    def value(self) -> Value:
        """The value in the graph."""
        if self._value is None:
            self._value = self._make() if self._make is not None else _materialised(self.known)
        return self._value

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.type.dtype

    @property
    def shape(self) -> Shape:
        """The dims."""
        return self.type.shape


def _materialised(a: Array | None) -> Value:
    """Elements as a value; sizes that are not known yet become computations."""
    assert a is not None, "an edge has a value, or elements"
    if not is_symbolic(a):
        return Constant(a).out
    parts = [size_value(d).reshape([1]) for d in a.flat]
    return concat(parts).reshape(a.shape)


class Evaluator:
    """Elements of values that depend on no input, by the interpreter; each is computed once."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._arrays: dict[Value, Array] = {}
        self._left: float = WORK

    def known(self, edge: Edge) -> Array | set[str]:
        """The elements, or the names of the inputs and symbolic dims that they depend on."""
        if edge.known is not None:
            return edge.known
        needs = self._needs(edge.value)
        if needs:
            return needs
        return self._evaluate(edge.value)

    def _needs(self, value: Value) -> set[str]:
        found: set[str] = set()
        for v in (value, *(v for op in topological([value], self._arrays) for v in op.present)):
            if v.op is None and not self._has(v):
                found.add(str(v.name) if v.graph is self._graph else "")
            found |= {s for d in v.shape if isinstance(d, SymDim) for s in d.symbols}
        return found

    def _has(self, v: Value) -> bool:
        return v.graph is self._graph and v.name in self._graph.param_values

    def _evaluate(self, value: Value) -> Array:
        for op in topological([value], self._arrays):
            given = [None if v is None else self._of(v) for v in op.operands]
            self._arrays.update(zip(op.results, self._run(op, given), strict=True))
        return self._of(value)

    def _run(self, op: Op, given: list[Array | None]) -> list[Array]:
        """No file makes an import run for ever."""
        big = next((v.type for v in op.results if math.prod(v.type.static_shape) > LIMIT), None)
        if big is not None:
            raise UnsupportedError(
                f"a value that decides shapes is computed from {big}, which is too large to be"
                " computed while importing; fold it in the exporter"
            )
        size = sum(math.prod(v.type.static_shape) for v in op.results)
        self.spend(max(size if isinstance(op, Control) else op.cost().flops, size, STEP))
        ends = op.with_operands(op.operands, limit=ROUNDS) if isinstance(op, WhileLoop) else op
        return evaluate(ends, given, self._body)

    def _body(self, body: Graph, arrays: Sequence[Array]) -> list[Array]:
        env = dict(zip(body.inputs, arrays, strict=True))
        replay(body.nodes(), env, self._run)
        return [env[v] for v in body.outputs]

    def spend(self, elements: float) -> None:
        """Count elements that are computed while importing; UnsupportedError beyond WORK."""
        self._left -= elements
        if self._left < 0:
            raise UnsupportedError(
                f"{elements:.0f} more elements would be computed while importing, and {WORK} are"
                " the most; fold what decides shapes in the exporter, and use smaller sizes"
            )

    def _of(self, v: Value) -> Array:
        return self._graph.param_values[str(v.name)] if v.op is None else self._arrays[v]
