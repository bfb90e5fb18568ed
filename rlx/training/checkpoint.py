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


SETTINGS = "rlx.training.settings"
"""The metadata that says how a checkpoint was trained, for people."""


def save(path: str | Path, state: Mapping[str, Array], names: Sequence[str], settings: str) -> None:
    """Write the named arrays of a state, and how it was trained."""
    try:
        write_safetensors(path, {n: state[n] for n in names}, {**FORMAT, SETTINGS: settings})
    except ModelError as e:
        raise CheckpointError(e.message) from None


def load(path: str | Path, state: Mapping[str, Array], names: Sequence[str]) -> str:
    """Put the arrays of a file in the place of the named ones, all of them or none; how the file
    was trained, "" if it does not say."""
    try:
        found = SafeTensors(path)
    except ModelError as e:
        raise CheckpointError(e.message) from None
    if {n: text for n, text in found.metadata.items() if n != SETTINGS} != FORMAT:
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
    return found.metadata.get(SETTINGS, "")
