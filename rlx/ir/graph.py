"""The graph: named inputs and params, and the outputs that are asked for.

A graph is pure: values never change, and its nodes are whatever the outputs reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from rlx.base.dim_atoms import Symbol
from rlx.base.dims import Dim, SymDim, as_size
from rlx.base.units import counted
from rlx.errors import DTypeError, GraphError, NameError, ShapeError, a_type, among, did_you_mean
from rlx.ir.arrays import fixed
from rlx.ir.attrs import literal
from rlx.ir.builders import GraphOps, located, public
from rlx.ir.op import Location, Op, caller
from rlx.ir.value import Keys, Value
from rlx.ir.walking import Walking
from rlx.types import DType, Shape, TensorType
from rlx.types import dtype as as_dtype

__all__ = [
    "Binding",
    "Graph",
    "check_param",
    "inner_graph",
    "names_of_outputs",
    "sizes_of",
    "symbols_of",
    "topological",
    "with_bodies",
]


class Binding(NamedTuple):
    """What a graph with bound dims was made of: the leaves and outputs of the graph with symbols,
    as they were then, and the sizes."""

    inputs: tuple[Value, ...]
    params: tuple[Value, ...]
    outputs: tuple[Value, ...]
    output_names: tuple[str, ...]
    dims: tuple[tuple[str, Dim], ...]

    @staticmethod
    def of(graph: Graph, dims: Mapping[str, Dim]) -> Binding:
        """The binding of one graph's symbols, which may itself have been bound in part."""
        before = graph.origin or graph
        known = {**dict(graph.origin.dims if graph.origin else ()), **dims}
        return Binding(
            tuple(before.inputs),
            tuple(before.params),
            tuple(before.outputs),
            before.output_names,
            tuple(sorted(known.items())),
        )


