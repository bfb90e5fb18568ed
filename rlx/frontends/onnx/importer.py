"""The walk over the nodes of an ONNX graph, each of which becomes ops of ours by its row."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np
from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, TensorProto, ValueInfoProto

from rlx.dims import Dim, SymDim, as_size, bind_dim, parse_dim
from rlx.errors import (
    DTypeError,
    ModelError,
    NameError,
    RlxError,
    ShapeError,
    UnsupportedError,
    did_you_mean,
)
from rlx.frontends.onnx import checks
from rlx.frontends.onnx.edges import Edge, Evaluator
from rlx.frontends.onnx.files import Source
from rlx.frontends.onnx.folding import fold
from rlx.frontends.onnx.functions import bound, defaults, of_schema
from rlx.frontends.onnx.missing import opset_of, refuse_missing, versions
from rlx.frontends.onnx.node import Node, Result, domain_of, full_name
from rlx.frontends.onnx.rows import ROWS
from rlx.frontends.onnx.tensors import array_of, dtype_of, tensor_type
from rlx.graph import Graph
from rlx.ops.attrs import literal
from rlx.ops.location import caller, located
from rlx.ops.value import Value
from rlx.records import frozen
from rlx.types import TensorType

__all__ = ["Context", "Importer", "import_model"]

Array = np.ndarray[Any, Any]
Scope = Mapping[str, Edge]


@frozen
class Context:
    """What surrounds a node: the values that it can name, the versions of the op types' domains,
    and inside a function the attributes that its caller gave."""

    scope: Scope
    opsets: Mapping[str, int]
    attributes: Mapping[str, AttributeProto]


def import_model(source: Source, constants: Mapping[str, Any], dims: Mapping[str, int]) -> Graph:
    """The graph of a model; see ``rlx.from_onnx``."""
    try:
        return Importer(source).model(constants, dims)
    except RlxError as e:
        if e.location is None:
            raise type(e)(e.message, (source.name, 1)) from None
        raise


class Importer:
    """One import: the graph that is built, and what its nodes look up."""

    def __init__(self, source: Source) -> None:
        self.source, self.folder = source, source.folder
        self.graph = Graph(source.model.graph.name or "main")
        self.evaluator = Evaluator(self.graph)
        self.functions = {
            (domain_of(f.domain), f.name, f.overload): f for f in source.model.functions
        }

    def model(self, constants: Mapping[str, Any], dims: Mapping[str, int]) -> Graph:
        """The graph of the model, with some inputs and dims fixed."""
        proto = self.source.model.graph
        opsets = versions(self.source.model.opset_import)
        refuse_missing(proto.node, opsets, self.functions)
        with located((self.source.name, 1)):
            scope = {**self._inputs(proto, constants, dims), **self._initialisers(proto)}
        inner = self.nodes(proto.node, Context(scope, opsets, {}))
        outputs = [self._output(v, inner) for v in proto.output]
        with located((self.source.name, 1)):
            self.graph.set_outputs(outputs)
        self._drop_unused()
        return self.graph

    # -- leaves ----------------------------------------------------------------------------

    def _inputs(
        self, proto: GraphProto, constants: Mapping[str, Any], dims: Mapping[str, int]
    ) -> dict[str, Edge]:
        weights = {t.name for t in proto.initializer}
        declared = [v for v in proto.input if v.name not in weights]
        _known("input", constants, {v.name for v in declared})
        symbols: dict[str, Dim] = {}
        types = {v.name: _type_of(v, symbols) for v in declared}
        names = {s for d in symbols.values() if isinstance(d, SymDim) for s in d.symbols}
        _known("dim", dims, names)
        sizes = {name: as_size(name, size) for name, size in dims.items()}
        found: dict[str, Edge] = {}
        for name, t in types.items():
            if name in constants:
                found[name] = Edge.literal(_fixed(name, constants[name], t.bind(sizes)))
            else:
                bound_shape = [bind_dim(d, sizes) for d in t.shape]
                found[name] = Edge.of(self.graph.input(name, bound_shape, t.dtype))
        return found

    def _initialisers(self, proto: GraphProto) -> dict[str, Edge]:
        if proto.sparse_initializer:
            name = proto.sparse_initializer[0].values.name
            raise UnsupportedError(
                f"the initialiser {name!r} is sparse; store it as a dense tensor"
            )
        return {t.name: self._initialiser(t) for t in proto.initializer}

    def _initialiser(self, t: TensorProto) -> Edge:
        array = array_of(t, self.folder, f"the initialiser {t.name!r}")
        edge = Edge.literal(array)
        if not array.ndim:
            return edge
        return Edge(edge.type, known=array, make=lambda: self.graph.param(t.name, value=array))

    def _output(self, v: ValueInfoProto, scope: Scope) -> Value:
        if v.name not in scope:
            raise ModelError(
                f"the output {v.name!r} is given by no node{did_you_mean(v.name, scope)}; the file"
                " is damaged, export it again"
            )
        what = f"the output {v.name!r}"
        edge, declared = scope[v.name], tensor_type(v.type, what)
        if declared.elem_type and dtype_of(declared.elem_type, what) is not edge.dtype:
            raise ModelError(f"{what} is declared as another element type than {edge.type}")
        return edge.value

    def _drop_unused(self) -> None:
        """Initialisers that only shapes needed are no params."""
        used = {v for op in self.graph.nodes() for v in op.present} | set(self.graph.outputs)
        for v in [p for p in self.graph.params if p not in used]:
            self.graph.params.remove(v)
            del self.graph.param_values[str(v.name)], self.graph._names[str(v.name)]

    # -- nodes -----------------------------------------------------------------------------

    def nodes(self, nodes: Sequence[NodeProto], context: Context) -> dict[str, Edge]:
        """Import nodes; returns the values that can be named after them."""
        scope = dict(context.scope)
        inner = replace(context, scope=scope)
        for i in _ordered(nodes, scope):
            scope.update(self._node(nodes[i], i, inner))
        return scope

    def body(self, graph: GraphProto, inputs: Sequence[Edge], context: Context) -> list[Edge]:
        """The outputs of a body of control flow, which sees the names around it."""
        given = {v.name: e for v, e in zip(graph.input, inputs, strict=True)}
        weights = {
            t.name: Edge.literal(array_of(t, self.folder, f"the initialiser {t.name!r}"))
            for t in graph.initializer
        }
        found = self.nodes(
            graph.node, replace(context, scope={**context.scope, **weights, **given})
        )
        missing = next((o.name for o in graph.output if o.name not in found), None)
        if missing is not None:
            raise ModelError(f"the output {missing!r} of its body is given by no node")
        return [found[o.name] for o in graph.output]

    def _node(self, proto: NodeProto, index: int, context: Context) -> dict[str, Edge]:
        proto = bound(proto, context.attributes)
        place = (self.source.name, index + 1)
        try:
            with located(place):
                results = self._results(proto, context)
        except RlxError as e:
            raise type(e)(f"{_title(proto, index)}: {e.message}", place) from None
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as e:
            raise ModelError(
                f"{_title(proto, index)}: its inputs and attributes do not fit together: {e}; the"
                " file is damaged, export it again",
                place,
            ) from e
        return {n: e for n, e in zip(proto.output, results, strict=False) if n and e is not None}

    def _results(self, proto: NodeProto, context: Context) -> Sequence[Edge | None]:
        domain, version = opset_of(proto, context.opsets)
        inputs = [context.scope[n] if n else None for n in proto.input]
        own = self.functions.get((domain, proto.op_type, proto.overload))
        if own is not None:
            return self._call(own, proto, inputs, {}, {})
        schema = checks.schema_of(proto.op_type, version, domain)
        attributes = checks.attributes_of(proto, schema, self.folder)
        if schema is not None:
            checks.check(proto, schema, inputs)
        node = Node(self, proto, version, inputs, attributes, context)
        folded = fold(node)
        if folded is not None:
            return [Edge.literal(a) for a in folded]
        row = ROWS.get(full_name(proto))
        found = NotImplemented if row is None else row(node)
        if found is not NotImplemented:
            unread = node.unread(checks.default_attributes(schema))
            if unread:
                raise UnsupportedError(f"{unread} is not taken into account here")
            return self._edges(proto, found)
        assert schema is not None, "what has neither a row nor a schema was refused at the start"
        function = of_schema(schema, version, proto, inputs)
        return self._call(function, proto, inputs, defaults(schema), context.opsets)

    def _edges(self, proto: NodeProto, given: Any) -> Sequence[Edge | None]:
        many: Sequence[Result] = given if isinstance(given, list | tuple) else [given]
        edges = [
            e if e is None or isinstance(e, Edge)
            else Edge.of(e) if isinstance(e, Value)
            else Edge.literal(e)
            for e in many
        ]  # fmt: skip
        for i, name in enumerate(proto.output):
            if name and (i >= len(edges) or edges[i] is None):
                raise UnsupportedError(f"its output {i} ({name!r}) is not computed here")
        return edges

    def _call(
        self,
        function: FunctionProto,
        proto: NodeProto,
        inputs: Sequence[Edge | None],
        defaults: Mapping[str, AttributeProto],
        opsets: Mapping[str, int],
    ) -> Sequence[Edge | None]:
        """The results of a function on the inputs of a node that stands for it."""
        opsets = {**opsets, **versions(function.opset_import)}
        refuse_missing(function.node, opsets, self.functions)
        scope = {n: e for n, e in zip(function.input, inputs, strict=False) if e is not None}
        given = {a.name: a for a in (*function.attribute_proto, *proto.attribute)}
        found = self.nodes(
            [_without(n, set(function.input) - set(scope)) for n in function.node],
            Context(scope, opsets, {**defaults, **given}),
        )
        return [found.get(n) for n in function.output]


def _without(proto: NodeProto, absent: set[str]) -> NodeProto:
    """A node of a function's body, without the inputs that the caller left out."""
    if not absent.intersection(proto.input):
        return proto
    out = NodeProto()
    out.CopyFrom(proto)
    out.input[:] = ["" if n in absent else n for n in proto.input]
    return out


