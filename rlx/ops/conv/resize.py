"""Images in another size: by the nearest element, or linear or cubic interpolation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cmp_to_key
from typing import Any

import numpy as np

from rlx.base.dims import as_dim, exact_quotient, is_known, surely_less
from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.ir.op import Array, attr, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.indexing.gather import Gather
from rlx.ops.matmul.contraction import MatMul
from rlx.ops.movement.constant import Constant, Iota
from rlx.ops.movement.movement import DimLike, listed
from rlx.ops.movement.rearrange import repeat
from rlx.ops.nn.blocks import Block
from rlx.ops.nn.heads import check_choice
from rlx.ops.pointwise.cast import widened
from rlx.ops.pointwise.division import FloorDivide
from rlx.ops.reduction.reduce import as_value
from rlx.types import Dim, TensorType, i64

__all__ = ["Resize", "interpolated", "mixed"]

CUBIC = -0.75
"""The slope parameter of the cubic kernel (R. Keys, 1981), PyTorch's and that of ONNX."""

MOST_TAPS = 4
"""The most old elements of a new one that are taken one by one. A tap along rows costs as much as a
dozen columns of a product, along other axes as two, and each is code of its own."""

MODES = ("nearest", "linear", "cubic")
COORDINATES = ("half_pixel", "align_corners", "asymmetric")


