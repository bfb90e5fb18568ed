"""How a model's folder says that the states of a text's tokens become one vector."""

from __future__ import annotations

import os
from collections.abc import Collection

from rlx.errors import ModelError
from rlx.models.files import read_json

__all__ = ["pooling_of_folder"]

_MODES = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
}
"""The words of sentence-transformers; others have no name here."""


def pooling_of_folder(path: str, supported: Collection[str]) -> str | None:
    """The pooling that a folder asks for as sentence-transformers writes it, "mean", "cls" or
    "last"; None if it says nothing. ModelError for one that is not among those that are supported,
    and for modules that do something else."""
    folder, listed = None, os.path.join(path, "modules.json")
    for module in read_json(listed, list, []):
        if not isinstance(module, dict):
            raise ModelError(f"{listed} lists {module!r}, expected objects")
        kind = str(module.get("type", "")).rpartition(".")[2]
        if kind == "Pooling":
            folder = str(module.get("path", "1_Pooling"))
        elif kind not in ("Transformer", "Normalize"):
            raise ModelError(f"{listed} has a module {kind!r}, which is not supported")
    at = os.path.join(path, "1_Pooling" if folder is None else folder)
    config = os.path.join(at, "config.json")
    if folder is None and not os.path.exists(config):
        return None
    modes = read_json(config, dict)
    on = [k for k, v in modes.items() if k.startswith("pooling_mode_") and v]
    if len(on) != 1 or _MODES.get(on[0]) not in supported:
        known = ", ".join(key for key, name in _MODES.items() if name in supported)
        raise ModelError(f"{at}: the pooling is {on}; supported are {known}")
    return _MODES[on[0]]
