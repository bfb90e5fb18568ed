"""A target whose kernels run on a GPU: what those have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from rlx.codegen.builder import KernelTarget, KernelText
from rlx.codegen.math import CPU_MATH
from rlx.codegen.triton.machine import TritonMachine
from rlx.errors import UnsupportedError
from rlx.kernels.registry import families_on
from rlx.targets import Features
from rlx.targets.base import Target
from rlx.targets.triton.compile import emit_with

__all__ = ["StageEmitter", "Stages", "gpu_target"]

Stages: TypeAlias = Mapping[str, Callable[[list[KernelText]], bytes]]
"""What makes the file of each stage, in their order."""


def gpu_target(name: str, features: Features, stages: Stages, **kernels: Any) -> Target:
    """The target of a GPU for some features; ``kernels`` are the fields of ``KernelTarget`` that
    are its own."""
    return Target(
        name=name,
        features=features,
        kernels=KernelTarget(
            name=features.name,
            vector_bytes=0,
            registers=0,
            math=CPU_MATH,
            frame="gpu",
            **kernels,
        ),
        families=families_on("gpu"),
        stages=tuple(stages),
        emitter=StageEmitter(name, stages, kernels.get("triton")),
    )


class StageEmitter:
    """The files of kernels, by a function a stage; those in TTIR for the machine that Triton is
    told of."""

    def __init__(self, target: str, stages: Stages, machine: TritonMachine | None) -> None:
        self.target, self.stages, self.machine = target, stages, machine

    def emit(self, kernels: list[KernelText], stage: str) -> bytes:
        """The file of a stage; UnsupportedError for one that the target does not have."""
        if stage not in self.stages:
            listed = ", ".join(self.stages)
            raise UnsupportedError(f"target {self.target} has no stage {stage!r}; it has {listed}")
        return emit_with(kernels, stage, self.machine, self.stages[stage])

    def lines(self, kernel: KernelText) -> dict[str, list[int]]:
        """Nothing: no stage tells where its lines come from."""
        return {}