class Resize(Block, name="hir.resize"):
    """Images ``[N, C, *S]`` in other spatial sizes, of any number of axes.

    Element o along an axis of ``new`` elements is at the place s of the old axis:

    - "half_pixel": ``s = (o + 0.5) * old / new - 0.5``, so that the images' borders coincide;
    - "align_corners": ``s = o * (old - 1) / (new - 1)``, so that the outermost elements do;
    - "asymmetric": ``s = o * old / new``.

    "nearest" takes element ``floor(s)``, with "half_pixel" that whose square holds the place, and
    all element types; it copies where an axis grows or shrinks by a whole factor. "linear" and
    "cubic" interpolate axis by axis, past the border with the element at it, and smooth nothing
    when they shrink. In PyTorch's terms: nearest "asymmetric" is its "nearest", nearest
    "half_pixel" its "nearest-exact", and the others have its ``align_corners`` false or true.
    """

    x: Value = operand("[N, C, *S]")
    sizes: tuple[Dim, ...] = attr(doc="the new spatial sizes")
    mode: str = attr("nearest", '"nearest", "linear" or "cubic"')
    coordinates: str = attr("half_pixel", '"half_pixel", "align_corners" or "asymmetric"')

    samples = (
        sample("1x2x3x2xT", sizes=(6, 4), coordinates="asymmetric"),
        sample("2x1x5xT", sizes=(3,), mode="linear"),
        sample("1x1x3x4xT", sizes=(5, 2), mode="cubic", coordinates="align_corners"),
        sample("1x1x2x2x2xT", sizes=(3, 2, 1), mode="linear", coordinates="align_corners"),
    )
    bads = (
        bad("1x1x4xf32", match="1 spatial axes", error=ShapeError, sizes=(2, 2)),
        bad("4xf32", match=r"\[N, C, \*S\]", error=ShapeError, sizes=()),
        bad("1x1x4xf32", match="at least 1", error=ShapeError, sizes=(0,)),
        bad("1x1x0xf32", match="is empty", error=ShapeError, sizes=(2,)),
        bad("1x1x4xf32", match="mode", error=GraphError, sizes=(2,), mode="area"),
        bad("1x1x4xf32", match="coordinates", error=GraphError, sizes=(2,), coordinates="half"),
        bad("1x1x4xi32", match="found i32", error=DTypeError, sizes=(2,), mode="linear"),
    )

    @classmethod
    def build(
        cls,
        x: Value,
        sizes: Sequence[DimLike],
        mode: str = "nearest",
        coordinates: str | None = None,
    ) -> Value:
        """Without ``coordinates`` it is as in PyTorch by default: "asymmetric" for "nearest",
        "half_pixel" for others."""
        if coordinates is None:
            coordinates = "asymmetric" if mode == "nearest" else "half_pixel"
        return cls(x, tuple(as_dim(d) for d in sizes), mode, coordinates).out

    def infer(self) -> TensorType:
        check_choice("resize", "mode", self.mode, MODES)
        check_choice("resize", "coordinates", self.coordinates, COORDINATES)
        if self.mode != "nearest" and not self.x.dtype.is_float:
            raise DTypeError(f"resize by {self.mode} takes floats, found {self.x.dtype}")
        if self.x.rank < 2:
            raise ShapeError(f"resize takes images [N, C, *S], found {self.x.type}")
        if len(self.sizes) != self.x.rank - 2:
            raise ShapeError(
                f"resize: {self.x.type} has {self.x.rank - 2} spatial axes, found sizes"
                f" {list(self.sizes)}"
            )
        for axis, size in enumerate(self.sizes, 2):
            old = self.x.shape[axis]
            if surely_less(size, 1):
                raise ShapeError(f"resize: a size is at least 1, found {listed(self.sizes)}")
            if surely_less(old, 1):
                raise ShapeError(f"resize: axis {axis} of {self.x.type} is empty")
        return self.x.type.with_shape((*self.x.shape[:2], *self.sizes))

    def expand(self) -> Value:
        x = self.x if self.mode == "nearest" else widened(self.x)
        for axis, old, new in self._steps():
            if isinstance(old, int) and isinstance(new, int):
                x = self._along(x, axis, old, new)
            else:
                x = self._along_symbol(x, axis, old, new)
        return x.cast(to=self.x.dtype)

    def _steps(self) -> list[tuple[int, Dim, Dim]]:
        """The axes that change, with their sizes before and after: first those that make less of
        the elements; of two alike the last, which costs the most an element. Symbols come last."""
        known: list[tuple[int, Dim, Dim]] = []
        open_: list[tuple[int, Dim, Dim]] = []
        for axis, (old, new) in enumerate(zip(self.x.shape[2:], self.sizes, strict=True), 2):
            if old != new:
                (known if is_known(old) and is_known(new) else open_).append((axis, old, new))
        return [*sorted(known[::-1], key=cmp_to_key(_shrinks_more)), *open_]

    def _along(self, x: Value, axis: int, old: int, new: int) -> Value:
        """By constants. The weights have the bits of those that ``interpolated`` computes."""
        if self.mode == "nearest":
            return _taken(x, axis, old, self._nearest(old, new))
        o = np.arange(new)
        if self.coordinates == "align_corners":
            number, by = o * (old - 1), max(new - 1, 1)
        elif self.coordinates == "asymmetric":
            number, by = o * old, new
        else:
            number, by = (2 * o + 1) * old - new, 2 * new
        if self.mode == "linear":
            number = np.clip(number, 0, (old - 1) * by)
        first = number // by
        dt = x.dtype.numpy
        t = (number - first * by).astype(dt) / np.asarray(by, dt)
        if self.mode == "linear":
            # An element alone is half of itself twice: its neighbour may be infinite, or none.
            alone, half = t == 0, np.asarray(0.5, dt)
            low, high = np.where(alone, half, 1 - t), np.where(alone, half, t)
            taps = [(first, low), (np.where(alone, first, first + 1), high)]
        else:
            taps = [(first + offset, weight) for offset, weight in _cubic(t).items()]
        places = [(np.clip(index, 0, old - 1), weight) for index, weight in taps]
        return _weighted(x, axis, old, places)

    def _along_symbol(self, x: Value, axis: int, old: Dim, new: Dim) -> Value:
        """The same where the sizes are known at run time: a place is a fraction of integers."""
        if self.mode == "nearest" and self.coordinates != "align_corners":
            found = self._regular(x, axis, old, new)
            if found is not None:
                return found
        o, last = Iota((new,), 0, i64).out, as_value(old) - 1
        if self.coordinates == "align_corners":
            number, by = o * last, (as_value(new) - 1).maximum(1)
        elif self.coordinates == "asymmetric":
            number, by = o * as_value(old), as_value(new)
        else:
            number, by = (o * 2 + 1) * as_value(old), as_value(new) * 2
        if self.mode == "nearest":
            return Gather.build(x, FloorDivide(number, by).out, axis, "clip")
        if self.coordinates == "half_pixel":
            number = number - as_value(new)
        return interpolated(x, axis, (number, by), linear=self.mode == "linear")

    def _regular(self, x: Value, axis: int, old: Dim, new: Dim) -> Value | None:
        """The nearest elements where one size is some times the other, whatever it is; None where
        that is not so."""
        for whole, part in ((new, old), (old, new)):
            try:
                times = exact_quotient(whole, part)
            except ShapeError:
                continue
            if not isinstance(times, int):
                continue
            if whole is new:
                return repeat(x, times, axis)
            first = times // 2 if self.coordinates == "half_pixel" else 0
            return _every(x, axis, first, new, times)
        return None

    def _nearest(self, old: int, new: int) -> Array:
        """In whole numbers, so that no rounding moves a place."""
        o = np.arange(new)
        if self.coordinates == "half_pixel":
            return (2 * o + 1) * old // (2 * new)
        if self.coordinates == "asymmetric":
            return o * old // new
        return o * (old - 1) // max(new - 1, 1)


