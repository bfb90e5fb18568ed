"""The devices of targets that take whole graphs: which of them are here. Nothing else is imported
until one is asked for."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np

    from rlx.schedule.plan import Signature

__all__ = ["DEVICES", "WholeDriver", "is_software", "missing", "shared_driver"]

DEVICES = {
    "tpu": "rlx.targets.tpu.launch",
    "mlx": "rlx.targets.mlx.launch",
    "ane": "rlx.targets.ane.launch",
}
"""The module of each: ``missing()`` says why it is not here, ``open_driver()`` gives its driver,
and ``software()`` says whether it is the processor."""


class WholeDriver(Protocol):
    """Runs programs of whole graphs on a device."""

    @property
    def features(self) -> frozenset[str]:
        """What the device is, in the words of the target's features."""
        ...

    def load(self, code: bytes) -> Any:
        """The file of a program, ready to run."""
        ...

    def put(self, a: np.ndarray[Any, Any]) -> Any:
        """A copy of an array in the memory of the device."""
        ...

    def run(
        self, loaded: Any, arguments: Sequence[Any], outputs: Sequence[Signature]
    ) -> list[np.ndarray[Any, Any]]:
        """The outputs of a program on what ``put`` gave, as new arrays."""
        ...


_open: dict[str, WholeDriver] = {}
_lock = threading.Lock()


def missing(device: str) -> str:
    """Why a device cannot be used now; "" if it can."""
    return importlib.import_module(DEVICES[device]).missing()


def is_software(device: str) -> bool:
    """Whether a device that is here is this machine's processor by another name."""
    return not missing(device) and importlib.import_module(DEVICES[device]).software()


def shared_driver(device: str) -> WholeDriver:
    """The driver that this process has of a device; DeviceError if it cannot be opened."""
    with _lock:
        if device not in _open:
            _open[device] = importlib.import_module(DEVICES[device]).open_driver()
        return _open[device]
