"""Backends: what a device must offer, and the registry in which they are found by name.

A backend can be registered from outside:

    class MyBackend(rlx.Backend): ...

    rlx.register_backend("mydevice", MyBackend)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from rlx import knobs
from rlx.base.gc_pause import importing, paused
from rlx.base.process import is_main_interpreter
from rlx.errors import DeviceError, GraphError, UnsupportedError, a_type, did_you_mean
from rlx.ir.builders import located
from rlx.ir.graph import Graph
from rlx.ir.location import caller
from rlx.ir.value import Value
from rlx.knobs import Knob
from rlx.precision import Precision
from rlx.runtime.artifact import Artifact
from rlx.runtime.calls import memory_is_the_hosts
from rlx.runtime.executable import Executable
from rlx.targets import TARGETS
from rlx.targets.gpu import drivers
from rlx.targets.graph import devices as whole_devices
from rlx.types import TensorType

if TYPE_CHECKING:
    from rlx.runtime.sized import Variants
    from rlx.runtime.sized_variant import ArtifactVariants
    from rlx.schedule.plan import Signature

__all__ = [
    "ArtifactBackend",
    "Backend",
    "ExecutableGraph",
    "Weights",
    "backend_for",
    "default_device",
    "device_name",
    "devices",
    "instructions_of",
    "named_by",
    "register_backend",
    "registered",
    "signature_of",
    "why_not",
]


class Weights(Protocol):
    """What executables hold their params in; those of one graph may share it."""

    def set_param(self, name: str, value: np.ndarray[Any, Any]) -> None:
        """Use an array of the param's type and shape as its value from the next call on."""
        ...


