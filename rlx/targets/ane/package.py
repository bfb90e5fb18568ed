"""A .mlpackage as one file: a ZIP of its folder, the same bytes for the same parts; and packages
joined to one, with a function for each."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["MODEL", "joined", "operations", "packed", "unpacked"]

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


def joined(parts: Mapping[str, Path], path: Path) -> Path:
    """Write a package of iOS 18 with the program of each part as the function of its name. The
    first is what runs where no function is named, and weights that parts share lie there once."""
    from rlx.targets.ane.words import coremltools, quietly

    tools = coremltools().utils
    told = tools.MultiFunctionDescriptor()
    for name, part in parts.items():
        told.add_function(str(part), "main", name)
    told.default_function_name = next(iter(parts))
    with quietly():
        tools.save_multifunction(told, str(path))
    return path


def operations(package: Path) -> dict[str, list[Any]]:
    """The ops of each function in order, as Core ML's format has them."""
    from rlx.targets.ane.words import coremltools

    spec = coremltools().utils.load_spec(str(package))
    return {
        name: [op for block in f.block_specializations.values() for op in block.operations]
        for name, f in spec.mlProgram.functions.items()
    }
