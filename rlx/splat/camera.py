"""Pinhole cameras."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.ir.builders import located, public
from rlx.ir.value import Value
from rlx.ops.movement.constant import Constant
from rlx.splat.reals import reals

__all__ = ["Camera"]


@public
@dataclass(frozen=True, init=False)
class Camera:
    """A pinhole camera: where it stands, its intrinsics in pixels, and the size of its image.

    ``view`` [4, 4] takes points of the world to points before the camera, x to the right, y down,
    z ahead (OpenCV's and COLMAP's axes, and gsplat's ``viewmats``); a Value, to have its gradient,
    or an array. A point is seen at ``(fx x / z + cx, fy y / z + cy)``, and the centre of the first
    pixel is at (0.5, 0.5).
    """

    view: Any
    fx: float
    fy: float
    cx: float
    cy: float
    width: int
    height: int

    # Written out, since errors name the nearest line that is not ours, and in an ``__init__`` that
    # ``dataclass`` makes that is a line of no file.
    @located
    def __init__(
        self, view: Any, fx: float, fy: float, cx: float, cy: float, width: int, height: int
    ) -> None:
        given = {
            "view": view, "fx": fx, "fy": fy, "cx": cx, "cy": cy, "width": width, "height": height,
        }  # fmt: skip
        for name, v in given.items():
            object.__setattr__(self, name, v)
        self._check()

    def _check(self) -> None:
        view = self.view if isinstance(self.view, Value) else reals(self.view, "Camera: view")
        if view.shape != (4, 4):
            raise ShapeError(f"Camera: view has shape {list(view.shape)}, expected [4, 4]")
        for name in ("fx", "fy", "cx", "cy"):
            v = getattr(self, name)
            if not isinstance(v, int | float | np.floating | np.integer) or not math.isfinite(v):
                raise GraphError(f"Camera: {name} is {v!r}, expected a finite number of pixels")
            if name[0] == "f" and v <= 0:
                raise GraphError(f"Camera: the focal length {name} is {v!r}, expected it positive")
        for name in ("width", "height"):
            v = getattr(self, name)
            if not isinstance(v, int | np.integer) or isinstance(v, bool) or v < 1:
                raise GraphError(f"Camera: {name} is {v!r}, expected a positive whole number")

    def view_as(self, like: Value) -> Value:
        """The matrix as a Value of the element type of another."""
        if not isinstance(self.view, Value):
            return Constant(reals(self.view, "Camera: view", like.dtype.numpy)).out
        if self.view.dtype is not like.dtype:
            raise DTypeError(
                f"Camera: view is {self.view.type}, but the Gaussians are of {like.dtype}; cast it"
            )
        return self.view
