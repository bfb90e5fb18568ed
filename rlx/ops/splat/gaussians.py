"""Common parts of the ops that rasterize 2-D Gaussians: walks over tiles and pixels.

They go by tiles of pixels. A tile walks the Gaussians in order and blends those whose square
reaches it, pixel by pixel, until all its pixels are full: time O(tiles * Gaussians + pixels that
Gaussians cover), memory O(pixels). No tile touches another's pixels, and the adjoint adds up in an
order that only the image's size decides, so results are the same bits on any number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from rlx.base.dims import is_known
from rlx.errors import DTypeError, ShapeError, UnsupportedError
from rlx.ir.op import Array, Cost, Op
from rlx.ir.value import Value, bytes_of
from rlx.ops.indexing.index_modes import same_batch
from rlx.types import TensorType, bool_, f32, f64, i32

__all__ = [
    "BATCH",
    "DATA",
    "LEAST_ALPHA",
    "LEAST_TRANSMITTANCE",
    "MOST_ALPHA",
    "NONE",
    "SAMPLE",
    "TILE",
    "Blend",
    "Gaussians2D",
    "Shape",
    "no_second_derivative",
]

LEAST_ALPHA = 1 / 255
"""Less than this is not seen on 8 bits, and not blended."""

MOST_ALPHA = 0.99
"""What is in front never hides the rest entirely, so that the adjoint can divide by what it lets
through."""

LEAST_TRANSMITTANCE = 1e-4
"""A Gaussian that would let less than this through ends its pixel."""

TILE = 16
WORK = 20
"""Operations for a pixel that a Gaussian covers, an exponential as one."""


@dataclass
class Shape:
    """The registers (or numbers) of a Gaussian that decide how opaque it is where."""

    x: Any
    y: Any
    xx: Any
    xy: Any
    yy: Any
    opacity: Any

    def falloff(self, px: Any, py: Any) -> tuple[Any, Any, Any]:
        """The way from the pixel's centre to the mean, and half the squared Mahalanobis length."""
        dx, dy = self.x - px, self.y - py
        return dx, dy, (self.xx * dx * dx + self.yy * dy * dy) * 0.5 + self.xy * dx * dy

    def slopes(self, dx: Any, dy: Any) -> list[Any]:
        """The derivatives of the falloff by the mean (2) and the conic (3)."""
        return [
            self.xx * dx + self.xy * dy,
            self.xy * dx + self.yy * dy,
            dx * dx * 0.5,
            dx * dy,
            dy * dy * 0.5,
        ]


class Blend(NamedTuple):
    """What a Gaussian does at a pixel, in registers, or at many, in arrays."""

    dx: Any
    dy: Any
    weight: Any
    """exp(-falloff)"""
    raw: Any
    """Alpha before it is clamped."""
    alpha: Any
    seen: Any