class ExecutableGraph(Protocol):
    """A graph with all dims bound, ready to run: what ``Backend.load`` gives.

    ``artifact`` has the ``inputs`` and ``outputs`` as signatures (name, element type, shape), and
    ``report`` what the compile said, or None. It may also have ``run_in_place``, ``run_on_device``
    and ``profile``, as ``CompiledGraph`` has, on inputs in declared order.
    """

    artifact: Any
    weights: Weights
    report: Any

    def run_slots(self, *inputs: Any) -> tuple[Any, ...]:
        """Run on inputs in declared order, which are of its types and shapes."""
        ...

    def run_into(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """As ``run_slots``, and write the results into arrays of the caller."""
        ...


class Backend(ABC):
    """Compiles and loads graphs for one device: the base class of all backends.

    A backend has a ``name`` and ``load``; what else a device can do is overridden. Where
    ``supported_ops`` is not None, it is a sequence of full names of ops ("mir.matmul") or a method
    that gives one: graphs come to the backend rewritten to those ops, and others are refused before
    (``rlx.runtime.claims``).
    """

    name: str
    supported_ops: Any = None

    @abstractmethod
    def load(self, graph: Graph, options: Mapping[str, Any], shared: Sequence[Any]) -> Executable:
        """A graph with all dims bound, compiled and loaded (``ExecutableGraph``). ``shared`` are
        the weights of its executables at other bindings, for the new one to use if they fit it."""

    def variants(self, graph: Graph, options: Mapping[str, Any]) -> Any:
        """What compiles a graph with symbolic dims for many sizes at once; None, the default, if
        each binding is loaded by itself."""
        return None

    def loaded(self, artifact: Artifact) -> Any:
        """An artifact ready to run. By default UnsupportedError: the device runs none."""
        raise UnsupportedError(
            f"the backend {self.name!r} runs no artifacts, since it has no method 'loaded'; compile"
            " the graph with its session",
            caller(),
        )

    def loaded_variants(self, artifact: Artifact) -> Any:
        """The variants of an artifact for many sizes; UnsupportedError as for ``loaded``."""
        raise UnsupportedError(
            f"the backend {self.name!r} runs no artifacts with symbolic dims, since it has no"
            " method 'loaded_variants'; give rlx.compile_artifact dims=, or compile the graph with"
            " its session",
            caller(),
        )

    def put(self, value: Any) -> Any:
        """A copy of an array in the memory of the device. By default UnsupportedError: the device
        computes in the host's memory."""
        raise memory_is_the_hosts(self.name)

    def set_threads(self, n: int) -> None:  # noqa: B027 -- a default
        """Set the number of threads that runs may use. By default any number is accepted, and
        changes nothing."""


class CpuBackend(Backend):
    """The host's processor."""

    name = "cpu"

    def load(self, graph: Graph, options: Mapping[str, Any], shared: Sequence[Any]) -> Executable:
        with importing():
            from rlx.lowering.compilation import Options
            from rlx.runtime.cache.artifacts import find_or_compile
            from rlx.targets.cpu import make_target
            from rlx.targets.cpu.features import require, selected

        knobs.num_threads.get()  # the native runtime reads it too, and its error is not ours
        # RLX_CPU may name another machine, whose code would not run here.
        features, chosen = require(selected()).name, Options.of(options)
        with paused():
            artifact, report = find_or_compile(
                graph, ("cpu", features), chosen, lambda: make_target(features)
            )
        return Executable(artifact, report, shared, chosen.donate)

    def variants(self, graph: Graph, options: Mapping[str, Any]) -> Variants | None:
        """What compiles a graph with symbolic dims for many sizes at once, if that is wanted."""
        if knobs.sizes.get() != "symbolic":
            return None
        from rlx.lowering.compilation import Options
        from rlx.runtime.sized import Variants
        from rlx.targets.cpu import make_target
        from rlx.targets.cpu.features import require, selected

        features = require(selected()).name
        target = ("cpu", features)
        return Variants(graph, target, lambda: make_target(features), Options.of(options))

    def loaded(self, artifact: Artifact) -> Executable:
        """An artifact ready to run."""
        knobs.num_threads.get()
        return Executable(artifact)

    def loaded_variants(self, artifact: Artifact) -> ArtifactVariants:
        """The variants of an artifact for many sizes."""
        from rlx.runtime.sized_variant import ArtifactVariants

        knobs.num_threads.get()
        return ArtifactVariants(artifact, artifact.all_of_this_machine())

    def set_threads(self, n: int) -> None:
        from rlx.runtime import _native

        try:
            _native.set_threads(n)
        except _native.Error as e:
            raise GraphError(f"threads: found {e.found}, expected {e.expected}", caller()) from None


class ArtifactBackend(Backend):
    """A backend that runs an artifact, which is compiled already."""

    def __init__(self, backend: Backend, artifact: Artifact) -> None:
        self.name, self.backend, self.artifact = backend.name, backend, artifact

    def load(self, graph: Graph, options: Mapping[str, Any], shared: Sequence[Any]) -> Executable:
        """The artifact; the graph has its signature alone, and is not looked at."""
        return self.backend.loaded(self.artifact)

    def variants(self, graph: Graph, options: Mapping[str, Any]) -> Any:
        """What the artifact has for many sizes, where dims of its inputs are symbols."""
        return self.backend.loaded_variants(self.artifact)

    def set_threads(self, n: int) -> None:
        """As the backend's own."""
        self.backend.set_threads(n)


def instructions_of(device: str, precision: Precision) -> frozenset[str]:
    """What a device has beyond the common instructions, where a precision depends on it."""
    if device != "cpu" or precision is not Precision.HIGH:
        return frozenset()
    from rlx.targets.cpu.features import selected

    return selected().has


def signature_of(artifact: Artifact) -> Graph:
    """What callers ask a graph for: its inputs, params and outputs. There are no nodes."""
    graph = Graph("artifact")

    def values(signatures: Sequence[Signature]) -> list[Value]:
        return [Value(TensorType.of(s, dt), graph=graph, name=name) for name, dt, s in signatures]

    graph.inputs, graph.params = values(artifact.inputs), values(artifact.params)
    graph.outputs = values(artifact.outputs)
    graph.output_names = tuple(name for name, _, _ in artifact.outputs)
    return graph


class InterpreterBackend(Backend):
    """The reference interpreter as a device: slow, plain, and right."""

    name = "interpret"

    def load(self, graph: Graph, options: Mapping[str, Any], shared: Sequence[Any]) -> Any:
        from rlx.runtime.interpreted import Interpreted

        return Interpreted(graph, shared, options.get("donate", ()))


class Registered(NamedTuple):
    """How to make a backend, and why its device cannot be used now ("" if it can)."""

    factory: Callable[[], Backend]
    missing: Callable[[], str]


def _present() -> str:
    return ""


def _on_device(api: str) -> Registered:
    """The backend of a GPU's API; its driver says why there is no device."""

    def made() -> Backend:
        from rlx.runtime.devices.gpu_executable import DeviceBackend

        return DeviceBackend(api)

    def missing() -> str:
        return drivers.probe(api).why

    return Registered(made, missing)


def _of_whole_graphs(device: str) -> Registered:
    """The backend of a device that takes whole graphs."""

    def made() -> Backend:
        from rlx.runtime.devices.whole_executable import WholeBackend

        return WholeBackend(device)

    return Registered(made, lambda: whole_devices.missing(device))


_registry: dict[str, Registered] = {
    "cpu": Registered(CpuBackend, _present),
    "interpret": Registered(InterpreterBackend, _present),
    **{api: _on_device(api) for api, row in drivers.DRIVERS.items() if row.launches},
    **{name: _of_whole_graphs(name) for name in whole_devices.DEVICES},
}


@located
def register_backend(
    device: str, factory: Callable[[], Backend], missing: Callable[[], str] = _present
) -> None:
    """Make a device available under a name; a name that is taken is a DeviceError. ``factory``
    makes its ``Backend`` for each session; ``missing`` says why the device cannot be used now, and
    "" if it can."""
    if device in _registry:
        raise DeviceError(f"a backend for {device!r} is already registered")
    _registry[device] = Registered(factory, missing)


@located
def devices() -> tuple[str, ...]:
    """The names of the registered devices that can be used."""
    return tuple(name for name, entry in _registry.items() if not entry.missing())


def registered(device: str) -> bool:
    """Whether there is a backend for a device, whether it can be used now or not."""
    return device in _registry


def device_name(device: str) -> str:
    """A device as RLX calls it, from any name of it ("vk", "Vulkan", "CPU"): a registered one, one
    that RLX knows, or a target. DeviceError, which lists the names, for what is no device."""
    given = device.strip().lower() if isinstance(device, str) else ""
    if isinstance(device, str) and device in _registry:
        return str(device)
    for name in _registry:
        if name.lower() == given:
            return name
    from rlx.base.device_names import NAMES

    if given in NAMES or given in TARGETS:
        return NAMES.get(given, given)
    names = list(dict.fromkeys([*_registry, *NAMES, *TARGETS]))
    raise DeviceError(
        f"unknown device {device!r}{did_you_mean(device, names)}; available: {', '.join(devices())}"
        f"; names that RLX knows: {', '.join(names)}"
    )


def named_by(knob: Knob[str] | Knob[tuple[str, ...]]) -> tuple[str, ...]:
    """The devices that a variable of the environment names, as RLX calls them; DeviceError, which
    says which variable, for what is no device."""
    text = knob.get()
    names = [text] if text and isinstance(text, str) else text
    with knob.blamed():
        return tuple(dict.fromkeys(map(device_name, names)))


def default_device() -> str:
    """The device where none is asked for: that of RLX_DEVICE, else the CPU. DeviceError for one
    that is unknown or not available."""
    named = named_by(knobs.device)
    if named and (why := why_not(named[0])):
        raise DeviceError(
            f"device {named[0]!r}, which the variable {knobs.device.variable} asks for, is not"
            f" available: {why}; use one of {', '.join(devices())}"
        )
    return named[0] if named else "cpu"


def why_not(device: str) -> str:
    """Why a device cannot be used now, "" if it can; DeviceError for what is no device."""
    name = device_name(device)
    if name in _registry:
        return _registry[name].missing()
    from rlx.runtime.devices.hardware import why_missing

    return why_missing(name)


@located
def backend_for(device: str) -> Backend:
    """The backend of a device; DeviceError if it is unknown or unavailable, or if what was
    registered for it makes no Backend, UnsupportedError in another interpreter of the process than
    the main one."""
    if not is_main_interpreter():
        raise UnsupportedError(
            "RLX, like NumPy, works in the main interpreter of a process alone; use processes in"
            ' the place of subinterpreters (multiprocessing\'s "spawn")',
            caller(),
        )
    name, why = device_name(device), why_not(device)
    if why:
        from rlx.base.device_names import label

        more = "" if registered(name) else "; rlx.register_backend adds a backend from outside"
        raise DeviceError(
            f"{label(name)}: device {name!r} is not available: {why}{more};"
            f" use one of {', '.join(devices())}"
        )
    made: Any = _registry[name].factory()
    if not isinstance(made, Backend):
        raise DeviceError(
            f"device {name!r}: what was registered for it makes {a_type(made)}, expected"
            " an rlx.Backend; make that the base class, which has defaults for all methods but load"
        )
    return made
