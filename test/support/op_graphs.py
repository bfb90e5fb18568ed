"""All samples of an op as one graph, so that its kernels are compiled together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import rlx
from rlx.ir.op import Op
from rlx.types import DType, TensorType, dtype
from support.samples import Case, additive_mask, cases_of

__all__ = ["OpGraph", "unsaid"]

Array = np.ndarray[Any, Any]

SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, 2.5)
"""Floats that are traps: the last lies half way between two integers."""

ALL = tuple(range(9))

FINITE: dict[str, tuple[int, ...]] = {
    # Zeros stand in the padding and between strides, or nothing does: weights tell the two apart.
    "mir.conv": (1,),
    "mir.conv_transpose": (1,),
    # Expanded into a product a tap, x meets zeros behind the axes of g, and g those around x.
    "mir.conv_weights": (0, 1),
    "hir.depthwise_conv1d_causal": (1,),
    # A scale multiplies the sum of a block's integer products, or each of them, zeros included.
    "mir.dequant_matmul_rows": (1,),
    # Hidden values are weighed by 0, or left out.
    "mir.attention": (2,),
    "mir.attention_grad": (0, 1, 2, 4),
    # Every result is a sum over all elements, in an order of the algorithm's own.
    **dict.fromkeys(("mir.fft", "mir.ifft", "mir.rfft", "mir.irfft"), ALL),
    **{f"mir.{name}": ALL for name in (
        "cholesky", "det", "eigh", "eigvalsh", "inv", "lstsq", "lu", "pinv", "qr", "slogdet",
        "solve", "svd", "svdvals", "triangular_solve",
    )},
}  # fmt: skip
"""Operands by op that are finite here: what is not makes results that are not finite either, but
which are infinite and which are nan is not said."""

PRODUCTS = (
    "mir.matmul", "mir.dot_general", "mir.cumprod", "mir.linear_recurrence", "mir.reduce_prod",
)  # fmt: skip
"""The same of complex operands: no two libraries agree on products with infinite parts, and in
another order they are others."""


HIDING = ("mir.attention", "mir.attention_grad")
"""Ops of ``FINITE`` that are there for the keys that a mask hides."""


def unsaid(op: str, operand: int, dt: DType, mask: str = "any") -> bool:
    """Whether it is not said what an op makes of an operand of this type that is not finite, where
    keys are hidden by a kind of ``mask``."""
    finite = operand in FINITE.get(op, ()) and not (op in HIDING and mask == "none")
    return finite or (op in PRODUCTS and dt.is_complex)


@dataclass(frozen=True)
class OpGraph:
    """The graph, and for each of its outputs the case that it belongs to."""

    graph: rlx.Graph
    cases: tuple[Case, ...]
    owners: tuple[Case, ...]
    views: bool = False

    @staticmethod
    def of(
        op: type[Op], fits: Callable[[Case], bool] = lambda case: True, *, views: bool = False
    ) -> OpGraph:
        """The graph of an op's samples on every element type that it takes, as far as they fit."""
        return OpGraph.of_cases(op.name, [c for c in cases_of(op) if fits(c)], views=views)

    @staticmethod
    def of_cases(name: str, given: Sequence[Case], *, views: bool = False) -> OpGraph:
        """The graph of these cases, which may be of several ops. With ``views`` the operands are
        parts of larger inputs, every second element of them, transposed ones, and ones that
        are repeated along an axis, by turns: a kernel that takes its operand's strides for granted
        reads what is no part of it."""
        g = rlx.Graph(name)
        outputs: list[rlx.Value] = []
        owners: list[Case] = []
        for n, case in enumerate(given):
            leaves = [
                None
                if t is None
                else _view(case, n, i, t.static_shape).of(g, _name(n, i), t)
                if views
                else g.input(_name(n, i), t.shape, t.dtype)
                for i, t in enumerate(case.types)
            ]
            results = case.op(*leaves, **case.sample.attrs).results
            outputs += results
            owners += [case] * len(results)
        if outputs:
            g.set_outputs(outputs)
        return OpGraph(g, tuple(given), tuple(owners), views)

    def feeds(self, seed: int = 0, *, special: bool = False) -> dict[str, Array]:
        """Operands for all inputs. With ``special`` some of the floats that may be any are nan,
        infinite or zero, some of the integers the least, the largest, or one with the upper bit
        alone, some masks hide whole rows by -inf or the least numbers, and no array is contiguous
        that can be otherwise."""
        rng = np.random.default_rng([seed, len(self.owners)])
        found: dict[str, Array] = {}
        for n, case in enumerate(self.cases):
            for i, a in enumerate(case.arrays(seed)):
                if a is None:
                    continue
                kind = case.sample.data.get(i, "normal")
                mask = case.sample.attrs.get("mask_kind", "none")
                if special and kind == "normal" and _masks(case, i) and rng.random() < 0.5:
                    dt = dtype(a.dtype)
                    found[_name(n, i)] = _scattered(additive_mask(a.shape, dt, rng))
                elif special and not unsaid(case.op.name, i, dtype(a.dtype), mask):
                    found[_name(n, i)] = _scattered(_sprinkled(a, kind, rng))
                else:
                    found[_name(n, i)] = a
                if self.views:
                    found[_name(n, i)] = _view(case, n, i, a.shape).holding(found[_name(n, i)])
        return found


