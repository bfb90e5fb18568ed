"""Mutated PLY and COLMAP files: each is read to the last element, or refused."""

from __future__ import annotations

import random
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from rlx import splat
from rlx.errors import ModelError
from support.fuzzing import Target
from support.mutation import mutated_bytes

__all__ = ["SPLAT", "reconstruction"]

Files = dict[str, bytes]


def reconstruction() -> splat.Reconstruction:
    """Two cameras, two images of which one shows nothing, three points."""
    cameras = {
        1: splat.ColmapCamera("PINHOLE", 64, 48, (50.0, 51.0, 32.0, 24.0)),
        7: splat.ColmapCamera("SIMPLE_RADIAL", 32, 32, (30.0, 16.0, 16.0, 0.1)),
    }
    seen, ids = np.array([[1.5, 2.5], [30.25, 4.0]]), np.array([5, -1])
    images = {
        2: splat.ColmapImage("a.png", 1, (0.5, 0.5, 0.5, 0.5), (0.1, 0.2, 3.0), seen, ids),
        3: splat.ColmapImage(
            "b c.png", 7, (1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 1.0), seen[:0], ids[:0]
        ),
    }
    tracks = (np.array([[2, 0]]), np.zeros((0, 2), np.int32), np.array([[2, 1], [3, 0]]))
    positions = np.array([[0.1, 0.2, 0.3], [1e-9, -5.0, 7.0], [3.0, 2.0, 1.0]])
    colors = np.array([[1, 2, 3], [255, 0, 9], [7, 8, 9]], np.uint8)
    errors = np.array([0.5, 0.25, 1.0])
    return splat.Reconstruction(
        cameras, images, np.array([5, 6, 9]), positions, colors, errors, tracks
    )


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()


def _valid() -> list[Files]:
    at = Path(_folder().name)
    out: list[Files] = []
    for form in ("ascii", "binary_little_endian", "binary_big_endian"):
        splat.write_ply(
            at / "s.ply", splat.make_parity_scene(3, degree=form == "ascii")[0], form=form
        )
        out.append({"s.ply": (at / "s.ply").read_bytes()})
    faces = (
        b"element face 2\nproperty list uchar int vertex_indices\nproperty uchar red\nend_header\n"
    )
    for form in ("binary_little_endian", "ascii"):
        data = out[form == "binary_little_endian"]["s.ply"].replace(b"end_header\n", faces)
        more = b"\x01\x05\0\0\0\x09\x00\x08" if form[0] == "b" else b"1 5 9\n0 8\n"
        out.append({"s.ply": data + more})
    for form, end in (("binary", "bin"), ("text", "txt")):
        splat.write_colmap(at / form, reconstruction(), form=form)
        out.append({p.name: p.read_bytes() for p in sorted((at / form).glob(f"*.{end}"))})
    return out


def _changed(valid: list[Files], r: random.Random) -> Files:
    files = dict(r.choice(valid))
    name = r.choice(sorted(files))
    files[name] = mutated_bytes(files[name], r, range(min(len(files[name]), 200)))
    return files


def _attempt(files: Files) -> None:
    at = Path(_folder().name) / "tried"
    at.mkdir(exist_ok=True)
    for old in at.iterdir():
        old.unlink()
    for name, data in files.items():
        (at / name).write_bytes(data)
    if "s.ply" in files:
        splat.read_points(at / "s.ply")
        splat.write_ply(at / "out.ply", splat.read_ply(at / "s.ply"))
        return
    found = splat.read_colmap(at)
    splat.write_colmap(at, found)
    splat.read_colmap(at)


SPLAT = Target(_valid, _changed, _attempt, allowed=(ModelError,))
