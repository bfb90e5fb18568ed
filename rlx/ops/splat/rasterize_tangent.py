"""The forward derivative of the rasterization of 2-D Gaussians."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NoReturn

import numpy as np

from rlx.errors import DTypeError, ShapeError
from rlx.ir.op import Array, attr, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.splat.gaussians import BATCH, DATA, NONE, SAMPLE, Gaussians2D, no_second_derivative
from rlx.types import TensorType

__all__ = ["RasterizeGaussiansTangent"]


class RasterizeGaussiansTangent(Gaussians2D, name="mir.rasterize_gaussians_tangent"):
    """The directional derivative of ``rasterize_gaussians``: of its colors and transmittance.

    The same walk from front to back, along which the derivative of the transmittance is carried
    too. Its own derivatives are refused.
    """

    means: Value = operand("those of rasterize_gaussians")
    conics: Value = operand("those of rasterize_gaussians")
    colors: Value = operand("those of rasterize_gaussians")
    opacities: Value = operand("those of rasterize_gaussians")
    radii: Value = operand("those of rasterize_gaussians")
    tmeans: Value = operand("the tangent of the means")
    tconics: Value = operand("the tangent of the conics")
    tcolors: Value = operand("the tangent of the colors")
    topacities: Value = operand("the tangent of the opacities")
    width: int = attr(doc="the image's width in pixels")
    height: int = attr(doc="the image's height in pixels")

    result_count: ClassVar[int] = 2
    samples = (
        sample(*SAMPLE, *SAMPLE[:4], derivatives=0, data=DATA, width=3, height=18),
        sample(*BATCH, *BATCH[:4], derivatives=0, data=DATA, width=17, height=2),
        sample(*NONE, *NONE[:4], derivatives=0, width=2, height=1),
    )
    bads = (
        bad("5x2xf32", "5x3xf32", "5x3xf32", "5xf32", "5xi32", "5x2xf32", "5x3xf32", "5x2xf32",
            "5xf32", match="tcolors is", error=ShapeError, width=4, height=4),
        bad("5x2xf32", "5x3xf32", "5x3xf32", "5xf32", "5xi32", "5x2xf64", "5x3xf32", "5x3xf32",
            "5xf32", match="tmeans is", error=DTypeError, width=4, height=4),
    )  # fmt: skip

    def infer(self) -> tuple[TensorType, TensorType]:
        outer, _, channels = self.check()
        image, dt = (*outer, self.height, self.width), self.means.dtype
        for name in ("means", "conics", "colors", "opacities"):
            self.expect(f"t{name}", dt, getattr(self, name).shape)
        return TensorType((*image, channels), dt), TensorType(image, dt)

    def reference(self, *arrays: Array) -> tuple[Array, ...]:
        out = tuple(np.zeros(v.type.static_shape, v.dtype.numpy) for v in self.results)
        for at in np.ndindex(*out[0].shape[:-3]):
            self._image([a[at] for a in arrays], [a[at] for a in out])
        return out

    def _image(self, arrays: Sequence[Array], out: Sequence[Array]) -> None:
        means, conics, colors, opacities, radii, tmeans, tconics, tcolors, topacities = arrays
        image, tleft = out
        walk = self.blended(np.ones_like(tleft), means, conics, opacities, radii)
        for n, where, shape, (dx, dy, weight, raw, alpha, seen), before in walk:
            ways = zip(shape.slopes(dx, dy), (*tmeans[n], *tconics[n]), strict=True)
            steep = topacities[n] * weight - raw * sum(s * t for s, t in ways)
            talpha = np.where(raw > alpha, 0, steep)
            tshare = talpha * before + alpha * tleft[where]
            new = tshare[..., None] * colors[n] + (alpha * before)[..., None] * tcolors[n]
            image[where] += np.where(seen[..., None], new, 0)
            later = tleft[where] * (1 - alpha) - before * talpha
            tleft[where] = np.where(seen, later, tleft[where])

    def loops(self, b: Any) -> None:
        dt, channels = self.means.dtype, self.colors.type.static_shape[-1]
        image, tleft = b.result(0), b.result(1)
        left = b.workspace(tleft.type.static_shape, dt)

        def start(here: Any) -> None:
            b.write(tleft, here, b.const(0, dt))
            b.loop(channels, lambda c: b.write(image, [*here, c], b.const(0, dt)))

        def add(here: Any, i: Any, shape: Any, blend: Any, before: Any) -> None:
            at = [*here[:-2], i]
            dx, dy, weight, raw, alpha, _ = blend
            tangents = [b.load(n, [*at, c]) for n, c in ((5, 0), (5, 1), (6, 0), (6, 1), (6, 2))]
            falling = b.const(0, dt)
            for slope, t in zip(shape.slopes(dx, dy), tangents, strict=True):
                falling = falling + slope * t
            steep = b.load(8, at) * weight - raw * falling
            talpha = b.k.select(raw > alpha, 0.0, steep)
            before_t = b.read(tleft, here)
            tshare, share = talpha * before + alpha * before_t, alpha * before

            def channel(c: Any) -> None:
                new = tshare * b.load(2, [*at, c]) + share * b.load(7, [*at, c])
                b.write(image, [*here, c], b.read(image, [*here, c]) + new)

            b.loop(channels, channel)
            b.write(tleft, here, before_t * (1.0 - alpha) - before * talpha)

        self.front_to_back(b, left, start, add)

    def vjp(self, *cotangents: Value | None) -> NoReturn:
        raise no_second_derivative()

    def jvp(self, *tangents: Value | None) -> NoReturn:
        raise no_second_derivative()
