"""An op of StableHLO as rows see it: its operands, types and attributes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx._mlir import elements_of, ir, stablehlo
from rlx.base.cached import cached_property
from rlx.errors import UnsupportedError
from rlx.frontends.common.values import constant, size_value
from rlx.ir.location import Location
from rlx.ir.value import Value
from rlx.ops.movement.rearrange import stack
from rlx.types import DTYPES, Dim, DType, SymDim, TensorType

if TYPE_CHECKING:
    from rlx.frontends.stablehlo.importer import Importer

__all__ = [
    "ROWS", "Edge", "Node", "Result", "Sizes", "as_type", "constant_of", "dims_of", "element_of",
    "place", "ranked", "row", "single", "title", "type_of", "value_of",
]  # fmt: skip

Sizes = np.ndarray[Any, Any]
"""Dims, ints and bools: an array of objects."""
Edge = Value | Sizes
Result = Value | Sequence[Value] | Sequence[Edge]

_ELEMENTS = (
    {"i1": "bool", "complex<f32>": "c64", "complex<f64>": "c128"}
    | {
        f"{prefix}{bits}": f"{kind}{bits}"
        for prefix, kind in (("f", "f"), ("i", "i"), ("ui", "u"))
        for bits in (8, 16, 32, 64)
        if f"{kind}{bits}" in DTYPES
    }
    | {"bf16": "bf16", "f8E4M3FN": "f8e4m3fn", "f8E5M2": "f8e5m2"}
)
"""The element types by the words of MLIR."""

ROWS: dict[str, Callable[[Node], Result]] = {}
"""What makes ops of ours of an op, by its name without the dialect."""


def row(*names: str) -> Callable[[Callable[[Node], Result]], Callable[[Node], Result]]:
    """Declares what ops of these names become."""

    def put(f: Callable[[Node], Result]) -> Callable[[Node], Result]:
        for name in names:
            ROWS[name] = f
        return f

    return put


def title(op: Any) -> str:
    """The name of an op without ``stablehlo.``."""
    return str(op.name).removeprefix("stablehlo.")


def place(location: Any) -> Location | None:
    """The line of a source file that a location names."""
    found = re.search(r'"([^"]+\.\w+)":(\d+):', str(location))
    return (found[1], int(found[2])) if found else None


def ranked(t: Any) -> Any:
    """MLIR's type of a tensor; UnsupportedError for what is none."""
    try:
        return ir.RankedTensorType(t)
    except ValueError:
        raise UnsupportedError(f"the type {t} is no tensor that RLX has") from None


def element_of(t: Any) -> DType:
    """The element type of a tensor; UnsupportedError for one that RLX does not have."""
    word = str(ranked(t).element_type)
    if word not in _ELEMENTS:
        why = "; quantized types are read from ONNX and GGUF" if "quant" in word else ""
        raise UnsupportedError(f"RLX has no element type {word}, found {t}{why}")
    return DTYPES[_ELEMENTS[word]]


def type_of(t: Any, dims: Sequence[Dim] | None = None) -> TensorType:
    """The type of a tensor, with ``dims`` where they are given; UnsupportedError for a type that
    RLX does not have, and for a dim that nothing tells."""
    kind, dt = ranked(t), element_of(t)
    if dims is None and any(kind.is_dynamic_dim(i) for i in range(kind.rank)):
        raise UnsupportedError(
            f"the type {t} has a dim that is known in a run alone, and no size of an argument"
            " tells it; export the program for given sizes"
        )
    return TensorType.of(list(kind.shape) if dims is None else list(dims), dt)


def value_of(edge: Edge, kind: Any) -> Value:
    """An edge as a Value of MLIR's type ``kind``."""
    if isinstance(edge, Value):
        return edge
    dt = element_of(kind)
    flat = edge.reshape(-1).tolist()
    if all(isinstance(d, int) for d in flat):
        return constant(np.asarray(flat, dt.numpy).reshape(edge.shape))
    values = [size_value(d).cast(dt) for d in flat]
    return values[0] if not edge.shape else stack(values, 0).reshape(list(edge.shape))


def dims_of(edge: Edge) -> list[Dim] | None:
    """A list of dims, None for what is computed from data."""
    if isinstance(edge, Value):
        return None
    return [d if isinstance(d, SymDim) else int(d) for d in edge.reshape(-1).tolist()]


