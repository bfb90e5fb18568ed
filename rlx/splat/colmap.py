"""Reconstructions of COLMAP: cameras, images with their poses, and points, in binary or text.

The files are ``cameras``, ``images`` and ``points3D`` with ``.bin`` or ``.txt``, as COLMAP's
documentation of its output format says; of quaternions w is first there.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rlx.base.frozen import frozen
from rlx.errors import GraphError, ModelError, UnsupportedError
from rlx.ir.builders import located, public
from rlx.splat.camera import Camera
from rlx.splat.reading import Bytes, Lines, content

__all__ = ["ColmapCamera", "ColmapImage", "Reconstruction", "read_colmap", "write_colmap"]

Array = np.ndarray[Any, Any]

MODELS = {
    "SIMPLE_PINHOLE": 3, "PINHOLE": 4, "SIMPLE_RADIAL": 4, "RADIAL": 5, "OPENCV": 8,
    "OPENCV_FISHEYE": 8, "FULL_OPENCV": 12, "FOV": 5, "SIMPLE_RADIAL_FISHEYE": 4,
    "RADIAL_FISHEYE": 5, "THIN_PRISM_FISHEYE": 12,
}  # fmt: skip
"""How many numbers describe a camera of each model, in the order of their numbers in files."""

_SEEN = np.dtype([("xy", "<f8", 2), ("point", "<i8")])
_TRACK = np.dtype([("image", "<i4"), ("place", "<i4")])


@frozen
class ColmapCamera:
    """A camera: its model and that model's numbers, in COLMAP's order."""

    model: str
    width: int
    height: int
    params: tuple[float, ...]


@frozen
class ColmapImage:
    """An image: its file's name, its camera's number, the rotation (w, x, y, z) and translation
    from the world to the camera, and the features found in it: ``points`` [n, 2] in pixels and
    ``point_ids`` [n], -1 for those of no point."""

    name: str
    camera: int
    rotation: tuple[float, float, float, float]
    translation: tuple[float, float, float]
    points: Array
    point_ids: Array


@public
@frozen
class Reconstruction:
    """Cameras and images by number, and N points: ``point_ids`` [N], ``positions`` [N, 3] f64,
    ``colors`` [N, 3] u8, ``errors`` [N] in pixels, and ``tracks``, an [n, 2] array a point of
    images and places of features in them."""

    cameras: dict[int, ColmapCamera]
    images: dict[int, ColmapImage]
    point_ids: Array
    positions: Array
    colors: Array
    errors: Array
    tracks: tuple[Array, ...]

    def camera(self, image: int) -> Camera:
        """The ``splat.Camera`` of an image, by its number. GraphError for a number that there is
        not; UnsupportedError for a camera with distortion."""
        if image not in self.images:
            raise GraphError(f"there is no image {image}; there are {sorted(self.images)[:20]}")
        own = self.images[image]
        model = self.cameras[own.camera]
        if model.model not in ("SIMPLE_PINHOLE", "PINHOLE"):
            raise UnsupportedError(
                f"camera {own.camera} is a {model.model}: splatting takes pinhole cameras;"
                " undistort the images first (colmap image_undistorter)"
            )
        fx, *rest = model.params
        fy, cx, cy = rest if len(rest) == 3 else (fx, *rest)
        view = np.eye(4)
        view[:3, :3], view[:3, 3] = _matrix(own.rotation), own.translation
        return Camera(view, fx, fy, cx, cy, model.width, model.height)


def _matrix(rotation: tuple[float, ...]) -> Array:
    w, x, y, z = np.asarray(rotation) / np.linalg.norm(rotation)
    return np.array([
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ])  # fmt: skip


@located
def read_colmap(folder: str | os.PathLike[str]) -> Reconstruction:
    """The reconstruction in a folder (such as ``sparse/0``), from its binary files, or its text
    files if there are none. ModelError says what is wrong with a file, and where."""
    at = Path(folder)
    if (at / "cameras.bin").exists():
        files = [Bytes(str(p), content(p)) for p in (at / f"{n}.bin" for n in _FILES)]
        cameras, images = _binary_cameras(files[0]), _binary_images(files[1])
        points = _binary_points(files[2])
        for f in files:
            f.end()
    elif (at / "cameras.txt").exists():
        texts = [Lines(str(p), content(p)) for p in (at / f"{n}.txt" for n in _FILES)]
        cameras, images = _text_cameras(texts[0]), _text_images(texts[1])
        points = _text_points(texts[2])
    else:
        raise ModelError(f"{at} has neither cameras.bin nor cameras.txt of a COLMAP reconstruction")
    for number, image in images.items():
        if image.camera not in cameras:
            raise ModelError(f"{at}: image {number} ({image.name}) has camera {image.camera}, which"
                             " there is not")  # fmt: skip
    return Reconstruction(cameras, images, *points)


_FILES = ("cameras", "images", "points3D")


def _camera(
    fail: Callable[[str], ModelError], number: int, model: str, size: tuple[int, int], params: Any
) -> ColmapCamera:
    given = tuple(float(p) for p in params)
    if len(given) != MODELS[model]:
        raise fail(
            f"camera {number} is a {model} of {len(given)} numbers, expected {MODELS[model]}"
        )
    if min(size) < 1 or not np.isfinite(given).all():
        raise fail(f"camera {number} has the size {size[0]} x {size[1]} and the numbers {given}")
    return ColmapCamera(model, *size, given)


def _image(
    fail: Callable[[str], ModelError], number: int, name: str, camera: int, pose: Any, seen: Array,
    ids: Array,
) -> ColmapImage:  # fmt: skip
    pose = tuple(float(v) for v in pose)
    if not np.isfinite(pose).all() or not 0 < np.linalg.norm(pose[:4]) < np.inf:
        raise fail(f"image {number} has the pose {pose}, whose quaternion turns nothing")
    w, x, y, z, *shift = pose
    return ColmapImage(name, camera, (w, x, y, z), (shift[0], shift[1], shift[2]), seen, ids)


def _points(rows: list[tuple[Any, ...]], tracks: list[Array]) -> tuple[Any, ...]:
    ids, xyz, rgb, errors = zip(*rows, strict=True) if rows else ((), (), (), ())
    return (
        np.array(ids, np.int64), np.array(xyz, np.float64).reshape(-1, 3),
        np.array(rgb, np.uint8).reshape(-1, 3), np.array(errors, np.float64), tuple(tracks),
    )  # fmt: skip


# -- binary ---------------------------------------------------------------------------------------


def _binary_cameras(f: Bytes) -> dict[int, ColmapCamera]:
    out: dict[int, ColmapCamera] = {}
    names = list(MODELS)
    for _ in range(f.count(24, "the number of cameras")):
        number, model, width, height = f.numbers("iiQQ", "a camera")
        if not 0 <= model < len(names):
            raise f.fail(f"camera {number} has model {model}; known are 0 to {len(names) - 1}")
        params = f.numbers(f"{MODELS[names[model]]}d", f"camera {number}")
        out[number] = _camera(f.fail, number, names[model], (width, height), params)
    return out


def _binary_images(f: Bytes) -> dict[int, ColmapImage]:
    out: dict[int, ColmapImage] = {}
    for _ in range(f.count(73, "the number of images")):
        number, *pose, camera = f.numbers("i7di", "an image")
        name = f.text(f"the name of image {number}")
        size = f.count(_SEEN.itemsize, f"the number of features of image {number}")
        seen = f.rows(_SEEN, size, f"image {number}")
        out[number] = _image(f.fail, number, name, camera, pose, seen["xy"], seen["point"])
    return out


def _binary_points(f: Bytes) -> tuple[Any, ...]:
    rows: list[tuple[Any, ...]] = []
    tracks: list[Array] = []
    for _ in range(f.count(51, "the number of points")):
        number, x, y, z, r, g, b, error = f.numbers("q3d3Bd", "a point")
        rows.append((number, (x, y, z), (r, g, b), error))
        size = f.count(_TRACK.itemsize, f"the length of the track of point {number}")
        track = f.rows(_TRACK, size, f"the track of point {number}")
        tracks.append(np.stack([track["image"], track["place"]], -1))
    return _points(rows, tracks)


# -- text -----------------------------------------------------------------------------------------


def _rows(f: Lines, least: int, what: str) -> Iterator[list[str]]:
    """The words of every line that is no comment and not empty."""
    while (line := f.line()) is not None:
        words = line.split()
        if words and not line.startswith("#"):
            if len(words) < least:
                raise f.fail(f"{what} has {len(words)} words, expected {least} or more")
            yield words


def _floats(f: Lines, words: list[str], what: str) -> list[float]:
    return [f.real(w, what) for w in words]


def _text_cameras(f: Lines) -> dict[int, ColmapCamera]:
    out: dict[int, ColmapCamera] = {}
    for words in _rows(f, 5, "a camera"):
        number = f.whole(words[0], "the number of a camera", 31)
        if words[1] not in MODELS:
            raise f.fail(f"camera {number} is a {words[1][:40]!r}; known are {', '.join(MODELS)}")
        width, height = (f.whole(w, f"the size of camera {number}") for w in words[2:4])
        params = _floats(f, words[4:], f"a number of camera {number}")
        out[number] = _camera(f.fail, number, words[1], (width, height), params)
    return out


def _text_images(f: Lines) -> dict[int, ColmapImage]:
    out: dict[int, ColmapImage] = {}
    for words in _rows(f, 10, "an image"):
        number, camera = (f.whole(words[i], "a number of an image", 31) for i in (0, 8))
        pose = _floats(f, words[1:8], f"the pose of image {number}")
        name = " ".join(words[9:])
        if "\0" in name:
            raise f.fail(f"the name of image {number}, {name[:40]!r}, has a zero byte")
        # The line of features is empty where there are none.
        features = (f.line() or "").split()
        if len(features) % 3:
            raise f.fail(
                f"features of image {number} are {len(features)} words, expected x y id each"
            )
        numbers = np.array(_floats(f, features, f"a feature of image {number}"))
        parts = numbers.reshape(-1, 3)
        ids = [f.whole(w, f"a point of image {number}") for w in features[2::3]]
        out[number] = _image(
            f.fail, number, name, camera, pose, parts[:, :2], np.array(ids, np.int64)
        )
    return out


def _text_points(f: Lines) -> tuple[Any, ...]:
    rows: list[tuple[Any, ...]] = []
    tracks: list[Array] = []
    for words in _rows(f, 8, "a point"):
        number = f.whole(words[0], "the number of a point")
        rgb = [f.whole(w, f"the color of point {number}") for w in words[4:7]]
        track = [f.whole(w, f"the track of point {number}", 31) for w in words[8:]]
        if len(track) % 2 or not all(0 <= c < 256 for c in rgb):
            raise f.fail(f"point {number} has the color {rgb} and a track of {len(track)} words")
        xyz = _floats(f, words[1:4], f"the place of point {number}")
        rows.append((number, xyz, rgb, f.real(words[7], f"the error of point {number}")))
        tracks.append(np.array(track, np.int32).reshape(-1, 2))
    return _points(rows, tracks)


# -- writing --------------------------------------------------------------------------------------


@located
def write_colmap(
    folder: str | os.PathLike[str], found: Reconstruction, *, form: str = "binary"
) -> None:
    """Write a reconstruction into a folder, which is made, as "binary" or "text" files. GraphError
    for another form, or a name of an image that the files cannot hold (in text one with white space
    but single blanks)."""
    if form not in ("binary", "text"):
        raise GraphError(f'write_colmap: the form is "binary" or "text", found {form!r}')
    for image in found.images.values():
        plain = form == "binary" or (image.name and image.name == " ".join(image.name.split()))
        if not plain or "\0" in image.name:
            raise GraphError(f"write_colmap: {form} files cannot hold the name {image.name!r}")
    at = Path(folder)
    at.mkdir(parents=True, exist_ok=True)
    write = _write_binary if form == "binary" else _write_text
    for name, data in zip(_FILES, write(found), strict=True):
        (at / f"{name}.{'bin' if form == 'binary' else 'txt'}").write_bytes(data)


def _write_binary(r: Reconstruction) -> tuple[bytes, bytes, bytes]:
    count = struct.Struct("<Q").pack
    cameras = count(len(r.cameras))
    for number, c in r.cameras.items():
        model = list(MODELS).index(c.model)
        cameras += struct.pack("<iiQQ", number, model, c.width, c.height)
        cameras += struct.pack(f"<{len(c.params)}d", *c.params)
    images = [count(len(r.images))]
    for number, i in r.images.items():
        seen = np.zeros(len(i.points), _SEEN)
        seen["xy"], seen["point"] = i.points, i.point_ids
        pose = struct.pack("<i7di", number, *i.rotation, *i.translation, i.camera)
        images += [pose, i.name.encode() + b"\0", count(len(seen)), seen.tobytes()]
    points = [count(len(r.positions))]
    for number, xyz, rgb, error, track in _each(r):
        pairs = np.ascontiguousarray(track, "<i4")
        points += [
            struct.pack("<q3d3Bd", number, *xyz, *rgb, error),
            count(len(pairs)),
            pairs.tobytes(),
        ]
    return cameras, b"".join(images), b"".join(points)


def _each(r: Reconstruction) -> Iterator[tuple[Any, ...]]:
    yield from zip(
        r.point_ids.tolist(), r.positions.tolist(), r.colors.tolist(), r.errors.tolist(), r.tracks,
        strict=True,
    )  # fmt: skip


def _write_text(r: Reconstruction) -> tuple[bytes, bytes, bytes]:
    cameras = ["# CAMERA_ID, MODEL, WIDTH, HEIGHT, PARAMS[]"]
    for number, c in r.cameras.items():
        cameras.append(_words(number, c.model, c.width, c.height, *c.params))
    images = [
        "# IMAGE_ID, QW, QX, QY, QZ, TX, TY, TZ, CAMERA_ID, NAME",
        "# POINTS2D[] as (X, Y, POINT3D_ID)",
    ]
    for number, i in r.images.items():
        images.append(_words(number, *i.rotation, *i.translation, i.camera, i.name))
        pairs = zip(i.points.tolist(), i.point_ids.tolist(), strict=True)
        images.append(" ".join(_words(*xy, point) for xy, point in pairs))
    points = ["# POINT3D_ID, X, Y, Z, R, G, B, ERROR, TRACK[] as (IMAGE_ID, POINT2D_IDX)"]
    for number, xyz, rgb, error, track in _each(r):
        points.append(_words(number, *xyz, *rgb, error, *track.ravel().tolist()))
    a, b, c = (("\n".join(lines) + "\n").encode() for lines in (cameras, images, points))
    return a, b, c


def _words(*values: Any) -> str:
    return " ".join(map(str, values))
