"""Names: which values a node can name, which node gives each, and the order that follows.

A name that a body of control flow defines is the body's own: it may be that of a value after the
body, such as a result of its node, and one of a body's inputs may hide a value around it. A
function sees no names but its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto

from rlx.base.frozen import frozen
from rlx.errors import ModelError, UnsupportedError, did_you_mean
from rlx.frontends.onnx.edges import Edge
from rlx.frontends.onnx.node import title

__all__ = ["Context", "Scope", "check_call", "check_leaves", "ordered", "without_absent"]

Scope = Mapping[str, Edge | None]
"""Values by name; None for an input of a function that its caller left out."""


@frozen
class Context:
    """What surrounds a node: the values that it can name, the versions of the op types' domains,
    and inside a function the attributes that its caller gave."""

    scope: Scope
    opsets: Mapping[str, int]
    attributes: Mapping[str, AttributeProto]


def check_leaves(graph: GraphProto, around: Scope) -> None:
    """ModelError where two inputs or two initialisers have one name, or where an initialiser of a
    body has that of a value around it: runtimes do not agree which of the two is read."""
    if graph.sparse_initializer:
        name = graph.sparse_initializer[0].values.name
        raise UnsupportedError(f"the initialiser {name!r} is sparse; store it as a dense tensor")
    weights = [t.name for t in graph.initializer]
    for what, names in (("inputs", [v.name for v in graph.input]), ("initialisers", weights)):
        twice = _twice(names)
        if twice is not None:
            raise ModelError(f"two of its {what} are called {twice!r}; give each a name of its own")
    hidden = next((n for n in weights if n in around), None)
    if hidden is not None:
        raise ModelError(
            f"an initialiser of its body has the name {hidden!r} of a value around the body;"
            " rename one of them"
        )


def _twice(names: Iterable[str]) -> str | None:
    return next((n for n, count in Counter(names).items() if count > 1), None)


def check_call(function: FunctionProto, proto: NodeProto) -> None:
    """ModelError for a node with more inputs or outputs than the function that it calls."""
    for what, given, declared in (
        ("inputs", proto.input, function.input),
        ("outputs", proto.output, function.output),
    ):
        if len(given) > len(declared):
            raise ModelError(
                f"it has {len(given)} {what}, and the function {function.name} has {len(declared)}"
            )


def without_absent(proto: NodeProto, scope: Scope) -> NodeProto:
    """A node of a function's body, without the inputs that the caller left out."""
    if all(scope.get(n) is not None for n in proto.input if n):
        return proto
    out = NodeProto()
    out.CopyFrom(proto)
    out.input[:] = ["" if scope.get(n) is None else n for n in proto.input]
    return out


def ordered(nodes: Sequence[NodeProto], scope: Scope) -> Sequence[int]:
    """The order in which nodes can run; ModelError for a name that nothing gives, that two nodes
    give, and for a cycle."""
    giver: dict[str, int] = {}
    for i, node in enumerate(nodes):
        for name in filter(None, node.output):
            if name in giver or name in scope:
                raise ModelError(f"{title(node, i)} gives {name!r}, which is given already")
            giver[name] = i
    needs: dict[int, set[int]] = {}
    for i, node in enumerate(nodes):
        for name in filter(None, node.input):
            if name not in giver and name not in scope:
                hint = did_you_mean(name, [*giver, *scope])
                raise ModelError(
                    f"{title(node, i)} reads {name!r}, which no node, input or initialiser"
                    f" gives{hint}; the file is damaged, export it again"
                )
        needs[i] = {giver[n] for n in _reads(node) if n in giver}
    if all(j < i for i, before in needs.items() for j in before):
        return range(len(nodes))
    try:
        return list(TopologicalSorter(needs).static_order())
    except CycleError as e:
        cycle = " -> ".join(title(nodes[i], i) for i in e.args[1])
        raise ModelError(f"the nodes {cycle} form a cycle; a model's graph has none") from None


def _reads(node: NodeProto) -> set[str]:
    """What a node reads, in its bodies too: there, what they do not define themselves."""
    bodies = [a.g for a in node.attribute if a.type == AttributeProto.GRAPH]
    return set(node.input).union(*map(_free, bodies))


def _free(body: GraphProto) -> set[str]:
    """The names from around a body that it reads. A name that it defines is its own all over it."""
    read = {o.name for o in body.output}.union(*map(_reads, body.node))
    own = {v.name for v in (*body.input, *body.initializer)}
    return read - own.union(*(n.output for n in body.node))
