"""The walk over the functions of a StableHLO module, whose ops become ops of ours by their rows."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from rlx._mlir import ir
from rlx.errors import ModelError
from rlx.frontends.common.missing import MissingOps
from rlx.frontends.stablehlo.arguments import argument_shapes, exported_arguments
from rlx.frontends.stablehlo.node import (
    ROWS,
    Edge,
    Node,
    element_of,
    place,
    title,
    type_of,
    value_of,
)
from rlx.frontends.stablehlo.rows.custom import is_known
from rlx.frontends.stablehlo.sizes import has_dynamic_dims, known_sizes
from rlx.ir.graph import Graph
from rlx.ir.location import located
from rlx.ir.value import Value
from rlx.types import Dim, DType, TensorType

__all__ = ["Importer"]

for _part in (
    "composed", "control", "custom", "dynamic", "elementwise", "indexing", "movement", "products",
    "reductions",
):  # fmt: skip
    importlib.import_module(f"rlx.frontends.stablehlo.rows.{_part}")

_ENDS = ("return", "func.return")


class Importer:
    """One import: the functions of a module, and what slices of its values were.

    ``reads`` has of every slice at a computed place its operand and starts, ``writes`` of every
    such update its operand, update and starts: by these loops are raised to scans.
    """

    def __init__(self, module: Any, name: str) -> None:
        self.name, self.module = name, module  # which owns the ops
        self.functions: dict[str, Any] = {
            str(ir.StringAttr(f.attributes["sym_name"]).value): f
            for f in module.body.operations
            if f.operation.name == "func.func"
        }
        self.reads: dict[Value, tuple[Value, list[Value]]] = {}
        self.writes: dict[Value, tuple[Value, Value, list[Value]]] = {}
        self._calls: list[str] = []
        self._dynamic = any(map(has_dynamic_dims, self.functions.values()))

    def graph(self, known: Mapping[tuple[int, int], Dim] | None = None) -> Graph:
        """The graph of the function ``main``, or of the only one. ``known`` has dims that the
        module leaves open, by argument and axis."""
        main = self._main()
        self.refuse_missing()
        block = main.regions[0].blocks[0]
        graph = Graph(self.name)
        shapes = argument_shapes(block, self.functions, known or {})
        named = exported_arguments(block, self.functions)
        inputs = [
            graph.input(name, type_of(a.type, shape))
            for name, a, shape in zip(
                _distinct(_argument_names(named)), block.arguments, shapes, strict=True
            )
        ]
        outputs = self.values(block, inputs, {})
        if not outputs:
            raise ModelError(f"the function {self.name!r} gives nothing")
        called = _result_names(main, len(outputs))
        graph.set_outputs(outputs if called is None else dict(zip(called, outputs, strict=True)))
        return graph

    def _main(self) -> Any:
        if "main" in self.functions:
            return self.functions["main"]
        public = [
            f for f in self.functions.values()
            if "sym_visibility" not in f.attributes
            or str(ir.StringAttr(f.attributes["sym_visibility"]).value) == "public"
        ]  # fmt: skip
        if len(public) != 1:
            listed = ", ".join(map(repr, self.functions)) or "none"
            raise ModelError(
                "the module has no function 'main', and not one alone is public; there are"
                f" {listed}"
            )
        return public[0]

    def argument_types(self) -> list[TensorType]:
        """The types of what the function ``main`` takes."""
        return [type_of(a.type) for a in self._main().regions[0].blocks[0].arguments]

    def result_types(self) -> list[Any]:
        """MLIR's types of what it gives."""
        return list(
            ir.FunctionType(ir.TypeAttr(self._main().attributes["function_type"]).value).results
        )

    def argument_attributes(self) -> list[Any]:
        """What is said of each of its arguments, by name."""
        main = self._main()
        count = len(main.regions[0].blocks[0].arguments)
        if "arg_attrs" not in main.attributes:
            return [{}] * count
        return [ir.DictAttr(a) for a in ir.ArrayAttr(main.attributes["arg_attrs"])]

    def refuse_missing(self) -> None:
        """UnsupportedError that lists all ops without a row."""
        missing = MissingOps("ops of StableHLO", "docs/jax.md says what is read")

        def visit(op: Any) -> ir.WalkResult:
            name, called = title(op), str(op.name)
            known = name in ROWS or name in _ENDS or name in ("func.func", "builtin.module")
            if name == "custom_call":
                target = str(ir.StringAttr(op.attributes["call_target_name"]).value)
                known, called = is_known(target), f"{called} of {target!r}"
            if not known:
                found = place(op.location)
                missing.add(called, f"{found[0]}:{found[1]}" if found else "")
            return ir.WalkResult.ADVANCE

        for f in self.functions.values():
            f.operation.walk(visit)
        missing.refuse()

    # -- the walk --------------------------------------------------------------------------

    def call(self, name: str, args: Sequence[Edge]) -> list[Edge]:
        """What a function of the module gives on values and sizes."""
        if name in self._calls:
            raise ModelError(f"the function {name!r} calls itself, which a graph cannot")
        self._calls.append(name)
        try:
            return self.block(self.functions[name].regions[0].blocks[0], args, {})
        finally:
            self._calls.pop()

    def values(self, block: Any, args: Sequence[Edge], outer: dict[Any, Any]) -> list[Value]:
        """What a block gives, as Values."""
        found = self.block(block, args, outer)
        end = list(block.operations)[-1].operation
        return [value_of(e, v.type) for e, v in zip(found, end.operands, strict=True)]

    def block(self, block: Any, args: Sequence[Edge], outer: dict[Any, Any]) -> list[Edge]:
        """What a block gives on values and sizes for its arguments; ``outer`` has what stands
        around it."""
        env = {**outer, **dict(zip(block.arguments, args, strict=True))}
        for op in block.operations:
            operation = op.operation
            edges = [env[v] for v in operation.operands]
            if title(operation) in _ENDS:
                return edges
            many: Sequence[Edge] | None = None
            if self._dynamic:
                many = known_sizes(operation, edges)
            if many is None:
                where = place(operation.location)
                with located(where) if where else nullcontext():
                    found = ROWS[title(operation)](Node(self, operation, edges, env))
                many = [found] if isinstance(found, Value) else list(found)
            env.update(zip(operation.results, many, strict=True))
        raise AssertionError("MLIR's verifier sees to it that a block ends with a return")

    def dtype_of_result(self, op: Any, n: int) -> DType:
        """The element type of a result of an op."""
        return element_of(op.results[n].type)

    def type_of_result(self, op: Any, n: int) -> TensorType:
        """The type of a result of an op."""
        return type_of(op.results[n].type)


