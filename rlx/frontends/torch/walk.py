"""The walk over a graph of ATen ops, each of which becomes ops of ours by its row."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlx.errors import RlxError, UnsupportedError
from rlx.frontends.common.missing import MissingOps
from rlx.frontends.common.values import constant, size_value
from rlx.frontends.torch.calls import call, name_of, row_of
from rlx.frontends.torch.library import torch
from rlx.frontends.torch.memory import memory_of
from rlx.frontends.torch.node import Keys, Node
from rlx.frontends.torch.sizes import Sizes
from rlx.frontends.torch.tensors import array_of, dtype_of
from rlx.ir.graph import topological
from rlx.ir.interpreter import evaluate
from rlx.ir.location import Location, NamedLocation, located
from rlx.ir.replay import replay
from rlx.ir.value import Value
from rlx.types import Dim, DType, SymDim, TensorType, f64

__all__ = ["Walk", "type_of"]

WITHOUT_RESULT = frozenset({
    "_assert_async", "_assert_async.msg", "_assert_scalar", "_assert_tensor_metadata",
    "sym_constrain_range", "sym_constrain_range_for_size", "_functional_assert_async.msg",
    "_linalg_check_errors",
})  # fmt: skip
"""Ops that only hold what the export assumed; the sizes of a call are checked here by their
ranges."""

INLINED = frozenset({"wrap_with_set_grad_enabled", "wrap_with_autocast"})
"""Ops that run another graph, with something set that means nothing here."""

OF_SIZES: Mapping[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv,
    "neg": operator.neg, "pow": lambda a, b: a.pow(b), "sym_float": lambda a: a,
    "sqrt": lambda a: a.sqrt(), "_sym_sqrt": lambda a: a.sqrt(), "exp": lambda a: a.exp(),
    "log": lambda a: a.log(), "log2": lambda a: a.log2(),
    "sym_max": lambda a, b: a.maximum(b), "sym_min": lambda a, b: a.minimum(b),
}  # fmt: skip
"""What a module computes of sizes that is no size, by the name of the function."""

ORDERED = "with_effects"
"""The op that orders another one that has an effect."""
ELEMENT = "_local_scalar_dense"
"""The op that reads a number from a tensor."""
COUNTED = "repeat_interleave.Tensor"
"""The op whose result has as many elements as a tensor says in all."""
REPEATED = frozenset({"run_and_save_rng_state", "run_with_rng_state"})
"""Ops that draw the same numbers in the forward and in the backward pass."""
HANDLED = INLINED | REPEATED | {ORDERED}


def place_of(node: Any) -> Location:
    """Where in the user's code a node comes from: the innermost line outside of torch."""
    found = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    ours = str(Path(__file__).parents[2])
    found = [f for f in found if not f[0].startswith(ours)]
    inside = str(Path(torch.__file__).parent)
    own = [f for f in found if not f[0].startswith(inside)] or found
    place = (own[-1][0], int(own[-1][1])) if own else ("<torch module>", 1)
    return NamedLocation.of(place, _module_of(node) or node.name)


def _module_of(node: Any) -> str:
    """The path of the innermost module that a node is of, such as ``layers.0.linear1``."""
    modules = list((node.meta.get("nn_module_stack") or {}).values())
    path = str(modules[-1][0]) if modules else ""
    return path.removeprefix("L['self']").removeprefix(".")


def type_of(t: Any, sizes: Sizes, what: str) -> TensorType:
    """The type of a tensor of torch's."""
    if t.layout is not torch.strided:
        raise UnsupportedError(f"{what} is stored as {t.layout}; give a dense tensor")
    return TensorType.of([sizes.dim(d) for d in t.shape], dtype_of(t.dtype, what))


def _wide(a: Any) -> Value:
    """A size, or a number that was computed of sizes, in f64."""
    if isinstance(a, SymDim):
        return size_value(a).cast(f64)
    return a if isinstance(a, Value) else constant(a, f64)


