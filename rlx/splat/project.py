"""The projection of Gaussians in space to Gaussians on an image."""

from __future__ import annotations

from typing import NamedTuple

from rlx.errors import DTypeError, GraphError, ShapeError, a_type
from rlx.ir.value import Value
from rlx.ops.splat.gaussians import LEAST_ALPHA
from rlx.ops.sugar import concat
from rlx.splat.camera import Camera
from rlx.splat.harmonics import from_harmonics
from rlx.types import f32, f64, i32

__all__ = ["Projected", "project"]

REACH = 3.33
"""Standard deviations after which an alpha is below 1/255, whatever the opacity."""

BEYOND = 0.15
"""The share of the image's size, beyond each side, that slopes are clamped to."""


class Projected(NamedTuple):
    """Gaussians on an image: what ``prepare`` gives and ``rasterize`` takes."""

    means: Value
    """[N, 2], x and y in pixels."""
    conics: Value
    """[N, 3], the inverse covariances as xx, xy, yy, in 1 / square pixels."""
    depths: Value
    """[N], z before the camera."""
    radii: Value
    """[N], i32 pixels, 0 for what is culled."""
    colors: Value
    """[N, C]"""
    opacities: Value
    """[N], in [0, 1]."""


def project(
    means: Value,
    log_scales: Value,
    rotations: Value,
    opacity_logits: Value,
    colors: Value,
    camera: Camera,
    *,
    near: float,
    blur: float,
) -> Projected:
    """See ``rlx.splat.prepare``.

    What is culled goes on with numbers that are harmless, so that no gradient becomes nan while
    all parameters are finite.
    """
    _check(means, log_scales, rotations, opacity_logits, colors)
    if not isinstance(camera, Camera):
        raise GraphError(f"splat.prepare: camera is {a_type(camera)}, expected a splat.Camera")
    if near <= 0 or blur < 0:
        raise GraphError(
            f"splat.prepare takes a positive near and a blur of 0 or more, found {near} and {blur}"
        )
    view = camera.view_as(means)
    turn, shift = view[:3, :3], view[:3, 3]
    before = means @ turn.T + shift
    depths = before[:, 2]
    seen = depths > near
    z = seen.where(depths, 1.0)
    slopes = before[:, 0] / z, before[:, 1] / z
    x, y = slopes[0] * camera.fx + camera.cx, slopes[1] * camera.fy + camera.cy

    turned, rotates = _matrices(rotations)
    axes = (turn @ turned) * log_scales.exp().unsqueeze(1)
    xx, xy, yy = _covariance(axes, slopes, z, camera)
    xx, yy = xx + blur, yy + blur
    det = xx * yy - xy * xy
    opacities = opacity_logits.sigmoid()
    middle = (xx + yy) * 0.5
    longest = middle + (middle * middle - det).relu().sqrt()
    reach = -((longest.sqrt() * -REACH).floor())
    for part in (
        rotates, det > 0, opacities >= LEAST_ALPHA,
        x + reach > 0, x - reach < camera.width, y + reach > 0, y - reach < camera.height,
    ):  # fmt: skip
        seen = seen.logical_and(part)
    det = (det > 0).where(det, 1.0)
    return Projected(
        _stack(x, y),
        _stack(yy / det, -xy / det, xx / det),
        depths,
        seen.where(reach, 0.0).cast(to=i32),
        _colors(colors, means, turn, shift),
        opacities,
    )


def _check(means: Value, scales: Value, rotations: Value, logits: Value, colors: Value) -> None:
    given = {
        "means": means, "log_scales": scales, "rotations": rotations, "opacity_logits": logits,
        "colors": colors,
    }  # fmt: skip
    for name, v in given.items():
        if not isinstance(v, Value):
            raise GraphError(
                f"splat.prepare: {name} is {a_type(v)}, expected a Value: an input or a"
                " param of a graph"
            )
    if means.dtype not in (f32, f64):
        raise DTypeError(f"splat.prepare takes f32 or f64, found {means.dtype}; cast the Gaussians")
    if means.rank != 2 or means.shape[1] != 3:
        raise ShapeError(f"splat.prepare: means is {means.type}, expected [N, 3]")
    n = means.shape[0]
    shapes = (n, 3), (n, 3), (n, 4), (n,), (n, *colors.shape[1:])
    for (name, v), shape in zip(given.items(), shapes, strict=True):
        if v.dtype is not means.dtype:
            raise DTypeError(
                f"splat.prepare: {name} is {v.type}, but means is {means.type}; cast one of them"
            )
        if v.shape != shape:
            raise ShapeError(
                f"splat.prepare: {name} is {v.type}, expected {means.type.with_shape(shape)}"
            )
    if colors.rank not in (2, 3):
        raise ShapeError(
            f"splat.prepare: colors is {colors.type}, expected [{n}, C], or [{n}, K, 3] for"
            " spherical harmonics"
        )


def _stack(*columns: Value) -> Value:
    """Vectors as the columns of a matrix."""
    return concat([c.unsqueeze(-1) for c in columns], axis=1)


def _matrices(rotations: Value) -> tuple[Value, Value]:
    """The matrices [N, 3, 3] of quaternions x, y, z, w, and whether they are any: the
    square of the length is then positive and finite."""
    square = (rotations * rotations).sum(axes=1)
    proper = (square > 0).logical_and(square < float("inf"))
    length = proper.where(square, 1.0).sqrt()
    x, y, z, w = (rotations[:, i] / length for i in range(4))
    columns = [
        1 - (y * y + z * z) * 2, (x * y - w * z) * 2, (x * z + w * y) * 2,
        (x * y + w * z) * 2, 1 - (x * x + z * z) * 2, (y * z - w * x) * 2,
        (x * z - w * y) * 2, (y * z + w * x) * 2, 1 - (x * x + y * y) * 2,
    ]  # fmt: skip
    return _stack(*columns).reshape([rotations.shape[0], 3, 3]), proper


def _covariance(
    axes: Value, slopes: tuple[Value, Value], z: Value, camera: Camera
) -> tuple[Value, Value, Value]:
    """The covariance on the image: that of ``J axes``, where the columns of ``axes`` [N, 3, 3] are
    an ellipsoid's half axes before the camera, and J is the projection's derivative at its centre.
    """
    rows: list[Value] = []
    for i, (focal, centre, size) in enumerate((
        (camera.fx, camera.cx, camera.width), (camera.fy, camera.cy, camera.height),
    )):  # fmt: skip
        low, high = -centre - BEYOND * size, size - centre + BEYOND * size
        slope = slopes[i].maximum(low / focal).minimum(high / focal)
        rows.append((axes[:, i] - slope.unsqueeze(-1) * axes[:, 2]) * (focal / z).unsqueeze(-1))
    x, y = rows
    return (x * x).sum(axes=1), (x * y).sum(axes=1), (y * y).sum(axes=1)


def _colors(colors: Value, means: Value, turn: Value, shift: Value) -> Value:
    if colors.rank == 2:
        return colors
    # The camera stands where the view takes the point to 0; it does not scale.
    away = means + shift @ turn
    square = (away * away).sum(axes=1, keepdims=True)
    length = (square > 0).where(square, 1.0).sqrt()
    return from_harmonics(colors, away / length)