def _ordered(nodes: Sequence[NodeProto], scope: Scope) -> Sequence[int]:
    """The order in which nodes can run; ModelError for a name that nothing gives, that two nodes
    give, and for a cycle."""
    giver: dict[str, int] = {}
    for i, node in enumerate(nodes):
        for name in filter(None, node.output):
            if name in giver or name in scope:
                raise ModelError(f"{_title(node, i)} gives {name!r}, which is given already")
            giver[name] = i
    needs: dict[int, set[int]] = {}
    for i, node in enumerate(nodes):
        for name in filter(None, node.input):
            if name not in giver and name not in scope:
                hint = did_you_mean(name, [*giver, *scope])
                raise ModelError(
                    f"{_title(node, i)} reads {name!r}, which no node, input or initialiser"
                    f" gives{hint}; the file is damaged, export it again"
                )
        needs[i] = {giver[n] for n in _reads(node) if n in giver}
    if all(j < i for i, before in needs.items() for j in before):
        return range(len(nodes))
    try:
        return list(TopologicalSorter(needs).static_order())
    except CycleError as e:
        cycle = " -> ".join(_title(nodes[i], i) for i in e.args[1])
        raise ModelError(f"the nodes {cycle} form a cycle; a model's graph has none") from None


def _reads(node: NodeProto) -> set[str]:
    """What a node reads, in its bodies too."""
    bodies = [a.g for a in node.attribute if a.type == AttributeProto.GRAPH]
    return {*node.input, *(name for b in bodies for n in b.node for name in _reads(n)),
            *(o.name for b in bodies for o in b.output)}  # fmt: skip


