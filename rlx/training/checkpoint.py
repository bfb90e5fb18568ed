"""The state of a run in a file, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlx.errors import CheckpointError, ModelError, did_you_mean
from rlx.models.safetensors import SafeTensors, write_safetensors

__all__ = ["load", "save"]

Array = np.ndarray[Any, Any]

FORMAT = {"rlx.training": "1"}
"""The metadata of a checkpoint."""


def save(path: str | Path, state: Mapping[str, Array], names: Sequence[str]) -> None:
    """Write the named arrays of a state."""
    try:
        write_safetensors(path, {n: state[n] for n in names}, FORMAT)
    except ModelError as e:
        raise CheckpointError(e.message) from None


def load(path: str | Path, state: Mapping[str, Array], names: Sequence[str]) -> None:
    """Put the arrays of a file in the place of the named ones, all of them or none."""
    try:
        found = SafeTensors(path)
    except ModelError as e:
        raise CheckpointError(e.message) from None
    if found.metadata != FORMAT:
        raise CheckpointError(
            f"{path} is no checkpoint of this version: its metadata are {found.metadata},"
            f" expected {FORMAT}"
        )
    for name in names:
        if name not in found:
            raise CheckpointError(f"{path} has no {name!r}{did_you_mean(name, found)}")
        here, there = state[name], found[name]
        if (here.dtype, here.shape) != (there.dtype, there.shape):
            raise CheckpointError(
                f"{path}: {name!r} is {there.dtype}{list(there.shape)}, and the run has"
                f" {here.dtype}{list(here.shape)}"
            )
    for name in found:
        if name not in names:
            raise CheckpointError(f"{path} has {name!r}, which the run has not")
    for name in names:
        state[name][...] = found[name]
