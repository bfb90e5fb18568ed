"""Moving data: no arithmetic, or next to none, so that addresses and memory are all there is.

Sizes are of the second cache and of memory, and odd ones stand beside powers of two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from bench.case import Case, Tensor

FULL = (512, 512)
ODD = (509, 513)
LARGE = (4096, 2048)
SHAPES = (FULL, ODD, LARGE)
IMAGES = ((8, 64, 56, 56), (3, 17, 61, 53))
QUICK = (FULL, IMAGES[0])

Build = Callable[..., Any]


def named(*shape: int) -> str:
    """A shape as cases name it."""
    return "x".join(map(str, shape))


def case(name: str, build: Build, inputs: Mapping[str, Tensor], tolerance: float = 0) -> Case:
    """A case that moves each of its operands once; the name ends with the shape of the first."""
    shape = next(iter(inputs.values())).shape
    read = sum(math.prod(t.shape) * t.numpy.itemsize for t in inputs.values())
    return Case(
        f"{name} {named(*shape)}", build, inputs, tolerance=tolerance, moved=read,
        quick=shape in QUICK,
    )  # fmt: skip


def plain(m: int, n: int) -> list[Case]:
    """What moves a matrix with no index."""
    x, y = Tensor((m, n)), Tensor((m, n))
    small = Tensor((m, n), scale=20.0)
    return [
        case("transpose", lambda f, x: f.copied_transpose(x), {"x": x}),
        case("concat rows", lambda f, x, y: f.concat([x, y], 0), {"x": x, "y": y}),
        case("concat columns", lambda f, x, y: f.concat([x, y], 1), {"x": x, "y": y}),
        case("slice and pad", lambda f, x: f.pad(x[1:, 3:], 1, 2), {"x": x}),
        case("tile", lambda f, x: f.tile(x, (2, 3)), {"x": x}),
        case("f32 to i8", lambda f, x: f.cast(x, "int8"), {"x": small}),
        case("f32 to f64", lambda f, x: f.cast(x, "float64"), {"x": x}),
        case("cumsum rows", lambda f, x: f.cumsum(x, 1), {"x": x}, 1e-5),
        case("cumsum columns", lambda f, x: f.cumsum(x, 0), {"x": x}, 1e-5),
    ]


def indexed(m: int, n: int) -> list[Case]:
    """What reads or writes a matrix by an index."""
    x = Tensor((m, n))
    rows, columns = Tensor((m,), "ids", m, "int64"), Tensor((n // 2,), "ids", n, "int64")
    each, down = Tensor((m, n), "ids", n, "int64"), Tensor((m, n), "ids", m, "int64")
    long = Tensor((m * n // 2,), "ids", m * n, "int64")
    return [
        case("rows", lambda f, x, i: f.gather(x, i), {"x": x, "i": rows}),
        case("elements", lambda f, x, j: f.take(f.flat(x), j, 0), {"x": x, "j": long}),
        case("columns", lambda f, x, c: f.take(x, c, 1), {"x": x, "c": columns}),
        case("take along rows", lambda f, x, e: f.take_along(x, e, 1), {"x": x, "e": each}),
        case("take along columns", lambda f, x, d: f.take_along(x, d, 0), {"x": x, "d": down}),
        case("scatter-add rows", lambda f, x, i: f.scatter_add(x, i), {"x": x, "i": rows}, 1e-5),
    ]


def ordered(m: int, n: int) -> list[Case]:
    """What orders the rows of a matrix."""
    x = Tensor((m, n))
    return [
        case("sort", lambda f, x: f.sort(x), {"x": x}),
        case("topk 10", lambda f, x: f.topk(x, 10), {"x": x}),
    ]


def images(n: int, c: int, h: int, w: int) -> list[Case]:
    """What makes images of another size."""
    x = Tensor((n, c, h, w))
    return [
        case("resize linear x2", lambda f, x: f.resize(x, (2 * h, 2 * w)), {"x": x}, 1e-5),
        case("resize linear x0.7", lambda f, x: f.resize(x, (7 * h // 10, 7 * w // 10)),
             {"x": x}, 1e-4),
        case("mean pool 2", lambda f, x: f.mean_pool(x, 2, 2), {"x": x}, 1e-5),
        case("mean pool 3", lambda f, x: f.mean_pool(x, 3, 1), {"x": x}, 1e-5),
    ]  # fmt: skip


def cases() -> list[Case]:
    """All of them at all sizes."""
    out = [c for shape in SHAPES for make in (plain, indexed) for c in make(*shape)]
    out += [c for shape in ((128, 1000), (2, 100_003)) for c in ordered(*shape)]
    return out + [c for shape in IMAGES for c in images(*shape)]
