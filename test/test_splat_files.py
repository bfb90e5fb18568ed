"""Scenes in PLY files and reconstructions in COLMAP's: there and back, and by hand.

Those that are refused are in ``test/bad_calls/test_splat_files``.
"""

from __future__ import annotations

import struct
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import splat
from rlx.splat.ply import FORMATS, read_table
from support.fuzz_splat import reconstruction

Array = np.ndarray[Any, Any]


# -- scenes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("degree", [0, 2])
def test_a_scene_goes_there_and_back(form: str, degree: int, tmp_path: Path) -> None:
    scene, _ = splat.make_parity_scene(7, degree=degree)
    splat.write_ply(tmp_path / "s.ply", scene, form=form)
    found = splat.read_ply(tmp_path / "s.ply")
    for name, a in scene.arrays().items():
        np.testing.assert_array_equal(found.arrays()[name], a)
    assert len(found) == 7


@pytest.mark.parametrize("form", FORMATS)
def test_plyfile_reads_what_is_written(form: str, tmp_path: Path) -> None:
    plyfile: Any = pytest.importorskip("plyfile")
    scene, _ = splat.make_parity_scene(5, degree=1)
    splat.write_ply(tmp_path / "s.ply", scene, form=form)
    theirs = plyfile.PlyData.read(str(tmp_path / "s.ply"))["vertex"]
    order = [p.name for p in theirs.properties]
    assert order[:9] == ["x", "y", "z", "nx", "ny", "nz", "f_dc_0", "f_dc_1", "f_dc_2"]
    np.testing.assert_array_equal(theirs["y"], scene.means[:, 1])
    np.testing.assert_array_equal(theirs["rot_0"], scene.rotations[:, 3])  # w is first there
    # Harmonics lie color by color: f_rest_4 is the second of green.
    np.testing.assert_array_equal(theirs["f_rest_4"], scene.colors[:, 2, 1])
    again = plyfile.PlyData([plyfile.PlyElement.describe(theirs.data, "vertex")], text=True)
    again.write(str(tmp_path / "t.ply"))
    np.testing.assert_allclose(splat.read_ply(tmp_path / "t.ply").colors, scene.colors, rtol=1e-6)


def test_plain_colors_become_harmonics_that_give_them(tmp_path: Path) -> None:
    scene, camera = splat.make_parity_scene(9)
    plain = replace(scene, colors=np.random.default_rng(0).uniform(0.1, 0.9, (9, 3)))
    splat.write_ply(tmp_path / "s.ply", plain)
    images: list[Array] = []
    for s in (plain, splat.read_ply(tmp_path / "s.ply")):
        g = rlx.Graph("colors")
        a, b, c, d, e = (g.input(n, list(v.shape)) for n, v in s.arrays().items())
        g.set_outputs(splat.render(a, b, c, d, e, camera))
        images.append(rlx.Session("cpu").compile(g).run(s.arrays())[0])
    found = splat.agreement(*images)
    assert found.cosine > 1 - 1e-6 and found.max_abs < 1e-5 and found.psnr > 90
    assert images[0].max() > 0.2


TEXT = b"""ply
format ascii 1.0
comment by hand
element vertex 2
property double x
property float y
property int z
property list uchar int more
property uchar red
property uchar green
property uchar blue
element face 1
property list uchar int vertex_indices
end_header
0.5 1.5 -3 2 7 8 10 20 30
1 2 3 0 0 0 255
3 0 1 1
"""


def test_points_and_elements_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "p.ply"
    path.write_bytes(TEXT)
    points = splat.read_points(path)
    np.testing.assert_array_equal(points.positions, [[0.5, 1.5, -3], [1, 2, 3]])
    np.testing.assert_array_equal(points.colors, [[10, 20, 30], [0, 0, 255]])
    for order, form in ((">", b"binary_big_endian"), ("<", b"binary_little_endian")):
        head = TEXT[: TEXT.index(b"end_header\n") + 11].replace(b"ascii", form)
        rows = struct.pack(order + "dfiBii3B", 0.5, 1.5, -3, 2, 7, 8, 10, 20, 30)
        rows += struct.pack(order + "dfiB3B", 1, 2, 3, 0, 0, 0, 255)
        path.write_bytes(head + rows + struct.pack(order + "Biii", 3, 0, 1, 1))
        found = splat.read_points(path)
        np.testing.assert_array_equal(found.positions, points.positions)
        np.testing.assert_array_equal(found.colors, points.colors)
    assert read_table(path)["face"] == {}
    path.write_bytes(
        b"ply\nformat ascii 1.0\nelement vertex 1\n"
        + b"".join(b"property float %c\n" % c for c in b"xyz")
        + b"end_header\n1 2 3\n\n"
    )
    assert splat.read_points(path).colors.tolist() == [[128] * 3]


