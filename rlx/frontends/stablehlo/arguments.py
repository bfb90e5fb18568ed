"""The dims of a module's arguments, where the module leaves them open.

Each is a dim of its own, unless the module says more. What ``jax.export`` writes does: its ``main``
asks for the sizes, asserts what they must be, and hands them to the function of the program, whose
arguments say what the sizes are called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlx._mlir import ir
from rlx.base.dims import SymDim
from rlx.frontends.stablehlo.node import Sizes, ranked, title
from rlx.frontends.stablehlo.sizes import known_sizes
from rlx.types import Dim

__all__ = ["argument_shapes", "exported_arguments"]


def _program(block: Any) -> Any:
    """The last call of ``main``, that of the program, if there is one."""
    calls = [
        op.operation for op in block.operations if title(op.operation) in ("call", "func.call")
    ]
    return calls[-1] if calls else None


def exported_arguments(block: Any, functions: Mapping[str, Any]) -> Sequence[Any]:
    """The arguments of the program behind ``main``, which have the names that its author gave."""
    call, own = _program(block), list(block.arguments)
    if call is None or call.attributes["callee"].value != "_wrapped_jax_export_main":
        return own
    inner = list(functions[call.attributes["callee"].value].regions[0].blocks[0].arguments)
    return inner[len(inner) - len(own) :]


def argument_shapes(
    block: Any, functions: Mapping[str, Any], known: Mapping[tuple[int, int], Dim]
) -> list[list[Dim]]:
    """The shapes of the arguments of ``main``, a block; ``known`` are some of their dims, by
    argument and axis. UnsupportedError for an argument that is no tensor."""
    shapes: list[list[Dim]] = [
        [
            known.get((i, axis), SymDim.symbol(f"x{i}_{axis}"))
            if kind.is_dynamic_dim(axis)
            else kind.get_dim_size(axis)
            for axis in range(kind.rank)
        ]
        for i, kind in enumerate(ranked(a.type) for a in block.arguments)
    ]
    if all(isinstance(d, int) for shape in shapes for d in shape):
        return shapes
    return _Reader(shapes, functions).read(block)


class _Reader:
    """What ``main`` says about dims, op by op."""

    def __init__(self, shapes: list[list[Dim]], functions: Mapping[str, Any]) -> None:
        self.shapes, self.functions = shapes, functions
        self.env: dict[Any, Sizes] = {}
        self.same: dict[str, Dim] = {}
        self.least: dict[str, int] = {}

    def read(self, block: Any) -> list[list[Dim]]:
        """The shapes with what was found."""
        arguments = list(block.arguments)
        for op in block.operations:
            self._op(op.operation, arguments)
        names = self._names(_program(block))
        symbols = {s for shape in self.shapes for d in shape if isinstance(d, SymDim)
                   for s in d.leaves()}  # fmt: skip
        new = {
            s.name: SymDim.symbol(
                names.get(s.name, s.name), max(s.least, self.least.get(s.name, 0)), s.most
            )
            for s in symbols
        }
        same = {s: d.bind(new) if isinstance(d, SymDim) else d for s, d in self.same.items()}
        return [
            [d.bind({**new, **same}) if isinstance(d, SymDim) else d for d in shape]
            for shape in self.shapes
        ]

    def _op(self, op: Any, arguments: list[Any]) -> None:
        name = title(op)
        if name == "get_dimension_size" and op.operands[0] in arguments:
            shape = self.shapes[arguments.index(op.operands[0])]
            d = shape[op.attributes["dimension"].value]
            lone = d.lone if isinstance(d, SymDim) else None
            self.env[op.results[0]] = _array(d if lone is None else self.same.get(lone.name, d))
        elif name == "custom_call" and op.attributes["call_target_name"].value == "shape_assertion":
            self._assertion(op.operands[0].owner)
        elif name in ("call", "func.call"):
            self._call(op)
        else:
            self._known(op, self.env)

    def _known(self, op: Any, env: dict[Any, Sizes]) -> None:
        edges = [env[v] for v in op.operands if v in env]
        found = known_sizes(op, edges) if len(edges) == len(op.operands) else None
        env.update(zip(op.results, found or (), strict=False))

    def _call(self, op: Any) -> None:
        """A function of sizes, such as JAX's ``divmod``."""
        given = [self.env.get(v) for v in op.operands]
        if any(e is None for e in given):
            return
        block = self.functions[op.attributes["callee"].value].regions[0].blocks[0]
        env: dict[Any, Any] = dict(zip(block.arguments, given, strict=True))
        for inner in block.operations:
            if title(inner.operation) in ("return", "func.return"):
                found = [env.get(v) for v in inner.operation.operands]
                pairs = zip(op.results, found, strict=True)
                self.env.update({r: e for r, e in pairs if e is not None})
            else:
                self._known(inner.operation, env)

    def _assertion(self, compare: Any) -> None:
        """That two sizes are equal, or that one is at least a number."""
        op = getattr(compare, "operation", compare)
        sides = [self.env.get(v) for v in op.operands] if title(op) == "compare" else []
        if len(sides) != 2 or any(s is None or s.shape for s in sides):
            return
        a, b = (s.item() for s in sides if s is not None)
        way = str(op.attributes["comparison_direction"])
        if "EQ" in way:
            self._equal(a, b)
        elif "GE" in way and isinstance(b, int) and isinstance(a, SymDim) and a.line is not None:
            name, factor, number = a.line
            if factor > 0:
                low = -((number - b) // factor)
                self.least[name] = max(self.least.get(name, 0), low)

    def _equal(self, a: Dim, b: Dim) -> None:
        for one, other in ((a, b), (b, a)):
            symbol = one.lone if isinstance(one, SymDim) else None
            apart = symbol is not None and not (
                isinstance(other, SymDim) and symbol.name in other.symbols
            )
            if symbol is not None and apart and symbol.name not in self.same:
                self.same[symbol.name] = other
                return

    def _names(self, call: Any) -> dict[str, str]:
        """What the program calls the sizes that are symbols."""
        if call is None:
            return {}
        function = self.functions[call.attributes["callee"].value]
        if "arg_attrs" not in function.attributes:
            return {}
        found: dict[str, str] = {}
        known = list(ir.ArrayAttr(function.attributes["arg_attrs"]))
        for v, attributes in zip(call.operands, map(ir.DictAttr, known), strict=True):
            size = self.env.get(v)
            d = size.item() if size is not None and not size.shape else None
            if "jax.global_constant" in attributes and isinstance(d, SymDim) and d.lone:
                name = str(ir.StringAttr(attributes["jax.global_constant"]).value)
                if name.isidentifier() and name not in found.values():
                    found[d.lone.name] = name
        return found


def _array(d: Dim) -> Sizes:
    found = np.empty((), object)
    found[()] = d
    return found
