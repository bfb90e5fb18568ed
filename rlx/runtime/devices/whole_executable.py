"""Running the program of a whole graph on a device that takes such."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlx.base.frozen import frozen
from rlx.errors import FaultError, UnsupportedError
from rlx.ir.arrays import as_array
from rlx.ir.graph import Graph
from rlx.ir.op import caller
from rlx.runtime.artifact import Artifact, Variant
from rlx.runtime.backend import Backend
from rlx.runtime.by_slots import BySlots
from rlx.runtime.calls import check_params
from rlx.runtime.executable import wrong_count
from rlx.schedule.plan import Signature
from rlx.targets import best_features, find_target
from rlx.targets.gpu.program import GpuProgram
from rlx.targets.graph.devices import WholeDriver, shared_driver

__all__ = ["WholeBackend", "WholeExecutable"]

Array = np.ndarray[Any, Any]

_RECORD: Signature = ("error record", "i32", (2,))


class WholeBackend(Backend):
    """A device that takes whole graphs. DeviceError if there is none here."""

    def __init__(self, device: str, driver: WholeDriver | None = None) -> None:
        self.name, self.driver = device, driver or shared_driver(device)

    def load(self, graph: Graph, options: Mapping[str, Any], shared: Sequence[Any]) -> Any:
        """A graph with all dims bound, compiled for what the device is."""
        from rlx.lowering.compilation import Options
        from rlx.runtime.cache.artifacts import find_or_compile

        features, chosen = best_features(self.name, self.driver.features).name, Options.of(options)
        artifact, report = find_or_compile(
            graph, (self.name, features), chosen, lambda: find_target(f"{self.name}:{features}")
        )
        return self.loaded(artifact, report, chosen.donate)

    def loaded(
        self, artifact: Artifact, report: Any = None, donate: Sequence[tuple[int, int]] = ()
    ) -> WholeExecutable:
        """An artifact, loaded by the device; ArtifactError if it has nothing for it."""
        variant = artifact.fitting(self.name, self.driver.features, self.name)
        assert not isinstance(variant, Variant)
        made = WholeExecutable(variant.program, self.driver, report, donate)
        for name, value in artifact.values.items():
            made.set_param(name, value)
        return made


@frozen
class _Signatures:
    inputs: list[Signature]
    outputs: list[Signature]


class WholeExecutable(BySlots):
    """One program on a device. Safe to call from many threads: calls take turns.

    Params are copied to the device when they are set; a run copies inputs there and outputs back.
    """

    def __init__(
        self,
        program: GpuProgram,
        driver: WholeDriver,
        report: Any = None,
        donate: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.program, self.driver, self.report = program, driver, report
        self.donate = dict(donate)
        self.artifact = _Signatures(program.inputs, program.outputs)
        self.weights = self
        self._lock = threading.Lock()
        self._loaded = driver.load(program.kernels[0].code)
        self._params: dict[str, Any] = {}

    def set_param(self, name: str, value: Array) -> None:
        """Copy a param of its declared type and shape to the device."""
        held = self.driver.put(np.array(value, order="C"))
        with self._lock:
            self._params[name] = held

    def run_slots(self, *inputs: Any) -> tuple[Array, ...]:
        """Run on inputs in declared order; the results are new arrays."""
        program, expected = self.program, self.program.inputs
        names = [name for name, _, _ in program.params]
        check_params(names, self._params)
        if len(inputs) != len(expected):
            raise wrong_count(len(inputs), [name for name, _, _ in expected])
        given = [as_array(a, s, "input") for a, s in zip(inputs, expected, strict=True)]
        with self._lock:
            held = [self.driver.put(np.array(a, order="C")) for a in given]
            arguments = [*(self._params[n] for n in names), *held]
            outputs = [*program.outputs, *([_RECORD] if program.sites else [])]
            found = self.driver.run(self._loaded, arguments, outputs)
        if program.sites:
            code, site = map(int, found.pop())
            if code:
                raise FaultError.at_site(program.sites, code, site)
        return tuple(found)

    def profile(self, inputs: Sequence[Array], runs: int) -> Any:
        """UnsupportedError: a whole graph is one launch."""
        raise UnsupportedError(
            f"{self.program.target} runs a graph as one launch, whose parts cannot be timed;"
            " compile for 'cpu'",
            caller(),
        )
