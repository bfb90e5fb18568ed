"""Sessions compile graphs for a device; compiled graphs hold params and run."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Never

import numpy as np

from rlx.arrays import as_array, typed_array
from rlx.errors import ArtifactError, GraphError, NameError, ShapeError, UnsupportedError
from rlx.graph import Graph, check_param, sizes_of
from rlx.ops.base import caller
from rlx.ops.builders import located
from rlx.precision import Precision, PrecisionPolicy, Types, check_policy, check_precision, types_of
from rlx.runtime.artifact import Artifact
from rlx.runtime.backend import Backend, Loaded, Weights, backend_for, device_name, signature_of
from rlx.runtime.calls import (
    array_of_bytes,
    check_outputs,
    check_params,
    check_state,
    memory_is_the_hosts,
    not_one_mapping,
    of_the_host,
    shape_of,
    written_to,
)
from rlx.runtime.donation import check_donations
from rlx.runtime.executable import Executable, unknown
from rlx.types import TensorType

if TYPE_CHECKING:
    from pathlib import Path

    from rlx.lowering.base import Options
    from rlx.modules import GraphModule
    from rlx.precision.rewrite import PrecisionReport
    from rlx.runtime.device_array import DeviceArray
    from rlx.runtime.profile import Profile

__all__ = ["CompiledGraph", "Session"]

Array = np.ndarray[Any, Any]

MAX_BINDINGS = 64
"""Compiled shapes that a graph with symbolic dims keeps; the one unused for longest goes first."""


class Session:
    """Compiles graphs for one device.

    ``device`` is a device's name ("cpu") or another name of it ("vk"), in either case of letters;
    DeviceError if it is unknown or unavailable.
    ``precision`` says in what it multiplies (``rlx.Precision``); by "f32" every op computes in its
    own element type. ``threads`` sets the number of threads of the process; by default what
    affinity, cgroup quota and RLX_NUM_THREADS allow.
    """

    def __init__(
        self, device: str = "cpu", precision: str = "f32", *, threads: int | None = None
    ) -> None:
        self.device, self.precision = device_name(device), located(check_precision)(precision)
        self.types: Types = types_of(self.precision, _instructions(self.device, self.precision))
        plain = not self.types.changes
        self.policy = PrecisionPolicy.ALWAYS_F32 if plain else PrecisionPolicy.CUSTOM
        self.backend: Backend = backend_for(self.device)
        if threads is not None:
            whole = isinstance(threads, int) and not isinstance(threads, bool)
            if not whole or threads.bit_length() > 63:
                raise GraphError(f"threads is a number from 1 on, found {threads!r}", caller())
            self.backend.set_threads(threads)

    def compile(
        self, graph: Graph, *, dims: Mapping[str, int] | None = None, **options: Any
    ) -> CompiledGraph:
        """Compile a graph. ``dims`` binds symbolic dims now; others bind at the first call of each
        shape. ``options`` are those of ``rlx.lowering.base.Options``."""
        from rlx.lowering.compilation import Options

        if not isinstance(graph, Graph):
            raise GraphError(f"compile takes a Graph, found a {type(graph).__name__}", caller())
        # What is wrong is refused at the user's line, and not at the first call of some shape.
        graph.nodes()
        Options.of(options)
        report = None
        if self.types.changes:
            from rlx.precision.rewrite import with_precision

            graph, report = with_precision(graph, self.types)
        bound = graph if dims is None else graph.bind(dims)
        check_donations(bound, options.get("donate", ()))
        return CompiledGraph(bound, self.backend, options, report)

    compile_graph = compile

    def compile_with(
        self, graph: Graph, options: Options, *, dims: Mapping[str, int] | None = None
    ) -> CompiledGraph:
        """As ``compile``, with the options in one object."""
        return self.compile(graph, dims=dims, **vars(options))

    def compile_module(
        self, module: GraphModule, *, dims: Mapping[str, int] | None = None, **options: Any
    ) -> CompiledGraph:
        """As ``compile``, from a module of any level: one of hir or mir is the graph that it says;
        one with fused regions, and one of lir, is run as it is, whatever was edited in it."""
        if module.stage in ("hir", "mir"):
            return self.compile(module.graph(), dims=dims, **options)
        if dims:
            raise GraphError(f"a {module.stage} module has its dims already", caller())
        if self.device != "cpu":
            raise UnsupportedError(
                f"device {self.device!r} starts from hir or mir, found {module.stage}", caller()
            )
        from rlx.compiler import compile_lowered

        return self.load(compile_lowered(module, **options))

    compile_hir = compile_module

    def to_device(self, value: Array) -> DeviceArray:
        """A copy of an array in the memory of the device, to be given for an input.

        Raises DTypeError for what is no array, UnsupportedError where the device is the host.
        """
        put = getattr(self.backend, "put", None)
        if put is None:
            raise memory_is_the_hosts(self.device)
        return put(value)

    @located
    def with_policy(self, policy: PrecisionPolicy | str | Mapping[str, str]) -> Session:
        """A session that computes by a precision policy: its name, or a mapping of classes of ops
        (``rlx.precision.OpClass``) to "f32", "f16" or "bf16".

        It takes the place of the session's precision. Raises GraphError for an unknown name or
        class, DTypeError for another type.
        """
        other = copy(self)
        other.policy, other.types = check_policy(policy)
        return other

    def load(self, artifact: Artifact | str | Path) -> CompiledGraph:
        """An artifact (``rlx.compile_artifact``), or the file of one, ready to run.

        It needs no compiler. The params that it carries are set, those of a file in place. Raises
        ArtifactError for a file that is damaged or made for another version, device or machine.
        """
        found = artifact if isinstance(artifact, Artifact) else Artifact.load(artifact)
        if found.target != self.device:
            raise ArtifactError(
                f"the artifact was made for {found.target!r}, this session is for {self.device!r}"
            )
        compiled = CompiledGraph(signature_of(found), Loaded(self.backend, found), {})
        compiled._params.update(found.values)  # the executable has them already
        return compiled


def _instructions(device: str, precision: Precision) -> frozenset[str]:
    """What the device has beyond the common instructions, where a precision depends on it."""
    if device != "cpu" or precision is not Precision.HIGH:
        return frozenset()
    from rlx.targets.cpu.features import selected

    return selected().has


class CompiledGraph:
    """A graph ready to run on its device. Safe to call from many threads at once.

    ``graph`` is what runs, with the casts of the session's precision; ``precision`` says what that
    changed, and is None where nothing was asked for.
    """

    def __init__(
        self,
        graph: Graph,
        backend: Backend,
        options: Mapping[str, Any],
        precision: PrecisionReport | None = None,
    ) -> None:
        self.graph, self.backend, self.options = graph, backend, dict(options)
        self.precision = precision
        self._lock = threading.RLock()
        self._params: dict[str, Array] = {}
        self._feeds: dict[str, Array] = {}
        self._bound: OrderedDict[tuple[int, ...], Executable] = OrderedDict()
        self._symbols = tuple(sorted(graph.symbols))
        self._types = {str(v.name): v.type for v in graph.params}
        self._fast: Executable | None = None
        self._copied: set[str] = set()  # params whose values nobody else has
        if not self._symbols:
            self._fast = self._executable({})
        # What has a short way for dicts of arrays; the long one says what is wrong, or converts.
        self._short = self._fast if isinstance(self._fast, Executable) else None
        for name, value in graph.param_values.items():
            self.set_param(name, value)

    # -- params and inputs -----------------------------------------------------------------

    def set_param(self, name: str, value: Any) -> None:
        """Set a param from an array-like or DLPack object of its dtype, in its shape or flat.

        The values are copied, so that changing the array later changes nothing here; only a
        read-only array whose elements are aligned, such as one that a file is mapped to, is used
        in place and kept.
        Raises NameError, DTypeError or ShapeError.
        """
        if not isinstance(name, str) or name not in self._types:
            raise unknown(name, list(self._types), "param")
        t = self._types[name]
        given = check_param(name, typed_array(value, name, t.dtype.name, "param"), t)
        own = not isinstance(value, np.ndarray) or value.flags.writeable or not value.flags.aligned
        # A rank of 0 stays: ascontiguousarray alone would make it 1.
        a = given.copy() if own else np.ascontiguousarray(given).reshape(given.shape)
        with self._lock:
            self._params[name] = a
            (self._copied.add if own else self._copied.discard)(name)
            for key in list(self._bound):
                if t.bind(dict(zip(self._symbols, key, strict=True))).shape != a.shape:
                    del self._bound[key]  # it was compiled for a param of another size
            for weights in self._weights():
                weights.set_param(name, a)

    def set_param_typed(self, name: str, data: bytes, dtype: str) -> None:
        """As ``set_param``, from the bytes of a flat array of a dtype ("f32")."""
        self.set_param(name, array_of_bytes(name, data, dtype))

    def set_input(self, name: str, value: Any) -> None:
        """Give an input a value for the calls that leave it out. An array is kept, not copied."""
        index = self._input_index(name)
        v = self.graph.inputs[index]
        shape = v.type.static_shape if v.type.is_static else shape_of(value, v)
        with self._lock:
            self._feeds[name] = as_array(value, (name, v.dtype.name, shape), "input")

    def _input_index(self, name: str) -> int:
        names = [str(v.name) for v in self.graph.inputs]
        if name not in names:
            raise unknown(name, names, "input")
        return names.index(name)

    # -- runs ------------------------------------------------------------------------------

    def run(self, inputs: Mapping[str, Any] | None = None, *others: Never,
            **named: Never) -> list[Array]:  # fmt: skip
        """Run on arrays by name and return the outputs in order.

        Raises NameError for an unknown or missing input or an unset param, DTypeError and
        ShapeError for arrays that do not fit, FaultError for data that has no result.
        """
        if others or named:
            raise not_one_mapping(named)
        short = self._short
        if short is not None and not self._feeds and len(self._params) == len(self._types):
            found = short.run_named(inputs)
            if found is not None:
                return found
        executable, ready = self._prepare({} if inputs is None else inputs)
        return list(executable.run_slots(*ready))

    def run_into(self, inputs: Mapping[str, Any], outputs: Sequence[Array]) -> None:
        """Run and write the results into ``outputs``, which share no memory with the inputs."""
        apart = not self._feeds and len(self._copied) == len(self._types)
        short = self._short if apart else None
        if short is not None and short.run_named_into(inputs, outputs):
            return
        executable, ready = self._prepare(inputs)
        check_outputs(self.graph, outputs, executable.artifact.outputs, (ready, self._params))
        executable.run_into(ready, outputs)

    def run_slots(self, *inputs: Array) -> tuple[Array, ...]:
        """The fast path: inputs in declared order, each exactly of its declared type and shape."""
        executable = self._fast
        if executable is None:
            names = [str(v.name) for v in self.graph.inputs]
            if len(names) != len(inputs):
                known = ", ".join(map(repr, names)) or "none"
                raise GraphError(f"found {len(inputs)} inputs, expected {len(names)}: {known}",
                                 caller())  # fmt: skip
            executable, ready = self._prepare(dict(zip(names, inputs, strict=True)))
            return executable.run_slots(*ready)
        if self._short is None:  # what is no Executable may not see it itself
            check_params(self._types, self._params)
        try:
            return executable.run_slots(*inputs)
        except GraphError:
            check_params(self._types, self._params)
            raise

    def run_on_device(self, inputs: Mapping[str, Any] | None = None) -> list[DeviceArray]:
        """Run on arrays by name, of the host or the device, and leave the outputs in the memory of
        the device: as inputs of the next run they cross to the host at no time.

        Raises as ``run`` does, and UnsupportedError where the device is the host.
        """
        executable, ready = self._prepare(inputs or {})
        run = getattr(executable, "run_on_device", None)
        if run is None:
            raise memory_is_the_hosts(self.backend.name)
        return run(ready)

    def run_in_place(self, inputs: Mapping[str, Any], state: Mapping[str, Any]) -> list[Array]:
        """Run with donated inputs (the option ``donate``) in ``state``: contiguous, writable arrays
        by name, or arrays of the device, over which their outputs are written. Returns the other
        outputs in order.

        A run that fails may leave some of ``state`` written. Raises as ``run`` does, ShapeError for
        ``state`` that cannot be written where it lies, and GraphError for what is not what was
        donated, or shares memory with another input or with a param that is used in place.
        """
        state = {name: written_to(name, a) for name, a in state.items()}
        executable, ready = self._prepare({**inputs, **state})
        others = {n: a for n, a in self._params.items() if n not in self._copied}
        check_state(self.graph, state, (ready, others), dict(self.options.get("donate", ())))
        return executable.run_in_place(ready)

    def profile(self, inputs: Mapping[str, Any] | None = None, runs: int = 20) -> Profile:
        """Time the launches of ``runs`` runs on arrays by name; the result prints as a table.

        Raises as ``run`` does, and UnsupportedError on a device whose runs are no launches.
        """
        if runs < 1:
            raise GraphError(f"a profile takes 1 run or more, found {runs}", caller())
        executable, ready = self._prepare(inputs or {})
        return executable.profile(ready, runs)

    def _prepare(self, given: Mapping[str, Any]) -> tuple[Executable, list[Array]]:
        if not isinstance(given, Mapping):
            raise GraphError(f"inputs are given by name, found a {type(given).__name__};"
                             " write {'x': array}", caller())  # fmt: skip
        names = [str(v.name) for v in self.graph.inputs]
        for name in given:
            if name not in names:
                raise unknown(name, names, "input")
        feeds = {**self._feeds, **given} if self._feeds else given
        missing = [n for n in names if n not in feeds]
        if missing:
            which = "s " * (len(missing) > 1) or " "
            raise NameError(f"nothing was given for the input{which}{str(missing)[1:-1]}", caller())
        check_params(self._types, self._params)
        executable = self._fast or self._executable(self._binding(feeds))
        accept = getattr(executable, "accept", of_the_host)
        ready = [
            accept(feeds[n], s) for n, s in zip(names, executable.artifact.inputs, strict=True)
        ]
        return executable, ready

    # -- shapes ----------------------------------------------------------------------------

    def _binding(self, feeds: Mapping[str, Any]) -> dict[str, int]:
        """The sizes of the symbolic dims, read off the inputs' shapes; ShapeError if they clash."""
        leaves = [(str(v.name), v.type, shape_of(feeds[str(v.name)], v)) for v in self.graph.inputs]
        leaves += [
            (str(v.name), v.type, self._params[str(v.name)].shape) for v in self.graph.params
        ]
        sizes = sizes_of(leaves)
        unbound = [s for s in self._symbols if s not in sizes]
        if unbound:
            raise ShapeError(
                f"no input tells the size of {', '.join(unbound)}; compile with dims={{...}}",
                caller(),
            )
        return sizes

    def _executable(self, dims: dict[str, int]) -> Executable:
        key = tuple(dims[s] for s in self._symbols)
        with self._lock:
            if key in self._bound:
                self._bound.move_to_end(key)
                return self._bound[key]
            graph = self.graph.bind(dims) if dims else self.graph
            known = self._weights()
            executable = self.backend.load(graph, self.options, known)
            if executable.weights not in known:
                for name, value in self._params.items():
                    executable.weights.set_param(name, value)
            self._bound[key] = executable
            while len(self._bound) > MAX_BINDINGS:
                self._bound.popitem(last=False)
            return executable

    def _weights(self) -> list[Weights]:
        """What the bindings hold their params in: mostly one for all of them."""
        return list(dict.fromkeys(e.weights for e in self._bound.values()))

    @property
    def reports(self) -> list[Any]:
        """What each compile said of itself (``rlx.compiler.CompileReport``), one a binding."""
        return [e.report for e in self._bound.values() if e.report is not None]

    @property
    def signature(self) -> tuple[list[tuple[str, TensorType]], list[TensorType]]:
        """The inputs by name, and the outputs, with their types."""
        inputs = [(str(v.name), v.type) for v in self.graph.inputs]
        return inputs, [v.type for v in self.graph.outputs]
