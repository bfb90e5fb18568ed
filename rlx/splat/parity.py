"""A scene that is the same everywhere, and how much two images of it agree.

For comparing targets, precisions and other renderers: everybody who calls this gets the same
numbers, which no random generator of a library decides.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.base.frozen import frozen
from rlx.errors import GraphError, ShapeError
from rlx.ir.builders import located
from rlx.splat.camera import Camera
from rlx.splat.harmonics import DEGREES
from rlx.splat.reals import reals
from rlx.splat.scene import Scene

__all__ = ["Agreement", "agreement", "make_parity_scene"]

PLASTIC = 1.2207440846057596
"""The root of x⁴ = x + 1, whose powers give sequences that fill a cube evenly (Roberts 2018)."""


@frozen
class Agreement:
    """Of two images: the cosine of the angle between them as vectors, the greatest difference, and
    the peak signal-to-noise ratio in decibels, for colors of 0 to 1."""

    cosine: float
    max_abs: float
    psnr: float


@located
def make_parity_scene(
    count: int = 64, *, degree: int = 0, width: int = 64, height: int = 48
) -> tuple[Scene, Camera]:
    """So many Gaussians of harmonics of a degree before a camera, from a sequence of low
    discrepancy. GraphError for a count below 1, ShapeError for a degree that is not 0 to 3."""
    if count < 1:
        raise GraphError(f"make_parity_scene: count is 1 or more, found {count}")
    coefficients = (degree + 1) ** 2
    if degree < 0 or coefficients not in DEGREES:
        raise ShapeError(f"make_parity_scene: the degree is 0 to 3, found {degree}")
    columns = 11 + 3 * coefficients
    steps = PLASTIC ** -(1.0 + np.arange(columns) % 3) * (1 + np.arange(columns) // 3)
    u = (0.5 + np.arange(1, count + 1)[:, None] * steps) % 1.0
    means = u[:, :3] * [3.0, 2.2, 3.0] + [-1.5, -1.1, 2.5]
    colors = (u[:, 11:] - 0.5).reshape(count, coefficients, 3)
    colors[:, 1:] *= 0.2
    scene = Scene(means, u[:, 3:6] * 1.5 - 2.8, u[:, 6:10] * 2 - 1, u[:, 10] * 4 - 1, colors * 2)
    camera = Camera(np.eye(4), 0.9 * width, 0.9 * width, width / 2, height / 2, width, height)
    return scene, camera


@located
def agreement(a: Any, b: Any) -> Agreement:
    """How much two images of one shape agree; ShapeError for others, DTypeError for what holds no
    real numbers."""
    x, y = (reals(v, "agreement", np.float64) for v in (a, b))
    if x.shape != y.shape or not x.size:
        raise ShapeError(f"agreement takes two images, found {list(x.shape)} and {list(y.shape)}")
    lengths = np.linalg.norm(x) * np.linalg.norm(y)
    cosine = float((x * y).sum() / lengths) if lengths else float(not (x - y).any())
    square = float(((x - y) ** 2).mean())
    psnr = float("inf") if square == 0 else -10 * float(np.log10(square))
    return Agreement(cosine, float(np.abs(x - y).max()), psnr)
