"""``torch.compile(model, backend="rlx")``: the graphs of dynamo and AOTAutograd, compiled.

A graph for inference holds the module's weights as params, and sets one anew when torch has written
it since: an optimiser's step counts as such, a write through ``.data`` does not. In a graph that is
trained they are inputs. Tensors are given and taken in their memory, without a copy where they lie
row by row. Random numbers are drawn anew in each call.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from rlx.base.dims import SymDim
from rlx.errors import UnsupportedError
from rlx.frontends.torch.export import core_table
from rlx.frontends.torch.library import part, torch
from rlx.frontends.torch.node import Keys
from rlx.frontends.torch.outputs import Outputs
from rlx.frontends.torch.sizes import Sizes
from rlx.frontends.torch.tensors import array_of
from rlx.frontends.torch.walk import Walk, type_of
from rlx.ir.graph import Graph
from rlx.runtime.session import CompiledGraph, Session

__all__ = ["backend"]

Array = np.ndarray[Any, Any]


def backend(module: Any, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """Compile a graph of dynamo's, and the backward pass of one that is trained.

    UnsupportedError with all ops that are missing, or for tensors that are not on the CPU; nothing
    runs elsewhere instead.
    """
    if options:
        listed = ", ".join(options)
        raise UnsupportedError(f"the backend takes no options, found {listed}")
    compiled = part("_dynamo.backends.common").aot_autograd(
        fw_compiler=partial(_compiled, holds=False, shared=True),
        bw_compiler=partial(_compiled, holds=False, shared=False),
        inference_compiler=partial(_compiled, holds=True, shared=True),
        decompositions=core_table(),
    )
    return compiled(module, example_inputs)


def _compiled(
    module: Any, example_inputs: Sequence[Any], *, holds: bool, shared: bool
) -> Callable[..., Any]:
    """A graph compiled, that holds weights, and whose outputs may share memory. Those of a backward
    pass do not: torch keeps them as gradients of parameters, and adds to each by itself."""
    with part("_subclasses.fake_tensor").unset_fake_temporarily():
        return part("_functorch.aot_autograd").make_boxed_func(
            _Program(module, _weights() if holds else frozenset(), shared)
        )


def _weights() -> frozenset[int]:
    """Which inputs of the graph that is compiled are the module's own."""
    context = torch._guards.TracingContext.try_get()
    said = getattr(getattr(context, "fw_metadata", None), "static_input_indices", None)
    return frozenset(said or ())


class _Program:
    """A compiled graph that takes and gives torch's tensors."""

    def __init__(self, module: Any, weights: frozenset[int], shared: bool) -> None:
        self._graph = Graph("compiled")
        self._sizes = _sizes_of(module)
        self._fed: list[int] = []
        self._held: dict[int, str] = {}
        self._symbols: list[tuple[int, int | None, str, SymDim]] = []
        self._seen: dict[int, tuple[Any, int, int]] = {}
        self._places: dict[Any, int] = {}
        self._weights = weights
        self._keys = Keys(lambda: self._graph.input("random key", [2], "u32"))
        walk = Walk(module, self._sizes, self._leaf, self._keys)
        self._outputs = Outputs(module, walk, walk.outputs(), self._sizes, shared=shared)
        self._lone = self._fed_alone()
        self._run: CompiledGraph | None = None
        if self._outputs.results:
            self._graph.set_outputs(self._outputs.results)
            self._run = Session("cpu").compile(self._graph)

    # -- building --------------------------------------------------------------------------

    def _leaf(self, node: Any) -> Any:
        i = len(self._places)
        self._places[node] = i
        value = node.meta["val"]
        if isinstance(value, torch.SymFloat):
            raise UnsupportedError(
                f"the input {node.name!r} is a float whose value torch does not fix; give a tensor"
            )
        if not isinstance(value, torch.Tensor):
            return self._size(i, None, value)
        if value.device.type != "cpu":
            raise UnsupportedError(
                f"the input {node.name!r} is on {value.device}, and RLX takes tensors of the CPU;"
                " move the module and its inputs there"
            )
        for axis, size in enumerate(value.shape):
            self._size(i, axis, size)
        t = type_of(value, self._sizes, f"the input {node.name!r}")
        if i in self._weights and t.rank and t.is_static:
            self._held[i] = node.name
            return self._graph.param(node.name, t.shape, t.dtype)
        self._fed.append(i)
        return self._graph.input(node.name, t.shape, t.dtype)

    def _size(self, i: int, axis: int | None, size: Any) -> Any:
        """A size of an input, or one that is an input; how a call finds its symbol is noted."""
        if not isinstance(size, torch.SymInt):
            return size
        self._sizes.declare(size, str(size.node.expr))
        found = self._sizes.dim(size)
        if isinstance(found, SymDim) and found.lone is not None:
            self._symbols.append((i, axis, found.lone.name, found))
        return found

    def _fed_alone(self) -> list[int]:
        """The inputs that are sizes which no tensor has. A graph has its sizes by the shapes of its
        inputs, so that each gets an empty one of that size."""
        shapes = [d for v in self._graph.inputs for d in v.shape if isinstance(d, SymDim)]
        had = {d.lone.name for d in shapes if d.lone is not None}
        found: list[int] = []
        for i, axis, name, dim in self._symbols:
            if axis is None and name not in had:
                self._graph.input(f"size {name}", [dim, 0], "u8")
                found.append(i)
        return found

    # -- calls -----------------------------------------------------------------------------

    def __call__(self, *args: Any) -> list[Any]:
        for i, name in self._held.items():
            self._hold(i, name, args[i])
        more = [_key()] if self._keys.drawn else []
        more += [np.empty((int(args[i]), 0), np.uint8) for i in self._lone]
        found = self._results([*[_array(args[i]) for i in self._fed], *more])
        return self._outputs.of(args, found, self._bound(args))

    def _results(self, arrays: Sequence[Array]) -> Sequence[Array]:
        return () if self._run is None else self._run.run_slots(*arrays)

    def _hold(self, i: int, name: str, weight: Any) -> None:
        """Set a param that torch has written, or replaced, since it was set."""
        seen = self._seen.get(i)
        version, place = weight._version, weight.data_ptr()
        if seen is not None and seen[0]() is weight and seen[1] == version and seen[2] == place:
            return
        if self._run is not None:
            self._run.set_param(name, array_of(weight))
        self._seen[i] = weakref.ref(weight), version, place

    def _bound(self, args: Sequence[Any]) -> Mapping[str, int]:
        return {
            name: int(args[i]) if axis is None else args[i].shape[axis]
            for i, axis, name, _ in self._symbols
        }


def _sizes_of(module: Any) -> Sizes:
    """The symbols of a graph, with the ranges that torch knows."""
    for node in module.graph.nodes:
        value = node.meta.get("val")
        parts = [value] if isinstance(value, torch.SymInt) else getattr(value, "shape", ())
        for size in parts:
            if isinstance(size, torch.SymInt):
                return Sizes(size.node.shape_env.var_to_range)
    return Sizes({})


def _key() -> Array:
    """A key for the random numbers of a call, of torch's generator: a seed that is set there says
    which they are, though they are others than torch's own."""
    return torch.randint(-(2**31), 2**31, (2,), dtype=torch.int32).numpy().view(np.uint32)


def _array(t: Any) -> Array:
    """The elements of a tensor, in its memory where they lie row by row."""
    t = t.detach() if t.requires_grad else t
    if t.dtype is torch.bfloat16:
        return t.contiguous().view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return array_of(t) if t.is_complex() else t.contiguous().numpy()
