"""The walk over the nodes of an ONNX graph, each of which becomes ops of ours by its row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np
from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, TensorProto, ValueInfoProto

from rlx.base.dims import Dim, SymDim, as_size, bind_dim
from rlx.errors import (
    DTypeError,
    ModelError,
    RlxError,
    ShapeError,
    UnsupportedError,
    did_you_mean,
)
from rlx.frontends.common.leaves import drop_unused_params
from rlx.frontends.common.names import dim_named
from rlx.frontends.onnx import checks
from rlx.frontends.onnx.baked import size_advice
from rlx.frontends.onnx.edges import Edge, Evaluator
from rlx.frontends.onnx.files import Source
from rlx.frontends.onnx.folding import fold
from rlx.frontends.onnx.functions import bound, defaults, of_schema
from rlx.frontends.onnx.missing import EXPANDED, Survey, opset_of, versions
from rlx.frontends.onnx.node import Node, Result, domain_of, full_name, label, title
from rlx.frontends.onnx.rows import ROWS
from rlx.frontends.onnx.scopes import (
    Context,
    Scope,
    check_call,
    check_leaves,
    ordered,
    without_absent,
)
from rlx.frontends.onnx.tensors import FOUR_BITS, array_of, dtype_of, tensor_type
from rlx.ir.attrs import literal
from rlx.ir.given import check_known
from rlx.ir.graph import Graph
from rlx.ir.location import NamedLocation, located
from rlx.ir.value import Value
from rlx.types import TensorType

__all__ = ["Importer", "import_model"]

Array = np.ndarray[Any, Any]


def import_model(source: Source, constants: Mapping[str, Any], dims: Mapping[str, Any]) -> Graph:
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
        self.survey = Survey(self.functions)
        self.packed_weights: dict[tuple[int, ...], tuple[Value, str, list[Any]]] = {}
        self._left = 0

    def model(self, constants: Mapping[str, Any], dims: Mapping[str, Any]) -> Graph:
        """The graph of the model, with some inputs and dims fixed."""
        proto = self.source.model.graph
        opsets = versions(self.source.model.opset_import)
        self._left = EXPANDED + 32 * self.survey.refuse_missing(proto.node, opsets)
        with located((self.source.name, 1)):
            check_leaves(proto, {})
            scope = {**self._inputs(proto, constants, dims), **self._initialisers(proto)}
        inner = self.nodes(proto.node, Context(scope, opsets, {}))
        outputs: dict[str, Value] = {}
        for v in proto.output:
            if v.name in outputs:
                raise ModelError(f"the output {v.name!r} is listed twice; export the model again")
            outputs[v.name] = self._output(v, inner)
        with located((self.source.name, 1)):
            self.graph.set_outputs(outputs)
        drop_unused_params(self.graph)
        return self.graph

    # -- leaves ----------------------------------------------------------------------------

    def _inputs(
        self, proto: GraphProto, constants: Mapping[str, Any], dims: Mapping[str, Any]
    ) -> dict[str, Edge]:
        weights = {t.name for t in proto.initializer}
        declared = [v for v in proto.input if v.name not in weights]
        check_known("input", constants, [v.name for v in declared])
        symbols: dict[str, Dim] = {}
        types = {v.name: _type_of(v, symbols) for v in declared}
        names = {s for d in symbols.values() if isinstance(d, SymDim) for s in d.symbols}
        check_known("dim", dims, sorted(names))
        sizes = {n: d if isinstance(d, SymDim) else as_size(n, d) for n, d in dims.items()}
        found: dict[str, Edge] = {}
        for name, t in types.items():
            if name in constants:
                found[name] = Edge.literal(_fixed(name, constants[name], t.bind(sizes)))
            else:
                bound_shape = [bind_dim(d, sizes) for d in t.shape]
                found[name] = Edge.of(self.graph.input(name, bound_shape, t.dtype))
        return found

    def _initialisers(self, proto: GraphProto) -> dict[str, Edge]:
        weights = self.source.weights
        return {
            t.name: self._initialiser(t, weights.get(i)) for i, t in enumerate(proto.initializer)
        }

    def _initialiser(self, t: TensorProto, data: Array | None) -> Edge:
        what, narrow = f"the initialiser {t.name!r}", t.data_type in FOUR_BITS
        array = array_of(t, self.folder, what, narrow=narrow, data=data)
        edge = Edge.literal(array)
        if array.ndim:
            make = partial(self.graph.param, t.name, value=array)
            edge = Edge(edge.type, known=array, make=make)
        edge.narrow = narrow
        return edge

    def _output(self, v: ValueInfoProto, scope: Scope) -> Value:
        edge = scope.get(v.name)
        if edge is None:
            raise ModelError(
                f"the output {v.name!r} is given by no node{did_you_mean(v.name, scope)}; the file"
                " is damaged, export it again"
            )
        what = f"the output {v.name!r}"
        declared = tensor_type(v.type, what)
        if declared.elem_type and dtype_of(declared.elem_type, what) is not edge.dtype:
            raise ModelError(f"{what} is declared as another element type than {edge.type}")
        return edge.value

    # -- nodes -----------------------------------------------------------------------------

    def nodes(self, nodes: Sequence[NodeProto], context: Context) -> dict[str, Edge | None]:
        """Import nodes; returns the values that can be named after them."""
        self._left -= len(nodes)
        if self._left < 0:
            raise ModelError(
                f"its loops come to more than {EXPANDED} nodes, written out round by round; export"
                " the model with fewer rounds"
            )
        scope = dict(context.scope)
        inner = replace(context, scope=scope)
        for i in ordered(nodes, scope):
            scope.update(self._node(nodes[i], i, inner))
        return scope

    def body(self, graph: GraphProto, inputs: Sequence[Edge], context: Context) -> list[Edge]:
        """The outputs of a body of control flow, which sees the names around it."""
        given = {v.name: e for v, e in zip(graph.input, inputs, strict=True)}
        check_leaves(graph, {**context.scope, **given})
        weights = {
            t.name: Edge.literal(array_of(t, self.folder, f"the initialiser {t.name!r}"))
            for t in graph.initializer
        }
        found = self.nodes(
            graph.node, replace(context, scope={**context.scope, **weights, **given})
        )
        return _given([o.name for o in graph.output], found, "its body")

    def _node(self, proto: NodeProto, index: int, context: Context) -> dict[str, Edge]:
        proto = bound(without_absent(proto, context.scope), context.attributes)
        place = NamedLocation.of((self.source.name, index + 1), label(proto, index))
        try:
            with located(place):
                results = self._results(proto, context)
        except RlxError as e:
            raise type(e)(f"{title(proto, index)}: {e.message}", place) from None
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as e:
            raise ModelError(
                f"{title(proto, index)}: its inputs and attributes do not fit together: {e}; the"
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
        checks.check_narrow(proto, inputs)
        node = Node(self, proto, version, inputs, attributes, context)
        folded = fold(node)
        if folded is not None:
            return [Edge.literal(a) for a in folded]
        row = ROWS.get(full_name(proto))
        try:
            found = NotImplemented if row is None else row(node)
        except ShapeError as e:
            assert row is not None
            raise type(e)(f"{e.message}{size_advice(node, row)}") from None
        if found is not NotImplemented:
            unread = node.unread(checks.default_attributes(schema))
            if unread:
                raise UnsupportedError(f"{unread} is not taken into account here")
            return self._edges(proto, found)
        assert schema is not None, "what has neither a row nor a schema was refused at the start"
        function = of_schema(schema, version, proto, inputs)
        # A schema's function may name fewer domains than it uses: the others are the model's.
        own = {**context.opsets, **versions(function.opset_import)}
        self.survey.refuse_missing(function.node, own)
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
        check_call(function, proto)
        opsets = {**opsets, **versions(function.opset_import)}
        scope: Scope = dict(zip_longest(function.input, inputs))
        given = {a.name: a for a in (*function.attribute_proto, *proto.attribute)}
        found = self.nodes(function.node, Context(scope, opsets, {**defaults, **given}))
        wanted = [n for n, out in zip(function.output, proto.output, strict=False) if out]
        edges = iter(_given(wanted, found, f"the function {function.name}"))
        return [next(edges) if out else None for out in proto.output]


def _given(names: Sequence[str], found: Scope, what: str) -> list[Edge]:
    """The outputs of a body or a function by name; ModelError for one that is not there."""
    edges: list[Edge] = []
    for name in names:
        edge = found.get(name)
        if edge is None:
            raise ModelError(f"the output {name!r} of {what} is given by no node")
        edges.append(edge)
    return edges


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
            symbols[name] = dim_named(name, symbols.values())
        shape.append(symbols[name])
    return TensorType.of(shape, dtype_of(declared.elem_type, what))
