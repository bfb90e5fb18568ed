"""Sessions that choose their device by a policy, and graphs that are kept ready on all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlx.base.clock import time_ns
from rlx.base.device_names import label
from rlx.errors import DeviceError
from rlx.ir.builders import public
from rlx.ir.graph import Graph
from rlx.precision import PrecisionPolicy, check_policy, check_precision
from rlx.runtime.devices.graph_devices import Chain, DeviceFallbackError, GraphDevices
from rlx.runtime.devices.policy import DevicePolicy, checked_policy
from rlx.runtime.encoding import Array
from rlx.runtime.session import CompiledGraph, Session

if TYPE_CHECKING:
    from typing import Unpack

    from rlx.lowering.compilation import OptionArgs

__all__ = ["DeviceRouter", "FlexibleSession"]

Inputs = Mapping[str, Any]
OpPolicy = PrecisionPolicy | str | Mapping[str, str]

SLOWER, IN_A_ROW = 2.0, 3
"""A device has slowed where so many runs in a row take so many times the shortest one."""

RUNS = 3
"""Runs of a benchmark that looks for another device."""


@public
class FlexibleSession:
    """What a ``Session`` is without a device: graph by graph, one is found by a policy.

    ``precision`` and ``op_policy`` are those of ``Session`` and ``Session.with_policy``; of both,
    the policy holds.
    """

    def __init__(
        self,
        device_policy: DevicePolicy | None = None,
        precision: str = "f32",
        op_policy: OpPolicy | None = None,
    ) -> None:
        self.device_policy = checked_policy(device_policy)
        self.precision, self.op_policy = check_precision(precision), op_policy
        if op_policy is not None:
            check_policy(op_policy)

    def session(self, device: str) -> Session:
        """A session for a device; DeviceError if the policy does not allow it, or it is not
        here."""
        made = Session(device, self.precision)
        if not self.device_policy.allows(made.device):
            raise DeviceError(f"{label(made.device)} is not allowed by the session's device policy")
        return made if self.op_policy is None else made.with_policy(self.op_policy)

    def compile_on(self, graph: Graph, device: str, **options: Unpack[OptionArgs]) -> CompiledGraph:
        """Compile a graph for a device; raises as ``session`` and ``Session.compile``."""
        return self.session(device).compile(graph, **options)

    def compile_resolved(
        self, graph: Graph, hint: str | None = None, **options: Unpack[OptionArgs]
    ) -> CompiledGraph:
        """Compile a graph for the device that ``resolve_device`` names."""
        device = GraphDevices(graph, self.device_policy).resolve(hint)
        return self.compile_on(graph, device, **options)


@public
class DeviceRouter:
    """A graph that is compiled for all of its devices at once, so that no run waits for a compile.

    ``run`` uses the device that the policy picks (``GraphDevices.resolve_with_inputs``). With
    ``rebench_on_throttle`` three runs in a row that take twice the shortest one make the router
    measure all devices and go to the fastest: one that heats up, or that others use, is left.
    DeviceError if the graph can be compiled for no device; ``runner`` is the ``GraphDevices``
    itself.
    """

    def __init__(
        self, graph: Graph, policy: DevicePolicy | None = None, *, rebench_on_throttle: bool = True
    ) -> None:
        self.runner = GraphDevices(graph, policy)
        self.rebench_on_throttle = rebench_on_throttle
        self._winner, self._shortest, self._slow = "", dict[str, int](), 0
        if not self.runner.warm_all():
            raise DeviceFallbackError(self.runner.attempts or [("", "no device can run the graph")])

    def devices(self) -> tuple[str, ...]:
        """The devices that can run the graph under the policy."""
        return self.runner.devices()

    def set_param(self, name: str, value: Any) -> None:
        """Set a param on all devices."""
        self.runner.set_param(name, value)

    def set_param_typed(self, name: str, data: bytes, dtype: str) -> None:
        """As ``set_param``, from the bytes of a flat array of a dtype ("f32")."""
        self.runner.set_param_typed(name, data, dtype)

    def run(self, inputs: Inputs, hint: str | None = None) -> tuple[str, list[Array]]:
        """Run on the device that is asked for, or the one that the policy picks, and say which."""
        picked = self._winner if hint is None else ""
        device = picked or self.runner.resolve_with_inputs(hint, inputs)
        found, took = time_ns(lambda: self.runner.run(device, inputs))
        if hint is None and self.rebench_on_throttle and self._has_slowed(device, took):
            for best in self.runner.benchmark(inputs, RUNS)[:1]:
                self._winner, self._shortest, self._slow = best.device, {}, 0
        return device, found

    def _has_slowed(self, device: str, took: int) -> bool:
        shortest = min(took, self._shortest.get(device, took))
        self._shortest[device] = shortest
        self._slow = self._slow + 1 if took > SLOWER * shortest else 0
        return self._slow >= IN_A_ROW

    def run_on(self, device: str, inputs: Inputs) -> list[Array]:
        """Run on a device; raises as ``GraphDevices.run``."""
        return self.runner.run(device, inputs)

    def run_chain(self, inputs: Inputs, hint: Chain | None = None) -> tuple[str, list[Array]]:
        """Run on the first device of a chain that can, and say which
        (``GraphDevices.run_chain``)."""
        return self.runner.run_chain(hint, inputs)