@public
class Graph(GraphOps, Walking):
    """A tensor graph.

        g = rlx.Graph("hello")
        x = g.input("x", [1, 4])
        w = g.param("w", [4, 2])
        g.set_outputs([x @ w])

    Every op is a method too: ``g.matmul(x, w)``. A dim is an int, or a string that names a size
    bound at compile time or at the call. ``output_names`` are those that ``set_outputs`` was given,
    and () where it was given none.
    """

    __slots__ = (
        "_names", "depth", "inputs", "name", "origin", "output_names", "outputs", "param_values",
        "params",
    )  # fmt: skip

    def __init__(self, name: str = "main") -> None:
        self.name, self.depth = name, 0
        self.inputs: list[Value] = []
        self.params: list[Value] = []
        self.outputs: list[Value] = []
        self.output_names: tuple[str, ...] = ()
        self.param_values: dict[str, np.ndarray[Any, Any]] = {}
        self.origin: Binding | None = None
        self._names: dict[str, tuple[str, int]] = {}

    def _repr_html_(self) -> str:
        from rlx.view.notebook import graph_html

        return graph_html(self)

    # -- building --------------------------------------------------------------------------

    @located
    def input(
        self,
        name: str,
        shape: Iterable[int | str | SymDim] | TensorType,
        dtype: DType | str | Any = "f32",
    ) -> Value:
        """Declare a tensor that every run is given; a TensorType (``rlx.Shape``) in the place of a
        shape says the element type too. NameError if the name is taken."""
        v = self._leaf(name, _type_of(name, shape, dtype))
        self.inputs.append(v)
        return v

    @located
    def param(
        self,
        name: str,
        shape: Iterable[int | str | SymDim] | TensorType | None = None,
        dtype: DType | str | Any | None = None,
        value: Any = None,
    ) -> Value:
        """Declare a weight, set once and kept by the compiled graph; ``value`` sets it here, by a
        copy unless nobody can write its memory (``CompiledGraph.set_param``).

        With a value, shape and dtype default to the value's (see ``constant``). A flat array of
        the right length is taken for any shape; another shape is a ShapeError, another dtype a
        DTypeError.
        """
        if isinstance(shape, TensorType):
            t = _type_of(name, shape, "f32" if dtype is None else dtype)
            shape, dtype = t.shape, t.dtype
        if value is not None:
            dt = None if dtype is None else as_dtype(dtype)
            value = literal(value, dt, f"param {name!r}")
            shape = value.shape if shape is None else shape
            dtype = value.dtype if dtype is None else dtype
        if shape is None:
            raise GraphError(f"param {name!r} needs a shape or a value", caller())
        dims: Any = shape
        v = self._leaf(name, TensorType.of(dims, "f32" if dtype is None else dtype))
        if value is not None:
            self.param_values[name] = fixed(check_param(name, value, v.type))
        self.params.append(v)
        return v

    @located
    def constant(self, value: Any, dtype: DType | str | Any | None = None) -> Value:
        """A literal: an array, a Python number or nested lists of them. Python's floats are f32,
        its ints i64 and its bools bool, unless ``dtype`` says otherwise.

        An array is cast to ``dtype``; numbers must fit it, else it is a DTypeError.
        """
        from rlx.ops.movement.constant import Constant

        dt = None if dtype is None else as_dtype(dtype)
        a = literal(value, dt, "the constant")
        return Constant(a if dt is None else a.astype(dt.numpy)).out

    @located
    def iota(
        self, shape: Iterable[int | str | SymDim] | int, axis: int = 0, dtype: Any = "i64"
    ) -> Value:
        """0, 1, 2, … along ``axis``."""
        from rlx.ops.movement.constant import Iota

        dims = shape if isinstance(shape, Iterable) else (shape,)
        return Iota(TensorType.of(dims, "i64").shape, axis, dtype).out

    @located
    def set_outputs(self, outputs: Sequence[Value] | Mapping[str, Value] | Value) -> None:
        """Say what a run returns, in order, inputs among it if wanted; GraphError if nothing.

        A mapping gives the outputs names, by which results are found as well as by position, and
        which artifacts keep. NameError for a name that is no text.
        """
        if not isinstance(outputs, Value) and not isinstance(outputs, Iterable):
            raise GraphError(f"outputs are Values in a list, found {outputs!r}", caller())
        names = list(outputs) if isinstance(outputs, Mapping) else []
        named = outputs.values() if isinstance(outputs, Mapping) else outputs
        outs = [named] if isinstance(named, Value) else list(named)
        if not outs:
            raise GraphError("a graph needs at least one output", caller())
        for i, v in enumerate(outs):
            if not isinstance(v, Value):
                raise GraphError(f"output {i} is {a_type(v)}, expected a Value", caller())
        for name in names:
            _check_name(name)
        self._check_leaves(outs)
        self.outputs, self.origin = outs, None
        self.output_names = tuple(names)

    def _leaf(self, name: str, type: TensorType) -> Value:
        where = caller()
        _check_name(name)
        if name in self._names:
            file, line = self._names[name]
            raise NameError(f"the name {name!r} is already used at {file}:{line}", where)
        type = type.bind(self._declared(type))
        self._names[name], self.origin = where, None
        return Value(type, graph=self, name=name)

    def _declared(self, type: TensorType) -> dict[str, SymDim]:
        """The symbols of a leaf's type that are named without a range, with that of the leaves
        before; ShapeError where two of a name have different ranges."""
        if type.is_static:
            return {}
        known = {s.name: s for s in symbols_of(v.type for v in (*self.inputs, *self.params))}
        found: dict[str, SymDim] = {}
        for s in symbols_of([type]):
            before = known.setdefault(s.name, s)
            if before == s:
                continue
            if s.has_range:
                raise ShapeError(
                    f"the dim {s} is {before} in another leaf of the graph; a name has one range,"
                    " which the first leaf that names it says",
                    caller(),
                )
            found[s.name] = SymDim({(before,): 1})
        return found

    def _check_leaves(self, outs: Sequence[Value]) -> None:
        for v in [*outs, *(v for op in topological(outs) for v in op.present)]:
            if v.op is None and v.graph is not self:
                raise GraphError(
                    f"{v!r} belongs to another graph", v.op.location if v.op else caller()
                )

    # -- reading ---------------------------------------------------------------------------

    def nodes(self) -> list[Op]:
        """The nodes that the outputs need, operands before users."""
        if not self.outputs:
            raise GraphError(
                f"graph {self.name!r} has no outputs; call set_outputs first", caller()
            )
        return topological(self.outputs)

    @property
    def symbols(self) -> frozenset[str]:
        """Names of the dims that are not numbers."""
        dims = [d for v in (*self.inputs, *self.params) for d in v.shape]
        return frozenset(s for d in dims if isinstance(d, SymDim) for s in d.symbols)

    def leaf_location(self, name: str) -> tuple[str, int]:
        """Where the input or param was declared; NameError if there is none of that name."""
        if name not in self._names:
            others = among(name, self._names)
            raise NameError(f"no input or param is called {name!r}{others}", caller())
        return self._names[name]

    def places(self) -> list[tuple[Value | Op, Location]]:
        """Where the inputs, the params and the nodes, those of bodies included, were made in the
        user's code; in an order fixed by the graph's structure alone. The nodes of a body that two
        ops have are there twice."""
        leaves = [(v, self._names[str(v.name)]) for v in (*self.inputs, *self.params)]
        return [*leaves, *((op, op.location) for op in with_bodies(self.nodes()))]

    def snapshot(self) -> Graph:
        """The graph as it is now: another of the same leaves and nodes, which later changes of this
        one leave as it is. It is what a compile keeps, and takes no time worth naming."""
        found = Graph(self.name)
        found.depth, found.origin = self.depth, self.origin
        found.inputs, found.params = list(self.inputs), list(self.params)
        found.outputs, found.output_names = list(self.outputs), self.output_names
        found.param_values = dict(self.param_values)
        found._names = dict(self._names)
        return found

    def __copy__(self) -> Graph:
        """Another graph, with leaves and nodes of its own."""
        return self.bind({})

    def __deepcopy__(self, memo: Any) -> Graph:
        return self.bind({})

    def __reduce__(self) -> tuple[Any, ...]:
        from rlx.text import graph_text, parse_graph

        return parse_graph, (graph_text(self), f"<pickled graph {self.name!r}>")

    @located
    def bind(self, dims: Mapping[str, int]) -> Graph:
        """The same graph with symbolic dims replaced by sizes; NameError for an unknown symbol."""
        if not isinstance(dims, Mapping):
            raise GraphError(f"dims is a mapping of names to sizes, found {dims!r}")
        for s, size in dims.items():
            self.check_size(s, size)
        from rlx.ir.clone import rebuild

        return rebuild(self, lambda t: t.bind(dims), dims)

    def check_size(self, name: str, size: Any) -> None:
        """NameError for no symbol of the graph's, ShapeError for what is no size of it."""
        as_size(name, size)
        if name not in self.symbols:
            known = ", ".join(sorted(self.symbols)) or "none"
            raise NameError(
                f"no dim is called {name!r}{did_you_mean(name, self.symbols)}; known: {known}"
            )
        for s in symbols_of(v.type for v in (*self.inputs, *self.params)):
            if s.name == name:
                s.checked(size)

    def inspect(self) -> str:
        """The graph for people: how many ops of which kinds, then a line an op."""
        from rlx.inspect import inspect_graph

        return inspect_graph(self)

    def to_mlir(self) -> Any:
        """The HIR module (an ``ir.Module`` of the MLIR bindings); ``str`` of it is for rlx-opt."""
        from rlx.dialects.export import to_mlir

        return to_mlir(self)

    def __len__(self) -> int:
        return len(self.nodes())

    def __repr__(self) -> str:
        nodes = counted(len(topological(self.outputs)), "node")
        inputs, params = counted(len(self.inputs), "input"), counted(len(self.params), "param")
        end = nodes if self.outputs else "no outputs yet"
        return f"Graph {self.name!r}: {inputs}, {params}, {end}"


