"""Missing op types of a model: all that have neither a row nor a function, at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager

from onnx import AttributeProto, FunctionProto, NodeProto, OperatorSetIdProto
from onnx.defs import onnx_opset_version

from rlx.errors import ModelError
from rlx.frontends.common.missing import MissingOps
from rlx.frontends.onnx.checks import schema_of
from rlx.frontends.onnx.functions import has_function, static_function
from rlx.frontends.onnx.node import domain_of, full_name
from rlx.frontends.onnx.rows import OUTSIDE, ROWS

__all__ = ["EXPANDED", "Functions", "Survey", "opset_of", "versions"]

EXPANDED = 1 << 17
"""The most nodes that the functions of a model, or its loops, are written out into."""
DEEPEST = 32
"""The most functions and bodies inside one another."""

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


class Survey:
    """A look at all nodes before any is imported, the functions of the model once each."""

    def __init__(self, functions: Functions) -> None:
        self.functions = functions
        self._seen: dict[tuple[str, str, str], tuple[Counter[str], int]] = {}
        self._inside: list[str] = []

    def refuse_missing(self, nodes: Iterable[NodeProto], opsets: Mapping[str, int]) -> int:
        """The number of nodes, with functions expanded. UnsupportedError that lists every missing
        op type with the number of its nodes, those in functions counting where these are used;
        ModelError for functions and bodies that are nested or expanded without end."""
        missing = MissingOps("op types of the model", "docs/onnx.md lists those that are")
        count = self._visit(nodes, opsets, missing.counts)
        missing.refuse()
        return count

    def _visit(
        self, nodes: Iterable[NodeProto], opsets: Mapping[str, int], found: Counter[str]
    ) -> int:
        count = expanded = 0
        for node in nodes:
            for a in node.attribute:
                for body in [*([a.g] if a.type == AttributeProto.GRAPH else []), *a.graphs]:
                    with self._within(f"a body of {full_name(node)}"):
                        count += self._visit(body.node, opsets, found)
            expanded += self._node(node, opsets, found)
            count += 1
            if expanded > EXPANDED:
                where = next((n for n in reversed(self._inside) if " " not in n), "")
                raise ModelError(
                    f"{f'the function {where}' if where else 'its graph'} comes to more than"
                    f" {EXPANDED} nodes as the functions that it calls are expanded; export the"
                    " model with smaller ones"
                )
        return count + expanded

    def _node(self, node: NodeProto, opsets: Mapping[str, int], found: Counter[str]) -> int:
        """The nodes that stand for one, if it is a call of a function."""
        domain, name = domain_of(node.domain), full_name(node)
        key = (domain, node.op_type, node.overload)
        if key in self.functions:
            missing, count = self._function(key, name)
            found.update(missing)
            return count
        version = opsets.get(domain, 0)
        schema = schema_of(node.op_type, version, domain)
        if name in ROWS and (schema is not None or name in OUTSIDE):
            return 0
        if schema is None or not has_function(schema):
            found[name] += 1
            return 0
        body = static_function(schema, version)
        if body is None:
            return 0
        return self._visit(body.node, {**opsets, **versions(body.opset_import)}, found)

    def _function(self, key: tuple[str, str, str], name: str) -> tuple[Counter[str], int]:
        if key not in self._seen:
            if name in self._inside:
                raise ModelError(f"the function {name} calls itself; a model's functions cannot")
            own, found = self.functions[key], Counter[str]()
            with self._within(name):
                count = self._visit(own.node, versions(own.opset_import), found)
            self._seen[key] = found, count
        return self._seen[key]

    @contextmanager
    def _within(self, what: str) -> Generator[None]:
        if len(self._inside) == DEEPEST:
            raise ModelError(
                f"{what} is nested more than {DEEPEST} deep in functions and bodies of If, Loop and"
                " Scan; export the model with fewer levels"
            )
        self._inside.append(what)
        try:
            yield
        finally:
            self._inside.pop()
