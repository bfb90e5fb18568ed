"""A scene as arrays: what a graph is fed with, and what files hold."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from rlx.base.frozen import frozen
from rlx.errors import ModelError, ShapeError
from rlx.ir.builders import located, public
from rlx.splat.harmonics import DEGREES
from rlx.splat.ply import read_table, write_table
from rlx.splat.reals import reals

__all__ = ["Points", "Scene", "read_ply", "read_points", "scene_of_points", "write_ply"]

Array = np.ndarray[Any, Any]
Path = str | os.PathLike[str]

ZEROTH = 0.28209479177387814
"""The harmonic of degree 0."""

NEIGHBOURS = 3


@public
@frozen
class Scene:
    """Gaussians as ``render`` takes them, f32: ``means`` [N, 3], ``log_scales`` [N, 3],
    ``rotations`` [N, 4] (x, y, z, w), ``opacity_logits`` [N] and ``colors`` [N, K, 3] (harmonics)
    or [N, C]. ShapeError for arrays that do not fit, DTypeError for what is no real numbers."""

    means: Array
    log_scales: Array
    rotations: Array
    opacity_logits: Array
    colors: Array

    def __post_init__(self) -> None:
        n = len(np.atleast_1d(reals(self.means, "Scene: means")))
        shapes = {
            "means": (n, 3),
            "log_scales": (n, 3),
            "rotations": (n, 4),
            "opacity_logits": (n,),
        }
        for name in self.arrays():
            a = reals(getattr(self, name), f"Scene: {name}")
            object.__setattr__(self, name, a)
            if a.shape != shapes.get(name, a.shape):
                raise ShapeError(
                    f"Scene: {name} has shape {list(a.shape)}, expected {list(shapes[name])}"
                )
        c = self.colors.shape
        if (
            c[:1] != (n,)
            or len(c) not in (2, 3)
            or (len(c) == 3 and (c[1] not in DEGREES or c[2] != 3))
        ):
            raise ShapeError(
                f"Scene: colors has shape {list(c)}, expected [{n}, C], or [{n}, K, 3] for K of"
                f" {', '.join(map(str, DEGREES))}"
            )

    def arrays(self) -> dict[str, Array]:
        """The arrays by name, in the order of ``render``."""
        names = ("means", "log_scales", "rotations", "opacity_logits", "colors")
        return {name: getattr(self, name) for name in names}

    def __len__(self) -> int:
        return len(self.means)


@frozen
class Points:
    """A cloud of points: ``positions`` [N, 3] f32 and ``colors`` [N, 3] u8."""

    positions: Array
    colors: Array


# -- PLY ------------------------------------------------------------------------------------------

_PARTS = {
    "means": ("x", "y", "z"),
    "log_scales": ("scale_0", "scale_1", "scale_2"),
    "rotations": ("rot_1", "rot_2", "rot_3", "rot_0"),
    "opacity_logits": ("opacity",),
}
"""Our arrays by the properties of INRIA's files, which have w first."""


def _vertices(path: Path, needed: list[str], what: str) -> dict[str, Array]:
    tables = read_table(path)
    if "vertex" not in tables:
        raise ModelError(
            f"{os.fspath(path)} has no element vertex, but {', '.join(tables) or 'none'}"
        )
    found = tables["vertex"]
    missing = [p for p in needed if p not in found]
    if missing:
        raise ModelError(
            f"{os.fspath(path)} is no {what}: its vertices lack {', '.join(missing)}; they have"
            f" {', '.join(found) or 'nothing'}"
        )
    return found


@located
def read_ply(path: Path) -> Scene:
    """The scene of a PLY file as INRIA's and gsplat's trainers write it, in text or binary:
    harmonics of degree 0 to 3, the logarithms of scales, the logits of opacities. ModelError for a
    file that is none, with the place that is wrong."""
    needed = [p for parts in _PARTS.values() for p in parts] + ["f_dc_0", "f_dc_1", "f_dc_2"]
    found = _vertices(path, needed, "file of Gaussians (read_points takes clouds of points)")
    rest = [f"f_rest_{i}" for i in range(len(found)) if f"f_rest_{i}" in found]
    count = len(rest) // 3 + 1
    if len(rest) % 3 or count not in DEGREES:
        raise ModelError(
            f"{os.fspath(path)} has {len(rest)} properties f_rest, expected 0, 9, 24 or 45: the"
            " harmonics of three colors up to degree 3"
        )
    base = np.stack([found[f"f_dc_{i}"] for i in range(3)], -1)[:, None]
    others = np.stack([found[p] for p in rest], -1) if rest else np.zeros((len(base), 0))
    harmonics = others.reshape(len(base), 3, count - 1).transpose(0, 2, 1)
    parts = {
        name: np.stack([found[p] for p in own], -1).squeeze(-1) if len(own) == 1
        else np.stack([found[p] for p in own], -1)
        for name, own in _PARTS.items()
    }  # fmt: skip
    return Scene(**parts, colors=np.concatenate([base, harmonics], 1))


