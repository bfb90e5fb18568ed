"""What a target that takes whole graphs is to the compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from rlx.base.frozen import frozen
from rlx.codegen.builder import KernelTarget, KernelText
from rlx.errors import UnsupportedError
from rlx.targets import Features
from rlx.targets.base import Target
from rlx.targets.graph.rows import Rows
from rlx.targets.graph.tensor import Tensor
from rlx.targets.graph.whole import Whole
from rlx.types import DType

__all__ = ["Asked", "Signature", "System", "Walk", "whole_target"]

Signature: TypeAlias = tuple[str, DType, tuple[int, ...]]
"""Name, element type and shape of an argument."""

Walk: TypeAlias = Callable[[Whole, Sequence[Tensor]], list[Tensor]]
"""Writes the graph with a ``Whole`` on its arguments, and gives its outputs. Where the graph can
fail, the last of them is the error record: 2 x i32, a code and the number of a site."""


@frozen
class Asked:
    """A program to write: its name, its arguments in order (params, then inputs), and the walk that
    writes it; the names of its outputs, without the error record."""

    name: str
    kernels: KernelTarget
    arguments: tuple[Signature, ...]
    walk: Walk
    outputs: tuple[str, ...]


class System(Protocol):
    """Writes programs in the words of another compiler."""

    @property
    def rows(self) -> Rows:
        """The rows by op: what has none and is no pointwise op is expanded, or refused."""
        ...

    @property
    def object_stage(self) -> str:
        """The stage whose file an artifact holds and a driver takes."""
        ...

    def write(self, asked: Asked, stage: str) -> bytes:
        """The file of a stage. ToolchainError where the package that makes it is not there."""
        ...

    def ahead(self, code: bytes) -> Mapping[str, bytes]:
        """What else an artifact holds of a program, such as the executable of a compiler that is
        here; by names of their own."""
        ...


class _NoKernels:
    """The emitter of a target that has no kernels."""

    def __init__(self, name: str, stages: tuple[str, ...]) -> None:
        self.name, self.stages = name, stages

    def emit(self, kernels: list[KernelText], stage: str) -> bytes:
        raise UnsupportedError(
            f"target {self.name} takes whole graphs, and no kernels; its stages are"
            f" {', '.join(self.stages)}"
        )

    def lines(self, kernel: KernelText) -> dict[str, list[int]]:
        """Nothing: there are no kernels."""
        return {}


def whole_target(
    name: str, features: Features, system: System, stages: tuple[str, ...],
    lacks: Mapping[DType, str], index_bits: int = 64,
) -> Target:  # fmt: skip
    """A target that takes whole graphs; ``lacks`` says why of the element types that it has not,
    and ``index_bits`` is the width of the system's indices."""
    from rlx.codegen.math import CPU_MATH

    return Target(
        name=name,
        features=features,
        kernels=KernelTarget(
            name=features.name, vector_bytes=0, registers=0, math=CPU_MATH, frame="graph",
            lacks=lacks, index_bits=index_bits, fused=False,
        ),
        families=(),
        stages=stages,
        emitter=_NoKernels(name, stages),
        system=system,
    )  # fmt: skip
