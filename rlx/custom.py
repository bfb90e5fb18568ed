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
from typing import Any

import numpy as np

from rlx.errors import GraphError, ShapeError
from rlx.ops.attrs import KINDS
from rlx.ops.base import REQUIRED, Array, Attr, Op, Operand
from rlx.ops.builders import located
from rlx.ops.custom import CustomKernel, PythonKernel
from rlx.ops.value import Value
from rlx.types import TensorType

__all__ = ["CustomOp", "custom_op"]

Types = TensorType | tuple[TensorType, ...]


class CustomOp:
    """An op that was declared by a function: called with Values, it gives its result, or the tuple
    of them. ``op`` is its class."""

    def __init__(self, op: type[Op]) -> None:
        self.op = op
        self.__doc__ = op.__doc__
        build: Callable[..., Any] = op.build
        self._build = located(build, op.name)

    def __call__(self, *operands: Value | None, **attrs: Any) -> Any:
        return self._build(*operands, **attrs)

    def __repr__(self) -> str:
        return f"<custom op {self.op.name}>"


def custom_op(
    name: str,
    *,
    infer: Callable[..., Types],
    kernel: Callable[[Any], CustomKernel] | None = None,
    vjp: Callable[..., Any] | None = None,
    jvp: Callable[..., Any] | None = None,
    batch: Callable[..., Any] | None = None,
    results: int = 1,
) -> Callable[[Callable[..., Any]], CustomOp]:
    """Declare the op ``name`` ("prefix.name") by what it means: a NumPy function.

    The function takes an array an operand, by position, and attributes by keyword only, each
    annotated as bool, int, float, str or ``tuple[int, ...]``; an operand whose default is None may
    be left out. It gives ``results`` arrays: a tuple if there are several. ``infer`` takes the
    operands' types (None for one left out) and the attributes, and gives the types of the results.

    Everything else takes the node ``n`` first, on which operands and attributes stand by name and
    ``n.results`` are what it gives. ``kernel(n)`` is a CKernel or an MlirKernel; without one,
    compiled graphs call the function. ``vjp(n, *cotangents)`` gives a Value or None an operand,
    ``jvp(n, *tangents)`` the tangents of the results, None standing for zero; without them, no
    derivative passes through the op. ``batch(n, operands, batched)`` is the op on operands of which
    those marked have a new first axis, which all its results have then.

    GraphError for a name that is taken or a function that does not fit.
    """

    @located
    def declare(function: Callable[..., Any]) -> CustomOp:
        operands, attrs = _fields(name, function)
        body: dict[str, Any] = {
            "__doc__": function.__doc__ or f"The op {name}, declared outside RLX.",
            "__module__": function.__module__,
            "__annotations__": {
                **{o: "Value" for o in operands},
                **{a: kind for a, (kind, _) in attrs.items()},
            },
            **operands,
            **{a: Attr(default, "") for a, (_, default) in attrs.items()},
            "result_count": results,
            "differentiable": vjp is not None or jvp is not None,
            "infer": _infer(name, infer, results),
            "reference": _reference(name, function),
            "kernel": kernel or _python_kernel,
        }
        rules = {"vjp": vjp, "jvp": jvp, "batch": batch}
        body |= {key: rule for key, rule in rules.items() if rule is not None}
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