@located
def write_ply(path: Path, scene: Scene, *, form: str = "binary_little_endian") -> None:
    """Write a scene as ``read_ply`` reads it, in a format of "binary_little_endian",
    "binary_big_endian" or "ascii". Plain colors [N, 3] become harmonics of degree 0. GraphError for
    another format, ShapeError for colors of another number of channels."""
    colors = scene.colors
    if colors.ndim == 2:
        if colors.shape[1] != 3:
            raise ShapeError(
                f"write_ply: colors has shape {list(colors.shape)}, expected 3 channels"
            )
        colors = ((colors - 0.5) / ZEROTH)[:, None]
    columns = {name: scene.means[:, i] for i, name in enumerate("xyz")}
    columns |= {name: np.zeros(len(scene), np.float32) for name in ("nx", "ny", "nz")}
    columns |= {f"f_dc_{i}": colors[:, 0, i] for i in range(3)}
    rest = colors[:, 1:].transpose(0, 2, 1).reshape(len(scene), 3 * (colors.shape[1] - 1))
    columns |= {f"f_rest_{i}": rest[:, i] for i in range(rest.shape[1])}
    columns["opacity"] = scene.opacity_logits
    columns |= {f"scale_{i}": scene.log_scales[:, i] for i in range(3)}
    columns |= {f"rot_{i}": scene.rotations[:, (i + 3) % 4] for i in range(4)}
    write_table(path, {"vertex": {n: np.asarray(a, np.float32) for n, a in columns.items()}}, form)


@located
def read_points(path: Path) -> Points:
    """The points of a PLY file: x, y and z, and red, green and blue where it has them (else they
    are a middle grey). ModelError for a file that is none."""
    found = _vertices(path, ["x", "y", "z"], "cloud of points")
    positions = np.stack([found[n] for n in "xyz"], -1)
    colors = np.full(positions.shape, 128, np.uint8)
    if all(n in found for n in ("red", "green", "blue")):
        given = np.stack([found[n] for n in ("red", "green", "blue")], -1)
        scale = 255 if given.dtype.kind == "f" else 1
        colors = np.clip(np.nan_to_num(given) * scale, 0, 255).astype(np.uint8)
    return Points(positions.astype(np.float32), colors)


# -- the beginning of a training ------------------------------------------------------------------


@located
def scene_of_points(positions: Any, colors: Any, *, degree: int = 0, opacity: float = 0.1) -> Scene:
    """Round Gaussians at points [N, 3] with colors [N, 3] (u8): as wide as the nearest three points
    are away in the mean of squares, as Kerbl et al. begin. N is at least 2. ShapeError for arrays
    that do not fit, or a degree that is not 0 to 3.

    All distances are looked at, by blocks: N of 100,000 takes a minute.
    """
    x, c = reals(positions, "positions"), reals(colors, "colors")
    if x.ndim != 2 or x.shape[1] != 3 or len(x) < 2 or c.shape != x.shape:
        raise ShapeError(f"scene_of_points takes positions and colors [N, 3] for N of 2 or more,"
                         f" found {list(x.shape)} and {list(c.shape)}")  # fmt: skip
    count = (degree + 1) ** 2
    if degree < 0 or count not in DEGREES:
        raise ShapeError(f"scene_of_points: the degree is 0 to 3, found {degree}")
    harmonics = np.zeros((len(x), count, 3), np.float32)
    harmonics[:, 0] = (c / np.float32(255) - 0.5) / ZEROTH
    scales = 0.5 * np.log(np.maximum(_square_distances(x), 1e-7))
    upright = np.tile(np.array([0, 0, 0, 1], np.float32), (len(x), 1))
    logits = np.full(len(x), np.log(opacity / (1 - opacity)))
    return Scene(x, np.repeat(scales[:, None], 3, 1), upright, logits, harmonics)


def _square_distances(x: Array) -> Array:
    """The mean square distance of each point to its nearest."""
    k = min(NEIGHBOURS, len(x) - 1)
    out = np.empty(len(x), np.float32)
    for begin in range(0, len(x), 256):
        rows = x[begin : begin + 256]
        squares = ((rows[:, None] - x) ** 2).sum(-1)
        squares[np.arange(len(rows)), np.arange(len(rows)) + begin] = np.inf
        out[begin : begin + 256] = np.partition(squares, k - 1, 1)[:, :k].mean(1)
    return out
