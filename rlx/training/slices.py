"""Checkpoints of many ranks: a folder in which each rank writes its slice of every tensor.

    manifest.json             which generation is whole, of which mesh, and its tensors
    GENERATION/RANK-of-RANKS.safetensors

The manifest is replaced when all files of a new generation are on the disk: so there is a whole
checkpoint whenever a rank or a machine stops. Tensors are cut flat, and rank r along the axis has
the elements from r times ``each`` on; any number of ranks puts theirs together from that.

The stages of a pipeline have tensors of their own: along the axis ``parted`` the ranks at ``at``
write a tensor, and any number of stages finds it there.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlx.base.frozen import frozen
from rlx.errors import CheckpointError, ModelError, did_you_mean
from rlx.models.safetensors import SafeTensors, replaced, sync_folder, write_safetensors
from rlx.types import DTYPES, TensorType

__all__ = ["Held", "Seat", "Slices", "exists", "finish", "next_generation", "read", "write"]

Array = np.ndarray[Any, Any]

FORMAT = "rlx.training.slices 1"
MANIFEST = "manifest.json"


@frozen
class Seat:
    """Where a rank is: the axes of its mesh with their numbers of ranks, its place along each, and
    the ``axis`` along which tensors are cut."""

    shape: tuple[tuple[str, int], ...]
    at: tuple[int, ...]
    axis: str

    @property
    def number(self) -> int:
        """The number of the rank, in row-major order."""
        number = 0
        for (_, ranks), at in zip(self.shape, self.at, strict=True):
            number = number * ranks + at
        return number

    @property
    def slot(self) -> int:
        """Its place along the axis."""
        return dict(zip(dict(self.shape), self.at, strict=True))[self.axis]

    @property
    def others(self) -> dict[str, int]:
        """The other axes of several ranks, across which tensors are not put together."""
        return {name: ranks for name, ranks in self.shape if ranks > 1 and name != self.axis}

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"{self.number}-of-{math.prod(ranks for _, ranks in self.shape)}.safetensors"


class Held(NamedTuple):
    """A tensor: its type, how many elements a rank writes, and the place along the axis ``parted``
    of the ranks that do."""

    type: TensorType
    each: int
    at: int = 0

    @property
    def said(self) -> dict[str, Any]:
        """What the manifest says."""
        shape = list(self.type.static_shape)
        return {"dtype": self.type.dtype.name, "shape": shape, "each": self.each, "at": self.at}


@dataclass
class Slices:
    """What a manifest says: the mesh, how the run was trained, and its tensors."""

    generation: int
    shape: tuple[tuple[str, int], ...]
    axis: str
    settings: str
    tensors: dict[str, Held]
    parted: str = ""

    def text(self) -> str:
        """The manifest."""
        tensors = {name: held.said for name, held in self.tensors.items()}
        return json.dumps(
            {"format": FORMAT, "generation": self.generation, "mesh": dict(self.shape),
             "axis": self.axis, "parted": self.parted, "settings": self.settings,
             "tensors": tensors},
            indent=1,
        )  # fmt: skip


def exists(path: Path) -> bool:
    """Whether there is a checkpoint: a file, or a folder with one that is whole."""
    return path.is_file() or (path / MANIFEST).is_file()


def next_generation(path: Path) -> int:
    """The number of the checkpoint after the one that is there."""
    return _manifest(path).generation + 1 if (path / MANIFEST).is_file() else 1


def write(path: Path, generation: int, seat: Seat, tensors: Mapping[str, Array]) -> None:
    """Write the slices of a rank. CheckpointError if it cannot be."""
    try:
        folder = path / str(generation)
        path.mkdir(exist_ok=True)
        folder.mkdir(exist_ok=True)
        write_safetensors(folder / seat.file, tensors, {"generation": str(generation)})
    except OSError as e:
        raise CheckpointError(f"cannot write {path}: {e.strerror or e}") from None
    except ModelError as e:
        raise CheckpointError(e.message) from None


def finish(path: Path, slices: Slices) -> None:
    """Make a generation whose files are all there the checkpoint, and remove the others."""
    try:
        sync_folder(path)
        with replaced(path / MANIFEST) as f:
            f.write(slices.text().encode())
    except ModelError as e:
        raise CheckpointError(e.message) from None
    for other in path.iterdir():
        if other.is_dir() and other.name.isdigit() and other.name != str(slices.generation):
            shutil.rmtree(other, ignore_errors=True)


def read(
    path: Path,
    seat: Seat,
    wanted: Mapping[str, tuple[TensorType, int, int]],
    known: Collection[str],
    parted: str = "",
) -> tuple[dict[str, Array], str]:
    """Of each tensor of a type the flat elements from a begin to an end, from the files of all
    ranks that have some; and how it was trained. All ranks along ``parted`` together want what is
    ``known``. CheckpointError for a folder that has no whole checkpoint, or one of other tensors.
    """
    slices = _manifest(path)
    there = Seat(slices.shape, (0,) * len(slices.shape), slices.axis)
    if _without(there.others, slices.parted) != _without(seat.others, parted):
        raise CheckpointError(
            f"{path} is of a mesh {dict(slices.shape)}, whose slices along {slices.axis!r} alone"
            f" are put together; this run has {dict(seat.shape)}"
        )
    for name, (t, _, _) in wanted.items():
        if name not in slices.tensors:
            raise CheckpointError(f"{path} has no {name!r}{did_you_mean(name, slices.tensors)}")
        if (found := slices.tensors[name].type) != t:
            raise CheckpointError(f"{path}: {name!r} is {found}, and the run has {t}")
    for name in slices.tensors:
        if name not in known:
            raise CheckpointError(f"{path} has {name!r}, which the run has not")
    places = {slices.tensors[name].at for name in wanted}
    files = {at: [_opened(path, slices, s) for s in _seats(slices, seat, at)] for at in places}
    arrays: dict[str, Array] = {}
    for name, (_, begin, end) in wanted.items():
        held = slices.tensors[name]
        arrays[name] = _joined(path, files[held.at], name, held, begin, end)
    return arrays, slices.settings


def _without(others: Mapping[str, int], axis: str) -> dict[str, int]:
    return {name: ranks for name, ranks in others.items() if name != axis}


def _seats(slices: Slices, seat: Seat, at: int) -> list[Seat]:
    """The ranks whose slices make the tensors of a rank: those at a place along ``parted``."""
    mine = {**dict(zip(dict(seat.shape), seat.at, strict=True)), slices.parted: at}
    return [
        Seat(slices.shape, tuple([n if name == slices.axis else mine.get(name, 0)
                                  for name, _ in slices.shape]), slices.axis)
        for n in range(dict(slices.shape)[slices.axis])
    ]  # fmt: skip


def _opened(path: Path, slices: Slices, seat: Seat) -> SafeTensors:
    file = path / str(slices.generation) / seat.file
    try:
        found = SafeTensors(file)
    except ModelError as e:
        raise CheckpointError(e.message) from None
    if found.metadata != {"generation": str(slices.generation)}:
        raise CheckpointError(
            f"{file} is of another checkpoint: its metadata are {found.metadata}, expected"
            f" generation {slices.generation}"
        )
    return found


def _joined(
    path: Path, files: list[SafeTensors], name: str, of: Held, begin: int, end: int
) -> Array:
    """The elements of a tensor from ``begin`` to ``end``."""
    t, each, _ = of
    size = math.prod(t.static_shape)
    out = np.zeros(end - begin, t.dtype.numpy)
    for n, file in enumerate(files):
        first, last = n * each, min((n + 1) * each, size)
        low, high = max(first, begin), min(last, end)
        if low >= high:
            continue
        held = file[name] if name in file else None  # noqa: SIM401  # get would raise
        if held is None or (held.dtype, held.shape) != (out.dtype, (last - first,)):
            what = "is not there" if held is None else f"is {held.dtype}{list(held.shape)}"
            raise CheckpointError(
                f"{file.path}: {name!r} {what}, and the manifest of {path} says"
                f" {out.dtype}{[last - first]}"
            )
        out[low - begin : high - begin] = held[low - first : high - first]
    return out


def _manifest(path: Path) -> Slices:
    file = path / MANIFEST
    try:
        raw: Any = json.loads(file.read_text(encoding="utf-8"))
    except OSError as e:
        raise CheckpointError(f"cannot read {file}: {e.strerror or e}") from None
    except ValueError as e:
        raise CheckpointError(f"{file} is no manifest of a checkpoint: {e}") from None
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        found = raw.get("format") if isinstance(raw, dict) else type(raw).__name__
        raise CheckpointError(f"{file} has format {found!r}, expected {FORMAT!r}")
    try:
        tensors = {
            str(name): Held(TensorType(tuple([int(n) for n in t["shape"]]), DTYPES[t["dtype"]]),
                            int(t["each"]), int(t.get("at", 0)))
            for name, t in raw["tensors"].items()
        }  # fmt: skip
        shape = tuple([(str(name), int(n)) for name, n in raw["mesh"].items()])
        found = Slices(int(raw["generation"]), shape, raw["axis"], str(raw["settings"]), tensors,
                       str(raw.get("parted", "")))  # fmt: skip
        for axis in (found.axis, *([found.parted] if found.parted else [])):
            if axis not in dict(shape):
                raise KeyError(axis)
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise CheckpointError(f"{file} is no manifest of a checkpoint: {e!r}") from None
    return found