class _Part:
    """The middle of an input that has two more elements along every axis."""

    def of(self, g: rlx.Graph, name: str, t: TensorType) -> rlx.Value:
        x = g.input(name, [n + 2 for n in t.static_shape], t.dtype)
        for axis, n in enumerate(t.static_shape):
            x = x.narrow(axis, 1, n)
        return x

    def holding(self, a: Array) -> Array:
        """The input whose part is ``a``."""
        return np.pad(a, 1, mode="constant", constant_values=_around(a.dtype))


class _Steps:
    """Every second element along every axis."""

    def of(self, g: rlx.Graph, name: str, t: TensorType) -> rlx.Value:
        x = g.input(name, [2 * n for n in t.static_shape], t.dtype)
        return x[tuple(slice(None, None, 2) for _ in t.static_shape)]

    def holding(self, a: Array) -> Array:
        """The input whose every second element is one of ``a``."""
        wide = np.full([2 * n for n in a.shape], _around(a.dtype), a.dtype)
        wide[tuple(slice(None, None, 2) for _ in a.shape)] = a
        return wide


class _Turned:
    """The input with its axes the other way round."""

    def of(self, g: rlx.Graph, name: str, t: TensorType) -> rlx.Value:
        return g.input(name, t.static_shape[::-1], t.dtype).transpose()

    def holding(self, a: Array) -> Array:
        """The input that is ``a`` turned."""
        return a.T.copy()


class _Repeated:
    """One slice of an input again and again along an axis."""

    def __init__(self, axis: int) -> None:
        self.axis = axis

    def of(self, g: rlx.Graph, name: str, t: TensorType) -> rlx.Value:
        shape = list(t.static_shape)
        shape[self.axis] = 1
        return g.input(name, shape, t.dtype).expand(t.static_shape)

    def holding(self, a: Array) -> Array:
        """The input that is the first slice of ``a``."""
        return np.ascontiguousarray(np.take(a, [0], self.axis))


_VIEWS = (_Part(), _Steps(), _Turned())


def _view(case: Case, n: int, operand: int, shape: tuple[int, ...]) -> Any:
    """The view that an operand of the case of a number is. Repeated rows are no matrix of which all
    can be said that may be said of the sample's."""
    turn = (n + operand) % 4
    if turn < 3:
        return _VIEWS[turn]
    kind = case.sample.data.get(operand, "normal")
    if len(shape) > 1 and 0 not in shape and kind not in ("spd", "dominant", "spread"):
        return _Repeated(n % (len(shape) - 1))  # rows of one number have no variance to divide by
    return _VIEWS[n % 3]


def _around(dt: np.dtype[Any]) -> Any:
    """What a kernel would stumble over if it read it."""
    if dt.kind in "iu":
        return np.iinfo(dt).max
    return dt.kind == "b" or np.array(np.nan).astype(dt)


def _masks(case: Case, operand: int) -> bool:
    """Whether an operand is what a model adds to its scores to hide keys, or is those scores."""
    if case.op.name in HIDING:
        return operand == 3 and case.sample.attrs.get("mask_kind") == "bias"
    return case.op.name in ("mir.softmax", "mir.log_softmax", "mir.logsumexp")


def _name(case: int, operand: int) -> str:
    return f"s{case}_x{operand}"


def _sprinkled(a: Array, kind: str, rng: np.random.Generator) -> Array:
    if kind != "normal" or a.dtype.kind not in "fcViu" or not a.size:
        return a
    a = a.copy()
    places = rng.random(a.shape) < min(0.2, 2 / a.size)
    if a.dtype.kind in "iu":
        least, most = np.iinfo(a.dtype).min, np.iinfo(a.dtype).max
        traps = np.array([least, most, most - (most >> 1)], a.dtype)
    else:
        traps = np.array(SPECIAL).astype(a.dtype)
    a[places] = rng.choice(traps, int(places.sum()))
    return a


def _scattered(a: Array) -> Array:
    """The same elements two apart along the last axis, in reversed memory order of the axes."""
    if not a.ndim:
        return a
    wide = np.empty((*a.shape[::-1][:-1], 2 * a.shape[0]), a.dtype)[..., ::2].T
    wide[...] = a
    return wide
