"""Runs that are gathered, given to a device together, and waited for once.

stream = rlx.CommandStream("cuda")
y = stream.run(f, {"x": x})
stream.submit()                    # the device has the work; nothing is waited for
stream.wait()
print(y.result())
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlx.errors import DeviceError, FaultError, GraphError, RlxError, UnsupportedError
from rlx.ir.builders import public
from rlx.runtime.backend import backend_for, device_name
from rlx.runtime.devices.available import drain_device
from rlx.runtime.session import CompiledGraph

__all__ = ["CommandStream", "Queued", "SyncStream"]


@public
class Queued:
    """A run that a stream was given; ``result`` has what it gave, once it was waited for."""

    def __init__(self, compiled: CompiledGraph, inputs: Mapping[str, Any]) -> None:
        self.compiled, self.inputs = compiled, dict(inputs)
        self.found: Any = None
        self.failed: RlxError | None = None
        self.state = "queued"

    def result(self) -> list[Any]:
        """The outputs: arrays of the device, or of the host where the device is that. GraphError
        before the stream was waited for; the run's own error if it failed."""
        if self.state != "done":
            raise GraphError(f"the run is {self.state}; submit() its stream, and wait() for it")
        if self.failed is not None:
            raise self.failed
        return self.found

    def start(self) -> None:
        """Give the run to its device, in whose order of work it comes next."""
        self.state = "submitted"
        try:
            try:
                self.found = self.compiled.run_on_device(self.inputs)
            except UnsupportedError:  # the device is the host
                self.found = self.compiled.run(self.inputs)
        except (GraphError, FaultError, DeviceError) as e:
            self.failed = e


@public
class CommandStream:
    """The runs that are given to one device, in order. DeviceError if it is not available."""

    def __init__(self, device: str = "cpu") -> None:
        backend_for(device)
        self.device = device_name(device)
        self._queued: list[Queued] = []
        self._submitted: list[Queued] = []

    def run(self, compiled: CompiledGraph, inputs: Mapping[str, Any]) -> Queued:
        """Add a run, which ``submit`` starts; GraphError for what is compiled for another
        device."""
        if compiled.backend.name != self.device:
            raise GraphError(
                f"the stream is of device {self.device!r}, and the graph is compiled for"
                f" {compiled.backend.name!r}"
            )
        self._queued.append(Queued(compiled, inputs))
        return self._queued[-1]

    def submit(self) -> None:
        """Give all that was added to the device. On a GPU this returns when the device has the work
        (as ``CompiledGraph.run_on_device`` does), on the host when it is done."""
        queued, self._queued = self._queued, []
        for run in queued:
            run.start()
        self._submitted += queued

    def wait(self) -> None:
        """Wait for all that was submitted."""
        drain_device(self.device)
        for run in self._submitted:
            run.state = "done"
        self._submitted.clear()

    def submit_and_wait(self) -> None:
        """``submit``, then ``wait``."""
        self.submit()
        self.wait()


@public
class SyncStream(CommandStream):
    """A stream whose runs are done as they are added: ``submit`` and ``wait`` have nothing to
    do."""

    def run(self, compiled: CompiledGraph, inputs: Mapping[str, Any]) -> Queued:
        queued = super().run(compiled, inputs)
        self.submit_and_wait()
        return queued
