"""Sessions compile graphs for a device; compiled graphs hold params and run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from typing import TYPE_CHECKING, Any, Never

import numpy as np

from rlx import knobs
from rlx.errors import ArtifactError, FaultError, GraphError, UnsupportedError, a_type
from rlx.ir.arrays import as_array, fixed, typed_array
from rlx.ir.builders import located, public
from rlx.ir.given import unknown
from rlx.ir.graph import Graph, check_param
from rlx.ir.hinted import Hinted
from rlx.ir.op import caller
from rlx.ir.pure import Uncopied
from rlx.ir.results import by_name
from rlx.precision import PrecisionPolicy, Types, check_policy, check_precision, types_of
from rlx.runtime import calls
from rlx.runtime.artifact import Artifact
from rlx.runtime.backend import (
    ArtifactBackend,
    Backend,
    Weights,
    backend_for,
    default_device,
    device_name,
    instructions_of,
    signature_of,
)
from rlx.runtime.bindings import Bindings
from rlx.runtime.donation import check_donations
from rlx.runtime.executable import FAILURES, Executable, wrong_count
from rlx.runtime.short_way import ShortWay
from rlx.runtime.weights import Weights as HostWeights
from rlx.schedule.sizes import in_order
from rlx.types import TensorType

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Unpack

    from rlx.compiler.graph_module import GraphModule
    from rlx.lowering.compilation import OptionArgs, Options
    from rlx.precision.rewrite import PrecisionReport
    from rlx.runtime.bound_state import BoundState
    from rlx.runtime.devices.device_array import DeviceArray
    from rlx.runtime.profile import Profile
    from rlx.runtime.sized_variant import SizedVariant

__all__ = ["CompiledGraph", "Session"]

Array = np.ndarray[Any, Any]


@public
class Session(Hinted):
    """Compiles graphs for one device.

    ``device`` is a device's name ("cpu") or another name of it ("vk"), in either case of letters;
    by default that of RLX_DEVICE, else the CPU. DeviceError if it is unknown or unavailable.
    ``precision`` says in what it multiplies (``rlx.Precision``); by "f32" every op computes in its
    own element type. ``threads`` sets the number of threads of the process; by default what
    affinity, cgroup quota and RLX_NUM_THREADS allow.
    """

    def __init__(
        self, device: str | None = None, precision: str = "f32", *, threads: int | None = None
    ) -> None:
        knobs.check_names()
        self.device = default_device() if device is None else device_name(device)
        self._multiply_in(precision)
        self.backend: Backend = backend_for(self.device)
        if threads is not None:
            self.backend.set_threads(calls.checked_threads(threads))

    def __repr__(self) -> str:
        return f"Session on {self.device}, in {self.precision}"

    def _repr_html_(self) -> str:
        from rlx.view.notebook import session_html

        return session_html(self)

    def compile(
        self, graph: Graph, *, dims: Mapping[str, int] | None = None, **options: Unpack[OptionArgs]
    ) -> CompiledGraph:
        """Compile a graph. ``dims`` binds symbolic dims now; others bind at the first call of each
        shape. ``options`` are those of ``rlx.lowering.compilation.Options``.

        Raises GraphError for what is no Graph, an unknown option or a value that it does not take,
        and for ``donate`` of what does not fit; NameError or ShapeError for dims that the graph
        does not have or that are out of their range; UnsupportedError for an op that the device
        does not run.
        """
        from rlx.lowering.compilation import Options

        if not isinstance(graph, Graph):
            raise GraphError(f"compile takes a Graph, found {a_type(graph)}", caller())
        # What is wrong is refused at the user's line, and not at the first call of some shape.
        graph.nodes()
        Options.of(options)
        report = None
        if self.types.changes:
            from rlx.precision.rewrite import with_precision

            graph, report = with_precision(graph, self.types)
        if self.backend.supported_ops is not None:  # else it takes every graph
            from rlx.runtime.claims import claim_of, claimed_graph

            claim = claim_of(self.backend)
            graph = graph if claim is None else claimed_graph(graph, claim, self.device)
        bound = graph if dims is None else graph.bind(dims)
        check_donations(bound, options.get("donate", ()))
        return CompiledGraph(bound, self.backend, options, report)

    compile_graph = compile

    def compile_with(
        self,
        source: Graph | GraphModule,
        options: Options,
        *,
        dims: Mapping[str, int] | None = None,
    ) -> CompiledGraph:
        """As ``compile`` or ``compile_module``, with the options in one object: ``Options``, or
        ``rlx.CompileOptions``, which has a precision, dims and a claim of ops too."""
        from rlx.runtime.compile_options import compile_with

        return compile_with(self, source, options, dims)

    compile_hir_with = compile_module_with = compile_with

    def compile_module(
        self,
        module: GraphModule,
        *,
        dims: Mapping[str, int] | None = None,
        **options: Unpack[OptionArgs],
    ) -> CompiledGraph:
        """As ``compile``, from a module of any level: one of hir or mir is the graph that it says;
        one with fused regions, and one of lir, is run as it is, whatever was edited in it."""
        calls.check_module(module)
        if module.stage in ("hir", "mir"):
            return self.compile(module.graph(), dims=dims, **options)
        if dims:
            raise GraphError(f"a {module.stage} module has its dims already", caller())
        calls.check_plain(self.types, f"a {module.stage} module", "compile the hir or mir module")
        if self.device != "cpu":
            raise UnsupportedError(
                f"device {self.device!r} starts from hir or mir, found {module.stage}", caller()
            )
        from rlx.compiler.driver import compile_lowered

        return self.load(compile_lowered(module, **options))

    compile_hir = compile_module

    def to_device(self, value: Array) -> DeviceArray:
        """A copy of an array in the memory of the device, to be given for an input.

        Raises DTypeError for what is no array, UnsupportedError where the device is the host.
        """
        return self.backend.put(value)

    def _multiply_in(self, precision: str) -> None:
        self.precision = located(check_precision)(precision)
        self.types: Types = types_of(self.precision, instructions_of(self.device, self.precision))
        plain = not self.types.changes
        self.policy = PrecisionPolicy.ALWAYS_F32 if plain else PrecisionPolicy.CUSTOM

    def with_precision(self, precision: str) -> Session:
        """A session that multiplies in a precision (``rlx.Precision``), and else is as this one.
        GraphError for an unknown name."""
        other = copy(self)
        other._multiply_in(precision)
        return other

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
        calls.check_plain(self.types, "an artifact", "give precision= to rlx.compile_artifact")
        found = artifact if isinstance(artifact, Artifact) else Artifact.load(artifact)
        if found.target != self.device:
            raise ArtifactError(
                f"the artifact was made for {found.target!r}, this session is for {self.device!r}"
            )
        compiled = CompiledGraph(signature_of(found), ArtifactBackend(self.backend, found), {})
        # The executable has them already.
        compiled._params.update(found.values)
        compiled._carried = found.values
        for name in set(compiled._unset).difference(found.without_value):
            del compiled._unset[name]
        return compiled


@public
class CompiledGraph(Hinted, Uncopied):
    """A graph ready to run on its device. Safe to call from many threads at once.

    What was compiled stays as it was, whatever becomes of the graph that it was compiled from.
    ``precision`` says what the session's precision changed, and is None where nothing was asked
    for.
    """

    UNCHECKED = ("run", "run_into", "run_slots")

    def __init__(
        self,
        graph: Graph,
        backend: Backend,
        options: Mapping[str, Any],
        precision: PrecisionReport | None = None,
    ) -> None:
        self._graph, self.backend, self.options = graph.snapshot(), backend, deepcopy(dict(options))
        self.precision = precision
        self._params: dict[str, Array] = {}
        self._carried: Mapping[str, Array] = {}  # those that an artifact gives its weights
        self._feeds: dict[str, Array] = {}
        self._symbols = tuple(in_order(graph.symbols))
        self._types = {str(v.name): v.type for v in graph.params}
        self._unset = dict.fromkeys(self._types)
        self._inputs = [str(v.name) for v in graph.inputs]
        self._names = graph.output_names
        self._variants = backend.variants(self._graph, self.options) if self._symbols else None
        self._bound = Bindings(self._variants)
        # The CPU's executables have a short way for dicts of arrays.
        short = self._variants is not None and self._variants.short
        places = calls.places_of_sizes(self._graph) if short else None
        self._fast: Executable | None = None
        if not self._symbols:
            self._fast = self._executable({})
        native = self._fast if isinstance(self._fast, Executable) else None
        given = self._feeds, self._unset
        self._short = ShortWay(self._names, native, places, self._bound, given)
        for name, value in graph.param_values.items():
            self.set_param(name, value)

    @property
    def graph(self) -> Graph:
        """What runs, with the casts of the session's precision: a graph to read."""
        return self._graph.snapshot()

    def __repr__(self) -> str:
        inputs, outputs = self.signature
        named = zip(self._names or (None,) * len(outputs), outputs, strict=True)
        taken = ", ".join(f"{name}: {t}" for name, t in inputs)
        given = ", ".join(str(t) if name is None else f"{name}: {t}" for name, t in named)
        return f"CompiledGraph {self._graph.name!r} on {self.backend.name}: ({taken}) -> {given}"

    def _repr_html_(self) -> str:
        from rlx.view.notebook import compiled_html

        return compiled_html(self)

    # -- params and inputs -----------------------------------------------------------------

    def set_param(self, name: str, value: Any) -> None:
        """Set a param from an array-like or DLPack object of its dtype, in its shape or flat.

        The values are copied, so that changing the array later changes nothing here; only memory
        that nobody can write, as that of a file mapped for reading, is used in place and kept.
        Raises NameError, DTypeError or ShapeError.
        """
        if not isinstance(name, str) or name not in self._types:
            raise unknown(name, list(self._types), "param")
        t = self._types[name]
        a = fixed(check_param(name, typed_array(value, name, t.dtype.name, "param"), t))
        with self._bound.alone():
            self._params[name] = a
            last = self._unset.keys() == {name}
            self._unset.pop(name, None)
            if not t.is_static:  # what was compiled for a param of another size goes
                names = self._symbols
                self._bound.drop(
                    lambda key: t.bind(dict(zip(names, key, strict=True))).shape != a.shape
                )
            for weights in self._weights():
                weights.set_param(name, a)
                if last:
                    self._settle(weights)

    def set_param_typed(self, name: str, data: bytes, dtype: str) -> None:
        """As ``set_param``, from the bytes of a flat array of a dtype ("f32")."""
        self.set_param(name, calls.array_of_bytes(name, data, dtype))

    def set_input(self, name: str, value: Any) -> None:
        """Give an input a value for the calls that leave it out. An array is kept, not copied.

        It is in the input's shape, or a flat list. Raises NameError for an unknown input,
        DTypeError and ShapeError for a value that does not fit.
        """
        if name not in self._inputs:
            raise unknown(name, self._inputs, "input")
        v = self._graph.inputs[self._inputs.index(name)]
        shape = v.type.static_shape if v.type.is_static else calls.shape_of(value, v)
        with self._bound.alone():
            self._feeds[name] = as_array(value, (name, v.dtype.name, shape), "input", flat=True)

    # -- runs ------------------------------------------------------------------------------

    def run(self, inputs: Mapping[str, Any] | None = None, *others: Never,
            **named: Never) -> list[Array]:  # fmt: skip
        """Run on arrays by name and return the outputs in order, as a list; those of a graph that
        names its outputs are found by name too (``rlx.ir.results.Results``). A flat list of numbers
        is taken for an input of any sizes, as for a param.

        Raises NameError for an unknown or missing input or an unset param, DTypeError and
        ShapeError for arrays that do not fit, FaultError for data that has no result.
        """
        if others or named:
            raise calls.not_one_mapping(named)
        try:
            found = self._short.run(inputs)
            if found is not None:
                return found
            executable, ready = self._prepare({} if inputs is None else inputs)
            return by_name(list(executable.run_slots(*ready)), self._names)
        except FaultError as fault:
            raise self._told(fault, inputs or {}) from fault.__cause__

    def __call__(self, *arrays: Any, **named: Any) -> list[Array]:
        """As ``run``, called like a function: inputs in declared order, by name, or both."""
        return self.run(calls.named_inputs(self._inputs, arrays, named))

    def run_into(self, inputs: Mapping[str, Any], outputs: Sequence[Array]) -> None:
        """Run and write the results into ``outputs``: for each output in order a contiguous,
        writable NumPy array of its type and shape, which shares no memory with inputs and others.

        Raises as ``run`` does, and for an array that does not fit ShapeError, DTypeError, or
        GraphError if it is none or shares memory.
        """
        try:
            if self._short.run_into(inputs, outputs):
                return
            executable, ready = self._prepare(inputs)
            calls.check_outputs(self._graph, outputs, executable.artifact.outputs, ready)
            executable.run_into(ready, outputs)
        except FaultError as fault:
            raise self._told(fault, inputs) from fault.__cause__

    def run_slots(self, *inputs: Array) -> tuple[Array, ...]:
        """The fast path: inputs in declared order, each exactly of its declared type and shape."""
        short = self._short
        try:
            if short.program is not None:
                return short.program.run_slots(*inputs)
            return self._run_slots(inputs)
        except FAILURES as failure:
            assert short.executable is not None, "its program ran"
            error = short.executable.failed(failure, inputs)
        except (GraphError, FaultError) as known:
            error = known
        if isinstance(error, GraphError):
            calls.check_params(self._unset, ())
        if isinstance(error, FaultError):
            given = dict(zip(self._inputs, inputs, strict=True))
            error = self._told(error, given)
        raise error from error.__cause__

    def _run_slots(self, inputs: tuple[Array, ...]) -> tuple[Array, ...]:
        if self._fast is None:
            names = self._inputs
            if len(names) != len(inputs):
                raise wrong_count(len(inputs), names)
            return tuple(self.run(dict(zip(names, inputs, strict=True))))
        if self._short.executable is None:  # what is no Executable may not see it itself
            calls.check_params(self._unset, ())
        return self._fast.run_slots(*inputs)

    def run_on_device(self, inputs: Mapping[str, Any] | None = None) -> list[DeviceArray]:
        """Run on arrays by name, of the host or the device, and leave the outputs in the memory of
        the device: as inputs of the next run they cross to the host at no time.

        Raises as ``run`` does, and UnsupportedError where the device is the host.
        """
        executable, ready = self._prepare(inputs or {})
        run = getattr(executable, "run_on_device", None)
        if run is None:
            raise calls.memory_is_the_hosts(self.backend.name)
        return by_name(run(ready), self._names)

    def run_in_place(self, inputs: Mapping[str, Any], state: Mapping[str, Any]) -> list[Array]:
        """Run with donated inputs (the option ``donate``) in ``state``: contiguous, writable arrays
        by name, or arrays of the device, over which their outputs are written. Returns the other
        outputs in order.

        A run that fails may leave some of ``state`` written. Raises as ``run`` does, ShapeError for
        ``state`` that cannot be written where it lies, and GraphError for what is not what was
        donated, or shares memory with another input or with a param that is used in place.
        """
        state = {name: calls.written_to(name, a) for name, a in state.items()}
        executable, ready = self._prepare({**inputs, **state})
        donated = dict(self.options.get("donate", ()))
        calls.check_state(self._graph, state, ready, donated)
        return self._in_place(executable, ready, inputs)

    def _in_place(
        self, executable: Executable, ready: list[Array], inputs: Mapping[str, Any]
    ) -> list[Array]:
        donated = dict(self.options.get("donate", ()))
        left = [n for i, n in enumerate(self._names) if i not in donated.values()]
        try:
            return by_name(executable.run_in_place(ready), tuple(left))
        except FaultError as fault:
            raise self._told(fault, inputs) from fault.__cause__

    def bind_state(self, state: Mapping[str, Any]) -> BoundState:
        """What runs on inputs alone, in ``state`` as ``run_in_place`` takes it, whose arrays are
        checked by the first run: for steps that many arrays live through. GraphError and ShapeError
        as there.
        """
        from rlx.runtime.bound_state import BoundState

        return BoundState(self._graph, state, self._short.find, self.run_in_place, self._in_place)

    def profile(self, inputs: Mapping[str, Any] | None = None, runs: int = 20) -> Profile:
        """Time the launches of ``runs`` runs on arrays by name; the result prints as a table. On a
        GPU the runs are timed as wholes.

        Raises as ``run`` does, and UnsupportedError on a device whose runs are no launches.
        """
        if runs < 1:
            raise GraphError(f"a profile takes 1 run or more, found {runs}", caller())
        executable, ready = self._prepare(inputs or {})
        return executable.profile(ready, runs)

    def _told(self, fault: FaultError, given: Mapping[str, Any]) -> FaultError:
        from rlx.runtime.faults import with_index

        return with_index(fault, self._graph, {**self._params, **self._feeds, **given})

    def _prepare(self, given: Mapping[str, Any]) -> tuple[Executable, list[Array]]:
        feeds, names = calls.checked_feeds(self._inputs, self._feeds, given), self._inputs
        calls.check_params(self._unset, ())
        executable = self._fast
        if executable is None:
            sizes = calls.binding_of(self._graph, self._params, feeds)
            executable = self._executable(sizes)
        accept = getattr(executable, "accept", calls.of_the_host)
        ready = [
            accept(feeds[n], s) for n, s in zip(names, executable.artifact.inputs, strict=True)
        ]
        return executable, ready

    # -- shapes ----------------------------------------------------------------------------

    def prepare(self, *, dims: Mapping[str, int | tuple[int, int]]) -> None:
        """Compile and load now what calls will need whose dims are of these sizes, or from a least
        to a most size; of dims that are left out, those of their ranges.

        Raises NameError for an unknown dim, ShapeError for what is no size or range of one, and
        where no sizes of the ranges fit the graph, the artifact and the memory that there can be.
        UnsupportedError where every size is compiled alone, when it is first called.
        """
        from rlx.compiler.ranges import prepared, within

        symbols = within(self._graph, dims)
        if not self._symbols:
            return
        if self._variants is None:
            raise UnsupportedError(
                f"the device {self.backend.name!r} compiles every size of its own"
                " (RLX_SIZES=symbolic on the CPU compiles for many at once); run once at each size",
                caller(),
            )
        for variant in prepared(self._variants, symbols):
            with self._bound.alone():
                self._load(variant)

    def _executable(self, dims: dict[str, int]) -> Executable:
        key = tuple(dims[s] for s in self._symbols)
        with self._bound.alone():
            found = self._bound.get(key)
        if found is not None:
            return found
        # While it compiles, calls of other threads at sizes that a variant serves go on.
        variant = self._variants.provide(dims) if self._variants else None
        with self._bound.alone():
            found = self._bound.get(key)
            if found is None and variant is not None:
                assert self._variants is not None, "it is of them"
                self._load(variant)
                found = self._variants.executable(variant, dims)
            elif found is None:
                graph, known = self._graph.bind(dims) if dims else self._graph, self._weights()
                found = self.backend.load(graph, self.options, known)
                self._fill(found.weights, known)
            self._bound.put(key, found)
            return found

    def _load(self, variant: SizedVariant) -> None:
        assert self._variants is not None, "it is of them"
        known = self._weights()
        self._fill(self._variants.load(variant, known), known)

    def _fill(self, weights: Weights, known: list[Weights]) -> None:
        """Give weights the params, unless they are of those that are known."""
        if weights in known:
            return
        for name, value in self._params.items():
            if value is not self._carried.get(name):
                weights.set_param(name, value)
        self._settle(weights)

    def _settle(self, weights: Weights) -> None:
        """Use what was packed of the params before, or see that it is kept."""
        if isinstance(weights, HostWeights) and weights.large and not self._unset:
            from rlx.runtime.cache.packed import settle

            settle(weights, self._params)

    def _weights(self) -> list[Weights]:
        """What the bindings hold their params in: mostly one for all of them."""
        kept = self._variants.loaded if self._variants else []
        return list(dict.fromkeys(e.weights for e in (*self._bound.values(), *kept)))

    @property
    def reports(self) -> list[Any]:
        """The ``CompileReport`` (``rlx.lowering.compilation``) of each compile: one a binding, or
        one for all sizes that are decided alike (RLX_SIZES)."""
        kept = self._variants.loaded if self._variants else []
        reports = [e.report for e in (*kept, *self._bound.values()) if e.report is not None]
        return list({id(r): r for r in reports}.values())

    @property
    def variants(self) -> list[str]:
        """What was compiled for many sizes at once (RLX_SIZES): of each the conditions under which
        it serves sizes, such as ``batch >= 2``."""
        return self._variants.conditions if self._variants else []

    @property
    def arena_bytes(self) -> int:
        """The most bytes that a call keeps between kernels on a CPU, of the sizes that there were;
        0 if there were none."""
        variants = [getattr(e, "variant", None) for e in self._bound.values()]
        return max((int(v.arena_bytes) for v in variants if v is not None), default=0)

    @property
    def signature(self) -> tuple[list[tuple[str, TensorType]], list[TensorType]]:
        """The inputs by name, and the outputs, with their types."""
        inputs = [v.type for v in self._graph.inputs]
        return list(zip(self._inputs, inputs, strict=True)), [v.type for v in self._graph.outputs]
