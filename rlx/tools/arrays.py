"""Arrays that a command line names: ``NAME=FILE.npy``, and files of many."""

from __future__ import annotations

import argparse
import os
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any
from zipfile import BadZipFile

import numpy as np

from rlx.errors import RlxError
from rlx.types import DTYPES

__all__ = [
    "Once", "check_free", "dim", "dim_or_range", "dim_or_sizes", "many_arrays", "named_arrays",
    "pair", "save_array",
]  # fmt: skip

Array = np.ndarray[Any, Any]


def pair(text: str) -> tuple[str, str]:
    """``NAME=FILE`` as a pair; ArgumentTypeError for other text."""
    return _halves(text, "NAME=FILE.npy")


def dim(text: str) -> tuple[str, int]:
    """``NAME=SIZE``, the size of a symbolic dim; ArgumentTypeError for other text."""
    name, size = _halves(text, "NAME=SIZE")
    try:
        return name, int(size)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"found {text!r}, expected a whole number for the size of {name}"
        ) from None


def dim_or_range(text: str) -> tuple[str, int | tuple[int, int]]:
    """As ``dim``, or ``NAME=LEAST..MOST``."""
    name, _, size = text.partition("=")
    least, dots, most = size.partition("..")
    if name and dots and least.isdecimal() and most.isdecimal():
        return name, (int(least), int(most))
    return dim(text)


def dim_or_sizes(text: str) -> tuple[str, int | tuple[int, int] | list[int]]:
    """As ``dim_or_range``, or ``NAME=SIZE,SIZE`` with two sizes or more."""
    name, _, listed = text.partition("=")
    sizes = listed.split(",")
    if name and len(sizes) > 1 and all(size.isdecimal() for size in sizes):
        return name, [int(size) for size in sizes]
    return dim_or_range(text)


class Once(argparse.Action):
    """An option for pairs, in a list, that may be given again but for no name a second time."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Take one more pair; wrong usage if its name was there before."""
        before = getattr(namespace, self.dest)
        if any(name == values[0] for name, _ in before):
            raise argparse.ArgumentError(self, f"{values[0]!r} was given twice")
        setattr(namespace, self.dest, [*before, values])


def _halves(text: str, form: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected {form}")
    return name, value


def named_arrays(pairs: Iterable[tuple[str, str]], types: Mapping[str, str]) -> dict[str, Array]:
    """The arrays of .npy files by name. ``types`` are the element types that are wanted: a file
    keeps bfloat16 as bare bytes. RlxError for a file that holds no array."""
    arrays: dict[str, Array] = {}
    for name, path in pairs:
        arrays[name] = _typed(_read(path), types.get(name))
    return arrays


def many_arrays(path: str, types: Mapping[str, str]) -> dict[str, Array]:
    """The arrays of a .safetensors or .npz file that ``types`` names."""
    if path.endswith(".safetensors"):
        from rlx.models.safetensors import SafeTensors

        tensors = SafeTensors(path)
        return {name: tensors[name] for name in types if name in tensors}
    found = _read(path)
    if isinstance(found, np.ndarray):
        raise RlxError(f"{path} holds one array without a name; expected .safetensors or .npz")
    with _arrays_in(path):
        return {name: _typed(found[name], dt) for name, dt in types.items() if name in found}


def check_free(path: str, force: bool) -> None:
    """RlxError for a file that is there already, unless it may be written over."""
    if not force and os.path.exists(path):
        raise RlxError(f"{path} is there already; give another name, or --force")


def save_array(path: str, value: Array, force: bool) -> None:
    """Write an array as a .npy file; RlxError for one that is there, unless ``force``."""
    check_free(path, force)
    try:
        with open(path, "wb") as f:
            np.save(f, value, allow_pickle=False)
    except OSError as e:
        raise RlxError(f"cannot write {path}: {e.strerror or e}") from None


def _read(path: str) -> Any:
    with _arrays_in(path):
        return np.load(path, allow_pickle=False)


@contextmanager
def _arrays_in(path: str) -> Generator[None]:
    """What NumPy raises while it reads a file as an RlxError."""
    try:
        yield
    except OSError as e:
        raise RlxError(f"cannot read {path}: {e.strerror or e}") from None
    except (ValueError, EOFError, BadZipFile) as e:
        raise RlxError(
            f"{path} holds no array{_instead(path, e)}; expected what numpy.save or numpy.savez"
            " writes, of numbers"
        ) from None


def _instead(path: str, error: Exception) -> str:
    """What a file has in the place of an array, or else what NumPy says of it."""
    with open(path, "rb") as f:
        first = f.read(6)
    if not first:
        return ": it is empty"
    # NumPy takes any other file for a pickle, and says how to load that.
    own = first.startswith((b"\x93NUMPY", b"PK\x03\x04"))
    return f": {error}" if own else f": it begins with {first!r}"


def _typed(value: Any, dt: str | None) -> Array:
    if dt == "bf16" and value.dtype == np.dtype("V2"):
        return value.view(DTYPES["bf16"].numpy)
    return value
