"""Compiling for a TPU with none there: libtpu's own compiler, asked for a topology by its name."""

from __future__ import annotations

import json
from collections.abc import Mapping

from rlx.base.frozen import frozen
from rlx.errors import ToolchainError
from rlx.targets.tpu.features import TpuFeatures
from rlx.targets.tpu.pjrt import Plugin, find_libtpu

__all__ = ["Compiled", "compiled"]


@frozen
class Compiled:
    """What libtpu made of a program for a generation: its file, bytes on the device (code,
    arguments, outputs, aliases, temporaries), and what it expects of a run."""

    features: TpuFeatures
    executable: bytes
    memory: Mapping[str, int]
    cost: Mapping[str, float]

    @property
    def fits(self) -> bool:
        """Whether it fits the memory of a chip."""
        return sum(self.memory.values()) <= self.features.hbm_bytes

    def report(self) -> str:
        """The numbers as JSON."""
        kept = ("flops", "bytes accessed", "transcendentals", "optimal_seconds")
        cost = {k: self.cost[k] for k in kept if k in self.cost}
        said = {"generation": self.features.name, "memory": dict(self.memory), "cost": cost,
                "fits": self.fits}  # fmt: skip
        return json.dumps(said)


def compiled(code: bytes, features: TpuFeatures) -> Compiled:
    """StableHLO compiled for a generation; ToolchainError where libtpu is not, or refuses it."""
    path, why = find_libtpu()
    if why:
        raise ToolchainError(f"the stage tpu: {why}")
    plugin = Plugin.at(path)
    executable = plugin.compile_for(plugin.topology(features.topology), code)
    try:
        return Compiled(
            features, plugin.serialized(executable), plugin.memory(executable),
            plugin.cost(executable),
        )  # fmt: skip
    finally:
        plugin.call("Executable_Destroy", executable=executable)
