"""A loaded artifact: params bound, calls checked, runs made. Needs numpy and the native runtime."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.base.process import Lock, lock_of
from rlx.errors import (
    ArtifactError,
    FaultError,
    GraphError,
    OutOfMemoryError,
    RlxError,
)
from rlx.ir.arrays import as_array, typed_array
from rlx.ir.op import caller
from rlx.runtime import _native
from rlx.runtime.artifact import Artifact
from rlx.runtime.launches import LaunchInfo, launches_of, register
from rlx.runtime.weights import Code, Weights, plain
from rlx.tracing import span
from rlx.types import AS_BITS, DTYPES, TensorType

if TYPE_CHECKING:
    from rlx.runtime.profile import Profile

__all__ = ["FAILURES", "Executable", "LoadedCode", "well_formed", "wrong_count"]

Array = np.ndarray[Any, Any]

_BITS = np.dtype(np.uint16)
_CONFUSED = frozenset(("u8", "u16", *AS_BITS))
"""Types whose arrays look alike to the runtime."""
FAILURES = (_native.Fault, _native.Error, MemoryError)
"""What a run of the native runtime raises; ``Executable.failed`` makes errors of ours of them."""


class _Profiles:
    """Holds the lock of the profile at work: launches are timed for all that run."""

    def __init__(self) -> None:
        self._lock = lock_of(self)

    def alone(self) -> Lock:
        """Waits for another thread's profile."""
        return self._lock


_PROFILES = _Profiles()


