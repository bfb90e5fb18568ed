"""What a graph of AOTAutograd returns, made of a program's results and of the graph's inputs.

AOTAutograd leaves it to the backend that outputs in one memory stay in one, so that a write to one
of them, behind a graph break or in the user's code, is seen in the others. And an output in the
memory of an input has to lie there as the user's view does. So such an output is torch's own view
of the input; and of outputs that share a memory which the graph makes, the program computes what
they are views of, laid out as torch would.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlx.base.dims import Dim, SymDim, bind_dim
from rlx.base.frozen import frozen
from rlx.errors import UnsupportedError
from rlx.frontends.torch.library import torch
from rlx.frontends.torch.memory import order_of, storage_of, views_of
from rlx.frontends.torch.sizes import Sizes
from rlx.frontends.torch.tensors import tensor_of
from rlx.frontends.torch.walk import Walk
from rlx.ir.value import Value

__all__ = ["Outputs"]

Array = np.ndarray[Any, Any]
Bound = Mapping[str, int]


@frozen
class _Layout:
    """How a tensor lies: its axes in order of their strides, the largest first, and its strides."""

    order: tuple[int, ...]
    strides: tuple[Dim, ...]

    def placed(self, a: Array, sizes: Bound) -> Any:
        """A tensor of an array that lies row by row, whose axes are in ``order``, as it has to lie.
        It is none of torch's views, for what a function gives in training is not one either."""
        t = tensor_of(a.transpose([self.order.index(i) for i in range(a.ndim)]))
        strides = [bind_dim(s, sizes) for s in self.strides]
        axes = zip(t.shape, t.stride(), strides, strict=True)
        if all(n <= 1 or found == said for n, found, said in axes):
            return t
        return torch.empty_strided(t.shape, strides, dtype=t.dtype).copy_(t)


@frozen
class _Step:
    """An op of torch's that gives a view of ``source``: its node, and the dims that it takes."""

    node: Any
    source: Any
    dims: Mapping[Any, Any]

    def of(self, t: Any, sizes: Bound) -> Any:
        """The view of a tensor in the place of ``source``."""

        def bound(a: Any) -> Any:
            if isinstance(a, torch.fx.Node):
                return t if a is self.source else bind_dim(self.dims[a], sizes)
            return [bound(i) for i in a] if isinstance(a, list | tuple) else a

        named = {k: bound(a) for k, a in self.node.kwargs.items()}
        return self.node.target(*bound(self.node.args), **named)


@frozen
class _Made:
    """An output: the steps from an input or a result, by its number."""

    of_input: bool
    number: int
    steps: tuple[_Step, ...] = ()

    def of(self, args: Sequence[Any], results: Sequence[Any], sizes: Bound) -> Any:
        t = (args if self.of_input else results)[self.number]
        for step in self.steps:
            t = step.of(t, sizes)
        return t


class Outputs:
    """The outputs of a graph that ``walk`` has walked, where they are ``values``. Unless ``shared``
    each that is computed has a memory of its own. ``results`` are what a program computes."""

    def __init__(
        self, module: Any, walk: Walk, values: Sequence[Any], sizes: Sizes, *, shared: bool
    ) -> None:
        self.results: list[Value] = []
        self._layouts: list[_Layout | None] = []
        self._walk, self._sizes = walk, sizes
        self._bases: dict[Any, int] = {}
        nodes = list(module.graph.nodes)
        self._inputs = {n: i for i, n in enumerate(n for n in nodes if n.op == "placeholder")}
        returned = next(n for n in nodes if n.op == "output").args[0]
        pairs = list(zip(returned, values, strict=True))
        if any(isinstance(getattr(n, "meta", {}).get("val"), torch.SymFloat) for n in returned):
            raise UnsupportedError(
                "the graph returns a number that is no integer, computed of symbolic sizes; make a"
                " tensor of it, or compile with dynamic=False"
            )
        found = Counter(storage_of(n) for n, v in pairs if isinstance(v, Value))
        self._shared = {s for s, n in found.items() if n > 1} if shared else set[Any]()
        self._plan = [self._made(n, v, shared) if isinstance(v, Value) else v for n, v in pairs]

    def of(self, args: Sequence[Any], arrays: Sequence[Array], sizes: Bound) -> list[Any]:
        """The outputs of a call with these arguments, of which a program made ``arrays``."""
        results = [
            tensor_of(a) if layout is None else layout.placed(a, sizes)
            for a, layout in zip(arrays, self._layouts, strict=True)
        ]
        return [
            what.of(args, results, sizes) if isinstance(what, _Made)
            else bind_dim(what, sizes) if isinstance(what, SymDim) else what
            for what in self._plan
        ]  # fmt: skip

    def _made(self, node: Any, value: Value, shared: bool) -> _Made:
        if node in self._inputs:
            return _Made(True, self._inputs[node])
        views = [*views_of(node)] if shared else []
        if views and not isinstance(views[-1][1].meta["val"], torch.Tensor):
            views.pop()  # an op of several results, of which each has a memory of its own
        base = views[-1][1] if views else node
        if base in self._inputs or storage_of(node) in self._shared:
            steps = tuple(self._step(n, source) for n, source in reversed(views))
            if base in self._inputs:
                return _Made(True, self._inputs[base], steps)
            return _Made(False, self._base(base), steps)
        return _Made(False, self._result(value, None))

    def _step(self, node: Any, source: Any) -> _Step:
        dims = {n: self._walk.value(n) for n in node.all_input_nodes if n is not source}
        return _Step(node, source, dims)

    def _base(self, node: Any) -> int:
        """The number of the result that has the memory which a node makes."""
        if node not in self._bases:
            t = node.meta["val"]
            order = order_of(t)
            layout = _Layout(order, tuple(map(self._sizes.dim, t.stride())))
            value = self._walk.value(node)
            self._bases[node] = self._result(value.transpose(order), layout)
        return self._bases[node]

    def _result(self, value: Value, layout: _Layout | None) -> int:
        self.results.append(value)
        self._layouts.append(layout)
        return len(self.results) - 1
