"""The adjoint of the rasterization of 2-D Gaussians."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from rlx.errors import DTypeError, ShapeError
from rlx.ir.op import Array, attr, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.splat.gaussians import (
    BATCH,
    DATA,
    NONE,
    SAMPLE,
    TILE,
    Gaussians2D,
    no_second_derivative,
)
from rlx.types import TensorType, i32

__all__ = ["RasterizeGaussiansGrad"]

PARTS = 16
"""The rows of tiles are dealt to so many parts at most, each of which is added up by itself."""


class RasterizeGaussiansGrad(Gaussians2D, name="mir.rasterize_gaussians_grad"):
    """The gradients of ``rasterize_gaussians`` in parts, which are to be added up.

    The result is ``[..., parts, N, 6 + C]``: of the means (2), conics (3), opacity (1) and colors
    (C). A pixel goes back from its last Gaussian to the first, and finds the transmittance before
    each by division. Its own derivatives are refused.
    """

    means: Value = operand("those of rasterize_gaussians")
    conics: Value = operand("those of rasterize_gaussians")
    colors: Value = operand("those of rasterize_gaussians")
    opacities: Value = operand("those of rasterize_gaussians")
    radii: Value = operand("those of rasterize_gaussians")
    left: Value = operand("its second result, the transmittance")
    last: Value = operand("its third result, the number of the last Gaussian")
    g: Value = operand("the cotangent of its colors")
    gt: Value = operand("the cotangent of its transmittance")
    width: int = attr(doc="the image's width in pixels")
    height: int = attr(doc="the image's height in pixels")

    samples = (
        sample(*SAMPLE, "18x3xT", "18x3xi32", "18x3x3xT", "18x3xT",
               derivatives=0, data={**DATA, 5: "positive", 6: "index:6"}, width=3, height=18),
        sample(*BATCH, "2x2x17xT", "2x2x17xi32", "2x2x17x1xT", "2x2x17xT",
               derivatives=0, data={**DATA, 5: "positive", 6: "index:4"}, width=17, height=2),
        sample(*NONE, "1x2xT", "1x2xi32", "1x2x3xT", "1x2xT",
               derivatives=0, width=2, height=1),
    )  # fmt: skip
    bads = (
        bad("5x2xf32", "5x3xf32", "5x3xf32", "5xf32", "5xi32", "4x4xf32", "4x4xi32", "4x4x2xf32",
            "4x4xf32", match="g is", error=ShapeError, width=4, height=4),
        bad("5x2xf32", "5x3xf32", "5x3xf32", "5xf32", "5xi32", "4x4xf32", "4x4xf32", "4x4x3xf32",
            "4x4xf32", match="last is", error=DTypeError, width=4, height=4),
    )  # fmt: skip

    @property
    def parts(self) -> int:
        """How many there are."""
        return min(PARTS, self.tiles[0])

    def infer(self) -> TensorType:
        outer, n, channels = self.check()
        image, dt = (*outer, self.height, self.width), self.means.dtype
        self.expect("left", dt, image)
        self.expect("last", i32, image)
        self.expect("g", dt, (*image, channels))
        self.expect("gt", dt, image)
        return TensorType((*outer, self.parts, n, 6 + channels), dt)

    def reference(self, *arrays: Array) -> Array:
        out = np.zeros(self.out.type.static_shape, arrays[0].dtype)
        for at in np.ndindex(*out.shape[:-3]):
            self._image([a[at] for a in arrays], out[at])
        return out

    def _image(self, arrays: Sequence[Array], out: Array) -> None:
        means, conics, colors, opacities, radii, left, last, g, gt = arrays
        left, behind = left.copy(), gt.copy()
        part = np.arange(self.height) // TILE % self.parts
        squares = list(self.squares(means, conics, opacities, radii))
        for n, where, shape, (dx, dy, weight, raw, alpha, found) in reversed(squares):
            seen = found & (n < last[where])
            before = np.where(seen, left[where] / (1 - alpha), left[where])
            own = g[where] @ colors[n]
            slope = np.where(seen, before * (own - behind[where]), 0)
            sloping = np.where(raw > alpha, 0, slope)
            share = alpha * before
            grads = [c * sloping * -raw for c in shape.slopes(dx, dy)]
            columns = [*grads, sloping * weight, *np.moveaxis(share[..., None] * g[where], -1, 0)]
            rows = [np.sum(np.where(seen, v, 0), axis=1) for v in columns]
            np.add.at(out[:, n], part[where[0]], np.stack(rows, axis=-1))
            behind[where] += np.where(seen, alpha * (own - behind[where]), 0)
            left[where] = before

    def vjp(self, *cotangents: Value) -> NoReturn:
        raise no_second_derivative()

    def jvp(self, *tangents: Value | None) -> NoReturn:
        raise no_second_derivative()

    def loops(self, b: Any) -> None:
        outer, n, channels = self.check()
        dt = self.means.dtype
        image = (*outer, self.height, self.width)
        # Of each pixel the transmittance behind a Gaussian, and what is seen there, as the
        # cotangent weighs it.
        left, behind = b.workspace(image, dt), b.workspace(image, dt)
        rows, cols = self.tiles

        def part(*place: Any) -> None:
            at, number = place[:-1], place[-1]
            b.loop(n, lambda i: b.loop(
                6 + channels, lambda c: b.write(b.result(0), [*place, i, c], b.const(0, dt))
            ))  # fmt: skip
            b.k.loop(number, rows, self.parts, lambda row: b.loop(
                cols, lambda col: self._tile(b, at, number, (row, col), (left, behind))
            ))  # fmt: skip

        b.parallel((*outer, self.parts), part)

    def _tile(self, b: Any, at: Any, part: Any, tile: Any, rooms: Any) -> None:
        k, (left, behind) = b.k, rooms
        n = self.means.type.static_shape[-2]
        bounds = self.tile(k, *tile)

        def start(y: Any, x: Any, most: Any) -> Any:
            here = [*at, y, x]
            b.write(left, here, b.load(5, here))
            b.write(behind, here, b.load(8, here))
            return k.maximum(most, b.load(6, here))

        # Behind the last Gaussian of all pixels there is nothing to do. A number beyond N comes
        # from no rasterization, and is cut.
        (most,) = self.pixels(b, bounds, start, [b.const(0, i32)])

        def back(j: Any, most: Any) -> Any:
            i = (most - 1) - b.convert(j, i32)
            hit, covered = self.covered(b, [*at, b.index(i)], bounds)
            k.when(hit, lambda: self._add(b, at, part, i, covered, rooms))
            return most

        k.loop(0, b.index(k.minimum(most, n)), 1, back, [k.minimum(most, n)])

    def _add(self, b: Any, at: Any, part: Any, i: Any, covered: Any, rooms: Any) -> None:
        """What the pixels of a tile add to the gradients of Gaussian i."""
        k, dt, (left, behind) = b.k, self.means.dtype, rooms
        number = b.index(i)
        channels = self.colors.type.static_shape[-1]
        shape = self.shape_of(b, [*at, number])
        target = [*at, part, number]

        def pixel(y: Any, x: Any, *sums: Any) -> Any:
            here = [*at, y, x]
            dx, dy, weight, raw, alpha, found = self.blend(b, shape, y, x)
            seen = found & (i < b.load(6, here))

            def more() -> list[Any]:
                before = b.read(left, here) / (1.0 - alpha)
                share = alpha * before

                def channel(c: Any, own: Any) -> Any:
                    g = b.load(7, [*here, c])
                    increase(b, [*target, c + 6], share * g)
                    return own + g * b.load(2, [*at, number, c])

                (own,) = b.loop(channels, channel, [b.const(0, dt)])
                there = b.read(behind, here)
                slope = before * (own - there)
                sloping = k.select(raw > alpha, 0.0, slope)
                b.write(behind, here, there + alpha * (own - there))
                b.write(left, here, before)
                down = -(sloping * raw)
                columns = [c * down for c in shape.slopes(dx, dy)]
                return [s + c for s, c in zip(sums, [*columns, sloping * weight], strict=True)]

            return k.when(seen, more, lambda: list(sums), list(sums))

        def increase(b: Any, place: Any, by: Any) -> None:
            b.write(b.result(0), place, b.read(b.result(0), place) + by)

        for c, total in enumerate(self.pixels(b, covered, pixel, [b.const(0, dt)] * 6)):
            increase(b, [*target, c], total)
