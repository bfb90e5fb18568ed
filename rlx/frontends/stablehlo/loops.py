"""Loops that count are raised to scans: a while in which a number goes up by a step to a limit.

What a round reads at the number of the round becomes what the scan goes along, and what it writes
there becomes what the scan stacks. So a loop that JAX made of ``lax.scan`` is a scan again, with
neither copies of what it carries nor reads at computed places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.frontends.stablehlo.node import Node
from rlx.ir.graph import inner_graph, topological
from rlx.ir.value import Value
from rlx.ops import rules
from rlx.ops.control.builders import scan
from rlx.ops.movement.constant import Constant
from rlx.ops.movement.movement import Reshape
from rlx.ops.pointwise.base import Pointwise
from rlx.ops.pointwise.binary import Add
from rlx.ops.pointwise.compare import Lt

__all__ = ["raised"]

MAX_ROUNDS = 1 << 24

Array = np.ndarray[Any, Any]


def raised(n: Node) -> list[Value] | None:
    """The results of a while as those of a scan; None if it does not count."""
    scope = inner_graph("while")
    arguments = [Value(v.type, graph=scope, name=f"x{i}") for i, v in enumerate(n.xs)]
    (goes_on,) = n.body(0, arguments)
    counter = _counter(goes_on, arguments)
    if counter is None:
        return None
    given = n.body(1, arguments)
    steps = _steps(n.xs[counter], goes_on, given[counter], arguments[counter])
    if steps is None:
        return None
    if not len(steps):
        return list(n.xs)
    return _Loop(n, arguments, given, counter, steps).scanned()


def _literal(v: Value) -> Any:
    """The number that a value is, or None."""
    while v.op is not None and isinstance(v.op, Reshape):
        v = v.op.present[0]
    if not isinstance(v.op, Constant) or v.type.size != 1:
        return None
    return v.op.attrs["value"].item()


def _counter(goes_on: Value, arguments: Sequence[Value]) -> int | None:
    """Which argument a loop counts in, if it goes on while that is less than a number."""
    if not isinstance(goes_on.op, Lt) or not goes_on.op.present[0].dtype.is_int:
        return None
    low, high = goes_on.op.present
    known = [i for i, a in enumerate(arguments) if a is low]
    return known[0] if known and _literal(high) is not None else None


def _steps(start: Value, goes_on: Value, after: Value, counter: Value) -> Array | None:
    """The numbers that a counter takes in the rounds, None if they are not known."""
    assert goes_on.op is not None
    first, limit = _literal(start), _literal(goes_on.op.present[1])
    if first is None or not isinstance(after.op, Add):
        return None
    a, b = after.op.present
    step = _literal(b) if a is counter else _literal(a) if b is counter else None
    if step is None or step < 1 or (limit - first) // step > MAX_ROUNDS:
        return None
    return np.arange(first, max(first, limit), step)


@dataclass
class _Loop:
    """A loop in the making: what its rounds do, and which numbers they count."""

    node: Node
    arguments: list[Value]
    given: list[Value]
    counter: int
    steps: Array

    def scanned(self) -> list[Value]:
        """The results of the while, as those of a scan."""
        same = {
            a: x for a, v, x in zip(self.arguments, self.given, self.node.xs, strict=True) if a is v
        }
        reads, stacks = self._reads(same), self._stacks()
        backward = all(turned for *_, turned in (*reads.values(), *stacks.values()))
        backward = backward and bool(reads or stacks)
        count = self.arguments[self.counter]
        carried = [
            i
            for i, a in enumerate(self.arguments)
            if a not in same and i != self.counter and i not in stacks
        ]
        wanted = [self.given[i] for i in carried] + [u for u, _ in stacks.values()]
        numbers = self.steps[::-1] if backward else self.steps
        line = Constant(np.ascontiguousarray(numbers.astype(count.dtype.numpy))).out
        lines = [x.flip(0) if turned != backward else x for x, turned in reads.values()]

        def one_round(carry: Any, xs: Any) -> Any:
            number, *parts = xs
            env = {**same, count: number}
            env |= zip((self.arguments[i] for i in carried), carry, strict=True)
            env |= {v: p.unsqueeze(0) for v, p in zip(reads, parts, strict=True)}
            found = rules.substituted(wanted, env, frozenset())
            after, ys = found[: len(carried)], found[len(carried) :]
            return tuple(after), tuple(y.squeeze(0) for y in ys)

        init = tuple(self.node.xs[i] for i in carried)
        last, ys = scan(one_round, init, (line, *lines), reverse=backward)
        after = self.steps[-1] + (self.steps[1] - self.steps[0] if len(self.steps) > 1 else 1)
        return self._results(same, stacks, dict(zip(carried, last, strict=True)), ys, backward,
                             int(after))  # fmt: skip

    def _results(
        self, same: Any, stacks: Any, last: dict[int, Value], ys: Sequence[Value], backward: bool,
        after: int,
    ) -> list[Value]:  # fmt: skip
        stacked = {
            i: y.flip(0) if turned != backward else y
            for (i, (_, turned)), y in zip(stacks.items(), ys, strict=True)
        }
        found: list[Value] = []
        for i, a in enumerate(self.arguments):
            if i == self.counter:
                found.append(Constant(np.asarray(after, a.dtype.numpy)).out)
            elif a in same:
                found.append(same[a])
            else:
                found.append(stacked[i] if i in stacked else last[i])
        return found

    # -- what is read and written at the number of the round -------------------------------

    def _direction(self, starts: Sequence[Value]) -> bool | None:
        """Whether a place goes backward along the first axis, round by round; None if it goes
        otherwise."""
        if any(_literal(s) != 0 for s in map(self._settled, starts[1:])):
            return None
        places = self._at(starts[0])
        rounds = np.arange(len(self.steps))
        if places is None:
            return None
        if np.array_equal(places, rounds):
            return False
        return True if np.array_equal(places, rounds[::-1]) else None

    def _settled(self, v: Value) -> Value:
        """A place that is computed from numbers alone, as the number."""
        at = self._at(v)
        if at is not None and (at == at[0]).all():
            return Constant(np.asarray(at[0])).out
        return v

    def _at(self, v: Value) -> Array | None:
        """The elements of a scalar in all rounds, None if it depends on more than the counter."""
        count = self.arguments[self.counter]
        known: dict[Value, Array] = {count: self.steps.astype(count.dtype.numpy)}
        for op in topological([v], stop={count}):
            if isinstance(op, Constant) and op.out.type.size == 1:
                known[op.out] = np.broadcast_to(op.attrs["value"], self.steps.shape)
            elif isinstance(op, Pointwise) and all(u in known for u in op.present):
                (known[op.results[0]],) = [op.reference(*(known[u] for u in op.present))]
            else:
                return None
        return known.get(v)

    def _reads(self, same: dict[Value, Value]) -> dict[Value, tuple[Value, bool]]:
        """What rounds read of a tensor that stays the same, with whether they go backward."""
        found: dict[Value, tuple[Value, bool]] = {}
        moving = self._moving()
        for op in topological(self.given):
            v = op.results[0]
            if v not in self.node.importer.reads:
                continue
            x, starts = self.node.importer.reads[v]
            whole = (1, *x.shape[1:]) == v.shape and x.shape[0] == len(self.steps)
            if not whole or (x not in same and x in moving):
                continue
            turned = self._direction(starts)
            if turned is not None:
                found[v] = same.get(x, x), turned
        return found

    def _moving(self) -> set[Value]:
        """The values of a round that depend on its arguments."""
        found = set(self.arguments)
        for op in topological(self.given):
            if not found.isdisjoint(op.present):
                found.update(op.results)
        return found

    def _stacks(self) -> dict[int, tuple[Value, bool]]:
        """What rounds write into a tensor that nothing else reads, by the number of the argument
        that holds it."""
        uses: dict[Value, int] = {}
        for op in topological(self.given):
            for v in op.present:
                uses[v] = uses.get(v, 0) + 1
        found: dict[int, tuple[Value, bool]] = {}
        for i, (a, v) in enumerate(zip(self.arguments, self.given, strict=True)):
            if v not in self.node.importer.writes or uses.get(v, 0):
                continue
            x, update, starts = self.node.importer.writes[v]
            whole = update.shape == (1, *x.shape[1:]) and x.shape[0] == len(self.steps)
            if (
                x is not a
                or not whole
                or uses.get(a, 0) != 1
                or sum(v is g for g in self.given) > 1
            ):
                continue
            turned = self._direction(starts)
            if turned is not None:
                found[i] = update, turned
        return found
