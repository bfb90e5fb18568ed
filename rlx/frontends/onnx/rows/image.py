"""Images in other sizes and at other places: resize, and samples at coordinates that are data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlx.base.frozen import frozen
from rlx.errors import ShapeError, UnsupportedError
from rlx.frontends.common.images import image_of_columns, sample_grid
from rlx.frontends.common.values import constant
from rlx.frontends.onnx.node import Node, Rows
from rlx.frontends.onnx.rows.movement import pick
from rlx.ir.value import Value
from rlx.ops.conv.resize import CUBIC, interpolated, mixed
from rlx.ops.indexing.gather import Gather
from rlx.ops.movement.constant import Iota
from rlx.ops.movement.movement import axis_of
from rlx.ops.pointwise.division import FloorDivide
from rlx.ops.reduction.reduce import as_value
from rlx.ops.sugar import concat
from rlx.types import Dim, SymDim, f32, i64

__all__ = ["ROWS"]

Array = np.ndarray[Any, Any]


# -- resize --------------------------------------------------------------------------------


@frozen
class Axis:
    """One axis of a resize: its old and new size, the scale, and the part that is cropped."""

    old: int
    new: int
    scale: float
    start: float
    end: float


@frozen
class OpenAxis:
    """One axis of a resize whose old or new size is a symbol."""

    old: Dim
    new: Dim


def _places(n: Node, kind: str, a: Axis) -> Array:
    """Where each new element is along the old axis."""
    o = n.line(a.new).astype(np.float64)
    half = (o + 0.5) / a.scale - 0.5
    if kind == "half_pixel_symmetric":
        shift = a.new / (a.scale * a.old)
        return half + a.old / 2 * (1 - shift)
    if kind == "tf_crop_and_resize":
        if a.new == 1:
            return np.full(1, 0.5 * (a.start + a.end) * (a.old - 1))
        return (a.start + o * (a.end - a.start) / (a.new - 1)) * (a.old - 1)
    kinds = {
        "half_pixel": half,
        "pytorch_half_pixel": half if a.new > 1 else np.zeros(1),
        "align_corners": o * (a.old - 1) / max(a.scale * a.old - 1, 1),
        "asymmetric": o / a.scale,
        "tf_half_pixel_for_nn": (o + 0.5) / a.scale,
    }
    if kind not in kinds:
        raise UnsupportedError(f"its coordinates are {kind!r}; there are {', '.join(kinds)}")
    return kinds[kind]


ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda s: np.ceil(s - 0.5),
    "round_prefer_ceil": lambda s: np.floor(s + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _linear(d: Array) -> Array:
    return np.clip(1 - np.abs(d), 0, 1)


def _cubic(d: Array, slope: float) -> Array:
    """The weight of an element at a distance (R. Keys, 1981)."""
    d = np.abs(d)
    near = ((slope + 2) * d - (slope + 3)) * d * d + 1
    far = ((slope * d - 5 * slope) * d + 8 * slope) * d - 4 * slope
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _weights(n: Node, mode: str, a: Axis, places: Array) -> Array:
    """How much each old element counts for each new one, [new, old]."""
    slope = n.attr("cubic_coeff_a", -0.75)
    shrink = min(a.scale, 1.0) if n.attr("antialias", 0) else 1.0
    reach = int(np.ceil((1 if mode == "linear" else 2) / shrink)) + 1
    first = np.floor(places).astype(np.int64)
    taps = first[:, None] + np.arange(-reach, reach + 1)
    distances = (taps - places[:, None]) * shrink
    weights = _linear(distances) if mode == "linear" else _cubic(distances, slope)
    if n.attr("exclude_outside", 0):
        weights = np.where((taps >= 0) & (taps < a.old), weights, 0)
    weights = weights / weights.sum(1, keepdims=True)
    n.spend(a.new * a.old)
    out = np.zeros((a.new, a.old))
    np.add.at(out, (np.arange(a.new)[:, None], np.clip(taps, 0, a.old - 1)), weights)
    return out


def _axes_of(n: Node, x: Value, crops: bool) -> dict[int, Axis | OpenAxis]:
    """The axes that change, with what they become."""
    axes = [axis_of(a, x.rank, "axes") for a in n.attr("axes", tuple(range(x.rank)))]
    count = len(axes)
    old: list[Dim] = [x.shape[a] for a in axes]
    whole = [0.0] * count + [1.0] * count
    roi = (n.array(1).reshape(-1).tolist() if crops and n.has(1) else []) or whole
    n.has(1)  # the region of interest, which only cropping looks at
    scales = n.array(2).reshape(-1).astype(np.float64).tolist() if n.has(2) else []
    new = n.dims(3) if n.has(3) else []
    given = len(new) or len(scales)
    if given != count or len(roi) != 2 * count:
        raise ShapeError(f"resize: {count} axes need a size or scale each, found {given}")
    policy = n.attr("keep_aspect_ratio_policy", "stretch")
    if not new and any(isinstance(d, SymDim) for d in old):
        new = [_scaled(d, s) for d, s in zip(old, scales, strict=True)]
    ratios = [_ratio(*sizes) for sizes in zip(old, new, strict=True)] if new else scales
    if new and policy != "stretch":
        known = [_number(old[i]) if r is None else r for i, r in enumerate(ratios)]
        ratios = [min(known) if policy == "not_larger" else max(known)] * count
    found: dict[int, Axis | OpenAxis] = {}
    for i, (axis, ratio) in enumerate(zip(axes, ratios, strict=True)):
        if ratio is None:
            if crops or policy != "stretch":
                _number(old[i])
            found[axis] = OpenAxis(old[i], new[i])
            continue
        ends = roi[i], roi[i + count]
        stays = ratio == 1 and (not new or policy != "stretch" or new[i] == old[i])
        if stays and (not crops or ends == (0, 1)):
            continue
        size = _number(old[i])
        wanted = int(np.floor(size * ratio + (0.5 if new else 0)))
        if new and policy == "stretch":
            wanted = _number(new[i])
        found[axis] = Axis(size, wanted, ratio, *ends)
    return found


def _ratio(old: Dim, new: Dim) -> float | None:
    """What an axis grows by; None where that is known when its sizes are."""
    if old == new:
        return 1.0
    if old == 0:
        raise ShapeError(f"resize: an axis without elements cannot become one of {new}")
    return new / old if isinstance(old, int) and isinstance(new, int) else None


def _scaled(d: Dim, scale: float) -> Dim:
    """What an axis becomes; of a symbolic one a whole multiple, whose places are exact."""
    if isinstance(d, int):
        return int(np.floor(d * scale))
    return d * int(scale) if scale == int(scale) else _number(d)


def _number(d: Dim) -> int:
    if isinstance(d, SymDim):
        raise UnsupportedError(
            f"it resizes along the symbolic dim {d}, and where its elements come from is found"
            " while importing; bind the dim with dims={...}"
        )
    return d


def resize(n: Node) -> Value:
    if n.version < 11:
        return upsample(n)
    x, mode = n[0], n.attr("mode", "nearest")
    coordinates = n.attr("coordinate_transformation_mode", "half_pixel")
    rounding, fill = (
        n.attr("nearest_mode", "round_prefer_floor"),
        n.attr("extrapolation_value", 0.0),
    )
    for name in ("exclude_outside", "cubic_coeff_a", "antialias"):
        n.attr(name, 0)  # of the modes that interpolate
    axes = _axes_of(n, x, coordinates == "tf_crop_and_resize")
    return _resized(n, x, axes, mode, coordinates, rounding, fill)


def _resized(
    n: Node,
    x: Value,
    axes: Mapping[int, Axis | OpenAxis],
    mode: str,
    coordinates: str,
    rounding: str,
    fill: float,
) -> Value:
    if mode not in ("nearest", "linear", "cubic") or rounding not in ROUNDINGS:
        raise UnsupportedError(
            f"its mode is {mode!r} by {rounding!r}; there are nearest, linear and cubic, and"
            f" {', '.join(ROUNDINGS)}"
        )
    if mode != "nearest" and axes and not x.dtype.is_float:
        raise UnsupportedError(f"it interpolates {x.dtype}; cast it to a float type")
    crops = coordinates == "tf_crop_and_resize"
    out = x.cast(f32) if mode != "nearest" and x.dtype.bits < 32 else x
    outside: list[Value] = []
    for axis, a in sorted(axes.items(), key=_growth):
        if isinstance(a, OpenAxis):
            out = _open(n, out, axis, a, mode, coordinates, rounding)
            continue
        if a.new == 0:
            out = pick(out, axis, np.zeros(0, np.int64))
            continue
        places = _places(n, coordinates, a)
        if mode == "nearest":
            out = pick(
                out, axis, np.clip(ROUNDINGS[rounding](places), 0, a.old - 1).astype(np.int64)
            )
        else:
            out = mixed(out, axis, _weights(n, mode, a, places))
        if crops:
            beyond = (places < 0) | (places > a.old - 1)
            outside.append(constant(beyond).reshape([a.new, *[1] * (x.rank - axis - 1)]))
    out = out.cast(x.dtype)
    for beyond in outside:
        out = beyond.where(constant(fill, x.dtype), out)
    return out


def _growth(item: tuple[int, Axis | OpenAxis]) -> tuple[float, int]:
    """What makes less of the elements comes first; of two alike the last, which costs the most an
    element."""
    axis, a = item
    return (a.new / max(a.old, 1) if isinstance(a, Axis) else np.inf, -axis)


def _open(
    n: Node, x: Value, axis: int, a: OpenAxis, mode: str, coordinates: str, rounding: str
) -> Value:
    """An axis whose sizes are known at run time: its places are quotients of integers."""
    if any(n.attr(name, 0) for name in ("antialias", "exclude_outside")):
        _number(a.old if isinstance(a.old, SymDim) else a.new)
    o, old, new = Iota((a.new,), 0, i64).out, as_value(a.old), as_value(a.new)
    kinds = {
        "align_corners": lambda: (o * (old - 1), (new - 1).maximum(1)),
        "asymmetric": lambda: (o * old, new),
        "tf_half_pixel_for_nn": lambda: ((o * 2 + 1) * old, new * 2),
    }
    halves = ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric")
    if coordinates in kinds:
        number, by = kinds[coordinates]()
    elif coordinates in halves:
        number, by = (o * 2 + 1) * old - new, new * 2
        if coordinates == "pytorch_half_pixel":
            number = number * new.gt(1).cast(i64)
    else:
        raise UnsupportedError(
            f"its coordinates are {coordinates!r}; there are {', '.join([*halves, *kinds])}"
        )
    if mode == "nearest":
        return Gather.build(x, _rounded(number, by, rounding), axis, "clip")
    if mode == "cubic" and n.attr("cubic_coeff_a", -0.75) != CUBIC:
        _number(a.old if isinstance(a.old, SymDim) else a.new)
    return interpolated(x, axis, (number, by), linear=mode == "linear")


def _rounded(number: Value, by: Value, rounding: str) -> Value:
    """A quotient of integers as one."""
    if rounding == "floor":
        return FloorDivide(number, by).out
    if rounding == "ceil":
        return -FloorDivide(-number, by).out
    twice = by * 2
    if rounding == "round_prefer_ceil":
        return FloorDivide(number * 2 + by, twice).out
    return -FloorDivide(by - number * 2, twice).out


def upsample(n: Node) -> Value:
    x = n[0]
    scales = n.array(1).tolist() if n.version >= 9 else list(n.need("scales"))
    axes: dict[int, Axis | OpenAxis] = {}
    for i, (old, s) in enumerate(zip(x.shape, scales, strict=True)):
        if isinstance(old, int):
            axes |= {} if s == 1 else {i: Axis(old, int(np.floor(old * s)), s, 0, 1)}
        elif s != 1:
            axes[i] = OpenAxis(old, _scaled(old, s))
    return _resized(n, x, axes, n.attr("mode", "nearest"), "asymmetric", "floor", 0.0)


# -- samples at coordinates ----------------------------------------------------------------


def grid_sample(n: Node) -> Value:
    x, grid = n[0], n[1]
    align, mode = bool(n.attr("align_corners", 0)), n.attr("mode", "linear").removeprefix("bi")
    n.spend(ops={"linear": 2, "cubic": 4}.get(mode, 1) ** (x.rank - 2))
    return sample_grid(x, grid, mode, n.attr("padding_mode", "zeros"), align)


def affine_grid(n: Node) -> Value:
    """The places that an affine map sends those of an image to; an axis of one element has its
    place at -1 with ``align_corners``. ONNX's function for it has nan there, and takes no batch
    of one."""
    theta, (count, _, *sizes) = n[0], n.dims(1)
    align, rank = bool(n.attr("align_corners", 0)), len(sizes)
    counts = {d for d in (count, theta.shape[0]) if isinstance(d, int)}
    if theta.shape[1:] != (rank, rank + 1) or len(counts) > 1:
        raise ShapeError(f"theta must be [{count}, {rank}, {rank + 1}], found {theta.type}")
    columns = [constant(1, theta.dtype).expand(sizes)]
    for axis, size in enumerate(sizes):
        o, d = Iota((size,), 0, i64).out * 2, as_value(size)
        number, by = (o, (d - 1).maximum(1)) if align else (o + 1, d)
        at = number.cast(theta.dtype) / by.cast(theta.dtype) - 1
        columns.insert(0, at.reshape([size, *[1] * (rank - axis - 1)]).expand(sizes))
    points = theta.type.with_shape(sizes).size
    columns = [c.reshape([points, 1]) for c in columns]
    return (concat(columns, 1) @ theta.mT).reshape([theta.shape[0], *sizes, rank])


def col2im(n: Node) -> Value:
    """Columns of blocks added up into the images that they are from."""
    x, image, block = n[0], n.ints(1), n.ints(2)
    rank = len(image)
    strides, dilations = n.attr("strides", (1,) * rank), n.attr("dilations", (1,) * rank)
    pads = n.attr("pads", (0,) * (2 * rank))
    low, high = pads[:rank], pads[rank:]
    places = 1
    for d, lo, hi, taps, stride, dilation in zip(
        image, low, high, block, strides, dilations, strict=True
    ):
        count = (d + lo + hi - (taps - 1) * dilation - 1) // stride + 1
        places *= max(taps, 1) * max(count, 1)
        n.spend(places)
    return image_of_columns(x, image, block, strides, dilations, low, high)


ROWS: Rows = {
    "AffineGrid": affine_grid,
    "Col2Im": col2im,
    "GridSample": grid_sample,
    "Resize": resize,
    "Upsample": upsample,
}
