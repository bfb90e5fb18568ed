"""Rasterization of 2-D Gaussians: blending front to back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from rlx.errors import DTypeError, ShapeError, UnsupportedError
from rlx.ops.base import Array, attr, bad, operand, sample
from rlx.ops.gaussians import BATCH, DATA, LEAST_TRANSMITTANCE, NONE, SAMPLE, Gaussians2D
from rlx.ops.movement import zeros
from rlx.ops.rasterize_grad import RasterizeGaussiansGrad
from rlx.ops.value import Value
from rlx.types import TensorType, bool_, i32

__all__ = ["RasterizeGaussians"]

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
    # No second derivatives, which generated tests would ask for; ``test_splat`` has the first.
    samples = (
        sample(*SAMPLE, grad=False, data=DATA, width=3, height=18),
        sample(*BATCH, grad=False, data=DATA, width=17, height=2),
        sample(*NONE, grad=False, width=2, height=1),
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
        live = np.ones(left.shape, bool)
        for n, where, (*_, alpha, found) in self.squares(means, conics, opacities, radii):
            after = left[where] * (1 - alpha)
            seen = found & live[where]
            full = seen & (after < LEAST_TRANSMITTANCE)
            live[where] &= ~full
            seen ^= full
            share = np.where(seen, alpha * left[where], 0)
            image[where] += np.where(seen[..., None], share[..., None] * colors[n], 0)
            left[where] = np.where(seen, after, left[where])
            last[where] = np.where(seen, n + 1, last[where])

    def loops(self, b: Any) -> None:
        outer, n, channels = self.check()
        dt = self.means.dtype
        image, left, last = (b.result(i) for i in range(3))
        live = b.workspace(last.type.static_shape, bool_)
        k = b.k

        def tile(*place: Any) -> None:
            at, bounds = place[:-2], self.tile(k, *place[-2:])

            def start(y: Any, x: Any) -> None:
                b.write(left, [*at, y, x], b.const(1, dt))
                b.write(last, [*at, y, x], b.const(0, i32))
                b.write(live, [*at, y, x], b.const(True, bool_))
                b.loop(channels, lambda c: b.write(image, [*at, y, x, c], b.const(0, dt)))

            def step(i: Any, count: Any) -> tuple[Any, Any]:
                hit, covered = self.covered(b, [*at, i], bounds)

                def blend() -> Any:
                    shape = self.shape_of(b, [*at, i])

                    def pixel(y: Any, x: Any, count: Any) -> Any:
                        *_, alpha, seen = self.blending(b, shape, y, x)
                        seen = seen & b.read(live, [*at, y, x])
                        return k.when(
                            seen, lambda: add(y, x, alpha, count), lambda: count, [count]
                        )[0]

                    return self.pixels(b, covered, pixel, [count])

                def add(y: Any, x: Any, alpha: Any, count: Any) -> Any:
                    here = [*at, y, x]
                    before = b.read(left, here)
                    after = before * (1.0 - alpha)

                    def full() -> Any:
                        b.write(live, here, b.const(False, bool_))
                        return count - 1

                    def more() -> Any:
                        share = alpha * before
                        b.loop(channels, lambda c: b.write(
                            image, [*here, c],
                            b.read(image, [*here, c]) + share * b.load(2, [*at, i, c]),
                        ))  # fmt: skip
                        b.write(left, here, after)
                        b.write(last, here, b.convert(i + 1, i32))
                        return count

                    return k.when(after < LEAST_TRANSMITTANCE, full, more, [count])[0]

                return i + 1, k.when(hit, blend, lambda: count, [count])[0]

            self.pixels(b, bounds, start)
            y0, y1, x0, x1 = bounds
            k.repeat(
                lambda i, count: (i < n) & (count > 0), step, [k.index(0), (y1 - y0) * (x1 - x0)]
            )

        b.parallel((*outer, *self.tiles), tile)

    def vjp(self, *cotangents: Value | None) -> tuple[Value | None, ...]:
        if cotangents[0] is None and cotangents[1] is None:
            return (None,) * 5
        g, gt = (
            zeros(v.shape, v.dtype) if c is None else c
            for c, v in zip(cotangents[:2], self.results[:2], strict=True)
        )
        parts = RasterizeGaussiansGrad(
            *self.operands, *self.results[1:], g, gt, self.width, self.height
        ).out
        packed = parts.sum(axes=parts.rank - 3)
        means, conics, opacities, colors = (
            packed[..., i:j] for i, j in ((0, 2), (2, 5), (5, 6), (6, packed.shape[-1]))
        )
        return means, conics, colors, opacities.reshape(self.opacities.shape), None

    def jvp(self, *tangents: Value | None) -> Any:
        raise UnsupportedError(
            "rasterize_gaussians has no forward derivative (jvp); it has a reverse one (vjp)"
        )