def _type_of(name: str, shape: Any, dtype: Any) -> TensorType:
    """The type of a leaf, from a shape and an element type, or from a TensorType that says both."""
    if not isinstance(shape, TensorType):
        return TensorType.of(shape, dtype)
    if dtype != "f32" and as_dtype(dtype) is not shape.dtype:
        raise DTypeError(f"{name!r} is {shape} and {as_dtype(dtype)}; one of them says its type")
    return shape.addressable()


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name:
        raise NameError(f"a name must be a string that is not empty, found {name!r}", caller())
    if "\0" in name:
        raise NameError(f"a name has no zero byte, found {name!r}", caller())
    if not name.isascii() and any("\ud800" <= c <= "\udfff" for c in name):
        raise NameError(f"a name is text that UTF-8 can hold, found {name!r}", caller())


def names_of_outputs(graph: Graph) -> tuple[str, ...]:
    """The names of a graph's outputs, which are numbers where it was given none."""
    return graph.output_names or tuple(map(str, range(len(graph.outputs))))


_depths = count(1)


def inner_graph(name: str) -> Graph:
    """A graph to trace a body in, ops of which may use values from around it: its ``depth`` is not
    0, and the greater the later it begins."""
    graph = Graph(name)
    graph.depth = next(_depths)
    return graph


