"""Control flow in graphs: Python functions are traced into the bodies of the control ops.

    steps, x = rlx.while_loop(lambda i, x: i < n, lambda i, x: (i + 1, x * a), (zero, x0))

A body may use any value from around it: what it uses becomes an operand of the op. What it gives
back, and what is carried, is one Value or a tuple of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from rlx.base.dims import SymDim, is_known
from rlx.errors import DTypeError, GraphError, ShapeError, a_type
from rlx.ir.builders import located
from rlx.ir.graph import Graph, inner_graph, topological
from rlx.ir.op import Op, caller
from rlx.ir.replay import cloned, replay
from rlx.ir.value import Value
from rlx.ops.control.bodies import make, nested
from rlx.ops.control.checkpoint import Checkpoint
from rlx.ops.control.control import Cond, Scan, WhileLoop
from rlx.ops.control.remat_policies import Policy, checkpoint_name, kept_by, marking
from rlx.ops.movement.constant import Constant
from rlx.types import TensorType, i64

__all__ = ["checkpoint", "checkpoint_name", "cond", "fori", "scan", "while_loop"]

Values: TypeAlias = Value | tuple[Value, ...] | list[Value]


@located
def cond(pred: Value, then: Callable[..., Any], otherwise: Callable[..., Any], *args: Value) -> Any:
    """``then(*args)`` where ``pred`` (a bool of one element) is true, else ``otherwise(*args)``.

    Only the chosen one runs. Both give a Value, or a tuple of them, of the same types.

    Raises DTypeError if ``pred`` is no bool, ShapeError if it has not one element or if what the
    two functions give differs in number, shapes or types, GraphError if one gives a Value and the
    other a tuple, or anything but Values is given.
    """
    types = [v.type for v in _many(args, "cond: args")]
    traced = [_trace(f, name, types) for f, name in ((then, "then"), (otherwise, "otherwise"))]
    captured = _captured(traced)
    bodies = [t.body([*types, *(v.type for v in captured)], captured) for t in traced]
    if traced[0].single is not traced[1].single:
        raise GraphError("cond: one function gives a Value and the other a tuple", caller())
    node = make(Cond, [pred, *args, *captured], then=bodies[0], otherwise=bodies[1])
    return _like(traced[0].single, node.results)


@located
def while_loop(
    test: Callable[..., Any], body: Callable[..., Any], init: Values, *, limit: int = -1
) -> Any:
    """Replace ``init`` by ``body`` of it while ``test`` of it (a bool of one element) is true.

    Both functions take what is carried, one argument a Value; ``body`` gives as many of the same
    types. More than ``limit`` rounds, if it is not -1, are a FaultError of the run.

    Raises DTypeError if ``test`` gives no bool, ShapeError if it gives more than one element or
    ``body`` other types than it takes, GraphError for a limit below -1, an ``init`` without Values,
    a ``test`` that gives several, or a function that gives anything but Values.
    """
    carry = _many(init, "while_loop: init")
    types = [v.type for v in carry]
    traced = [_trace(f, name, types) for f, name in ((test, "test"), (body, "body"))]
    captured = _captured(traced)
    all_types = [*types, *(v.type for v in captured)]
    test_body, round_body = (t.body(all_types, captured) for t in traced)
    node = make(
        WhileLoop, [*carry, *captured],
        test=test_body, body=round_body, carries=len(carry), limit=limit,
    )  # fmt: skip
    return _like(isinstance(init, Value), node.results)


@located
def scan(
    body: Callable[..., Any],
    init: Values,
    xs: Values = (),
    *,
    length: int | str | SymDim | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """Run ``carry, y = body(carry, x)`` for every element x along the first axis of ``xs``.

    Returns what is carried at the end, and the ys stacked along a new first axis. ``init`` and
    ``carry`` are a Value or a tuple of Values, likewise ``xs`` and x, and y (or None). Without
    ``xs``, x is an empty tuple and ``length`` says how many rounds to run. ``reverse`` goes from
    the last element to the first; the ys still lie where their xs do.

    Raises ShapeError for ``xs`` whose first axes differ or are not ``length`` long, for a length
    below 0, for neither of them, or for a body that carries on other types than it takes;
    GraphError for a body that gives no pair, or anything but Values in one.
    """
    carry, scanned = _many(init, "scan: init"), _many(xs, "scan: xs")
    if length is None:
        if not scanned or not scanned[0].shape:
            raise ShapeError("scan: without xs of rank 1 or more it needs a length", caller())
        length = scanned[0].shape[0]
    (rounds,) = TensorType.of([length], i64).shape
    elements = [v.type.with_shape(v.shape[1:]) for v in scanned]
    singles: list[bool | None] = []

    def one_round(_: Value, *values: Value) -> list[Value]:
        given = values[: len(carry)], values[len(carry) :]
        state, y = _pair(body(_like(isinstance(init, Value), given[0]),
                              _like(isinstance(xs, Value), given[1])))  # fmt: skip
        singles.append(None if y is None else isinstance(y, Value))
        return [*_many(state, "scan: what is carried"), *_many(() if y is None else y, "scan: y")]

    node = _scan(one_round, "scan", carry, scanned, elements, rounds, reverse)
    stacks = node.results[len(carry) :]
    ys = None if singles[0] is None else _like(singles[0], stacks)
    return _like(isinstance(init, Value), node.results[: len(carry)]), ys


@located
def fori(
    stop: int | str | SymDim | Value,
    body: Callable[..., Any],
    init: Values,
    *,
    reverse: bool = False,
    start: int | Value = 0,
) -> Any:
    """Run ``carry = body(i, carry)`` for i from ``start`` up to, and without, ``stop``; i is an i64
    Value. ``reverse`` goes down from ``stop - 1`` to ``start``.

    With numbers, or a dim, it is a scan. Where ``start`` or ``stop`` is a Value (an integer of one
    element) it is a while_loop, which has no reverse derivative.

    Raises ShapeError for a ``stop`` below 0 where ``start`` is 0, for a ``start`` that is not 0 up
    to a dim, a bound of more than one element, or a body that carries on other types than it takes;
    DTypeError for a Value as a bound that is no integer; GraphError for a body that gives anything
    but Values.
    """
    carry = _many(init, "fori: init")

    def one_round(i: Value, *values: Value) -> list[Value]:
        return _many(body(i, _like(isinstance(init, Value), values)), "fori: what is carried")

    if isinstance(start, Value) or isinstance(stop, Value):
        results = _counted(one_round, carry, start, stop, reverse)
        return _like(isinstance(init, Value), results)
    if start and is_known(stop):
        stop, first, shifted = max(stop - start, 0), start, one_round

        def one_round(i: Value, *values: Value) -> list[Value]:
            return shifted(i + first, *values)

    elif start:
        raise ShapeError(f"fori: from {start} up to the dim {stop}; start from 0", caller())
    (rounds,) = TensorType.of([stop], i64).shape
    node = _scan(one_round, "fori", carry, [], [], rounds, reverse)
    return _like(isinstance(init, Value), node.results)


@located
def checkpoint(function: Callable[..., Any], policy: Policy = None) -> Callable[..., Any]:
    """The function as a region of which a derivative in reverse mode keeps the operands alone.

    What the region computes is computed once more for the derivative, in the place of lying in
    memory until then; values and derivatives are the same. It is called with Values, and may use
    any values from around it.

        for layer in layers:
            x = rlx.checkpoint(layer)(x)

    ``policy`` says what else is kept: "products" (the results of matrix products, convolutions and
    attention), names that ``rlx.checkpoint_name`` gave, or a function that says of an op whether
    its results are. GraphError for a policy or a name that there is not.
    """

    def region(*args: Value) -> Any:
        given = _many(args, "checkpoint: args")
        types = [v.type for v in given]
        with marking() as marks:
            traced = _trace(function, "region", types)
        captured = _captured([traced])
        outs, kept = kept_by(policy, traced.outputs, {*traced.arguments, *captured}, marks)
        whole = replace(traced, outputs=[*outs, *kept])
        body = whole.body([*types, *(v.type for v in captured)], captured)
        node = make(Checkpoint, [*given, *captured], body=body, kept=len(kept))
        return _like(traced.single, node.results[: len(outs)])

    return located(region)


def _counted(
    one_round: Callable[..., list[Value]],
    carry: list[Value],
    start: int | Value,
    stop: int | str | SymDim | Value,
    reverse: bool,
) -> list[Value]:
    """A loop between bounds that the run knows: what it carries at the end."""
    low, high = (_bound(v, what) for v, what in ((start, "start"), (stop, "stop")))

    def upwards(i: Value, *values: Value) -> list[Value]:
        return [i + 1, *one_round(i, *values)]

    def downwards(i: Value, *values: Value) -> list[Value]:
        return [i - 1, *one_round(i - 1, *values)]

    if reverse:
        return while_loop(lambda i, *_: i > low, downwards, [high, *carry])[1:]
    return while_loop(lambda i, *_: i < high, upwards, [low, *carry])[1:]


def _bound(v: Any, what: str) -> Value:
    if is_known(v):
        return Constant(np.asarray(v, np.int64)).out
    if not isinstance(v, Value):
        raise ShapeError(f"fori: {what} is {v!r}, expected an int or a Value beside one", caller())
    if not v.dtype.is_int:
        raise DTypeError(f"fori: {what} is {v.type}, expected an integer", caller())
    if v.type.size != 1:
        raise ShapeError(f"fori: {what} is {v.type}, expected one element", caller())
    return v.reshape(()).cast(i64)


def _scan(
    function: Callable[..., Any], name: str, carry: list[Value], scanned: list[Value],
    elements: list[TensorType], rounds: int | SymDim, reverse: bool,
) -> Op:  # fmt: skip
    types = [v.type for v in carry]
    round_type = TensorType((), i64)
    traced = _trace(function, name, [round_type, *types, *elements])
    captured = _captured([traced])
    # What is fixed stands between what is carried and what is scanned.
    order = [round_type, *types, *(v.type for v in captured), *elements]
    return make(
        Scan, [*carry, *captured, *scanned],
        body=traced.body(order, captured, after=1 + len(types)),
        length=(rounds,), carries=len(carry), scanned=len(scanned), reverse=reverse,
    )  # fmt: skip


# -- tracing ----------------------------------------------------------------------------------


@dataclass
class _Trace:
    """What a function did: its arguments, what it gave, and what it used from around it."""

    name: str
    arguments: list[Value]
    outputs: list[Value]
    single: bool
    start: int
    captured: list[Value]

    def body(
        self, types: Sequence[TensorType], captured: Sequence[Value], after: int | None = None
    ) -> Graph:
        """The function as a graph whose inputs are the arguments and, behind the first ``after`` of
        them, ``captured``."""
        at = len(self.arguments) if after is None else after
        sources = [*self.arguments[:at], *captured, *self.arguments[at:]]
        graph = Graph(self.name)
        env = {
            v: graph.input(f"x{i}", t.shape, t.dtype)
            for i, (v, t) in enumerate(zip(sources, types, strict=True))
        }
        replay(topological(self.outputs, stop=set(env)), env, cloned)
        graph.set_outputs([env[v] for v in self.outputs])
        return graph


def _trace(function: Callable[..., Any], name: str, types: Sequence[TensorType]) -> _Trace:
    graph = inner_graph(name)
    arguments = [graph.input(f"x{i}", t.shape, t.dtype) for i, t in enumerate(types)]
    start = Constant(np.zeros(())).serial
    with nested(name):
        given = function(*arguments)
    outputs = _many(given, f"{name}: what the function gives")
    if not outputs:
        raise GraphError(f"{name}: the function gives no values", caller())
    inside = set(arguments)
    captured: dict[Value, None] = {}

    def own(v: Value) -> bool:
        return v in inside or (v.op is not None and v.op.serial > start)

    done: set[Op] = set()
    todo = list(outputs)
    while todo:
        v = todo.pop()
        if not own(v):
            captured[v] = None
        elif v.op is not None and v.op not in done:
            done.add(v.op)
            todo += v.op.present
    return _Trace(name, arguments, outputs, isinstance(given, Value), start, list(captured))


def _captured(traces: Sequence[_Trace]) -> list[Value]:
    """What several bodies use from around them, each value once."""
    return list(dict.fromkeys(v for t in traces for v in t.captured))


def _many(values: Any, what: str) -> list[Value]:
    """A Value, or a sequence of them, as a list."""
    if not isinstance(values, Value | Iterable):
        kind = a_type(values)
        raise GraphError(f"{what} is {kind}, expected a Value or a tuple of them", caller())
    found = [values] if isinstance(values, Value) else list(values)
    for v in found:
        if not isinstance(v, Value):
            raise GraphError(f"{what} holds {a_type(v)}, expected a Value", caller())
    return found


def _pair(given: Any) -> tuple[Any, Any]:
    if not isinstance(given, tuple) or len(given) != 2:
        kind = a_type(given)
        raise GraphError(f"scan: its body gives {kind}, expected a pair (carry, y)", caller())
    return given


def _like(single: bool, values: Sequence[Value]) -> Value | tuple[Value, ...]:
    return values[0] if single else tuple(values)
