"""A loaded artifact: params bound, calls checked, runs made. Needs numpy and the native runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import DTypeError, FaultError, GraphError, NameError, ShapeError, did_you_mean
from rlx.runtime import _native
from rlx.runtime.artifact import Artifact, Signature
from rlx.types import DTYPES

__all__ = ["Executable", "as_array"]

Array = np.ndarray[Any, Any]


class Executable:
    """One artifact in memory. Safe to call from many threads at once.

    ``report`` is what its compile said of itself (a ``rlx.compiler.CompileReport``), if there was one.
    """

    def __init__(self, artifact: Artifact, report: Any = None) -> None:
        self.artifact = artifact
        self.report = report
        objects = {key: _native.Object(data) for key, data in artifact.objects.items()}
        address = {n: objects[key].symbol(symbol) for n, (key, symbol) in artifact.kernels.items()}
        constants = [(f"constant {i}", _dtype_name(c), c.shape) for i, c in enumerate(artifact.constants)]
        self.program = _native.Program(
            objects=list(objects.values()),
            params=[*artifact.params, *constants],
            inputs=artifact.inputs,
            outputs=artifact.outputs,
            arena_bytes=artifact.arena_bytes,
            packed_bytes=artifact.packed_bytes,
            prologue=[(_resolve(step, address), params) for step, params in artifact.prologue],
            main=[_resolve(step, address) for step in artifact.main],
        )
        for i, c in enumerate(artifact.constants):
            self.program.set_param(len(artifact.params) + i, _plain(c))
        self._index = {name: i for i, (name, _, _) in enumerate(artifact.params)}
        self._results = [DTYPES[dt].numpy for _, dt, _ in artifact.outputs]
        self._plain = all(dt != "bf16" for _, dt, _ in (*artifact.inputs, *artifact.outputs))

    # -- params ----------------------------------------------------------------------------

    def set_param(self, name: str, value: Array) -> None:
        """Bind a param in place; the array must have the declared type and shape, and is kept."""
        self.program.set_param(self._index[name], _plain(value))

    # -- runs ------------------------------------------------------------------------------

    def run_slots(self, *inputs: Array) -> tuple[Array, ...]:
        """Run on inputs in declared order, given exactly as declared; the results are new arrays."""
        if self._plain:
            try:
                return self.program.run_slots(*inputs)
            except _native.Fault as fault:
                raise self.fault(fault) from None
        try:
            out = self.program.run_slots(*(_plain(a) for a in inputs))
        except _native.Fault as fault:
            raise self.fault(fault) from None
        return tuple(a.view(dt) for a, dt in zip(out, self._results, strict=True))

    def run_into(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Run into the given arrays; no output may share memory with an input."""
        for i, out in enumerate(outputs):
            for j, x in enumerate(inputs):
                if np.may_share_memory(out, x):
                    name = self.artifact.inputs[j][0]
                    raise GraphError(f"output {i} shares memory with input {name!r}; give it its own array")
        try:
            self.program.run_into([_plain(a) for a in inputs], [_plain(a) for a in outputs])
        except _native.Fault as fault:
            raise self.fault(fault) from None

    def fault(self, fault: _native.Fault) -> FaultError:
        """The error of a fault: the message of its site, at the user's line."""
        # A kernel with several messages has as many sites in a row; its codes count from 1.
        site = fault.site + fault.code - 1
        if 0 <= site < len(self.artifact.sites):
            message, file, line = self.artifact.sites[site]
            return FaultError(message, (file, line))
        return FaultError(f"a kernel reported fault {fault.code} at the unknown site {fault.site}")


def as_array(value: Any, signature: Signature, what: str) -> Array:
    """``value`` (array-like or DLPack) as a C-contiguous array of the declared type and shape.

    Raises DTypeError and ShapeError that name ``what``. Python numbers and lists take the
    declared type; an array must have it.
    """
    name, dt, shape = signature
    expected = DTYPES[dt].numpy
    if not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__"):
        value = np.from_dlpack(value)
    if isinstance(value, np.ndarray | np.generic):
        a = np.asarray(value)
        if a.dtype != expected:
            raise DTypeError(f"{what} {name!r} is {dt}, found {a.dtype}; convert it with .astype first")
    else:
        a = np.asarray(value, dtype=expected)
    if a.shape != tuple(shape):
        raise ShapeError(
            f"{what} {name!r} has shape {list(shape)}, found {list(a.shape)}"
            f" ({a.size} elements, expected {int(np.prod(shape))})"
        )
    return np.ascontiguousarray(a).reshape(shape)


def unknown(name: str, known: Sequence[str], what: str) -> NameError:
    """The error for a name that is no input or param."""
    listed = ", ".join(map(repr, known)) or "none"
    return NameError(f"no {what} is called {name!r}{did_you_mean(name, known)}; there are {listed}")


def _resolve(step: tuple[Any, ...], address: dict[str, int]) -> tuple[Any, ...]:
    """The step with addresses for the names of kernels, in the steps inside it too."""
    if step[0] == "launch":
        return ("launch", address[step[1]], *step[2:])
    inner = (
        [_resolve(s, address) for s in part] if isinstance(part, list) else part for part in step
    )
    return tuple(inner)


def _plain(a: Array) -> Array:
    """bfloat16 as its bits: numpy exports no buffer for it."""
    return a.view(np.uint16) if a.dtype == DTYPES["bf16"].numpy else a


def _dtype_name(a: Array) -> str:
    return next(d.name for d in DTYPES.values() if d.numpy == a.dtype)