def _argument_names(arguments: Iterable[Any]) -> list[str]:
    """What the arguments are called: by their locations, or ``x0``, ``x1``, …"""
    found: list[str] = []
    for i, a in enumerate(arguments):
        named = re.fullmatch(r'loc\("([^"]+)"(\(.*\))?\)', str(a.location), re.DOTALL)
        plain = named is not None and "/" not in named[1]
        found.append(_path(named[1]) if named is not None and plain else f"x{i}")
    return found


def _path(text: str) -> str:
    """``p['w'][0].b`` as ``p.w.0.b``."""
    parts = re.findall(r"\['([^']*)'\]|\[(\d+)\]|([^\[\].]+)", text)
    return ".".join(next(p for p in found if p) for found in parts) or text


def _result_names(main: Any, count: int) -> list[str] | None:
    """What the results are called, None where there are no names that tell them apart."""
    if "res_attrs" not in main.attributes:
        return None
    found: list[str] = []
    for i, attributes in enumerate(ir.ArrayAttr(main.attributes["res_attrs"])):
        known = ir.DictAttr(attributes)
        info = (
            str(ir.StringAttr(known["jax.result_info"]).value) if "jax.result_info" in known else ""
        )
        found.append(_path(info.removeprefix("result")) if info else str(i))
    plain = found == [str(i) for i in range(count)] or len(set(found)) < count or "" in found
    return None if plain else found


def _distinct(names: Sequence[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        free, n = name, 1
        while free in found:
            n += 1
            free = f"{name}_{n}"
        found.append(free)
    return found
