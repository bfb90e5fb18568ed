"""One graph on several devices: which of them can run it, which is fastest, and the next where one
fails.

    runner = GraphDevices(graph)
    runner.set_param("w", w)                      # on every device
    y = runner.run_fastest({"x": x})
    device, y = runner.run_try(["cuda", "cpu"], {"x": x})
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx import knobs
from rlx.base.clock import time_ns
from rlx.base.device_names import REFERENCE, label
from rlx.base.process import lock_of
from rlx.errors import (
    DeviceError,
    DeviceLostError,
    FaultError,
    GraphError,
    RlxError,
    UnsupportedError,
)  # fmt: skip
from rlx.ir.arrays import fixed, typed_array
from rlx.ir.builders import public
from rlx.ir.given import unknown
from rlx.ir.graph import Graph, check_param
from rlx.ir.pure import Uncopied
from rlx.runtime.backend import device_name, named_by, registered, why_not
from rlx.runtime.calls import array_of_bytes
from rlx.runtime.devices.available import available_devices, supports_graph, why_unsupported
from rlx.runtime.devices.candidates import DeviceBenchResult, DeviceCandidate
from rlx.runtime.devices.cost import estimate_ns
from rlx.runtime.devices.hardware import is_software
from rlx.runtime.devices.policy import DevicePolicy, checked_policy
from rlx.runtime.session import CompiledGraph, Session

if TYPE_CHECKING:
    from typing import Unpack

    from rlx.lowering.compilation import OptionArgs

__all__ = ["DeviceBenchResult", "DeviceCandidate", "DeviceFallbackError", "GraphDevices"]

Array = np.ndarray[Any, Any]
Inputs = Mapping[str, Any]
Chain = str | Sequence[str]


class DeviceFallbackError(DeviceError):
    """Every device of a chain failed; ``attempts`` says of each why.

    Look at the first attempt: the devices after it were only fallbacks.
    """

    def __init__(self, attempts: Sequence[tuple[str, str]]) -> None:
        self.attempts = tuple(attempts)
        listed = "".join(f"\n  {d or '(none)'}: {why}" for d, why in self.attempts)
        super().__init__(f"no device ran the graph:{listed}")


@public
class GraphDevices(Uncopied):
    """A graph on the devices that a policy allows. It is compiled for each when it is first run
    there, with ``options`` as ``Session.compile`` takes them. Safe to use from many threads."""

    def __init__(
        self, graph: Graph, policy: DevicePolicy | None = None, **options: Unpack[OptionArgs]
    ) -> None:
        graph.nodes()  # a graph without outputs is refused here, at the user's line
        self._graph, self._policy = graph.snapshot(), checked_policy(policy)
        self._options = options
        self._lock = lock_of(self)
        self._params: dict[str, Array] = {}
        self._compiled: dict[str, CompiledGraph] = {}
        self._viable: tuple[str, ...] | None = None
        self._winner = ""
        self.attempts: tuple[tuple[str, str], ...] = ()

    @classmethod
    def with_policy(cls, graph: Graph, policy: DevicePolicy) -> GraphDevices:
        """As the constructor."""
        return cls(graph, policy)

    @classmethod
    def from_env(cls, graph: Graph) -> GraphDevices:
        """Under the policy that the environment describes."""
        return cls(graph, DevicePolicy.from_env())

    @property
    def policy(self) -> DevicePolicy:
        """Which devices may be used."""
        return self._policy

    @property
    def graph(self) -> Graph:
        """The graph as it was given."""
        return self._graph.snapshot()

    # -- which device ----------------------------------------------------------------------

    def devices(self) -> tuple[str, ...]:
        """The devices that can run the graph under the policy, in its order."""
        with self._lock:
            if self._viable is None:
                able = (d for d in available_devices() if supports_graph(d, self._graph))
                self._viable = self._policy.apply(able)
            return self._viable

    def report(self) -> list[DeviceCandidate]:
        """Every device that the policy looks at, with what keeps it from running the graph."""
        best = self.fastest() if self.devices() else ""
        return [self._candidate(d, best) for d in self._policy.probe_set()]

    def _candidate(self, device: str, best: str) -> DeviceCandidate:
        why = why_not(device)
        able = not why and supports_graph(device, self._graph)
        if not why and not able:
            why = why_unsupported(device, self._graph)
        here, known = not why_not(device), registered(device)
        return DeviceCandidate(device, label(device), here, known, able, device == best, why)

    def fastest(self) -> str:
        """The device that the policy's strategy names, without running the graph: the first of its
        preferred ones if one can run it, or the one of least estimated cost. DeviceError if no
        device can run the graph."""
        found = self.devices()
        if not found:
            raise DeviceError(f"no device can run graph {self._graph.name!r} under the policy")
        preferred = [d for d in found if d in self._policy.prefer]
        # The processor is not slower by itself than by way of a GPU's API.
        found = preferred or [d for d in found if not is_software(d)] or found
        if preferred or len(found) == 1:
            return found[0]
        return min(found, key=lambda d: estimate_ns(d, self._graph))

    def resolve(self, hint: str | None = None) -> str:
        """The device that is asked for; DeviceError if it cannot run the graph. Without one
        RLX_DEVICE if it can, else the fastest."""
        if hint is not None:
            self._check_viable(hint)
            return device_name(hint)
        return self._wanted() or self.fastest()

    def _wanted(self) -> str:
        """The device of RLX_DEVICE, if it can run the graph; "" if it cannot, or there is none."""
        return next((d for d in named_by(knobs.device) if self._is_viable(d)), "")

    def resolve_chain(self, hint: Chain | None = None) -> str:
        """The first device of ``chain`` that can run the graph; DeviceError, which says of each why
        not, if none can."""
        return self._first(self.chain(hint), device_name)[0]

    def chain(self, hint: Chain | None = None) -> tuple[str, ...]:
        """The devices to try in turn: those that are asked for, or RLX_DEVICE_CHAIN, or the one
        that ``resolve`` names."""
        if hint is not None:
            return tuple(map(device_name, (hint,) if isinstance(hint, str) else hint))
        return named_by(knobs.device_chain) or (self.resolve(),)

    def resolve_with_inputs(self, hint: str | None, inputs: Inputs) -> str:
        """As ``resolve``; where the policy picks by benchmark, the fastest of runs on these inputs,
        which is then kept."""
        runs = self._policy.pick.runs
        if hint is not None or not runs or self._wanted():
            return self.resolve(hint)
        with self._lock:
            if not self._winner:
                found = self.benchmark(inputs, runs)
                self._winner = found[0].device if found else self.fastest()
            return self._winner

    def _is_viable(self, device: str) -> bool:
        """Whether a device that is asked for by name can run the graph under the policy."""
        return device in self.devices() or (device == REFERENCE and self._policy.allows(device))

    def _check_viable(self, device: str) -> None:
        device = device_name(device)
        if self._is_viable(device):
            return
        why = why_not(device)
        if why:
            raise DeviceError(f"{label(device)} is not available: {why}")
        if not self._policy.allows(device):
            raise DeviceError(f"{label(device)} is not allowed by the policy")
        raise UnsupportedError(
            f"{label(device)} cannot lower this graph under the active policy:"
            f" {self._candidate(device, '').blocker}"
        )

    # -- params ----------------------------------------------------------------------------

    def set_param(self, name: str, value: Any) -> None:
        """Set a param on every device that the graph is compiled for, and on those for which it
        will be: one that fails now is compiled for anew. Raises NameError, DTypeError or ShapeError
        for what does not fit."""
        types = {str(v.name): v.type for v in self._graph.params}
        if name not in types:
            raise unknown(name, list(types), "param")
        t = types[name]
        held = fixed(check_param(name, typed_array(value, name, t.dtype.name, "param"), t))
        with self._lock:
            self._params[name] = held
            self._write({name: held})

    def set_param_typed(self, name: str, data: bytes, dtype: str) -> None:
        """As ``set_param``, from the bytes of a flat array of a dtype ("f32")."""
        self.set_param(name, array_of_bytes(name, data, dtype))

    def sync_params_to_all(self) -> None:
        """Set every param again on every device that the graph is compiled for."""
        with self._lock:
            self._write(self._params)

    def _write(self, params: Mapping[str, Array]) -> None:
        for device, compiled in list(self._compiled.items()):
            try:
                for name, value in params.items():
                    compiled.set_param(name, value)
            except DeviceError:
                del self._compiled[device]

    # -- compiles --------------------------------------------------------------------------

    def compile(self, device: str) -> CompiledGraph:
        """The graph compiled for a device, which is done once; DeviceError or UnsupportedError if
        the device cannot run it."""
        device = device_name(device)
        with self._lock:
            if device not in self._compiled:
                self._check_viable(device)
                compiled = Session(device).compile(self._graph, **self._options)
                for name, value in self._params.items():
                    compiled.set_param(name, value)
                self._compiled[device] = compiled
            return self._compiled[device]

    def compile_fastest(self) -> CompiledGraph:
        """For the device that ``fastest`` names."""
        return self.compile(self.fastest())

    def compile_resolved(self, hint: str | None = None) -> CompiledGraph:
        """For the device that ``resolve`` names."""
        return self.compile(self.resolve(hint))

    def compile_resolved_with_inputs(self, hint: str | None, inputs: Inputs) -> CompiledGraph:
        """For the device that ``resolve_with_inputs`` names."""
        return self.compile(self.resolve_with_inputs(hint, inputs))

    def compile_chain(self, hint: Chain | None = None) -> tuple[str, CompiledGraph]:
        """For the first device of ``chain`` for which it can be, and which one that is."""
        return self._first(self.chain(hint), self.compile)

    def warm_all(self) -> tuple[str, ...]:
        """Compile for every device that can run the graph; the devices for which it was done.
        ``attempts`` then has those that failed, with why."""
        failed: dict[str, str] = {}
        for device in self.devices():
            try:
                self.compile(device)
            except RlxError as e:
                failed[device] = e.message
        self.attempts = tuple(failed.items())
        return tuple(d for d in self.devices() if d not in failed)

    # -- runs ------------------------------------------------------------------------------

    def run(self, device: str, inputs: Inputs) -> list[Array]:
        """Run on a device; raises as ``compile`` and ``CompiledGraph.run`` do."""
        return self.compile(device).run(inputs)

    def run_resolved(self, hint: str | None, inputs: Inputs) -> list[Array]:
        """Run on the device that ``resolve`` names."""
        return self.run(self.resolve(hint), inputs)

    def run_fastest(self, inputs: Inputs) -> list[Array]:
        """Run on the device that ``fastest`` names."""
        return self.run(self.fastest(), inputs)

    def run_resolved_with_inputs(self, hint: str | None, inputs: Inputs) -> list[Array]:
        """Run on the device that ``resolve_with_inputs`` names."""
        return self.run(self.resolve_with_inputs(hint, inputs), inputs)

    def run_chain(self, hint: Chain | None, inputs: Inputs) -> tuple[str, list[Array]]:
        """As ``run_try`` on the devices of ``chain``."""
        return self.run_try(self.chain(hint), inputs)

    def run_try(self, chain: Iterable[str], inputs: Inputs) -> tuple[str, list[Array]]:
        """Run on the first device of a chain that can, and say which one that was.

        ``attempts`` then has those before it, with why they failed: no such device here, a compile
        that failed, a device lost in the middle of a run. DeviceFallbackError if all failed. Names
        of no device, inputs that do not fit, and data that has no result are raised at once.
        """
        return self._first(chain, lambda device: self.run(device, inputs))

    def _first(self, chain: Iterable[str], use: Any) -> tuple[str, Any]:
        failed: list[tuple[str, str]] = []
        for device in tuple(map(device_name, chain)):
            try:
                self._check_viable(device)
            except RlxError as e:
                failed.append((device, f"not viable for this graph under policy: {e.message}"))
                continue
            try:
                found = use(device)
            except (GraphError, FaultError):
                raise
            except RlxError as e:
                failed.append((device, f"{type(e).__name__}: {e.message}"))
                self._forget(device, e)
                continue
            self.attempts = tuple(failed)
            return device, found
        self.attempts = tuple(failed) or (("", "empty fallback chain"),)
        raise DeviceFallbackError(self.attempts)

    def _forget(self, device: str, error: Exception) -> None:
        """What was compiled for a device that is lost went with it; the next compile opens it
        again."""
        if isinstance(error, DeviceLostError):
            with self._lock:
                self._compiled.pop(device, None)

    def benchmark(self, inputs: Inputs, runs: int) -> list[DeviceBenchResult]:
        """What the graph takes on every device that can run it, fastest first. ``runs`` runs count,
        after one that does not. Devices that fail are left out, with the reasons in ``attempts``.
        """
        if runs < 1:
            raise GraphError(f"a benchmark takes 1 run or more, found {runs}")
        found: list[DeviceBenchResult] = []
        attempts: list[tuple[str, str]] = []
        for device in self.devices():
            try:
                compiled, compile_ns = time_ns(lambda d=device: self.compile(d))
                compiled.run(inputs)
                times = [time_ns(lambda c=compiled: c.run(inputs))[1] for _ in range(runs)]
            except (GraphError, FaultError):
                raise
            except RlxError as e:
                attempts.append((device, str(e)))
                continue
            median = int(statistics.median(times))
            found.append(DeviceBenchResult(device, label(device), compile_ns, median))
        self.attempts = tuple(attempts)
        return sorted(found, key=lambda r: r.median_exec_ns)

    # -- changes ---------------------------------------------------------------------------

    def invalidate_cache(self) -> None:
        """Forget what was compiled, which devices can run the graph, and which was fastest. Params
        stay."""
        with self._lock:
            self._compiled.clear()
            self._viable, self._winner = None, ""

    def set_policy(self, policy: DevicePolicy) -> None:
        """Use another policy from now on; all that was found under the last is forgotten."""
        with self._lock:
            self._policy = checked_policy(policy)
            self.invalidate_cache()
