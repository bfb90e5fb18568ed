"""The graph of an exported program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlx.errors import ModelError, UnsupportedError
from rlx.frontends.common.check import check_results
from rlx.frontends.common.leaves import drop_unused_params
from rlx.frontends.common.names import word
from rlx.frontends.common.values import constant, size_value
from rlx.frontends.torch.library import torch
from rlx.frontends.torch.node import Keys
from rlx.frontends.torch.sizes import Sizes
from rlx.frontends.torch.tensors import array_of, dtype_of
from rlx.frontends.torch.walk import Walk, type_of
from rlx.ir.graph import Graph
from rlx.ir.value import Value
from rlx.runtime.session import Session
from rlx.types import SymDim

__all__ = ["check_graph", "import_program"]

Array = np.ndarray[Any, Any]

WITHIN = 1e-4
"""The largest error, of the largest element, that a graph may have against the module."""

LITERAL = 64
"""The most elements of a tensor in forward's code that is a literal here."""


def import_program(
    program: Any, names: Mapping[tuple[int, int], str], key: str | None = None
) -> tuple[Graph, bool]:
    """The graph of a program of core ATen ops, and whether it draws random numbers, by a key that
    is the input ``key``; ``names`` are those of dims, by input and axis."""
    _check_mutations(program)
    made = _Import(program, names, key)
    return made.graph, made.keys is not None and made.keys.drawn


def _check_mutations(program: Any) -> None:
    """UnsupportedError for a program that writes its buffers or inputs: a graph has no state."""
    written = [
        s.target for s in program.graph_signature.output_specs if s.kind.name.endswith("MUTATION")
    ]
    if written:
        listed = ", ".join(map(repr, written[:5]))
        raise UnsupportedError(
            f"forward writes {listed}, and a graph has no state; call .eval() on the module, or"
            " return what is to be kept as an output"
        )


class _Import:
    def __init__(self, program: Any, names: Mapping[tuple[int, int], str], key: str | None) -> None:
        self.program = program
        self.graph = Graph("main")
        self.keys = None if key is None else Keys(lambda: self.graph.input(key, [2], "u32"))
        self.sizes = Sizes(program.range_constraints)
        self._weights: dict[Any, Value] = {}
        signature = program.graph_signature
        self._specs = {s.arg.name: s for s in signature.input_specs if hasattr(s.arg, "name")}
        self._declare(names)
        outputs = Walk(program.graph_module, self.sizes, self._leaf, self.keys).outputs()
        kinds = [s.kind.name for s in signature.output_specs]
        kept = [v for v, kind in zip(outputs, kinds, strict=True) if kind == "USER_OUTPUT"]
        self.graph.set_outputs(self._named(kept))
        drop_unused_params(self.graph)

    def _declare(self, names: Mapping[tuple[int, int], str]) -> None:
        """Name the symbols of the inputs: as the caller did, else by input and axis."""
        holders = {n.name: n for n in self.program.graph.nodes if n.op == "placeholder"}
        inputs = [s.arg.name for s in self._specs.values() if s.kind.name == "USER_INPUT"]
        tensors = [
            (i, name, holders[name].meta["val"]) for i, name in enumerate(inputs)
            if isinstance(holders[name].meta.get("val"), torch.Tensor)
        ]  # fmt: skip
        for given in (True, False):
            for i, name, t in tensors:
                for axis, size in enumerate(t.shape):
                    if (i, axis) in names or not given:
                        self.sizes.declare(size, names.get((i, axis), f"{word(name)}_{axis}"))

    # -- leaves ----------------------------------------------------------------------------

    def _leaf(self, node: Any) -> Any:
        spec: Any = self._specs[node.name]
        if spec.kind.name in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
            return self._weight(spec.target, spec.kind.name == "CONSTANT_TENSOR")
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or spec.kind.name == "TOKEN":
            return value
        what = f"the input {node.name!r}"
        t = type_of(value, self.sizes, what)
        return self.graph.input(node.name, t.shape, t.dtype)

    def _weight(self, name: str, written_out: bool) -> Value:
        """A param in the memory of torch's tensor; of weights that are tied, one for all. A small
        tensor that forward writes out is a literal."""
        state, constants = self.program.state_dict, self.program.constants
        t = state[name] if name in state else constants[name]
        if not t.dim() or not t.numel() or (written_out and t.numel() <= LITERAL):
            dtype_of(t.dtype, f"the constant {name!r}")
            return constant(array_of(t))
        key = (t.data_ptr(), t.dtype, tuple(t.shape), tuple(t.stride()))
        if key not in self._weights:
            dt = dtype_of(t.dtype, f"the weight {name!r}")
            array = array_of(t).view()
            array.flags.writeable = False
            self._weights[key] = self.graph.param(name, array.shape, dt)
            self.graph.param_values[name] = array
        return self._weights[key]

    # -- outputs ---------------------------------------------------------------------------

    def _named(self, values: Sequence[Any]) -> dict[str, Value]:
        names = output_names(self.program, len(values))
        named = {
            name: size_value(v) if isinstance(v, int | SymDim) else v
            for name, v in zip(names, values, strict=True)
            if isinstance(v, Value | SymDim) or (isinstance(v, int) and not isinstance(v, bool))
        }
        if not named:
            raise ModelError("the module returns no tensor; a graph has at least one output")
        return named


def output_names(program: Any, count: int) -> list[str]:
    """Names by the keys that lead to each output: ``logits``, ``hidden.0``; ``output`` for a lone
    tensor, ``output_0`` where there are only places."""
    pytree = torch.utils._pytree
    tree = pytree.tree_unflatten(list(range(count)), program.call_spec.out_spec)
    found: list[str] = []
    for path, _ in pytree.tree_flatten_with_path(tree)[0]:
        keys = [str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", "")))) for k in path]
        name = ".".join(keys)
        found.append("output" if not keys else f"output_{name}" if keys[0].isdigit() else name)
    return found


# -- the check -----------------------------------------------------------------------------


def check_graph(graph: Graph, program: Any) -> None:
    """ModelError if the compiled graph differs from the program on its example arguments, or if
    torch itself fails on them."""
    args, kwargs = program.example_inputs
    try:
        with torch.no_grad():
            results = torch.utils._pytree.tree_leaves(program.module()(*args, **kwargs))
    except Exception as e:  # torch's own, of many kinds
        raise ModelError(
            f"torch cannot run the module on the example arguments: {type(e).__name__}: {e}"
        ) from None
    names = output_names(program, len(results))
    expected = {
        name: array_of(t) if isinstance(t, torch.Tensor) else np.asarray(t)
        for name, t in zip(names, results, strict=True)
        if name in graph.output_names
    }  # fmt: skip
    leaves = torch.utils._pytree.tree_leaves((args, kwargs))
    inputs = [s.arg for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
    feeds = {
        a.name: array_of(t) for a, t in zip(inputs, leaves, strict=True)
        if isinstance(t, torch.Tensor)
    }  # fmt: skip
    found: Any = Session("cpu").compile(graph).run(feeds)
    check_results({n: np.asarray(found[n]) for n in expected}, expected, WITHIN)
