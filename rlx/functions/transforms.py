"""Derivatives and batches of Python functions: functions again, that are called with the same
arguments.

They are traced where they are called: with Values they add to the graph of these, with arrays they
are compiled, as ``rlx.jit`` would. So they go into one another, into ``rlx.jit``, and into the
bodies of loops.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from rlx import autodiff
from rlx.autodiff.reverse import value_and_gradients
from rlx.base.dims import Dim
from rlx.errors import DTypeError, GraphError, ShapeError, a_type, shown
from rlx.functions.arguments import Signature
from rlx.functions.function import Function
from rlx.functions.trees import Branch, Tree, flatten, rebuild
from rlx.ir.builders import located
from rlx.ir.graph import Graph, inner_graph
from rlx.ir.value import Value
from rlx.ops import rules
from rlx.ops.movement.constant import Constant
from rlx.ops.movement.movement import axis_of

if TYPE_CHECKING:
    from rlx.lowering.compilation import OptionArgs

__all__ = ["grad", "value_and_grad", "vmap"]

Wrt = int | str | Sequence[int | str]


@overload
def grad(graph: Graph, wrt: Any) -> Graph: ...
@overload
def grad(graph: Callable[..., Any], wrt: Wrt = 0, *, aux: bool = False) -> Function: ...
@located
def grad(graph: Graph | Callable[..., Any], wrt: Any = None, *, aux: bool = False) -> Any:
    """The gradients of a graph (``rlx.autodiff.grad``), or of a function that gives one float: a
    function of the same arguments.

    ``wrt`` says by which arguments, by position or name, and is the first by default: the gradients
    have the structure of that argument, or are a tuple of such for a list of them. With ``aux`` the
    function gives a pair, the float and what else is wanted, and so does its gradient.

    Raises GraphError for what is neither a graph nor a function, and for a ``wrt`` that names no
    parameter. Where it is called: GraphError for a function that gives no Value (with ``aux`` no
    pair), ShapeError for one that gives more than one number, DTypeError for an argument of ``wrt``
    or a result that is no float, UnsupportedError for an op without a derivative.
    """
    if isinstance(graph, Graph):
        return autodiff.grad(graph, *_of_graph(wrt, aux, "grad"))
    found = _Derivative(graph, wrt, aux, "grad")
    return found.compiled(found.gradients)


@overload
def value_and_grad(graph: Graph, wrt: Any) -> Graph: ...
@overload
def value_and_grad(graph: Callable[..., Any], wrt: Wrt = 0, *, aux: bool = False) -> Function: ...
@located
def value_and_grad(graph: Graph | Callable[..., Any], wrt: Any = None, *, aux: bool = False) -> Any:
    """The value and the gradients, of a graph (``rlx.autodiff.value_and_grad``) or of a function,
    which then gives a pair of them: see ``grad``. With ``aux`` the value is a pair too."""
    if isinstance(graph, Graph):
        return autodiff.value_and_grad(graph, *_of_graph(wrt, aux, "value_and_grad"))
    found = _Derivative(graph, wrt, aux, "value_and_grad")
    return found.compiled(found.both)


def _of_graph(wrt: Any, aux: bool, what: str) -> tuple[Any, ...]:
    """The argument of a transform of a graph: none if it was left out, which that refuses."""
    if aux:
        raise GraphError(f"{what}: aux is for functions; a graph that is given has one output")
    return () if wrt is None else (wrt,)


class _Traced:
    """A function that is called on new leaves in the place of its arrays."""

    def __init__(self, function: Any, what: str) -> None:
        if not callable(function):
            kind = a_type(function)
            raise GraphError(f"{what} takes a Graph or a function, found {kind}")
        self.jitted = function if isinstance(function, Function) else None
        self.function = function if self.jitted is None else self.jitted.function
        static = () if self.jitted is None else self.jitted.signature.static
        self.signature = Signature(self.function, static)
        self.name, self.what = self.signature.name, what

    def compiled(self, method: Callable[..., Any]) -> Function:
        """A method of this as a function of the same parameters, for the same device."""

        def call(*args: Any, **kwargs: Any) -> Any:
            return method(*args, **kwargs)

        functools.update_wrapper(call, self.function)
        call.__name__ = f"{self.name}_{self.what}"
        device: str | None = None
        options: OptionArgs = {}
        if self.jitted is not None:
            device, options = self.jitted.device, self.jitted.options
        return Function(call, self.signature.static, device, **options)

    def arguments(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Branch, list[Value]]:
        """The arguments of a call as a tree, with its arrays as Values."""
        leaves: list[Any] = []
        tree = located(self.signature.tree)(args, kwargs, leaves)
        return tree, [v if isinstance(v, Value) else Constant(v).out for v in leaves]

    def __call__(self, tree: Branch, values: Sequence[Value]) -> Any:
        """What the function gives on values."""
        return self.signature.apply(self.function, rebuild(tree, iter(values)))

    def of_values(self, result: Any) -> tuple[Tree, list[Value]]:
        """What a function gave as a tree, and its Values."""
        leaves: list[Any] = []
        tree = located(flatten)(result, leaves, sort=False)
        return tree, [v if isinstance(v, Value) else Constant(v).out for v in leaves]


class _Derivative(_Traced):
    """The gradients of a function."""

    def __init__(self, function: Any, wrt: Any, aux: bool, what: str) -> None:
        super().__init__(function, what)
        wrt = 0 if wrt is None else wrt
        self.aux, self.single = aux, isinstance(wrt, int | str)
        if not self.single and not isinstance(wrt, Sequence):
            raise GraphError(f"{what}: wrt is {shown(wrt)}, expected positions or names")
        self.wrt = [self._name(w) for w in ([wrt] if self.single else wrt)]

    def _name(self, w: Any) -> str:
        known = list(self.signature.own.parameters)
        if isinstance(w, int) and not isinstance(w, bool) and -len(known) <= w < len(known):
            return known[w]
        if w in known:
            return w
        listed = ", ".join(map(repr, known)) or "none"
        raise GraphError(
            f"{self.what}: wrt names {shown(w)}, which is no parameter of {self.name!r}; there are"
            f" {listed}"
        )

    def gradients(self, *args: Any, **kwargs: Any) -> Any:
        """The gradients, with what else the function gives if that was asked for."""
        value, found = self.both(*args, **kwargs)
        return (found, value[1]) if self.aux else found

    def both(self, *args: Any, **kwargs: Any) -> Any:
        """The value and the gradients."""
        tree, given = self.arguments(args, kwargs)
        scope = inner_graph(self.name)
        names = tree.paths("")
        fresh = [Value(v.type, graph=scope, name=n) for v, n in zip(given, names, strict=True)]
        y, others, rest = self._split(self(tree, fresh))
        by = self._chosen(tree, fresh)
        value, found, outs = value_and_gradients(y, [v for _, vs in by for v in vs], others)
        outer = dict(zip(fresh, given, strict=True))
        value, *outs = rules.substituted([value, *outs, *found], outer, frozenset())
        grads = iter(outs[len(others) :])
        made = tuple(rebuild(t, grads) for t, _ in by)
        whole = (value, rebuild(rest, iter(outs[: len(others)]))) if rest is not None else value
        return whole, made[0] if self.single else made

    def _split(self, result: Any) -> tuple[Value, list[Value], Tree | None]:
        """The float that the function gave, and what else it did."""
        if not self.aux:
            if isinstance(result, Value):
                return result, [], None
            hint = "; with aux=True it gives a pair" if isinstance(result, tuple) else ""
            raise GraphError(
                f"{self.what}: {self.name} gives {shown(result)}, expected one float{hint}"
            )
        if not isinstance(result, tuple) or len(result) != 2:  # pyright: ignore[reportUnknownArgumentType]
            raise GraphError(
                f"{self.what}: {self.name} gives {shown(result)}, expected a pair for aux=True"
            )
        y, rest = result  # pyright: ignore[reportUnknownVariableType]
        if not isinstance(y, Value):
            raise GraphError(f"{self.what}: {self.name} gives {shown(y)}, expected one float")
        tree, others = self.of_values(rest)
        return y, others, tree

    def _chosen(self, tree: Branch, fresh: Sequence[Value]) -> list[tuple[Tree, list[Value]]]:
        """The arguments by which there are gradients, with their leaves."""
        at, found = 0, dict[str, tuple[Tree, list[Value]]]()
        for name, child in zip(tree.names, tree.children, strict=True):
            found[name] = child, list(fresh[at : at + child.count])
            at += child.count
        for w in self.wrt:
            if w not in found:
                raise GraphError(f"{self.what}: {self.name} was called without {w!r} of wrt")
            for v in found[w][1]:
                if not rules.carries_derivative(v):
                    raise DTypeError(
                        f"{self.what}: {v.name!r} is {v.dtype}, by which nothing has a derivative;"
                        " take an argument of floats"
                    )
        return [found[w] for w in self.wrt]


@overload
def vmap(
    graph: Graph,
    in_axes: Mapping[str, int] | Iterable[str] | str,
    axis_size: int | str | Any,
    out_axes: int | Sequence[int | None] = 0,
    axis_name: str = "",
) -> Graph: ...
@overload
def vmap(
    graph: Callable[..., Any],
    in_axes: Any = 0,
    axis_size: int | None = None,
    out_axes: int | None = 0,
    axis_name: str = "",
) -> Function: ...
@located
def vmap(
    graph: Graph | Callable[..., Any],
    in_axes: Any = 0,
    axis_size: Any = None,
    out_axes: Any = 0,
    axis_name: str = "",
) -> Any:
    """A graph for many examples at once (``rlx.autodiff.vmap``), or a function for them.

    Of a function ``in_axes`` is the axis of the examples in the arrays of all arguments, or a tuple
    of one for each, in which None means that an argument is the same for all examples. Their number
    is that of the arrays; ``axis_size`` says what it must be. ``out_axes`` is their axis in the
    results. With ``axis_name`` they are the ranks along that axis of a mesh.

    Raises GraphError for what is neither a graph nor a function, and for axes that are none. Where
    it is called: GraphError if ``in_axes`` has another number of axes than there are arguments, if
    no argument has examples, or if ``out_axes`` is None for a result that differs from example to
    example; ShapeError for numbers of examples that differ, and for an axis that an array has not.
    """
    if isinstance(graph, Graph):
        return autodiff.vmap(graph, in_axes, axis_size, out_axes, axis_name)
    found = _Batched(graph, in_axes, axis_size, out_axes, axis_name)
    return found.compiled(found.results)


class _Batched(_Traced):
    """A function of many examples."""

    def __init__(
        self, function: Any, in_axes: Any, axis_size: Any, out_axes: Any, axis_name: str
    ) -> None:
        super().__init__(function, "vmap")
        self.axis_name = axis_name
        if not (in_axes is None or isinstance(in_axes, int | tuple | list)):
            raise GraphError(
                f"vmap: in_axes is {shown(in_axes)}, expected an axis, or one or None an argument"
            )
        if not (out_axes is None or isinstance(out_axes, int)):
            raise GraphError(f"vmap: out_axes is {shown(out_axes)}, expected an axis")
        self.axes: Any = in_axes
        self.size, self.out = axis_size, out_axes

    def results(self, *args: Any, **kwargs: Any) -> Any:
        """What the function gives for all examples."""
        tree, given = self.arguments(args, kwargs)
        names = list(tree.paths(""))
        axes = self._axes(tree)
        size = self._size(given, axes, names)
        scope = inner_graph(self.name)
        fresh: list[Value] = []
        leaves: dict[Value, tuple[Value, bool]] = {}
        for v, axis, name in zip(given, axes, names, strict=True):
            wide = v.moveaxis(axis, 0) if axis else v
            t = v.type if axis is None else v.type.with_shape(wide.shape[1:])
            fresh.append(Value(t, graph=scope, name=name))
            leaves[fresh[-1]] = wide, axis is not None
        out, values = self.of_values(self(tree, fresh))
        with rules.named_axis(self.axis_name, size):
            pairs = rules.batch(values, leaves)
        return rebuild(out, (self._placed(v, has, size) for v, has in pairs))

    def _axes(self, tree: Branch) -> list[int | None]:
        """The axis of the examples in each leaf."""
        many = isinstance(self.axes, tuple | list)
        if many and len(self.axes) != len(tree.names):
            raise GraphError(
                f"vmap: in_axes has {len(self.axes)} axes for {len(tree.names)} arguments"
            )
        each: Any = self.axes if many else [self.axes] * len(tree.names)
        found: list[int | None] = []
        for axis, name, child in zip(each, tree.names, tree.children, strict=True):
            if not (axis is None or isinstance(axis, int)) or isinstance(axis, bool):
                raise GraphError(f"vmap: in_axes of {name!r} is {shown(axis)}, expected an axis")
            found += [axis] * child.count
        return found

    def _size(
        self, given: Sequence[Value], axes: Sequence[int | None], names: Sequence[str]
    ) -> Dim:
        size: Any = self.size
        said = "axis_size"
        for v, axis, name in zip(given, axes, names, strict=True):
            if axis is None:
                continue
            n = v.shape[axis_of(axis, v.rank, f"vmap: in_axes of {name!r}")]
            if size is not None and n != size:
                raise ShapeError(f"vmap: {name!r} has {n} examples, {said} says {size}")
            size, said = n, repr(name)
        if size is None or all(a is None for a in axes):
            raise GraphError("vmap: no argument differs from example to example by in_axes")
        return size

    def _placed(self, v: Value, has: bool, size: Dim) -> Value:
        if self.out is None:
            if has:
                raise GraphError(
                    f"vmap: {v!r} differs from example to example, so out_axes cannot be None"
                )
            return v
        v = v if has else v.expand((size, *v.shape))
        axis = axis_of(self.out, v.rank, "vmap: out_axes")
        return v.moveaxis(0, axis) if axis else v
