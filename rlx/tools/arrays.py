"""Arrays that a command line names: ``NAME=FILE.npy``, and files of many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from rlx.errors import RlxError
from rlx.types import DTYPES

__all__ = ["many_arrays", "named_arrays", "pair", "save_array"]

Array = np.ndarray[Any, Any]


def pair(text: str) -> tuple[str, str]:
    """``NAME=VALUE`` as a pair; ValueError, which argparse reports, for other text."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise ValueError(text)
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
    return {name: _typed(found[name], dt) for name, dt in types.items() if name in found}


def save_array(path: str, value: Array) -> None:
    """Write an array as a .npy file."""
    try:
        with open(path, "wb") as f:
            np.save(f, value, allow_pickle=False)
    except OSError as e:
        raise RlxError(f"cannot write {path}: {e.strerror or e}") from None


def _read(path: str) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except OSError as e:
        raise RlxError(f"cannot read {path}: {e.strerror or e}") from None
    except (ValueError, EOFError) as e:
        raise RlxError(f"{path} holds no array: {e}; expected what numpy.save writes") from None


def _typed(value: Any, dt: str | None) -> Array:
    if dt == "bf16" and value.dtype == np.dtype("V2"):
        return value.view(DTYPES["bf16"].numpy)
    return value