class LoadedCode:
    """An artifact's ``variant`` in memory: its code, on ``weights``. ArtifactError if it is
    malformed, or has nothing for this machine.

    ``weights`` hold its params; of the ``shared`` ones those that fit are used again. ``report`` is
    the ``CompileReport`` (``rlx.lowering.compilation``) of its compile, if there was one.
    ``donate`` pairs the inputs and the outputs that share memory, as it was compiled with.
    """

    def __init__(
        self,
        artifact: Artifact,
        report: Any = None,
        shared: Sequence[Weights] = (),
        donate: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.artifact, self.variant = artifact, artifact.variant
        self.donate = tuple(donate)
        self._over = {o: i for i, o in donate}
        self.report = report
        self._results = [DTYPES[dt].numpy for _, dt, _ in artifact.outputs]
        # Whether arrays are given to the runtime as they are.
        self._plain = all(dt not in AS_BITS for _, dt, _ in (*artifact.inputs, *artifact.outputs))
        self._direct = self._plain and not self.donate
        self._bf16 = None if self._plain else DTYPES["bf16"].numpy
        # What is registered is no reference to an executable, which would live on by it.
        self._all_launches = cache(partial(launches_of, self.variant))
        with well_formed(), span("load"):
            self._load(shared)

    def _load(self, shared: Sequence[Weights]) -> None:
        artifact = self.artifact
        self._code = code = Code(self.variant)  # keeps the objects findable by who comes next
        self.weights = Weights.of(artifact, code, shared)
        if self.weights not in shared:
            launches = self._all_launches
            register(self.weights, self.weights.native.first_launch, lambda: launches()[0])
            for name, value in artifact.values.items():
                self.weights.set_param(name, value)
            if self.variant.packed is not None:
                self.weights.native.use_packed(self.variant.packed)
            if artifact.file is not None:
                self.weights.native.release_when_packed(artifact.file)

    @property
    def _parts(self) -> dict[str, Any]:
        """What the native runtime takes for a program, beside its signatures and its steps."""
        code = self._code
        return {
            "weights": self.weights.native,
            "objects": code.objects,
            "functions": code.functions,
            "constants": [plain(c) for c in code.constants],
            "kernels": code.addresses,
        }


class Executable(LoadedCode):
    """One artifact in memory, ready to run. Safe to call from many threads at once. As
    ``LoadedCode``."""

    program: _native.Program

    def _load(self, shared: Sequence[Weights]) -> None:
        super()._load(shared)
        artifact, variant = self.artifact, self.variant
        self.program = _native.Program(
            inputs=artifact.inputs,
            outputs=artifact.outputs,
            arena_bytes=variant.arena_bytes,
            main=variant.main_words,
            **self._parts,
        )
        self._register()

    def _register(self) -> None:
        launches = self._all_launches
        register(self, self.program.first_launch, lambda: launches()[1])

    @property
    def held_bytes(self) -> int:
        """About the bytes that it takes besides its weights."""
        objects = sum(map(len, self.variant.objects.values()))
        return objects + 2 * len(self.variant.main_words)

    @property
    def launches(self) -> list[LaunchInfo]:
        """The launches of a call, in the order in which the runtime numbers them."""
        return self._all_launches()[1]

    # -- runs ------------------------------------------------------------------------------

    def run_slots(self, *inputs: Array) -> tuple[Array, ...]:
        """Run on inputs in declared order and exactly as declared; the results are new arrays."""
        if self.donate:
            outputs = self._fresh()
            self.run_into(inputs, outputs)
            return tuple(outputs)
        try:
            if self._plain:
                return self.program.run_slots(*inputs)
            out = self.program.run_slots(*self._bits(inputs))
        except FAILURES as failure:
            found = self.failed(failure, inputs)
            raise found from found.__cause__
        return tuple([a.view(dt) for a, dt in zip(out, self._results, strict=True)])

    def _bits(self, inputs: Sequence[Array]) -> list[Array]:
        """The inputs as the runtime takes them, to which bf16 and u16 are one, and 8-bit floats
        and u8."""
        out = list(inputs)
        for n, (a, (name, dt, _)) in enumerate(zip(inputs, self.artifact.inputs, strict=False)):
            # What is known at a glance first: the rest takes as long as a small kernel.
            if dt == "bf16" and type(a) is np.ndarray and a.dtype is self._bf16:
                out[n] = a.view(_BITS)
                continue
            if dt in _CONFUSED:
                typed_array(a, name, dt, "input")
            out[n] = plain(a)
        return out

    def run_named(self, inputs: Any) -> list[Array] | None:
        """Run on arrays by name, if ``inputs`` is a dict with an array exactly as declared for each
        input; else None, and nothing is run. The results are new arrays."""
        if not self._direct:
            return None
        try:
            return self.program.run_named(inputs)
        except FAILURES as failure:
            found = self.failed(failure)
            raise found from found.__cause__

    def run_named_into(self, inputs: Any, outputs: Any) -> bool:
        """As ``run_named``, into a list or tuple of arrays exactly as declared that share no memory
        with the inputs or one another; whether that is what they are, and it was run."""
        if not self._direct:
            return False
        try:
            return self.program.run_named_into(inputs, outputs)
        except FAILURES as failure:
            found = self.failed(failure)
            raise found from found.__cause__

    def failed(self, failure: Exception, inputs: Sequence[Any] | None = None) -> BaseException:
        """The error of a call of the native runtime that failed by one of ``FAILURES``; with
        ``inputs`` in declared order, which of them was refused."""
        if isinstance(failure, _native.Fault):
            return self.fault(failure)
        if isinstance(failure, _native.Error):
            return _refused(failure) if inputs is None else self.refusal(failure, inputs)
        return self._too_large()

    @property
    def direct(self) -> bool:
        """Whether the native runtime takes arrays as they are given, and makes the results."""
        return self._direct

    def _too_large(self) -> OutOfMemoryError:
        outputs = self.artifact.outputs
        sizes = (TensorType(tuple(shape), DTYPES[dt]).nbytes for _, dt, shape in outputs)
        return OutOfMemoryError(
            f"the outputs take {sum(sizes)} bytes, and there is no memory for them; give run_into"
            " arrays for them, such as ones that a file is mapped to, or make them smaller",
            caller(),
        )

    def run_into(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Run into the given arrays; no output may share memory with an input or a param, but a
        donated output with its input."""
        for i, o in self.donate:
            if not np.may_share_memory(inputs[i], outputs[o]):
                np.copyto(outputs[o], inputs[i])
        self._run_into(inputs, outputs)

    def run_in_place(self, inputs: Sequence[Array]) -> list[Array]:
        """Run, with donated outputs written over their inputs; the others are new arrays."""
        outputs = self._fresh(inputs)
        self._run_into(inputs, outputs)
        return [a for o, a in enumerate(outputs) if o not in self._over]

    def _fresh(self, inputs: Sequence[Array] = ()) -> list[Array]:
        """An array for every output, which is new unless ``inputs`` has one to write over."""
        try:
            return [
                inputs[self._over[o]] if inputs and o in self._over else np.empty(shape, dt)
                for o, (dt, (_, _, shape)) in enumerate(
                    zip(self._results, self.artifact.outputs, strict=True)
                )
            ]
        except MemoryError:
            raise self._too_large() from None

    def _run_into(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        try:
            self.program.run_into([plain(a) for a in inputs], [plain(a) for a in outputs])
        except FAILURES as failure:
            found = self.failed(failure, inputs)
            raise found from found.__cause__

    def profile(self, inputs: Sequence[Array], runs: int) -> Profile:
        """Time the launches of so many runs on ``inputs``, after one that does not count. Other
        profiles wait; runs of other threads would count as well."""
        from rlx.runtime.profile import measure

        self.run_slots(*inputs)  # the prologue, and the first touch of memory
        with _PROFILES.alone():
            self.program.set_profiling(True)
            try:
                return measure(
                    lambda: self.run_slots(*inputs),
                    self.program.launch_times,
                    self.launches,
                    runs,
                    _native.num_threads(),
                    self._memory(),
                )
            finally:
                self.program.set_profiling(False)

    def _memory(self) -> dict[str, int]:
        """The bytes that it takes, by what they are."""
        variant = self.variant
        sizes = [(math.prod(shape), dt) for _, dt, shape in self.artifact.params]
        held = {
            "params": sum(int(n) * DTYPES[dt].bytes for n, dt in sizes),
            "packed params": int(variant.packed_bytes),
            "memory between kernels": int(variant.arena_bytes),
        }
        return {what: n for what, n in held.items() if n}

    def refusal(self, error: _native.Error, inputs: Sequence[Any]) -> RlxError:
        """The error of inputs that the runtime refused: by their names, at the user's line."""
        expected = self.artifact.inputs
        if len(inputs) != len(expected):
            return wrong_count(len(inputs), [name for name, _, _ in expected])
        try:
            for a, signature in zip(inputs, expected, strict=True):
                as_array(a, signature, "input")
        except GraphError as known:
            return known
        return _refused(error)

    def fault(self, fault: _native.Fault) -> BaseException:
        """The error of a fault: the message of its site, at the user's line."""
        error = FaultError.at_site(self.variant.sites, fault.code, fault.site, fault.detail)
        if self.variant.functions:
            from rlx.runtime.host import explained

            return explained(error)
        return error


@contextmanager
def well_formed() -> Generator[None]:
    """ArtifactError where the native runtime refuses a part of an artifact in the block."""
    try:
        yield
    except _native.Error as e:
        raise ArtifactError(f"the artifact is malformed: {e}") from None


def _refused(error: _native.Error) -> RlxError:
    """The error of a call that the runtime refused, where its inputs do not tell the reason."""
    if error.found == "no memory":  # for what lies between kernels, or is one's scratch
        refused = OutOfMemoryError(f"{error}; make the graph's tensors smaller", caller())
    else:
        refused = GraphError(str(error), caller())
    refused.partly_run = error.partly_run
    return refused


def wrong_count(found: int, names: Sequence[str]) -> GraphError:
    """The error for another number of inputs than those of these names."""
    listed = ", ".join(map(repr, names)) or "none"
    return GraphError(f"found {found} inputs, expected {len(names)}: {listed}", caller())