class Walk:
    """One graph of FX nodes, with what its nodes are here; ``leaf`` gives its placeholders, and
    ``keys`` those of random numbers."""

    def __init__(
        self, module: Any, sizes: Sizes, leaf: Callable[[Any], Any], keys: Keys | None = None
    ) -> None:
        self._module, self._sizes, self._leaf, self._keys = module, sizes, leaf, keys
        self._env: dict[Any, Any] = {}

    def outputs(self) -> Sequence[Any]:
        """What the graph returns: Values, dims, numbers and None."""
        missing = MissingOps("ops of the module", "docs/torch.md lists those that are")
        _survey(self._module, missing)
        missing.refuse()
        found: Sequence[Any] = ()
        needed = _needed(self._module)
        for node in self._module.graph.nodes:
            if node not in needed and node.op != "placeholder":
                continue
            if node.op == "placeholder":
                self._env[node] = self._leaf(node)
            elif node.op == "get_attr":
                self._env[node] = self._attribute(node)
            elif node.op == "output":
                found = self.value(node.args[0])
            else:
                self._env[node] = self._call(node)
        return found if isinstance(found, list | tuple) else (found,)

    def _attribute(self, node: Any) -> Any:
        found = self._module
        for part in node.target.split("."):
            found = getattr(found, part)
        if not isinstance(found, torch.Tensor):
            return found
        with located(place_of(node)):
            return constant(array_of(found))

    def value(self, a: Any) -> Any:
        """An argument, with nodes replaced by what they are."""
        if isinstance(a, torch.fx.Node):
            return self._env[a]
        if isinstance(a, Mapping):
            return {k: self.value(v) for k, v in a.items()}
        if isinstance(a, list | tuple):
            return [self.value(v) for v in a]
        if isinstance(a, torch.SymInt):
            return self._sizes.dim(a)
        return a

    def _call(self, node: Any) -> Any:
        place = place_of(node)
        name = name_of(node.target)
        try:
            with located(place):
                return self._result(node, name)
        except RlxError as e:
            raise type(e)(f"{name} ({node.name}): {e.message}", place) from None

    def _result(self, node: Any, name: str) -> Any:
        args, kwargs = self.value(node.args), self.value(node.kwargs)
        if node.target is operator.getitem:
            return args[0][args[1]]
        if name in WITHOUT_RESULT:
            return None
        if name == ORDERED:
            return self._ordered(args)
        if name in REPEATED:
            raise UnsupportedError(
                "it draws random numbers within an activation checkpoint, which the backward pass"
                " would have to draw again; take them out of torch.utils.checkpoint"
            )
        if name in INLINED:
            at = next(i for i, a in enumerate(args) if isinstance(a, torch.nn.Module))
            inner = iter(args[at + 1 :])
            return Walk(args[at], self._sizes, lambda _: next(inner), self._keys).outputs()
        val = node.meta.get("val")
        if isinstance(val, torch.SymBool | bool):
            return None  # what torch has decided, or asserts; a size that asks it says so itself
        if isinstance(val, torch.SymInt | int | float) or name == ELEMENT:
            return self._number(name, args, val)
        row = row_of(node.target)
        if row is None:
            return self._scalar(node.target, args, kwargs)
        if name == COUNTED and len(args) == 1:
            self._settle(val.shape[0], args[0], lambda counts: counts.sum())
        n = Node(
            name, self._types(val), lambda: self._promoted(node),
            lambda: memory_of(node.args[0], self.value, self._sizes), self._keys,
        )  # fmt: skip
        found = call(row, n, node.target, args, kwargs)
        return self._checked(n, found)

    def _number(self, name: str, args: Sequence[Any], val: Any) -> Dim | float:
        """A size, or a number that torch knows."""
        if name == ELEMENT and isinstance(val, torch.SymInt | torch.SymFloat):
            return self._element(args[0], val)
        return val if isinstance(val, float) else self._sizes.dim(val)

    def _element(self, x: Value, said: Any) -> Dim:
        """The number in a tensor where no input decides it, which torch does not know."""
        if isinstance(said, torch.SymFloat):
            raise UnsupportedError(
                "it reads a number from a tensor, which depends on the tensor's elements; leave out"
                " .item(), a tensor of one element can stand for the number"
            )
        self._settle(said, x, int)
        return self._sizes.dim(said)

    def _settle(self, said: Any, x: Value, number: Callable[[Any], Any]) -> None:
        """Say what a size is that torch does not know: a number of the elements of a tensor, where
        no input decides these."""
        ops = topological([x])
        read = [x, *(v for op in ops for v in op.present)]
        if all(v.op is not None and v.type.is_static for v in read):
            found: dict[Value, Any] = {}
            replay(ops, found, evaluate)
            self._sizes.settle(said, int(number(found[x])))

    def _ordered(self, args: Sequence[Any]) -> Sequence[Any]:
        """An op with an effect, behind a token that orders it: an assertion, or nothing here."""
        token, target = args[0], args[1]
        if name_of(target) not in WITHOUT_RESULT:
            raise UnsupportedError(f"{name_of(target)} has an effect, and a graph has none")
        return [token, None]

    def _scalar(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Arithmetic on sizes that gives no size: a value in f64 where a size is symbolic."""
        if not any(isinstance(a, SymDim | Value) for a in args):
            return target(*args, **kwargs)
        how = OF_SIZES.get(getattr(target, "__name__", ""))
        if how is None:
            raise UnsupportedError(
                "it computes a number that is no integer from symbolic dims, by a function that has"
                " no counterpart here; export the module with these fixed"
            )
        return how(*map(_wide, args))

    def _types(self, val: Any) -> list[TensorType | None]:
        many = val if isinstance(val, list | tuple) else [val]
        return [
            type_of(v, self._sizes, "its result") if isinstance(v, torch.Tensor) else None
            for v in many
        ]

    def _promoted(self, node: Any) -> DType:
        operands = [a.meta["val"] if isinstance(a, torch.fx.Node) else a for a in node.args[:2]]
        operands = [0 if isinstance(a, torch.SymInt) else a for a in operands]
        return dtype_of(torch.result_type(*operands), "a comparison")

    def _checked(self, n: Node, found: Any) -> Any:
        """The results, which have the types that torch says."""
        many = found if isinstance(found, list | tuple) else [found]
        for i, (v, t) in enumerate(zip(many, n.types, strict=False)):
            if isinstance(v, Value) and t is not None and not _fits(v.type, t):
                raise AssertionError(f"{n.name}: result {i} is {v.type}, torch says {t}")
        return found


def _fits(found: TensorType, said: TensorType) -> bool:
    if found.dtype is not said.dtype or len(found.shape) != len(said.shape):
        return False
    pairs: list[tuple[Dim, Dim]] = list(zip(found.shape, said.shape, strict=True))
    return all(a == b for a, b in pairs if isinstance(a, int) and isinstance(b, int))


def _needed(module: Any) -> set[Any]:
    """The nodes that decide what a graph returns: not those that are only asserted something of."""
    found: set[Any] = set()
    waiting = [n for n in module.graph.nodes if n.op == "output"]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting.extend(node.all_input_nodes)
    return found


def _survey(module: Any, missing: MissingOps) -> None:
    needed = _needed(module)
    for node in (n for n in module.graph.nodes if n in needed):
        if node.op == "get_attr" and isinstance(
            getattr(module, node.target, None), torch.fx.GraphModule
        ):
            _survey(getattr(module, node.target), missing)
        if node.op != "call_function" or node.target is operator.getitem:
            continue
        name = name_of(node.target)
        known = name in WITHOUT_RESULT or name in HANDLED or row_of(node.target) is not None
        val = node.meta.get("val")
        if not known and isinstance(val, torch.Tensor | list | tuple):
            file, line = place_of(node)
            missing.add(name, f"{file}:{line}")