def interpolated(x: Value, axis: int, at: tuple[Value, Value], *, linear: bool) -> Value:
    """The elements at places along an axis, quotients of integers [new], interpolated linearly or
    by cubic polynomials."""
    number, by = at
    last = as_value(x.shape[axis]) - 1
    if linear:
        number = number.maximum(0).minimum(last * by)
    first = FloorDivide(number, by).out
    t = (number - first * by).cast(to=x.dtype) / by.cast(to=x.dtype)
    if linear:
        alone = t.eq(0)  # as in ``Resize._along``
        low, high = alone.where(0.5, 1 - t), alone.where(0.5, t)
        taps = [(first, low), (alone.where(first, first + 1), high)]
    else:
        taps = [(first + offset, weight) for offset, weight in _cubic(t).items()]
    parts: list[Value] = []
    for place, weight in taps:
        index = place.maximum(0).minimum(last)
        factor = weight.reshape((*number.shape, *[1] * (x.rank - axis - 1)))
        parts.append(Gather.build(x, index, axis, "clip") * factor)
    return _total(parts)


def mixed(x: Value, axis: int, weights: Array) -> Value:
    """Each new element along an axis as a sum of old ones, with weights [new, old]: of a few that
    are taken one by one, or of all by a product."""
    there = weights != 0
    first, last = there.argmax(1), weights.shape[1] - 1 - there[:, ::-1].argmax(1)
    count = int((last - first).max()) + 1
    if count > MOST_TAPS:
        factors = Constant(weights.T.astype(x.dtype.numpy)).out
        return MatMul.build(x.swapaxes(axis, x.rank - 1), factors).swapaxes(axis, x.rank - 1)
    taps: list[tuple[Array, Array]] = []
    for k in range(count):
        place = np.minimum(first + k, last)
        times = np.where(place == last, count + first - last, 1)  # so often it is taken
        weight = np.take_along_axis(weights, place[:, None], 1)[:, 0] / times
        taps.append((place, weight))
    return _weighted(x, axis, weights.shape[1], taps)


def _weighted(x: Value, axis: int, old: int, taps: Sequence[tuple[Array, Array]]) -> Value:
    """The sum of elements at places along an axis, of ``old`` ones, each with a weight; [new]
    both."""
    parts: list[Value] = []
    for index, weight in taps:
        factor = weight.reshape((len(weight), *[1] * (x.rank - axis - 1)))
        taken = _taken(x, axis, old, index)
        parts.append(taken * Constant(factor.astype(x.dtype.numpy)).out)
    return _total(parts)


def _total(parts: Sequence[Value]) -> Value:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _cubic(t: Any) -> dict[int, Any]:
    """The weights of the four elements around a place, t after the second of them."""

    def near(d: Any) -> Any:
        return ((CUBIC + 2) * d - (CUBIC + 3)) * d * d + 1

    def far(d: Any) -> Any:
        return ((CUBIC * d - 5 * CUBIC) * d + 8 * CUBIC) * d - 4 * CUBIC

    return {-1: far(t + 1), 0: near(t), 1: near(1 - t), 2: far(2 - t)}


def _taken(x: Value, axis: int, old: int, index: Array) -> Value:
    """The elements at some places along an axis, of ``old`` elements; by a view where the places
    are regular."""
    if len(index) % old == 0 and (index == np.arange(len(index)) // (len(index) // old)).all():
        return repeat(x, len(index) // old, axis)
    step = int(index[1] - index[0]) if len(index) > 1 else 1
    if step > 0 and (np.diff(index) == step).all():
        return _every(x, axis, int(index[0]), len(index), step)
    return Gather.build(x, index, axis, "clip")


def _every(x: Value, axis: int, first: int, count: Dim, step: int) -> Value:
    """So many elements along an axis, ``step`` apart."""
    starts = [first if a == axis else 0 for a in range(x.rank)]
    sizes = [count if a == axis else d for a, d in enumerate(x.shape)]
    return x.slice(starts, sizes, [step if a == axis else 1 for a in range(x.rank)])


def _shrinks_more(a: tuple[int, Dim, Dim], b: tuple[int, Dim, Dim]) -> int:
    """Below 0 if the new size of the first axis is a smaller part of its old one."""
    (_, old, new), (_, other_old, other_new) = a, b
    mine, others = new * other_old, other_new * old
    return 0 if mine == others else -1 if mine < others else 1
