"""Recurrent layers: RNN, GRU and LSTM, as scans over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlx.errors import UnsupportedError
from rlx.frontends.common.values import constant, full
from rlx.frontends.onnx.node import Node, Result, Rows
from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.ops.control.builders import scan
from rlx.ops.movement.constant import Iota
from rlx.ops.pointwise.activation import Sigmoid, Tanh
from rlx.ops.pointwise.unary import Relu
from rlx.ops.sugar import concat, split
from rlx.types import i32

__all__ = ["ROWS"]

ACTIVATIONS: dict[str, type[Op]] = {"relu": Relu, "sigmoid": Sigmoid, "tanh": Tanh}

States = tuple[Value, ...]
Cell = Callable[["Direction", Value, States], States]
"""The states after one step, from the input's product with W (and its bias), and those before."""


class Direction:
    """The weights of one direction, and the activations of its gates."""

    def __init__(self, n: Node, index: int, kinds: Sequence[str]) -> None:
        self.node, self.index = n, index
        self.w, self.r = self._part(1), self._part(2)
        bias = self._part(3)
        self.wb, self.rb = (None, None) if bias is None else split(bias, 2, 0)
        names = [k.lower() for k in n.attr("activations", tuple(kinds) * 2)]
        names = names[index * len(kinds) : (index + 1) * len(kinds)]
        unknown = [k for k in names if k not in ACTIVATIONS]
        if unknown or len(names) < len(kinds):
            raise UnsupportedError(
                f"its activations are {names}; there are {', '.join(ACTIVATIONS)}, and it needs"
                f" {len(kinds)} for each direction"
            )
        self.activations = [ACTIVATIONS[k].build for k in names]

    def _part(self, i: int) -> Any:
        whole = self.node.optional(i)
        return None if whole is None else whole.narrow(0, self.index, 1).reshape(whole.shape[1:])

    def initial(self, i: int, like: Value) -> Value:
        """An initial state ``[batch, hidden]``, zeros if it is not there."""
        batch, hidden = like.shape[1], self.r.shape[1]
        whole = self.node.optional(i)
        if whole is None:
            return full([batch, hidden], 0, like.dtype)
        axis = 1 if self.node.attr("layout", 0) else 0
        return whole.narrow(axis, self.index, 1).reshape([batch, hidden])

    def peephole(self) -> Any:
        """The weights from the cell state to the gates."""
        return self._part(7)

    def act(self, i: int, x: Value) -> Value:
        """An activation of a gate, after the clipping that the node says."""
        bound = self.node.attr("clip", None)
        if bound is not None:
            x = x.minimum(bound).maximum(-bound)
        return self.activations[i](x)


def rnn(d: Direction, x: Value, states: States) -> States:
    (h,) = states
    return (d.act(0, x + _plus(h @ d.r.T, d.rb)),)


def gru(d: Direction, x: Value, states: States) -> States:
    (h,) = states
    xz, xr, xh = split(x, 3, 1)
    rz, rr, rh = split(d.r, 3, 0)
    bz, br, bh = (None,) * 3 if d.rb is None else split(d.rb, 3, 0)
    z = d.act(0, xz + _plus(h @ rz.T, bz))
    r = d.act(0, xr + _plus(h @ rr.T, br))
    if d.node.attr("linear_before_reset", 0):
        new = d.act(1, xh + r * _plus(h @ rh.T, bh))
    else:
        new = d.act(1, xh + _plus((r * h) @ rh.T, bh))
    return ((1 - z) * new + z * h,)


def lstm(d: Direction, x: Value, states: States) -> States:
    h, c = states
    i, o, f, g = split(x + _plus(h @ d.r.T, d.rb), 4, 1)
    weights = d.peephole()
    pi, po, pf = (None,) * 3 if weights is None else split(weights, 3, 0)
    i = d.act(0, i if pi is None else i + pi * c)
    f = 1 - i if d.node.attr("input_forget", 0) else d.act(0, f if pf is None else f + pf * c)
    c = f * c + i * d.act(1, g)
    o = d.act(0, o if po is None else o + po * c)
    return o * d.act(2, c), c


def _plus(x: Value, bias: Value | None) -> Value:
    return x if bias is None else x + bias


def layer(cell: Cell, kinds: Sequence[str]) -> Callable[[Node], list[Result]]:
    """A layer of such cells: Y of all steps, and the last states."""

    def row(n: Node) -> list[Result]:
        kind = n.attr("direction", "forward")
        n.ignore("hidden_size")  # the weights say it
        ways = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[kind]
        flipped = bool(n.attr("layout", 0))
        x = n[0].swapaxes(0, 1) if flipped else n[0]
        lengths = n.optional(4)
        starts = (5, 6) if cell is lstm else (5,)
        all_ys: list[Value] = []
        all_last: list[States] = []
        for index, backward in enumerate(ways):
            d = Direction(n, index, kinds)
            first = tuple(d.initial(i, x) for i in starts)
            ys, last = _run(cell, d, x, first, lengths, backward)
            all_ys.append(ys.reshape([ys.shape[0], 1, *ys.shape[1:]]))
            all_last.append(last)
        y = concat(all_ys, 1)
        last = [concat([s[i].reshape([1, *s[i].shape]) for s in all_last], 0)
                for i in range(len(starts))]  # fmt: skip
        if flipped:
            return [y.transpose([2, 0, 1, 3]), *(v.swapaxes(0, 1) for v in last)]
        return [y, *last]

    return row


def _run(
    cell: Cell, d: Direction, x: Value, first: States, lengths: Value | None, backward: bool
) -> tuple[Value, States]:
    """All outputs ``[steps, batch, hidden]`` and the last states of one direction."""
    steps, batch, width = x.shape
    flat = x.reshape([steps * batch, width]) @ d.w.T
    product = _plus(flat, d.wb).reshape([steps, batch, d.w.shape[0]])
    number = Iota((steps,), 0, i32).out

    def one(states: States, given: tuple[Value, Value]) -> tuple[States, Value]:
        step, row = given
        new = cell(d, row, states)
        if lengths is None:
            return new, new[0]
        on = step.lt(lengths.cast(i32)).reshape([batch, 1])
        zero = constant(0, x.dtype)
        return tuple(on.where(a, b) for a, b in zip(new, states, strict=True)), on.where(
            new[0], zero
        )

    last, ys = scan(one, first, (number, product), reverse=backward)
    return ys, last


ROWS: Rows = {
    "GRU": layer(gru, ("Sigmoid", "Tanh")),
    "LSTM": layer(lstm, ("Sigmoid", "Tanh", "Tanh")),
    "RNN": layer(rnn, ("Tanh",)),
}
