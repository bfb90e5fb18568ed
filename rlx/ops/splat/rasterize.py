"""Rasterization of 2-D Gaussians: blending front to back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NoReturn

import numpy as np

from rlx.errors import DTypeError, ShapeError
from rlx.ir.op import Array, attr, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.movement.movement import zeros
from rlx.ops.splat.gaussians import BATCH, DATA, NONE, SAMPLE, Gaussians2D, no_second_derivative
from rlx.ops.splat.rasterize_grad import RasterizeGaussiansGrad
from rlx.types import TensorType, i32

__all__ = ["RasterizeGaussians", "RasterizeGaussiansTangent"]


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


_BADS: tuple[tuple[tuple[str, ...], str, type[Any], dict[str, int]], ...] = (
    (("5x2xf16", "5x3xf16", "5x3xf16", "5xf16", "5xi32"), "takes f32 or f64", DTypeError, {}),
    (("5x3xf32", "5x3xf32", "5x3xf32", "5xf32", "5xi32"), r"expected \[..., N, 2\]",
     ShapeError, {}),
    (("5x2xf32", "5x2xf32", "5x3xf32", "5xf32", "5xi32"), "conics is", ShapeError, {}),
    (("5x2xf32", "5x3xf32", "5xf32", "5xf32", "5xi32"), "colors is", ShapeError, {}),
    (("5x2xf32", "5x3xf32", "5x3xf32", "4xf32", "5xi32"), "opacities is", ShapeError, {}),
    (("5x2xf32", "5x3xf32", "5x3xf32", "5xf64", "5xi32"), "cast it first", DTypeError, {}),
    (("5x2xf32", "5x3xf32", "5x3xf32", "5xf32", "5xf32"), "radii is", DTypeError, {}),
    (("5x2xf32", "5x3xf32", "5x3xf32", "5xf32", "5xi32"), "has none", ShapeError, {"width": 0}),
)  # fmt: skip


class RasterizeGaussians(Gaussians2D, name="mir.rasterize_gaussians"):
    """Gaussians in the plane of an image, nearest first, blended front to back for every pixel.

    The blending of Kerbl et al. 2023, as the INRIA rasterizer and gsplat do it: of a Gaussian the
    alpha at a pixel is ``min(0.99, opacity * exp(-d' conic d / 2))`` for the way d from the pixel's
    centre (x + 0.5, y + 0.5) to the mean; one below 1/255 is left out, and one that would leave
    less than 1e-4 of transmittance ends the pixel, without being blended. A Gaussian of radius 0
    is left out everywhere, and no other is looked at beyond ``radius`` pixels along x or y.

    Results: the colors ``[..., height, width, C]`` before any background, the transmittance
    ``[..., height, width]`` that is left for it, and the number of the last Gaussian blended,
    counted from 1, an i32. ``rlx.splat`` has the projection that comes before, and the order.
    """

    means: Value = operand("the means [..., N, 2] as x and y, in pixels")
    conics: Value = operand("the inverse covariances [..., N, 3], as xx, xy, yy")
    colors: Value = operand("the colors [..., N, C]")
    opacities: Value = operand("the opacities [..., N], in [0, 1]")
    radii: Value = operand("how far each is looked at [..., N], i32 pixels")
    width: int = attr(doc="the image's width in pixels")
    height: int = attr(doc="the image's height in pixels")

    result_count: ClassVar[int] = 3
    samples = (
        sample(*SAMPLE, derivatives=1, data=DATA, width=3, height=18),
        sample(*BATCH, derivatives=1, data=DATA, width=17, height=2),
        sample(*NONE, derivatives=1, width=2, height=1),
    )
    bads = tuple(
        bad(*types, match=match, error=error, **{"width": 4, "height": 4, **attrs})
        for types, match, error, attrs in _BADS
    )

    def infer(self) -> tuple[TensorType, TensorType, TensorType]:
        outer, _, channels = self.check()
        image, dt = (*outer, self.height, self.width), self.means.dtype
        return (
            TensorType((*image, channels), dt),
            TensorType(image, dt),
            TensorType(image, i32),
        )

    def reference(self, *arrays: Array) -> tuple[Array, ...]:
        out = tuple(np.zeros(v.type.static_shape, v.dtype.numpy) for v in self.results)
        for at in np.ndindex(*out[0].shape[:-3]):
            self._image([a[at] for a in arrays], [a[at] for a in out])
        return out

    def _image(self, arrays: Sequence[Array], out: Sequence[Array]) -> None:
        means, conics, colors, opacities, radii = arrays
        image, left, last = out
        left[...] = 1
        walk = self.blended(left, means, conics, opacities, radii)
        for n, where, _, blend, before in walk:
            share = np.where(blend.seen, blend.alpha * before, 0)[..., None]
            image[where] += np.where(blend.seen[..., None], share * colors[n], 0)
            last[where] = np.where(blend.seen, n + 1, last[where])

    def loops(self, b: Any) -> None:
        channels = self.colors.type.static_shape[-1]
        image, left, last = (b.result(i) for i in range(3))

        def start(here: Any) -> None:
            b.write(last, here, b.const(0, i32))
            b.loop(channels, lambda c: b.write(image, [*here, c], b.const(0, self.means.dtype)))

        def add(here: Any, i: Any, _: Any, blend: Any, before: Any) -> None:
            share = blend.alpha * before

            def channel(c: Any) -> None:
                color = b.load(2, [*here[:-2], i, c])
                b.write(image, [*here, c], b.read(image, [*here, c]) + share * color)

            b.loop(channels, channel)
            b.write(last, here, b.convert(i + 1, i32))

        self.front_to_back(b, left, start, add)

    def vjp(self, *cotangents: Value | None) -> tuple[Value | None, ...]:
        if cotangents[0] is None and cotangents[1] is None:
            return (None,) * 5
        g, gt = (
            zeros(v.shape, v.dtype) if c is None else c
            for c, v in zip(cotangents[:2], self.results[:2], strict=True)
        )
        parts = RasterizeGaussiansGrad(
            *self.gaussians, left=self.results[1], last=self.results[2], g=g, gt=gt, **self.attrs
        ).out
        packed = parts.sum(axes=parts.rank - 3)
        means, conics, opacities, colors = (
            packed[..., i:j] for i, j in ((0, 2), (2, 5), (5, 6), (6, packed.shape[-1]))
        )
        return means, conics, colors, opacities.reshape(self.opacities.shape), None

    def jvp(self, *tangents: Value | None) -> tuple[Value, Value, None]:
        means, conics, colors, opacities = (
            zeros(v.shape, v.dtype) if t is None else t
            for t, v in zip(tangents[:4], self.gaussians[:4], strict=True)
        )
        node = RasterizeGaussiansTangent(
            *self.gaussians, means, conics, colors, opacities, **self.attrs
        )
        return node.results[0], node.results[1], None