def test_a_scene_begins_at_points() -> None:
    x = np.array([[0, 0, 0], [1, 0, 0], [0, 2, 0], [0, 0, 3.0]])
    c = np.array([[255, 0, 0]] * 4, np.uint8)
    scene = splat.scene_of_points(x, c, degree=1, opacity=0.25)
    assert scene.colors.shape == (4, 4, 3)
    np.testing.assert_allclose(np.exp(2 * scene.log_scales[0]), (1 + 4 + 9) / 3, rtol=1e-5)
    np.testing.assert_allclose(1 / (1 + np.exp(-scene.opacity_logits)), 0.25, rtol=1e-6)
    np.testing.assert_allclose(scene.colors[0, 0] * 0.28209479 + 0.5, [1, 0, 0], atol=1e-6)


# -- COLMAP ------------------------------------------------------------------------------------


def same(a: splat.Reconstruction, b: splat.Reconstruction) -> None:
    assert a.cameras == b.cameras and a.images.keys() == b.images.keys()
    for number, image in a.images.items():
        for f in fields(image):
            np.testing.assert_array_equal(getattr(image, f.name), getattr(b.images[number], f.name))
    for name in ("point_ids", "positions", "colors", "errors"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    for one, other in zip(a.tracks, b.tracks, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("form", ["binary", "text"])
def test_a_reconstruction_goes_there_and_back(form: str, tmp_path: Path) -> None:
    splat.write_colmap(tmp_path / "0", reconstruction(), form=form)
    same(splat.read_colmap(tmp_path / "0"), reconstruction())


def test_the_bytes_are_those_of_colmap_s_documentation(tmp_path: Path) -> None:
    """Packed here by hand, as COLMAP's output format says; and its own example of text."""
    count = struct.Struct("<Q").pack
    cameras = count(1) + struct.pack("<iiQQ4d", 1, 1, 3072, 2304, 2559.81, 2559.81, 1536, 1152)
    pose = (0.851773, 0.0165051, 0.503764, -0.142941, -0.737434, 1.02973, 3.74354)
    images = count(1) + struct.pack("<i7di", 1, *pose, 1) + b"P1180141.JPG\0"
    images += count(1) + struct.pack("<ddq", 2362.39, 248.498, 58396)
    points = count(1) + struct.pack(
        "<Q3d3Bd", 58396, 1.67241, 0.292931, 0.609726, 115, 121, 122, 1.33927
    )
    points += count(1) + struct.pack("<ii", 1, 0)
    texts = (
        b"# Camera list\n1 PINHOLE 3072 2304 2559.81 2559.81 1536 1152\n",
        b"#\n1 0.851773 0.0165051 0.503764 -0.142941 -0.737434 1.02973 3.74354 1 P1180141.JPG\n"
        b"2362.39 248.498 58396\n",
        b"58396 1.67241 0.292931 0.609726 115 121 122 1.33927 1 0\n",
    )
    names = ("cameras", "images", "points3D")
    for end, parts in (("bin", (cameras, images, points)), ("txt", texts)):
        (tmp_path / end).mkdir()
        for name, data in zip(names, parts, strict=True):
            (tmp_path / end / f"{name}.{end}").write_bytes(data)
    found = splat.read_colmap(tmp_path / "bin")
    same(found, splat.read_colmap(tmp_path / "txt"))
    camera = found.camera(1)
    assert (camera.fx, camera.cy, camera.width, camera.height) == (2559.81, 1152, 3072, 2304)
    rotation = pytest.importorskip("scipy.spatial.transform").Rotation
    want = rotation.from_quat([*pose[1:4], pose[0]]).as_matrix()
    np.testing.assert_allclose(np.asarray(camera.view)[:3, :3], want, atol=1e-12)
    np.testing.assert_array_equal(np.asarray(camera.view)[:3, 3], pose[4:])
    splat.write_colmap(tmp_path / "again", found)
    for name, data in zip(names, (cameras, images, points), strict=True):
        assert (tmp_path / "again" / f"{name}.bin").read_bytes() == data