class Gaussians2D(Op):
    """The shared part: checks of Gaussians, and walks over the tiles and pixels that they cover."""

    dtypes: ClassVar[tuple[Any, ...]] = (f32, f64)

    def check(self: Any) -> tuple[tuple[Any, ...], Any, Any]:
        """The batch dims, the number of Gaussians and that of channels."""
        means, dt = self.means.type, self.means.dtype
        if dt not in self.dtypes:
            raise DTypeError(f"{self.short} takes f32 or f64, found {dt}; cast the Gaussians first")
        if means.rank < 2 or means.shape[-1] != 2:
            raise ShapeError(f"{self.short}: means is {means}, expected [..., N, 2]")
        outer, n = means.shape[:-2], means.shape[-2]
        if self.colors.rank != means.rank:
            raise ShapeError(f"{self.short}: colors is {self.colors.type}, expected [..., N, C]")
        channels = self.colors.shape[-1]
        self.expect("conics", dt, (*outer, n, 3))
        self.expect("colors", dt, (*outer, n, channels))
        self.expect("opacities", dt, (*outer, n))
        self.expect("radii", i32, (*outer, n))
        if min(self.width, self.height) < 1:
            raise ShapeError(
                f"{self.short}: an image of {self.width} x {self.height} pixels has none"
            )
        return outer, n, channels

    def expect(self: Any, name: str, dt: Any, shape: Sequence[Any]) -> None:
        """Refuse an operand of another type."""
        found, wanted = getattr(self, name).type, TensorType(tuple(shape), dt)
        if found.dtype is not dt:
            raise DTypeError(f"{self.short}: {name} is {found}, expected {wanted}; cast it first")
        if found != wanted:
            raise ShapeError(f"{self.short}: {name} is {found}, expected {wanted}")

    @property
    def gaussians(self: Any) -> tuple[Value, Value, Value, Value, Value]:
        """The operands that all these ops begin with."""
        return self.means, self.conics, self.colors, self.opacities, self.radii

    @property
    def tiles(self: Any) -> tuple[int, int]:
        """The rows and columns of tiles."""
        return -(-self.height // TILE), -(-self.width // TILE)

    def cost(self: Any) -> Cost:
        """Every tile looks at every Gaussian; each of them is taken to cover one tile."""
        n = self.opacities.type.size
        each = math.prod(self.tiles) + TILE * TILE * WORK
        moved = bytes_of([*self.present, *self.results])
        return Cost(n * each if is_known(n) else 0, moved)

    def batch(self: Any, operands: Sequence[Value], batched: Sequence[bool]) -> Any:
        node = self.with_operands(same_batch(operands, batched))
        return node.out if len(node.results) == 1 else node.results

    # -- loops -----------------------------------------------------------------------------

    def tile(self: Any, k: Any, row: Any, col: Any) -> tuple[Any, Any, Any, Any]:
        """Its first and past-the-last rows and columns of pixels."""
        y, x = row * TILE, col * TILE
        return y, k.minimum(y + TILE, self.height), x, k.minimum(x + TILE, self.width)

    def covered(self: Any, b: Any, at: Sequence[Any], tile: Sequence[Any]) -> tuple[Any, list[Any]]:
        """Whether the square of a Gaussian reaches a tile, and the bounds of the pixels there."""
        k, dt = b.k, self.means.dtype
        radius = b.convert(b.load(4, at), dt)
        bounds: list[Any] = []
        hit = radius > 0.0
        for axis, (low, high) in ((1, tile[:2]), (0, tile[2:])):
            mean = b.load(0, [*at, axis])
            first = k.maximum(-k.floor((radius - mean) + 0.5), b.convert(low, dt))
            past = k.minimum(k.floor((mean + radius) - 0.5) + 1.0, b.convert(high, dt))
            hit = hit & (first < past)
            bounds += [first, past]
        return hit, bounds

    def shape_of(self: Any, b: Any, at: Sequence[Any]) -> Shape:
        """The registers of a Gaussian."""
        places = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]
        x, y, xx, xy, yy = (b.load(n, [*at, i]) for n, i in places)
        return Shape(x, y, xx, xy, yy, b.load(3, at))

    def pixels(
        self: Any,
        b: Any,
        bounds: Sequence[Any],
        body: Callable[..., Any],
        init: Sequence[Any] = (),
    ) -> Any:
        """``body(y, x, *carried)`` for the pixels within bounds, row by row."""
        y0, y1, x0, x1 = (b.index(v) for v in bounds)

        def line(y: Any, *carried: Any) -> Any:
            return b.k.loop(x0, x1, 1, lambda x, *c: body(y, x, *c), list(carried))

        return b.k.loop(y0, y1, 1, line, list(init))

    def blend(self: Any, b: Any, shape: Shape, y: Any, x: Any) -> Blend:
        """What a Gaussian does at a pixel."""
        k, dt = b.k, self.means.dtype
        px, py = b.convert(x, dt) + 0.5, b.convert(y, dt) + 0.5
        dx, dy, falloff = shape.falloff(px, py)
        weight = k.exp(-falloff)
        raw = shape.opacity * weight
        alpha = k.minimum(raw, MOST_ALPHA)
        return Blend(dx, dy, weight, raw, alpha, (falloff >= 0.0) & (alpha >= LEAST_ALPHA))

    def front_to_back(
        self: Any, b: Any, left: Any, start: Callable[..., None], add: Callable[..., None]
    ) -> None:
        """The walk of all pixels: ``start(here)``, then for every Gaussian i that is blended there
        ``add(here, i, shape, blend, before)`` with the transmittance in front of it. ``left`` is
        the room of what is behind."""
        outer, n, _ = self.check()
        live = b.workspace(left.type.static_shape, bool_)
        k = b.k

        def begin(here: Any) -> None:
            b.write(left, here, b.const(1, self.means.dtype))
            b.write(live, here, b.const(True, bool_))
            start(here)

        def tile(*place: Any) -> None:
            at, bounds = place[:-2], self.tile(k, *place[-2:])

            def blended(here: Any, i: Any, shape: Shape, blend: Blend, count: Any) -> Any:
                before = b.read(left, here)
                after = before * (1.0 - blend.alpha)

                def full() -> Any:
                    b.write(live, here, b.const(False, bool_))
                    return count - 1

                def more() -> Any:
                    add(here, i, shape, blend, before)
                    b.write(left, here, after)
                    return count

                return k.when(after < LEAST_TRANSMITTANCE, full, more, [count])[0]

            def step(i: Any, count: Any) -> tuple[Any, Any]:
                hit, covered = self.covered(b, [*at, i], bounds)

                def reached() -> Any:
                    shape = self.shape_of(b, [*at, i])

                    def pixel(y: Any, x: Any, count: Any) -> Any:
                        here, blend = [*at, y, x], self.blend(b, shape, y, x)
                        seen = blend.seen & b.read(live, here)
                        return k.when(
                            seen,
                            lambda: blended(here, i, shape, blend, count), lambda: count, [count],
                        )[0]  # fmt: skip

                    return self.pixels(b, covered, pixel, [count])

                return i + 1, k.when(hit, reached, lambda: count, [count])[0]

            self.pixels(b, bounds, lambda y, x: begin([*at, y, x]))
            y0, y1, x0, x1 = bounds
            first = [k.index(0), (y1 - y0) * (x1 - x0)]
            k.repeat(lambda i, count: (i < n) & (count > 0), step, first)

        b.parallel((*outer, *self.tiles), tile)

    # -- reference -------------------------------------------------------------------------

    def squares(
        self: Any, means: Array, conics: Array, opacities: Array, radii: Array
    ) -> Iterator[tuple[int, Any, Shape, Blend]]:
        """For every Gaussian that is seen, in order: its number, the slices of the pixels, and what
        it does there: nothing but zeros where it is not seen."""
        dt = means.dtype.type
        for n, (mean, radius) in enumerate(zip(means, radii, strict=True)):
            if radius <= 0 or not np.isfinite(mean).all():
                continue
            r = dt(radius)
            low = np.maximum(-np.floor((r - mean) + dt(0.5)), 0)
            high = np.minimum(np.floor((mean + r) - dt(0.5)) + 1, (self.width, self.height))
            if (low >= high).any():
                continue
            (x0, y0), (x1, y1) = low.astype(int), high.astype(int)
            px = np.arange(x0, x1).astype(dt) + dt(0.5)
            py = (np.arange(y0, y1).astype(dt) + dt(0.5))[:, None]
            (x, y), (xx, xy, yy) = mean, conics[n]
            shape = Shape(x, y, xx, xy, yy, opacities[n])
            dx, dy, falloff = shape.falloff(px, py)
            weight = np.exp(-falloff)
            raw = opacities[n] * weight
            alpha = np.minimum(raw, dt(MOST_ALPHA))
            seen = (falloff >= 0) & (alpha >= dt(LEAST_ALPHA))
            if not seen.any():
                continue
            where = slice(y0, y1), slice(x0, x1)
            dx, dy, weight, raw, alpha = (
                np.where(seen, v, 0) for v in (dx, dy, weight, raw, alpha)
            )
            yield n, where, shape, Blend(dx, dy, weight, raw, alpha, seen)

    def blended(
        self, left: Array, *arrays: Array
    ) -> Iterator[tuple[int, Any, Shape, Blend, Array]]:
        """``squares``, with what is blended as ``seen``, and the transmittance before. That behind
        goes into ``left``, which is full of ones."""
        live = np.ones(left.shape, bool)
        for n, where, shape, blend in self.squares(*arrays):
            before = left[where].copy()
            after = before * (1 - blend.alpha)
            seen = blend.seen & live[where]
            full = seen & (after < LEAST_TRANSMITTANCE)
            live[where] &= ~full
            seen ^= full
            left[where] = np.where(seen, after, before)
            yield n, where, shape, blend._replace(seen=seen), before


def no_second_derivative() -> UnsupportedError:
    """The error of a derivative of a derivative."""
    return UnsupportedError("rasterize_gaussians has first derivatives, and no second ones")


# The first operands of the samples of all these ops.
SAMPLE = ("5x2xT", "5x3xT", "5x3xT", "5xT", "5xi32")
BATCH = ("2x3x2xT", "2x3x3xT", "2x3x1xT", "2x3xT", "2x3xi32")
NONE = ("0x2xT", "0x3xT", "0x3xT", "0xT", "0xi32")
DATA = {0: "positive", 1: "positive", 3: "unit", 4: "index:20"}