def _title(proto: NodeProto, index: int) -> str:
    """How messages call a node."""
    name = full_name(proto)
    return f"{name} {proto.name!r}" if proto.name else f"{name} (node {index + 1})"


def _known(what: str, given: Mapping[str, Any], known: set[str]) -> None:
    for name in given:
        if name not in known:
            listed = ", ".join(map(repr, sorted(known))) or "none"
            raise NameError(
                f"no {what} is called {name!r}{did_you_mean(name, known)}; there are {listed}",
                caller(),
            )


def _fixed(name: str, value: Any, t: TensorType) -> Array:
    """The elements that an input is fixed to, of its type; DTypeError or ShapeError if not."""
    a = literal(value, t.dtype, f"the constant {name!r}")
    if a.dtype != t.dtype.numpy:
        raise DTypeError(f"input {name!r} is {t.dtype}, found {a.dtype}; convert it with .astype")
    fits = len(t.shape) == a.ndim and all(
        not isinstance(d, int) or d == n for d, n in zip(t.shape, a.shape, strict=True)
    )
    if not fits:
        raise ShapeError(f"input {name!r} is {t}, the constant has the shape {list(a.shape)}")
    return a


def _type_of(v: ValueInfoProto, symbols: dict[str, Dim]) -> TensorType:
    """The type of an input; ``symbols`` gains its dims by the names that the model has for them."""
    what = f"the input {v.name!r}"
    declared = tensor_type(v.type, what)
    if not declared.HasField("shape"):
        raise UnsupportedError(f"{what} has no declared shape; export the model with shapes")
    shape: list[Dim] = []
    for i, d in enumerate(declared.shape.dim):
        if d.HasField("dim_value"):
            shape.append(d.dim_value)
            continue
        name = d.dim_param or f"{v.name}_{i}"
        if name not in symbols:
            symbols[name] = _symbol(name, symbols)
        shape.append(symbols[name])
    return TensorType.of(shape, dtype_of(declared.elem_type, what))


def _symbol(name: str, taken: Mapping[str, Dim]) -> Dim:
    """A dim of that name, or of the nearest name that is one."""
    try:
        return parse_dim(name)
    except NameError:
        word = re.sub(r"\W", "_", name)
        word = word if re.match(r"[A-Za-z_]", word) else f"_{word}"
        while SymDim.symbol(word) in taken.values():
            word += "_"
        return SymDim.symbol(word)
