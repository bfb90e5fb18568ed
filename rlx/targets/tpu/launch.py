"""The device ``tpu``: programs run by a PJRT plugin of this machine, libtpu or another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx import knobs
from rlx.errors import DeviceError, ToolchainError
from rlx.schedule.plan import Signature
from rlx.targets.tpu.features import PRESETS
from rlx.targets.tpu.pjrt import Plugin, find_plugin, has_tpu
from rlx.types import DTYPES

__all__ = ["TpuDriver", "missing", "open_driver", "software"]

Array = np.ndarray[Any, Any]


def missing() -> str:
    """Why there is no device: no plugin, or nothing that libtpu would find."""
    _, why = find_plugin()
    if why or knobs.pjrt.get() or has_tpu():
        return why
    return (
        "this machine has no TPU; rlx compile --target tpu compiles for one that is elsewhere, and"
        f" {knobs.pjrt.variable}=path names a PJRT plugin of another device"
    )


def software() -> bool:
    """Whether the device is the processor: a plugin does not say."""
    return False


def open_driver() -> TpuDriver:
    """The driver of the first device; DeviceError says why if there is none."""
    path, why = find_plugin()
    if why:
        raise DeviceError(f"tpu: {why}")
    return TpuDriver(Plugin.at(path))


class TpuDriver:
    """The first device of a plugin."""

    def __init__(self, plugin: Plugin) -> None:
        self.plugin = plugin
        try:
            self.client = plugin.client()
        except ToolchainError as e:
            raise DeviceError(f"tpu: {plugin.path} finds no device: {e.message}") from None
        devices = plugin.devices(self.client)
        if not devices:
            raise DeviceError(f"tpu: {plugin.path} has no device in this process")
        self.device = devices[0]
        self.name = plugin.kind(self.device)

    @property
    def features(self) -> frozenset[str]:
        """The generation, by its preset's name."""
        told = self.name.lower().replace("tpu ", "").replace(" lite", "e")
        return frozenset(name for name in PRESETS if told in (name, name.removeprefix("tpu")))

    def load(self, code: bytes) -> int:
        """A portable program, compiled by the plugin."""
        return self.plugin.loaded(self.client, code)

    def put(self, a: Array) -> _Held:
        """A copy of an array on the device."""
        return _Held(self.plugin, self.plugin.put(self.client, self.device, a))

    def run(
        self, loaded: int, arguments: Sequence[Any], outputs: Sequence[Signature]
    ) -> list[Array]:
        """The outputs of a program, copied back."""
        buffers = [held.buffer for held in arguments]
        made = self.plugin.run(loaded, buffers, len(outputs))
        held = [_Held(self.plugin, buffer) for buffer in made]
        found: list[Array] = []
        for one, (_, dt, shape) in zip(held, outputs, strict=True):
            out = np.empty(shape, DTYPES[dt].numpy)
            self.plugin.get(one.buffer, out)
            found.append(out)
        return found


class _Held:
    """A buffer of the device, given back when nothing refers to it."""

    def __init__(self, plugin: Plugin, buffer: int) -> None:
        self.plugin, self.buffer = plugin, buffer

    def __del__(self) -> None:
        self.plugin.free(self.buffer)
