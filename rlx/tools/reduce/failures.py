"""Failure criteria of rlx reduce: an error of a compile, wrong results, or a failing command.

A smaller graph must fail in the same way. So an error is compared by its class and message, without
the numbers and names in it, and a command by its exit status.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from rlx.errors import GraphError, RlxError
from rlx.ir.graph import Graph
from rlx.ir.interpreter import interpret
from rlx.runtime.backend import CpuBackend
from rlx.runtime.executable import Executable
from rlx.runtime.session import CompiledGraph
from rlx.text import graph_text
from rlx.tools.reduce.change import Array, Subject
from rlx.types import dtype

if TYPE_CHECKING:
    from rlx.dialects.context import SharedContext

__all__ = ["Command", "CompileError", "Failure", "Mismatch", "difference", "find_failure"]

_SPECIFIC = re.compile(r"-?\d[\w.]*|'[^']*'|\"[^\"]*\"|@\w+|\[[^\]]*\]")


class Failure(ABC):
    """A way to fail."""

    @abstractmethod
    def holds(self, subject: Subject) -> bool:
        """Whether a graph fails in this way."""

    @abstractmethod
    def says(self, subject: Subject) -> str:
        """What fails, as a comment for the test."""

    @abstractmethod
    def run_lines(self, given: str) -> list[str]:
        """The lines of a lit test that passes once the failure is gone; ``given`` are the
        arguments that say which arrays it needs."""


@dataclass
class CompileError(Failure):
    """The compile raises an error of a class, with a message like another."""

    target: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    error: Exception | None = None
    contexts: SharedContext | None = field(default=None, repr=False)

    def raised(self, subject: Subject) -> Exception | None:
        """The error of compiling a graph, if there is one."""
        try:
            self._compile(subject.graph)
        except Exception as e:  # whatever it is, it is the finding
            return e
        return None

    def _compile(self, graph: Graph) -> None:
        """All stages of the target, which need not be here to run, one kernel after the other."""
        from rlx.dialects.context import SharedContext
        from rlx.dialects.export import to_mlir
        from rlx.kernels.registry import emit_kernel
        from rlx.lowering.compilation import Compilation, Options
        from rlx.lowering.pipeline import planned
        from rlx.targets import find_target

        self.contexts = self.contexts or SharedContext()
        target = find_target(self.target)
        with self.contexts.get() as context:
            compilation = Compilation(target, Options(**self.options))
            schedule = planned(to_mlir(graph, context), compilation)
        for k in schedule.kernels:
            text = emit_kernel(k.family, k.name, k.config, target.kernels)
            target.emitter.emit([text], target.stages[-1])

    def holds(self, subject: Subject) -> bool:
        return _like(self.raised(subject), self.error)

    def run_lines(self, given: str) -> list[str]:
        from rlx.targets import find_target

        stage = [s for s in find_target(self.target).stages if s != "object"][-1]
        return [f"// RUN: %rlx-opt %s --emit={stage} -o %t{_flags(self.target, self.options)}"]

    def says(self, subject: Subject) -> str:
        return _comment(f"{type(self.error).__name__}: {self.error}")


def _comment(text: str) -> str:
    return f"// {text.splitlines()[0]}"


def _like(found: Exception | None, wanted: Exception | None) -> bool:
    return type(found) is type(wanted) and _shape(found) == _shape(wanted)


def _shape(error: Exception | None) -> str:
    """A message without what differs from graph to graph."""
    text = error.message if isinstance(error, RlxError) else str(error)
    return _SPECIFIC.sub("_", text.splitlines()[0] if text else "")


@dataclass
class Mismatch(Failure):
    """Native results differ from the interpreter's, by more than ``tolerance`` of the largest
    element of an output (by default what its element type explains)."""

    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tolerance: float | None = None

    def found(self, subject: Subject) -> str | None:
        """What is wrong, or None."""
        assert subject.arrays is not None
        with np.errstate(all="ignore"):
            expected = interpret(subject.graph, subject.arrays)
        compiled = CompiledGraph(subject.graph, _Fresh(), self.options)
        for v in subject.graph.params:
            compiled.set_param(str(v.name), subject.arrays[str(v.name)])
        results = compiled.run(
            {str(v.name): subject.arrays[str(v.name)] for v in subject.graph.inputs}
        )
        for i, (a, e) in enumerate(zip(results, expected, strict=True)):
            message = difference(a, e, self.tolerance)
            if message is not None:
                return f"output {i}: {message}"
        return None

    def holds(self, subject: Subject) -> bool:
        try:
            return self.found(subject) is not None
        except Exception:  # another failure, such as an index that is out of range now
            return False

    def says(self, subject: Subject) -> str:
        return _comment(str(self.found(subject)))

    def run_lines(self, given: str) -> list[str]:
        flags = _flags("cpu", self.options)
        if self.tolerance is not None:
            flags += f" --tolerance {self.tolerance}"
        return [
            "// REQUIRES: native",
            f"// RUN: %python -m rlx.tools.cli reduce %s --test{flags}{given}",
        ]


class _Fresh(CpuBackend):
    """Compiles for the host and keeps nothing: each graph of a reduction is compiled once."""

    def load(self, graph: Any, options: Mapping[str, Any], shared: Any) -> Executable:
        from rlx.compiler.driver import compile_graph
        from rlx.lowering.compilation import Options
        from rlx.targets.cpu import make_target

        return Executable(*compile_graph(graph, make_target(), Options(**options)), shared)


def difference(found: Array, expected: Array, tolerance: float | None) -> str | None:
    """What differs in an output by more than ``tolerance`` of its largest element, by default what
    its element type explains; None if nothing does."""
    dt = dtype(found.dtype)
    if not (dt.is_float or dt.is_complex):
        wrong = found != expected
    else:
        wide = np.complex128 if dt.is_complex else np.float64
        a, e = found.astype(wide), expected.astype(wide)
        if tolerance is None:
            # Sums of a thousand products; 16-bit floats are summed in f32.
            steps = 1000 if dt.bits > 16 else 16
            tolerance = steps * float(ml_dtypes.finfo(found.dtype).eps)
        with np.errstate(invalid="ignore"):
            size = np.abs(e[np.isfinite(e)]).max(initial=0.0)
            near = np.abs(a - e) <= tolerance * size
        wrong = ~(near | (a == e) | (np.isnan(a) & np.isnan(e)))
    if not wrong.any():
        return None
    at = tuple(int(i[0]) for i in np.nonzero(np.atleast_1d(wrong)))[: found.ndim]
    return (
        f"{int(wrong.sum())} of {wrong.size} elements differ from the interpreter; "
        f"at {list(at)} found {found[at]}, expected {expected[at]}"
    )


@dataclass
class Command(Failure):
    """A shell command fails on the text of the graph, with the status that it had at first, and
    maybe with output that ``match`` finds. ``{}`` stands for the file's name."""

    command: str
    match: str | None = None
    seconds: float = 60.0
    status: int = 0

    def outcome(self, subject: Subject) -> tuple[int, str]:
        """Exit status and output; a command that takes too long has status 124."""
        with tempfile.TemporaryDirectory(prefix="rlx-reduce-") as folder:
            path = Path(folder) / "graph.mlir"
            path.write_text(graph_text(subject.graph), encoding="utf-8")
            line = self.line(shlex.quote(str(path)))
            try:
                done = subprocess.run(
                    line, shell=True, capture_output=True, timeout=self.seconds, check=False
                )
            except subprocess.TimeoutExpired:
                return 124, ""
        return done.returncode, (done.stdout + done.stderr).decode(errors="replace")

    def line(self, file: str) -> str:
        """The command for a file."""
        return (
            self.command.replace("{}", file) if "{}" in self.command else f"{self.command} {file}"
        )

    def holds(self, subject: Subject) -> bool:
        status, output = self.outcome(subject)
        return status == self.status != 0 and (
            self.match is None or re.search(self.match, output) is not None
        )

    def says(self, subject: Subject) -> str:
        return f"// Its exit status was {self.status}."

    def run_lines(self, given: str) -> list[str]:
        return [f"// RUN: {self.line('%s')}"]


def _flags(target: str, options: Mapping[str, Any]) -> str:
    flags = f" --target={target}" if target != "cpu" else ""
    flags += f" --dispatch={options['dispatch']}" if "dispatch" in options else ""
    return flags + ("" if options.get("fuse", True) else " --no-fuse")


def find_failure(
    subject: Subject, target: str, options: Mapping[str, Any], mismatch: Mismatch
) -> Failure:
    """How a graph fails: an error of its compile, else wrong results. GraphError if it does not."""
    error = CompileError(target, options).raised(subject)
    if error is not None:
        return CompileError(target, options, error)
    if target != "cpu":
        raise GraphError(f"it compiles for {target}; only code for cpu is run, to compare results")
    if mismatch.found(subject) is None:
        raise GraphError(
            "it compiles, and its results are those of the interpreter: nothing fails here; "
            "give a command that fails with --check, or the arrays with --arrays"
        )
    return mismatch
