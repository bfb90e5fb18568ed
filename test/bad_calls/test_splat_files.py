"""PLY and COLMAP files that are wrong, and what cannot be written."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlx import splat
from rlx.errors import DTypeError, GraphError, ModelError, RlxError, ShapeError, UnsupportedError
from support.fuzz_splat import reconstruction


def _head(*lines: str, form: str = "ascii") -> bytes:
    return "\n".join(["ply", f"format {form} 1.0", *lines, "end_header", ""]).encode()


BINARY = {"form": "binary_little_endian"}
PLY: list[tuple[str, bytes]] = [
    ("is no PLY file: it has no line end_header", b"ply\nformat ascii 1.0\n"),
    ("line 1: a PLY file begins with the line ply", b"plyx\nend_header\n"),
    ("line 2: there is no line format", b"ply\nend_header\n"),
    ("line 2: 'format ascii 2.0' is no line of a header", b"ply\nformat ascii 2.0\nend_header\n"),
    ("line 3: 'property float x' is no line of a header", _head("property float x")),
    ("line 3: the count of 'a' is 'x', expected an integer", _head("element a x")),
    ("line 3: the element 'a' has -1 rows", _head("element a -1")),
    ("line 4: the property 'half x' has no type of PLY", _head("element a 1", "property half x")),
    ("line 5: the property 'x' is there twice", _head("element a 1", "property int x", "property int x")),
    ("at byte 0: this is no UTF-8|at byte 4: this is no UTF-8", b"ply\n\xff\nend_header\n"),
    ("line 5: the element 'a' has 3 rows, and fewer lines are left", _head("element a 3", "property int x") + b"1\n"),
    ("line 6: a x is 'z', expected an integer", _head("element a 1", "property int x") + b"z\n"),
    ("line 6: a x is '', expected a number", _head("element a 1", "property float x") + b"\n"),
    ("line 6: a row of 'a' has 1 words too many", _head("element a 1", "property int x") + b"1 2\n"),
    ("a x is beyond uchar", _head("element a 1", "property uchar x") + b"256\n"),
    ("a x is 9{40}, which is beyond 64 bits", _head("element a 1", "property uchar x") + b"9" * 50),
    ("the list a l has 2 of 1 words", _head("element a 1", "property list uchar int l") + b"2 7\n"),
    ("line 6: this is behind the last row", _head("element a 0", "property int x") + b"1\n"),
    ("the element 'a' of 2 rows takes 8 bytes, and 4 are left", _head("element a 2", "property int x", **BINARY) + bytes(4)),
    ("at byte 78: 1 bytes are left over", _head("element a 1", "property int x", **BINARY) + bytes(5)),
    ("the element 'a' of 9 rows takes 9 bytes or more", _head("element a 9", "property list char int l", **BINARY)),
    ("the list l has -1 elements", _head("element a 1", "property list char int l", **BINARY) + b"\xff"),
    ("the list l takes 8 bytes, and 0 are left", _head("element a 1", "property list char int l", **BINARY) + b"\x02"),
    ("has no element vertex, but a", _head("element a 1", "property int x") + b"1\n"),
    ("is no file of Gaussians .*lack y, z, scale_0.*they have x", _head("element vertex 1", "property int x") + b"1\n"),
]  # fmt: skip


@pytest.mark.parametrize(("match", "data"), PLY)
def test_a_wrong_ply_file_is_refused_with_its_place(
    match: str, data: bytes, tmp_path: Path
) -> None:
    (tmp_path / "w.ply").write_bytes(data)
    with pytest.raises(ModelError, match=match):
        splat.read_ply(tmp_path / "w.ply")


def test_other_numbers_of_harmonics_are_refused(tmp_path: Path) -> None:
    scene, _ = splat.make_parity_scene(2, degree=1)
    splat.write_ply(tmp_path / "s.ply", scene, form="ascii")
    text = (tmp_path / "s.ply").read_text().replace("f_rest_8", "more")
    (tmp_path / "s.ply").write_text(text)
    with pytest.raises(ModelError, match="has 8 properties f_rest, expected 0, 9, 24 or 45"):
        splat.read_ply(tmp_path / "s.ply")


COLMAP: list[tuple[str, str, bytes, bytes]] = [
    ("cameras.bin, at byte 0: the number of cameras takes 8 bytes, and 0", "cameras.bin", b"", b""),
    ("cameras.bin, at byte 0: the number of cameras is 4294967298", "cameras.bin", b"\x02\0\0\0\0", b"\x02\0\0\0\1"),
    ("camera 1 has model 99; known are 0 to 10", "cameras.bin", b"\1\0\0\0\1\0\0\0", b"\1\0\0\0\x63\0\0\0"),
    ("camera 1 has the size 0 x 48", "cameras.bin", b"\x40\0", b"\0\0"),
    ("images.bin, at byte 72: the name of image 2 has no end", "images.bin", b"", b"cut"),
    ("the name of image 2 is no UTF-8", "images.bin", b"a.png", b"\xff.png"),
    ("image 2 has the pose", "images.bin", struct.pack("<4d", 0.5, 0.5, 0.5, 0.5), bytes(32)),
    ("image 2 .a.png. has camera 4, which there is not", "images.bin", b"\1\0\0\0a.png", b"\4\0\0\0a.png"),
    ("points3D.bin, at byte .*: the length of the track of point 5 is 257", "points3D.bin", b"\1\0\0\0\0\0\0\0\2", b"\1\1\0\0\0\0\0\0\2"),
    ("points3D.bin, at byte .*: 1 bytes are left over", "points3D.bin", b"", b"+"),
    ("cameras.txt, line 2: camera 1 is a 'NONE'; known are SIMPLE_PINHOLE", "cameras.txt", b" PINHOLE", b" NONE"),
    ("line 2: camera 1 is a PINHOLE of 3 numbers, expected 4", "cameras.txt", b" 24.0", b""),
    ("line 2: a number of camera 1 is 'x', expected a number", "cameras.txt", b" 24.0", b" x"),
    ("line 2: a camera has 3 words, expected 5 or more", "cameras.txt", b" 48 50.0 51.0 32.0 24.0", b""),
    ("line 2: the size of camera 1 is 'w', expected an integer", "cameras.txt", b" 64 ", b" w "),
    ("line 3: the number of a camera is 7777777777, which is beyond 32 bits", "cameras.txt", b"\n7 ", b"\n7777777777 "),
    ("images.txt, line 4: features of image 2 are 5 words", "images.txt", b" -1", b""),
    ("images.txt, line 3: the name of image 2, .* has a zero byte", "images.txt", b"a.png", b"a\0"),
    ("points3D.txt, line 2: point 5 has the color .* and a track of 1 words", "points3D.txt", b" 2 0\n6", b" 2\n6"),
]  # fmt: skip


@pytest.mark.parametrize(("match", "name", "old", "new"), COLMAP)
def test_a_wrong_reconstruction_is_refused_with_its_place(
    match: str, name: str, old: bytes, new: bytes, tmp_path: Path
) -> None:
    splat.write_colmap(
        tmp_path, reconstruction(), form="binary" if name.endswith("bin") else "text"
    )
    data = (tmp_path / name).read_bytes()
    if old:
        assert old in data
        data = data.replace(old, new, 1)
    elif new == b"cut":
        data = b"\1" + data[1:72] + b"x" * 9
    else:
        data = data + new if new else b""
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ModelError, match=match):
        splat.read_colmap(tmp_path)


def test_what_is_refused(tmp_path: Path) -> None:
    scene, _ = splat.make_parity_scene(2)
    found, at = reconstruction(), tmp_path / "x.ply"
    odd = replace(found, images={1: replace(found.images[2], name=" a")})
    zero = replace(found, images={1: replace(found.images[2], name="a\0")})
    two = np.zeros((2, 3))
    cases: list[tuple[Callable[[], Any], type[RlxError], str]] = [
        (lambda: splat.read_ply(at), ModelError, "cannot read .*x.ply: No such file"),
        (lambda: splat.read_colmap(tmp_path), ModelError, "neither cameras.bin nor cameras.txt"),
        (lambda: splat.write_ply(at, scene, form="text"), GraphError, "the format of PLY is ascii"),
        (lambda: splat.write_ply(at, replace(scene, colors=np.ones((2, 4)))), ShapeError, "3 channels"),
        (lambda: replace(scene, means=two[:, :2]), ShapeError, "means has shape .2, 2., expected"),
        (lambda: replace(scene, colors=np.ones((2, 5, 3))), ShapeError, "for K of 1, 4, 9, 16"),
        (lambda: splat.scene_of_points(two[:1], two[:1]), ShapeError, "for N of 2 or more"),
        (lambda: splat.scene_of_points(two, two, degree=4), ShapeError, "the degree is 0 to 3"),
        (lambda: splat.scene_of_points(two * 1j, two), DTypeError, "positions holds complex.*, expected real"),
        (lambda: splat.scene_of_points(two, [["a"] * 3] * 2), DTypeError, "colors holds <U1, expected real"),
        (lambda: splat.make_parity_scene(0), GraphError, "count is 1 or more"),
        (lambda: splat.make_parity_scene(degree=4), ShapeError, "the degree is 0 to 3"),
        (lambda: splat.agreement(two, two[0]), ShapeError, "agreement takes two images"),
        (lambda: splat.agreement(two, np.zeros(2, "f4,i4")), DTypeError, "expected real numbers"),
        (lambda: splat.agreement(b"b", 1), DTypeError, "agreement holds .S1, expected real"),
        (lambda: splat.agreement(two, np.zeros(2, "m8[s]")), DTypeError, "agreement holds time"),
        (lambda: found.camera(1), GraphError, "there is no image 1; there are"),
        (lambda: found.camera(3), UnsupportedError, "camera 7 is a SIMPLE_RADIAL.*undistort"),
        (lambda: splat.write_colmap(tmp_path, found, form="json"), GraphError, '"binary" or "text"'),
        (lambda: splat.write_colmap(tmp_path, odd, form="text"), GraphError, "cannot hold the name"),
        (lambda: splat.write_colmap(tmp_path, zero), GraphError, "cannot hold the name"),
    ]  # fmt: skip
    for make, error, match in cases:
        with pytest.raises(error, match=match):
            make()
    assert splat.agreement(two, two).psnr == float("inf") and splat.agreement(two, two).cosine == 1
