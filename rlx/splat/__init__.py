"""Gaussian splatting: images of scenes that are clouds of soft ellipsoids, with derivatives.

    camera = rlx.splat.Camera(view, fx=500, fy=500, cx=320, cy=240, width=640, height=480)
    colors, alpha = rlx.splat.render(means, log_scales, rotations, logits, sh, camera)

The method is Kerbl, Kopanas, Leimkuehler and Drettakis, "3D Gaussian Splatting for Real-Time
Radiance Field Rendering", 2023, on the projection of Zwicker et al., "EWA Volume Splatting", 2001.
Where the INRIA code and gsplat differ, a docstring says which is followed. ``prepare`` is made of
ordinary ops; ``rasterize`` sorts by depth and is one op, with one more for its gradient. A
``Scene`` is what files hold: ``read_ply`` and ``write_ply`` for Gaussians, ``read_colmap`` for what
a training begins from.
"""

from __future__ import annotations

from typing import Any

from rlx.errors import GraphError, ShapeError, a_type
from rlx.ir.builders import located
from rlx.ir.lift import lift
from rlx.ir.value import Value
from rlx.ops.splat.rasterize import RasterizeGaussians
from rlx.splat.camera import Camera
from rlx.splat.colmap import (
    ColmapCamera,
    ColmapImage,
    Reconstruction,
    read_colmap,
    write_colmap,
)
from rlx.splat.harmonics import from_harmonics
from rlx.splat.parity import Agreement, agreement, make_parity_scene
from rlx.splat.project import Projected, project
from rlx.splat.scene import Points, Scene, read_ply, read_points, scene_of_points, write_ply

__all__ = [
    "Agreement",
    "Camera",
    "ColmapCamera",
    "ColmapImage",
    "Points",
    "Projected",
    "Reconstruction",
    "Scene",
    "agreement",
    "from_harmonics",
    "make_parity_scene",
    "prepare",
    "rasterize",
    "read_colmap",
    "read_ply",
    "read_points",
    "render",
    "scene_of_points",
    "write_colmap",
    "write_ply",
]


@located
def prepare(
    means: Value,
    log_scales: Value,
    rotations: Value,
    opacity_logits: Value,
    colors: Value,
    camera: Camera,
    *,
    near: float = 0.01,
    blur: float = 0.3,
) -> Projected:
    """The Gaussians of a scene as ``camera`` sees them, in the order given.

    ``means`` [N, 3] in the world, ``log_scales`` [N, 3] (the standard deviations are their
    exponentials), ``rotations`` [N, 4] (quaternions x, y, z, w, of any length), ``opacity_logits``
    [N] (a sigmoid makes them opacities) and ``colors``: [N, C] as they are, or [N, K, 3], the
    coefficients of spherical harmonics for K of 1, 4, 9 or 16, which ``from_harmonics`` evaluates
    towards each Gaussian. All are f32, or all f64.

    ``blur`` is added to the variances on the image, in square pixels. As in gsplat, what is nearer
    than ``near`` is culled, the slope that the projection is linearised at stays within the image
    and 15 % of its width beyond each side, and the radius is 3.33 standard deviations, where the
    alpha of any Gaussian has fallen to 1/255. Culled ones have the radius 0: those that
    are not beyond ``near`` or outside the image, those of an opacity below 1/255, and those whose
    quaternion has a length of 0 or one whose square overflows.
    """
    return project(
        means, log_scales, rotations, opacity_logits, colors, camera, near=near, blur=blur
    )


@located
def rasterize(
    projected: Projected, width: int, height: int, *, background: Any = None
) -> tuple[Value, Value]:
    """The image of projected Gaussians: colors [height, width, C] and alpha [height, width].

    They are sorted by depth, of equal depths the first given in front, and blended front to back
    as ``mir.rasterize_gaussians`` says, which are the rules of INRIA's rasterizer. Colors are
    linear and premultiplied by alpha; ``background`` (C numbers or a Value [C]; black unless given)
    fills what the Gaussians let through. It has first derivatives, forwards and backwards, for
    which order and radii are constants; a second one is an UnsupportedError.
    """
    if not isinstance(projected, Projected):
        raise GraphError(
            f"splat.rasterize takes what splat.prepare gives, found {a_type(projected)}"
        )
    depths, radii = projected.depths, projected.radii
    if depths.rank != 1 or depths.shape != radii.shape:
        raise ShapeError(
            f"splat.rasterize: depths is {depths.type} and radii is {radii.type}, expected [N]"
        )
    order = (radii > 0).where(depths, float("inf")).argsort()
    parts = projected.means, projected.conics, projected.colors, projected.opacities, radii
    nearest_first = [v.gather(order) for v in parts]
    colors, left, _ = RasterizeGaussians.build(*nearest_first, width=width, height=height)
    if background is not None:
        fill = lift(background, colors).cast(to=colors.dtype)
        if fill.shape != colors.shape[-1:]:
            raise ShapeError(
                f"splat.rasterize: background is {fill.type}, expected"
                f" {colors.type.with_shape(colors.shape[-1:])}"
            )
        colors = colors + left.unsqueeze(-1) * fill
    return colors, 1 - left


@located
def render(
    means: Value,
    log_scales: Value,
    rotations: Value,
    opacity_logits: Value,
    colors: Value,
    camera: Camera,
    *,
    background: Any = None,
    near: float = 0.01,
    blur: float = 0.3,
) -> tuple[Value, Value]:
    """``rasterize`` of ``prepare``: colors [height, width, C] and alpha [height, width]."""
    projected = project(
        means, log_scales, rotations, opacity_logits, colors, camera, near=near, blur=blur
    )
    return rasterize(projected, camera.width, camera.height, background=background)
