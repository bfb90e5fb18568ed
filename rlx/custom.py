"""Ops from outside, declared by a function.

    @rlx.custom_op("mine.clip_norm", infer=lambda x, limit: x)
    def clip_norm(x, *, limit: float):
        return x * min(1.0, limit / np.linalg.norm(x))

    y = clip_norm(x, limit=2.0)

An op needs no more than this. A class derived from ``rlx.Op`` says the same at more length, and may
use all that the ops of RLX have, such as ``loops`` and ``scalar``.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, NoReturn, TypeVar, overload

import numpy as np

from rlx.errors import GraphError, ShapeError, UnsupportedError, a_type
from rlx.ir.attrs import KINDS
from rlx.ir.builders import located
from rlx.ir.foreign_kernel import CustomKernel, PythonKernel
from rlx.ir.graph import Graph, inner_graph, topological
from rlx.ir.op import REQUIRED, Array, Attr, Op, Operand, caller
from rlx.ir.value import Value
from rlx.ops.control.bodies import make, types_of
from rlx.ops.control.custom_fn import CustomFn, floats
from rlx.ops.movement.movement import zeros
from rlx.types import TensorType

__all__ = ["CustomOp", "custom_fn", "custom_op"]

Types = TensorType | tuple[TensorType, ...]


Result = TypeVar("Result")


class CustomOp(Generic[Result]):
    """An op that was declared by a function: called with Values, it gives its result, or the tuple
    of them. ``op`` is its class."""

    def __init__(self, op: type[Op]) -> None:
        self.op = op
        self.__doc__ = op.__doc__
        build: Callable[..., Any] = op.build
        self._build = located(build, op.name)

    def __call__(self, *operands: Value | None, **attrs: Any) -> Result:
        return self._build(*operands, **attrs)

    def __repr__(self) -> str:
        return f"<custom op {self.op.name}>"


@overload
def custom_op(
    name: str,
    *,
    infer: Callable[..., Types],
    kernel: Callable[[Any], CustomKernel] | None = None,
    vjp: Callable[..., Any] | None = None,
    jvp: Callable[..., Any] | None = None,
    batch: Callable[..., Any] | None = None,
    results: Literal[1] = 1,
) -> Callable[[Callable[..., Any]], CustomOp[Value]]: ...
@overload
def custom_op(
    name: str,
    *,
    infer: Callable[..., Types],
    kernel: Callable[[Any], CustomKernel] | None = None,
    vjp: Callable[..., Any] | None = None,
    jvp: Callable[..., Any] | None = None,
    batch: Callable[..., Any] | None = None,
    results: int,
) -> Callable[[Callable[..., Any]], CustomOp[tuple[Value, ...]]]: ...
@located
def custom_op(
    name: str,
    *,
    infer: Callable[..., Types],
    kernel: Callable[[Any], CustomKernel] | None = None,
    vjp: Callable[..., Any] | None = None,
    jvp: Callable[..., Any] | None = None,
    batch: Callable[..., Any] | None = None,
    results: int = 1,
) -> Callable[[Callable[..., Any]], CustomOp[Any]]:
    """Declare the op ``name`` ("prefix.name") by what it means: a NumPy function.

    The function takes an array an operand, by position, and attributes by keyword only, each
    annotated as bool, int, float, str or ``tuple[int, ...]``; an operand whose default is None may
    be left out. It gives ``results`` arrays: a tuple if there are several. ``infer`` takes the
    operands' types (None for one left out) and the attributes, and gives the types of the results.

    Everything else takes the node ``n`` first, on which operands and attributes stand by name and
    ``n.results`` are what it gives. ``kernel(n)`` is a CKernel or an MlirKernel; without one,
    compiled graphs call the function. ``vjp(n, *cotangents)`` gives a Value or None an operand,
    ``jvp(n, *tangents)`` the tangents of the results, None standing for zero; a derivative through
    the op that needs one that is missing is an UnsupportedError. ``batch(n, operands, batched)`` is
    the op on operands of which those marked have a new first axis, which all its results have then.

    GraphError for a name that is taken or a function that does not fit.
    """

    @located
    def declare(function: Callable[..., Any]) -> CustomOp[Any]:
        operands, attrs = _fields(name, function)
        body: dict[str, Any] = {
            "__doc__": function.__doc__ or f"The op {name}, declared outside RLX.",
            "__module__": function.__module__,
            "__qualname__": function.__qualname__,
            "__annotations__": {
                **{o: "Value" for o in operands},
                **{a: kind for a, (kind, _) in attrs.items()},
            },
            **operands,
            **{a: Attr(default, "") for a, (_, default) in attrs.items()},
            "result_count": results,
            "infer": _infer(name, infer, results),
            "reference": _reference(name, function),
            "kernel": kernel or _python_kernel,
        }
        body |= {"vjp": vjp or _refusal("vjp"), "jvp": jvp or _refusal("jvp")}
        body |= {} if batch is None else {"batch": batch}
        made = types.new_class(name, (Op,), {"name": name}, lambda ns: ns.update(body))
        return CustomOp(made)

    return declare


def _fields(
    name: str, function: Callable[..., Any]
) -> tuple[dict[str, Operand], dict[str, tuple[str, Any]]]:
    """The operands of a function, and its attributes with their kinds and defaults."""
    operands: dict[str, Operand] = {}
    attrs: dict[str, tuple[str, Any]] = {}
    for p in inspect.signature(function).parameters.values():
        given = p.default is not p.empty
        if p.name in {*dir(Op), *Op.__annotations__}:
            raise GraphError(f"{name}: an argument cannot be called {p.name!r}, as every op has it")
        if p.kind is p.POSITIONAL_OR_KEYWORD or p.kind is p.POSITIONAL_ONLY:
            if given and p.default is not None:
                raise GraphError(
                    f"{name}: the operand {p.name!r} has the default {p.default!r}, expected None;"
                    " attributes stand behind a *"
                )
            operands[p.name] = Operand("", optional=given)
        elif p.kind is p.KEYWORD_ONLY:
            kind = p.annotation if isinstance(p.annotation, str) else _kind_text(p.annotation)
            if kind not in KINDS:
                raise GraphError(
                    f"{name}: the attribute {p.name!r} is annotated {kind!r}, expected bool, int,"
                    " float, str or tuple[int, ...]"
                )
            attrs[p.name] = kind, p.default if given else REQUIRED
        else:
            raise GraphError(f"{name}: an op takes operands by name, found *{p.name}")
    if not operands:
        raise GraphError(f"{name}: an op takes at least one operand by position")
    return operands, attrs


def _kind_text(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _infer(name: str, infer: Callable[..., Types], results: int) -> Callable[[Op], Types]:
    def inferred(node: Op) -> Types:
        given: Any = infer(*(None if v is None else v.type for v in node.operands), **node.attrs)
        many = given if isinstance(given, tuple) else (given,)
        if len(many) != results or not all(isinstance(t, TensorType) for t in many):
            raise GraphError(
                f"{name}: its infer gives {given!r}, expected {results} TensorType"
                f"{'s' * (results > 1)}"
            )
        return given

    return inferred


def _reference(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def reference(node: Op, *arrays: Array) -> Any:
        given = function(*arrays, **node.attrs)
        many = given if isinstance(given, tuple) else (given,)
        made = tuple(np.asarray(a) for a in many)
        _check(name, made, [v.type for v in node.results])
        return made if isinstance(given, tuple) else made[0]

    return reference


def _check(name: str, found: Sequence[Array], expected: Sequence[TensorType]) -> None:
    """ShapeError for arrays that are not of the types that ``infer`` gave."""
    types = [f"{a.dtype}{list(a.shape)}" for a in found]
    wanted = [f"{t.dtype.numpy}{list(t.static_shape)}" for t in expected]
    if types != wanted:
        raise ShapeError(
            f"{name}: its function gave {', '.join(types)}, and its infer {', '.join(wanted)}"
        )


def _refusal(mode: str) -> Callable[..., NoReturn]:
    """The rule of an op that was declared without one: its derivative is not known to be 0."""

    def rule(node: Op, *_: Value | None) -> NoReturn:
        raise UnsupportedError(
            f"{node.name} has no {mode} rule, which this derivative needs; declare one with"
            f" custom_op(..., {mode}=...), which gives None for what is 0",
            node.location,
        )

    return rule


def _python_kernel(node: Op) -> PythonKernel:
    """The meaning of an op as its kernel."""
    optional = [v is not None for v in node.operands]

    def kernel(*arrays: Array) -> None:
        rest = iter(arrays)
        operands = [next(rest) if there else None for there in optional]
        given = node.reference(*operands)
        many = given if isinstance(given, tuple) else (given,)
        for out, a in zip(rest, many, strict=True):
            out[...] = a

    return PythonKernel(kernel)


# -- functions with rules of their own --------------------------------------------------------


@located
def custom_fn(
    function: Callable[..., Any],
    *,
    vjp: Callable[..., Any] | None = None,
    jvp: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """A function of Values with derivatives that the caller says.

    ``vjp(args, results, cotangents)`` gives a cotangent an arg, and ``jvp(args, tangents)`` a
    tangent a result: a tuple, or a Value where there is one. None stands for zero, and for what has
    no derivative since it is no float. ``args`` and ``tangents`` are tuples, while ``results`` and
    ``cotangents`` are a Value where the function gives one; zeros are given in full. Where a rule
    is missing, the derivative is that of the function itself.

    What comes back is called as ``function`` is, with Values alone. Both may use nothing but their
    arguments, and constants: GraphError names what else they use.

        clipped = rlx.custom_fn(lambda x: x.round(), vjp=lambda args, results, g: g)
    """

    def call(*args: Value) -> Any:
        for v in args:
            if not isinstance(v, Value):  # pyright: ignore[reportUnnecessaryIsInstance]
                kind = a_type(v)
                raise GraphError(f"a custom function takes Values, found {kind}", caller())
        singles: list[bool] = []

        def body(*inner: Value) -> list[Value]:
            given = function(*inner)
            singles.append(isinstance(given, Value))
            return _values(given, "the function")

        node = _custom_fn(args, body, vjp, jvp, singles)
        return node.out if singles[0] else node.results

    return located(call)


def _custom_fn(
    args: Sequence[Value],
    body: Callable[..., list[Value]],
    vjp: Callable[..., Any] | None,
    jvp: Callable[..., Any] | None,
    singles: Sequence[bool],
) -> Op:
    types = types_of(args)
    graph = _closed("function", types, body)
    results = types_of(graph.outputs)
    wanted, given = len(floats(types)), len(floats(results))

    def backward(*inner: Value) -> list[Value]:
        made = inner[len(types) : len(inner) - given]
        ct = _spread(results, inner[len(inner) - given :])
        one = singles[0]
        assert vjp is not None
        found = vjp(inner[: len(types)], made[0] if one else made, ct[0] if one else ct)
        return _floats_of(found, types, "the vjp")

    def forward(*inner: Value) -> list[Value]:
        tangents = _spread(types, inner[len(types) :])
        assert jvp is not None
        return _floats_of(jvp(inner[: len(types)], tangents), results, "the jvp")

    back, ahead = [*types, *results, *floats(results)], [*types, *floats(types)]
    rules = ["vjp"] * bool(vjp and wanted) + ["jvp"] * bool(jvp and given)
    return make(
        CustomFn, args, body=graph,
        vjp_rule=_closed("vjp", back, backward) if "vjp" in rules else graph,
        jvp_rule=_closed("jvp", ahead, forward) if "jvp" in rules else graph,
        rules=",".join(rules),
    )  # fmt: skip


def _closed(name: str, types: Sequence[TensorType], function: Callable[..., list[Value]]) -> Graph:
    """The graph of a function; GraphError if it uses values from around it."""
    graph = inner_graph(name)
    for i, t in enumerate(types):
        graph.input(f"x{i}", t.shape, t.dtype)
    inputs = dict.fromkeys(graph.inputs)
    outputs = function(*inputs)
    used = {v: op.location for op in topological(outputs) for v in op.present if v.op is None}
    for v in [*used, *(v for v in outputs if v.op is None)]:
        if v not in inputs:
            raise GraphError(
                f"custom_fn: the {name} uses {v.name!r} from around it; make it an argument",
                used.get(v),
            )
    graph.set_outputs(outputs)
    return graph


def _spread(types: Sequence[TensorType], given: Sequence[Value]) -> tuple[Value | None, ...]:
    """A Value a float type, and None for the others."""
    rest = iter(given)
    return tuple(next(rest) if t.dtype.is_float else None for t in types)


def _values(given: Any, what: str) -> list[Value]:
    many: list[Any] = list(given) if isinstance(given, tuple | list) else [given]
    if not many or not all(isinstance(v, Value) for v in many):
        raise GraphError(f"custom_fn: {what} gives {given!r}, expected a Value or a tuple of them")
    return many


def _floats_of(given: Any, types: Sequence[TensorType], what: str) -> list[Value]:
    """What a rule gives for the float types, with zeros for None."""
    many: list[Any] = list(given) if isinstance(given, tuple | list) else [given]
    if len(many) != len(types):
        raise GraphError(f"custom_fn: {what} gives {len(many)} values, expected {len(types)}")
    found: list[Value] = []
    for v, t in zip(many, types, strict=True):
        if not t.dtype.is_float:
            continue
        if v is not None and (not isinstance(v, Value) or v.type != t):
            kind = v.type if isinstance(v, Value) else type(v).__name__
            raise ShapeError(f"custom_fn: {what} gives {kind}, expected {t}")
        found.append(zeros(t.shape, t.dtype) if v is None else v)
    return found
