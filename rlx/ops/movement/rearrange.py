"""Other orders of a tensor's elements: flip, and what slices, reshapes and broadcasts compose."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rlx.base.dims import SymDim, is_known, surely_differ
from rlx.errors import GraphError, ShapeError
from rlx.ir.factors import Factors
from rlx.ir.lift import promoted
from rlx.ir.op import Array, Op, attr, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.indexing.gather import Gather
from rlx.ops.movement.movement import DimLike, axis_of, listed
from rlx.ops.movement.slicing import Pad
from rlx.ops.pointwise.base import ANY
from rlx.ops.sugar import concat
from rlx.types import Dim, TensorType, broadcast_shapes

__all__ = [
    "Flip",
    "broadcast_arrays",
    "depth_to_space",
    "moveaxis",
    "pad",
    "pixel_shuffle",
    "pixel_unshuffle",
    "repeat",
    "roll",
    "space_to_depth",
    "stack",
    "tile",
    "unstack",
]

PAD_MODES = ("constant", "edge", "reflect", "symmetric", "wrap")


class Flip(Op, name="mir.flip"):
    """The elements in reverse order along some axes."""

    x: Value = operand("any tensor")
    axes: tuple[int, ...] = attr(doc="the axes to reverse, ascending")

    linear = ((0,),)
    flops_per_element = 0
    dtypes = ANY
    samples = (
        sample("2x3xT", axes=(1,)),
        sample("2x3x4xT", axes=(0, 2)),
        sample("0x3xT", axes=(0, 1)),
        sample("T", axes=()),
    )
    bads = (
        bad("2x3xf32", match="axis 2 is out of range", error=ShapeError, axes=(2,)),
        bad("2x3xf32", match="ascending", error=ShapeError, axes=(1, 0)),
        bad("2x3xf32", match="ascending", error=ShapeError, axes=(-1,)),
    )

    @classmethod
    def build(cls, x: Value, axes: Iterable[int] | int | None = None) -> Value:
        """None reverses all axes; negative axes count from the end."""
        many = range(x.rank) if axes is None else _many(axes)
        return cls(x, tuple(sorted({axis_of(a, x.rank, "flip") for a in many}))).out

    def infer(self) -> TensorType:
        for a in self.axes:
            axis_of(a, self.x.rank, "flip")
        if list(self.axes) != sorted(set(self.axes)) or any(a < 0 for a in self.axes):
            raise ShapeError(f"flip: axes must be ascending and not negative, found {self.axes}")
        return self.x.type

    def reference(self, x: Array) -> Array:
        return np.ascontiguousarray(np.flip(x, self.axes)).reshape(x.shape)

    def loops(self, b: Any) -> None:
        shape = self.x.type.static_shape

        def point(*at: Any) -> None:
            place = [(shape[n] - 1) - i if n in self.axes else i for n, i in enumerate(at)]
            b.store(0, at, b.load(0, place))

        b.parallel(shape, point)

    def factors(self) -> Factors:
        dims = range(self.x.rank)
        return Factors(self, [dims], [dims], whole=self.axes)

    def vjp(self, g: Value) -> tuple[Value]:
        return (self.with_operands([g]).out,)

    def jvp(self, t: Value) -> Value:
        return self.with_operands([t]).out

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        return self.with_operands(operands, axes=tuple(a + 1 for a in self.axes)).out


def _many(n: Iterable[int] | int) -> list[int]:
    return list(n) if isinstance(n, Iterable) else [n]


def _length(what: str, x: Value, axis: int) -> int:
    """The size of an axis; ShapeError if it is symbolic."""
    size = x.shape[axis]
    if not is_known(size):
        raise ShapeError(f"{what}: axis {axis} of {listed(x.shape)} needs a static size")
    return size


# -- copies --------------------------------------------------------------------------------


def tile(x: Value, reps: Iterable[int] | int) -> Value:
    """The tensor repeated as a whole ``reps`` times along each axis, as ``numpy.tile``."""
    counts = _counts("tile", reps)
    rank = max(x.rank, len(counts))
    counts = [1] * (rank - len(counts)) + counts
    shape = (*[1] * (rank - x.rank), *x.shape)
    pairs = list(zip(counts, shape, strict=True))
    thin = x.reshape([d for _, size in pairs for d in (1, size)])
    wide = thin.expand([d for pair in pairs for d in pair])
    return wide.reshape([n * size for n, size in pairs])


def repeat(x: Value, repeats: Sequence[int] | int, axis: int | None = None) -> Value:
    """Every element repeated in place along an axis, as ``numpy.repeat``: so many times, or one
    count for each element. None takes the axes as one."""
    if axis is None:
        x, axis = x.flatten(), 0
    axis = axis_of(axis, x.rank, "repeat")
    counts = _counts("repeat", repeats)
    size = x.shape[axis]
    if len(counts) == 1:
        wide = x.unsqueeze(axis + 1)
        wide = wide.expand([*x.shape[: axis + 1], counts[0], *x.shape[axis + 1 :]])
        return wide.reshape([*x.shape[:axis], size * counts[0], *x.shape[axis + 1 :]])
    if len(counts) != size:
        raise ShapeError(
            f"repeat: axis {axis} of {listed(x.shape)} has {size} elements, found {len(counts)}"
            " counts"
        )
    return Gather.build(x, np.repeat(np.arange(len(counts)), counts), axis)


def _counts(what: str, counts: Iterable[int] | int) -> list[int]:
    many = _many(counts)
    if any(n < 0 for n in many):
        raise ShapeError(f"{what}: a count cannot be negative, found {many}")
    return many


# -- turns ---------------------------------------------------------------------------------


def roll(x: Value, shift: Sequence[int] | int, axis: Sequence[int] | int | None = None) -> Value:
    """The elements moved along axes, those that leave at the end coming back at the start, as
    ``numpy.roll``. None moves them along all axes as one."""
    if axis is None:
        return roll(x.flatten(), shift, 0).reshape(x.shape)
    shifts, axes = _many(shift), _many(axis)
    if len(axes) == 1:
        axes = axes * len(shifts)
    elif len(shifts) == 1:
        shifts = shifts * len(axes)
    if len(shifts) != len(axes):
        raise ShapeError(f"roll: {len(shifts)} shifts for {len(axes)} axes")
    for distance, one in zip(shifts, axes, strict=True):
        at = axis_of(one, x.rank, "roll")
        by = _turned(distance, x.shape[at])
        if isinstance(by, SymDim) or by:
            x = concat([x.narrow(at, x.shape[at] - by, by), x.narrow(at, 0, x.shape[at] - by)], at)
    return x


def _turned(distance: int, size: Dim) -> Dim:
    """The elements that come back at the start; a symbolic axis is longer than the distance, which
    is checked when it is bound."""
    if is_known(size):
        return distance % size if size else 0
    return distance if distance >= 0 else size + distance


def moveaxis(x: Value, source: Sequence[int] | int, destination: Sequence[int] | int) -> Value:
    """Axes at other places, the rest in their order, as ``numpy.moveaxis``."""
    old = [axis_of(a, x.rank, "moveaxis") for a in _many(source)]
    new = [axis_of(a, x.rank, "moveaxis") for a in _many(destination)]
    if len(old) != len(new) or len(set(old)) < len(old) or len(set(new)) < len(new):
        raise ShapeError(
            f"moveaxis takes as many different sources as destinations, found {source} and"
            f" {destination}"
        )
    perm = [a for a in range(x.rank) if a not in old]
    for to, a in sorted(zip(new, old, strict=True)):
        perm.insert(to, a)
    return x.transpose(perm)


# -- several tensors -----------------------------------------------------------------------


def stack(values: Sequence[Value], axis: int = 0) -> Value:
    """Tensors of one shape along a new axis, promoted to one element type."""
    if not isinstance(values, list | tuple) or not values:
        raise GraphError("stack takes one or more values in a list: stack([x, y], axis)")
    parts = promoted(*values)
    shapes = {p.shape for p in parts}
    if len(shapes) > 1:
        raise ShapeError(
            f"stack takes tensors of one shape, found {' and '.join(map(listed, shapes))}"
        )
    axis = axis_of(axis, parts[0].rank + 1, "stack")
    return concat([p.unsqueeze(axis) for p in parts], axis)


def unstack(x: Value, axis: int = 0) -> list[Value]:
    """The slices of a tensor along an axis, without it."""
    axis = axis_of(axis, x.rank, "unstack")
    return [x.narrow(axis, n, 1).squeeze(axis) for n in range(_length("unstack", x, axis))]


def broadcast_arrays(values: Sequence[Value]) -> list[Value]:
    """Tensors broadcast against each other to one shape."""
    if not isinstance(values, list | tuple) or not all(isinstance(v, Value) for v in values):
        raise GraphError("broadcast_arrays takes values in a list: broadcast_arrays([x, y])")
    shape = broadcast_shapes(*(v.shape for v in values))
    return [v.expand(shape) for v in values]


# -- padding -------------------------------------------------------------------------------


def pad(
    x: Value,
    low: Sequence[DimLike] | int,
    high: Sequence[DimLike] | int,
    value: Value | float | int | bool = 0,
    interior: Sequence[int] | int = 0,
    mode: str = "constant",
) -> Value:
    """The tensor with new places before (``low``) and after (``high``) each axis; one number stands
    for every axis.

    They hold ``value``, or what ``numpy.pad`` puts there by ``mode``: "edge", "reflect",
    "symmetric" or "wrap". ``interior`` is the number of places between two neighbours, for
    "constant" alone.
    """
    if mode not in PAD_MODES:
        raise GraphError(f"pad: mode is one of {', '.join(PAD_MODES)}, found {mode!r}")
    if mode == "constant":
        return Pad.build(x, low, high, value, interior)
    if any(_many(interior)):
        raise GraphError(f'pad: interior places need mode "constant", found {mode!r}')
    before, after = _ends(x, low, mode), _ends(x, high, mode)
    if not len(before) == len(after) == x.rank:
        raise ShapeError(
            f"pad: low and high need one number an axis; the tensor has rank {x.rank}, found"
            f" {len(before)} and {len(after)}"
        )
    if any(n < 0 for n in (*before, *after)):
        raise ShapeError(f"pad: negative padding {before}, {after}; take a slice to drop elements")
    for axis, ends in enumerate(zip(before, after, strict=True)):
        if any(ends):
            x = _pad_axis(x, axis, ends, mode)
    return x


def _ends(x: Value, n: Sequence[DimLike] | int, mode: str) -> list[int]:
    many = list(n) if isinstance(n, Iterable) else [n] * x.rank
    whole = [m for m in many if is_known(m)]
    if len(whole) < len(many):
        raise GraphError(f"pad: mode {mode!r} takes ints, found {many}")
    return whole


def _pad_axis(x: Value, axis: int, ends: tuple[int, int], mode: str) -> Value:
    """By pieces: the stretches of the padded axis in which places go up, go down or stay."""
    size = x.shape[axis]
    if isinstance(size, SymDim):
        return _pad_symbolic(x, axis, ends, mode)
    if not size:
        raise ShapeError(f"pad: axis {axis} of {listed(x.shape)} is empty, and mode is {mode!r}")
    places = np.pad(np.arange(size), ends, mode=mode)  # type: ignore[call-overload]
    return concat([_stretch(x, axis, p) for p in _stretches(places.tolist())], axis)


def _pad_symbolic(x: Value, axis: int, ends: tuple[int, int], mode: str) -> Value:
    """The same along a symbolic axis, which has more elements than each end: that is checked when
    it is bound."""
    low, high = ends
    size = x.shape[axis]
    inner = 1 if mode == "reflect" else 0  # the outermost element comes once

    def edge(at: Dim, count: int) -> Value:
        if mode == "edge":
            shape = [count if n == axis else d for n, d in enumerate(x.shape)]
            return x.narrow(axis, 0 if at == 0 else size - 1, 1).expand(shape)
        if mode == "wrap":
            return x.narrow(axis, size - count if at == 0 else 0, count)
        first = inner if at == 0 else size - inner - count
        return Flip.build(x.narrow(axis, first, count), axis)

    before = [edge(0, low)] if low else []
    return concat([*before, x, *([edge(size, high)] if high else [])], axis)


def _stretches(places: list[int]) -> list[list[int]]:
    """Places in runs of one step: 1, -1 or 0."""
    runs: list[list[int]] = []
    for p in places:
        run = runs[-1] if runs else []
        step = p - run[-1] if run else None
        if step in (-1, 0, 1) and (len(run) == 1 or run[1] - run[0] == step):
            run.append(p)
        else:
            runs.append([p])
    return runs


def _stretch(x: Value, axis: int, run: list[int]) -> Value:
    step = run[1] - run[0] if len(run) > 1 else 1
    piece = x.narrow(axis, min(run), 1 if step == 0 else len(run))
    if step == 0:
        return piece.expand([len(run) if n == axis else d for n, d in enumerate(x.shape)])
    return piece if step > 0 else Flip.build(piece, axis)


# -- between channels and space ------------------------------------------------------------


def space_to_depth(x: Value, block: int) -> Value:
    """``[N, C, H, W]`` as ``[N, C*block^2, H/block, W/block]``: each block of places becomes
    channels, those of a place in the block together, as in ONNX."""
    n, c, h, w = _image("space_to_depth", x, block)
    for d in (h, w):
        if surely_differ(d % block, 0):
            raise ShapeError(f"space_to_depth: {listed(x.shape)} is not made of blocks of {block}")
    parts = x.reshape([n, c, h // block, block, w // block, block])
    mixed = parts.transpose(0, 3, 5, 1, 2, 4)
    return mixed.reshape([n, c * block * block, h // block, w // block])


def depth_to_space(x: Value, block: int, mode: str = "DCR") -> Value:
    """``[N, C*block^2, H, W]`` as ``[N, C, H*block, W*block]``, as in ONNX: with "DCR" the place in
    the block is the outer part of a channel's number, with "CRD" the inner one."""
    n, deep, h, w = _image("depth_to_space", x, block)
    if mode not in ("DCR", "CRD"):
        raise GraphError(f'depth_to_space: mode is "DCR" or "CRD", found {mode!r}')
    if surely_differ(deep % (block * block), 0):
        raise ShapeError(
            f"depth_to_space: {deep} channels are no multiple of {block * block} (block {block})"
        )
    c = deep // (block * block)
    if mode == "DCR":
        mixed = x.reshape([n, block, block, c, h, w]).transpose(0, 3, 4, 1, 5, 2)
    else:
        mixed = x.reshape([n, c, block, block, h, w]).transpose(0, 1, 4, 2, 5, 3)
    return mixed.reshape([n, c, h * block, w * block])


def pixel_shuffle(x: Value, upscale: int) -> Value:
    """``[N, C*r^2, H, W]`` as ``[N, C, H*r, W*r]``, as in PyTorch."""
    return depth_to_space(x, upscale, "CRD")


def pixel_unshuffle(x: Value, downscale: int) -> Value:
    """The inverse of ``pixel_shuffle``."""
    deep = space_to_depth(x, downscale)
    n, c, h, w = deep.shape
    square = downscale * downscale
    parts = deep.reshape([n, square, c // square, h, w])
    return parts.transpose(0, 2, 1, 3, 4).reshape(deep.shape)


def _image(what: str, x: Value, block: int) -> tuple[Dim, ...]:
    if x.rank != 4:
        raise ShapeError(f"{what} takes images [N, C, H, W], found {x.type}")
    if block < 1:
        raise ShapeError(f"{what}: a block has at least 1 place a side, found {block}")
    return x.shape
