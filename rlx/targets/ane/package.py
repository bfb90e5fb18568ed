"""A .mlpackage as one file: a ZIP of its folder, the same bytes for the same parts."""

from __future__ import annotations

import io
import tempfile
import zipfile
from pathlib import Path
from typing import Any

__all__ = ["MODEL", "operations", "packed", "unpacked"]

MODEL = "Data/com.apple.CoreML"
"""The folder that every package has."""


def packed(folder: Path) -> bytes:
    """The files of a folder, and its folders: an empty one counts, as that of no weights."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(folder.rglob("*")):
            name = str(path.relative_to(folder))
            data = b"" if path.is_dir() else path.read_bytes()
            archive.writestr(zipfile.ZipInfo(f"{name}/" if path.is_dir() else name), data)
    return out.getvalue()


def unpacked(data: bytes, folder: Path) -> Path:
    """Write the files into a folder, which is then the package."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        archive.extractall(folder)
    return folder


def operations(data: bytes) -> list[Any]:
    """The ops of its program in order, as Core ML's format has them."""
    from rlx.targets.ane.words import coremltools

    with tempfile.TemporaryDirectory() as folder:
        spec = coremltools().utils.load_spec(str(unpacked(data, Path(folder) / "m.mlpackage")))
    return [
        op
        for function in spec.mlProgram.functions.values()
        for block in function.block_specializations.values()
        for op in block.operations
    ]