class Node:
    """An op with what stands for its operands: ``edges``, which may be sizes, and Values."""

    def __init__(self, importer: Importer, op: Any, edges: Sequence[Edge], env: dict[Any, Any]):
        self.importer, self.op, self.edges, self.env = importer, op, list(edges), env

    @cached_property
    def xs(self) -> list[Value]:
        """The operands as Values."""
        if all(isinstance(e, Value) for e in self.edges):
            return self.edges  # type: ignore[return-value]
        types = [v.type for v in self.op.operands]
        return [value_of(e, t) for e, t in zip(self.edges, types, strict=True)]

    def dims(self, i: int) -> list[Dim]:
        """An operand that is a list of sizes."""
        found = dims_of(self.edges[i])
        if found is None:
            raise self.refuse("its sizes are computed from data")
        return found

    @property
    def x(self) -> Value:
        """The first operand."""
        return self.xs[0]

    @property
    def out(self) -> TensorType:
        """The type of the first result."""
        return type_of(self.op.results[0].type)

    @property
    def dtype(self) -> DType:
        """The element type of the first result."""
        return element_of(self.op.results[0].type)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the first result."""
        return self.out.static_shape

    def inner(self, name: str) -> Node:
        """The op with the attributes that an attribute of it holds."""
        return _Inner(self, ir.DictAttr(self.op.attributes[name]))

    def has(self, name: str) -> bool:
        """Whether there is such an attribute."""
        return name in self.op.attributes

    def ints(self, name: str, default: Sequence[int] | None = None) -> list[int]:
        """An attribute of several integers."""
        if default is not None and not self.has(name):
            return list(default)
        return [int(n) for n in ir.DenseI64ArrayAttr(self.op.attributes[name])]

    def int(self, name: str) -> int:
        """An attribute of one integer."""
        return int(ir.IntegerAttr(self.op.attributes[name]).value)

    def flag(self, name: str) -> bool:
        """An attribute that is true or false, and false where it is absent."""
        return self.has(name) and bool(ir.BoolAttr(self.op.attributes[name]).value)

    def flags(self, name: str) -> list[bool]:
        """An attribute of several truth values, none where it is absent."""
        if not self.has(name):
            return []
        return [bool(b) for b in ir.DenseBoolArrayAttr(self.op.attributes[name])]

    def text(self, name: str) -> str:
        """An attribute of text."""
        return str(ir.StringAttr(self.op.attributes[name]).value)

    def word(self, name: str) -> str:
        """The last word of an attribute of an enumeration, such as ``LT``."""
        found = re.findall(r"\w+", str(self.op.attributes[name]))
        return found[-1] if found else ""

    def pairs(self, name: str, count: int) -> list[tuple[int, int]]:
        """An attribute of pairs of integers, zeros where it is absent."""
        if not self.has(name):
            return [(0, 0)] * count
        found = np.array(ir.DenseIntElementsAttr(self.op.attributes[name])).reshape(count, 2)
        return [(int(a), int(b)) for a, b in found]

    def numbers(self, name: str) -> Any:
        """An attribute of dimension numbers (``DotDimensionNumbers`` and the like)."""
        attribute = self.op.attributes[name]
        kinds = {
            "dot_dimension_numbers": "DotDimensionNumbers",
            "scatter_dimension_numbers": "ScatterDimensionNumbers",
        }
        kind = kinds.get(name)
        if kind is None:
            gathers = title(self.op).endswith("gather")
            kind = "GatherDimensionNumbers" if gathers else "ConvDimensionNumbers"
        return getattr(stablehlo(), kind)(attribute)

    def body(self, n: int, args: Sequence[Value]) -> list[Value]:
        """What a region gives on values for its arguments."""
        return self.importer.values(self.op.regions[n].blocks[0], args, self.env)

    def each(self, n: int, args: Sequence[Value]) -> list[Value]:
        """What a region that is written on scalars gives on tensors, element by element."""
        found = self.body(n, args)
        return [v if v.shape == args[0].shape else v.expand(args[0].shape) for v in found]

    def refuse(self, why: str) -> UnsupportedError:
        """The error of an op in a form that RLX does not have."""
        return UnsupportedError(f"{self.op.name}: {why}", place(self.op.location))

    def single(self, n: int) -> str | None:
        """The op that a region of two scalars applies to both, "first" or "second" for the region
        that gives one of them, None for any other."""
        return single(self.op.regions[n].blocks[0])


def single(block: Any) -> str | None:
    """As ``Node.single``, of a block."""
    ops, arguments = list(block.operations), list(block.arguments)
    if len(arguments) != 2:
        return None
    last = list(ops[-1].operation.operands)
    if len(ops) == 1:
        return "second" if last[0] == arguments[1] else "first" if last[0] == arguments[0] else None
    if len(ops) != 2 or list(ops[0].operation.results) != last:
        return None
    given = list(ops[0].operation.operands)
    return title(ops[0].operation) if given in (arguments, arguments[::-1]) else None


class _Inner(Node):
    """An op with other attributes."""

    def __init__(self, node: Node, attributes: Any) -> None:
        super().__init__(node.importer, node.op, node.edges, node.env)
        self._attributes = attributes

    def int(self, name: str) -> int:
        return int(ir.IntegerAttr(self._attributes[name]).value)


def constant_of(op: Any) -> np.ndarray[Any, Any]:
    """The array of a constant."""
    kind = type_of(op.results[0].type)
    shape, dt = kind.static_shape, kind.dtype
    if dt.name == "bool":
        found = np.array(ir.DenseIntElementsAttr(op.attributes["value"])).astype(bool).reshape(-1)
    else:
        found = np.frombuffer(elements_of(op, "value", kind.nbytes, dt.bytes), dt.numpy)
    splat = found.size == 1 and kind.nbytes != dt.bytes
    return np.broadcast_to(found[0], shape) if splat else found.reshape(shape)


def as_type(x: Value, dt: DType) -> Value:
    """The value as another element type, if it is of one. What an 8-bit float cannot hold becomes
    inf, or nan where there is none."""
    return x if x.dtype is dt else x.cast(dt, saturate=False)
