"""Which op types of a model have neither a row nor a function, all at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from onnx import AttributeProto, FunctionProto, NodeProto, OperatorSetIdProto
from onnx.defs import onnx_opset_version

from rlx.errors import ModelError, UnsupportedError
from rlx.frontends.onnx.checks import schema_of
from rlx.frontends.onnx.functions import has_function, static_function
from rlx.frontends.onnx.node import domain_of, full_name
from rlx.frontends.onnx.rows import ROWS

__all__ = ["Functions", "opset_of", "refuse_missing", "versions"]

Functions = Mapping[tuple[str, str, str], FunctionProto]
"""The functions of a model, by domain, name and overload."""


def versions(opsets: Iterable[OperatorSetIdProto]) -> dict[str, int]:
    """The version of each domain that a list of opset imports says; ModelError for one that the
    installed onnx package does not know."""
    found = {domain_of(o.domain): o.version for o in opsets}
    newest = onnx_opset_version()
    for domain, version in found.items():
        if not 1 <= version <= (newest if not domain else 1 << 30):
            raise ModelError(
                f"it is of opset {version} of {domain or 'ai.onnx'}, and the onnx package that is"
                f" installed knows 1 to {newest}; install a newer one"
            )
    return found


def opset_of(proto: NodeProto, opsets: Mapping[str, int]) -> tuple[str, int]:
    """The domain of a node and its version; ModelError for a domain that is not imported."""
    domain = domain_of(proto.domain)
    if domain not in opsets:
        raise ModelError(
            f"its domain {domain or 'ai.onnx'!r} is not among the opset imports; export the model"
            " again"
        )
    return domain, opsets[domain]


def refuse_missing(
    nodes: Iterable[NodeProto], opsets: Mapping[str, int], functions: Functions
) -> None:
    """UnsupportedError that lists every missing op type with the number of its nodes; those in
    the bodies of functions count where these are used."""
    found: Counter[str] = Counter()
    _Survey(functions, found).visit(nodes, opsets, ())
    if found:
        listed = ", ".join(f"{name} x {n}" for name, n in found.most_common())
        raise UnsupportedError(
            f"these op types of the model are not there yet: {listed}; docs/onnx.md lists those"
            " that are"
        )


class _Survey:
    def __init__(self, functions: Functions, found: Counter[str]) -> None:
        self.functions, self.found = functions, found

    def visit(
        self, nodes: Iterable[NodeProto], opsets: Mapping[str, int], inside: tuple[str, ...]
    ) -> None:
        for node in nodes:
            for a in node.attribute:
                for body in [*([a.g] if a.type == AttributeProto.GRAPH else []), *a.graphs]:
                    self.visit(body.node, opsets, inside)
            self._node(node, opsets, inside)

    def _node(self, node: NodeProto, opsets: Mapping[str, int], inside: tuple[str, ...]) -> None:
        domain = domain_of(node.domain)
        name = full_name(node)
        own = self.functions.get((domain, node.op_type, node.overload))
        if own is not None:
            if name in inside:
                raise ModelError(f"the function {name} calls itself; a model's functions cannot")
            self.visit(own.node, versions(own.opset_import), (*inside, name))
            return
        version = opsets.get(domain, 0)
        schema = schema_of(node.op_type, version, domain)
        if name in ROWS and schema is not None:
            return
        if schema is None or not has_function(schema):
            self.found[name] += 1
            return
        body = static_function(schema, version)
        if body is not None:
            self.visit(body.node, versions(body.opset_import), (*inside, name))