def topological(outputs: Sequence[Value], stop: Keys = frozenset()) -> list[Op]:
    """The nodes that ``outputs`` reach, in an order fixed by the graph's structure alone.

    Values in ``stop`` are taken as leaves.
    """
    roots = [v.op for v in outputs if v.op is not None and v not in stop]
    return post_order(
        roots, lambda op: [v.op for v in op.present if v.op is not None and v not in stop]
    )


def post_order(roots: Sequence[Op], needs: Callable[[Op], Iterable[Op]]) -> list[Op]:
    """The nodes that ``roots`` reach, each behind those that it ``needs``."""
    order: list[Op] = []
    entered: set[Op] = set()
    done: set[Op] = set()
    stack = [*reversed(roots)]
    while stack:
        op = stack[-1]
        if op not in entered:
            entered.add(op)
            stack += reversed([o for o in needs(op) if o not in done])
            continue
        stack.pop()
        if op not in done:
            done.add(op)
            order.append(op)
    return order


def with_bodies(nodes: Iterable[Op]) -> list[Op]:
    """The nodes, and after each of them those of its bodies."""
    found: list[Op] = []
    for op in nodes:
        found.append(op)
        bodies = (op.attrs[a.name] for a in op.attr_fields if a.kind == "Graph")
        for body in bodies:
            found += with_bodies(topological(body.outputs))
    return found


def symbols_of(types: Iterable[TensorType]) -> list[Symbol]:
    """The symbols of types, each once, in a fixed order."""
    found = {s for t in types for d in t.shape if isinstance(d, SymDim) for s in d.leaves()}
    return sorted(found)


def sizes_of(leaves: Iterable[tuple[str, TensorType, tuple[int, ...]]]) -> dict[str, int]:
    """The sizes of symbolic dims, read off the shapes that tensors of the given names and types
    have; ShapeError for a wrong rank, and where two disagree. A dim such as ``2*n + 1`` tells
    its symbol too, where no dim is the symbol itself."""
    sizes: dict[str, int] = {}
    others: list[tuple[str, SymDim, int]] = []
    for name, t, shape in leaves:
        if len(shape) != t.rank:
            shown = ", ".join(map(str, t.shape))
            raise ShapeError(f"{name!r} has shape [{shown}], found {list(shape)}", caller())
        for d, n in zip(t.shape, shape, strict=True):
            s = d.lone if isinstance(d, SymDim) else None
            if s is not None and sizes.setdefault(s.name, n) != n:
                raise ShapeError(
                    f"{name!r} says {s.name} is {n}, another tensor says {sizes[s.name]}", caller()
                )
            if isinstance(d, SymDim) and s is None:
                others.append((name, d, n))
    for name, d, n in others:
        found = d.solved(n)
        if found is not None:
            sizes.setdefault(*found)
        bound = d.bind({s: sizes[s] for s in d.symbols if s in sizes})
        if isinstance(bound, int) and bound != n:
            known = ", ".join(f"{s} = {sizes[s]}" for s in sorted(d.symbols))
            raise ShapeError(
                f"{name!r} has a dim {d} that is {n}, which is {bound} with {known}", caller()
            )
    return sizes


def check_param(name: str, value: np.ndarray[Any, Any], type: TensorType) -> np.ndarray[Any, Any]:
    """``value`` in the shape that ``type`` declares; ShapeError or DTypeError if it cannot be."""
    if value.dtype != type.dtype.numpy:
        raise DTypeError(
            f"param {name!r} is {type.dtype}, found {value.dtype}; convert it first", caller()
        )
    if not type.is_static:
        return value
    shape: Shape = type.shape
    if value.shape != shape and (value.ndim != 1 or value.size != type.size):
        many = value.size != type.size
        counts = f" ({type.size} elements expected, {value.size} found)" if many else ""
        raise ShapeError(
            f"param {name!r} has shape {list(shape)}, found {list(value.shape)}{counts}", caller()
        )
    return value.reshape(type.static_shape)
