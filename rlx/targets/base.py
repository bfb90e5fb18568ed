"""The base class of targets: features, the kernels' view of the machine, the stages after LIR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from rlx.base.frozen import frozen
from rlx.codegen.builder import KernelTarget, KernelText
from rlx.errors import ToolchainError

if TYPE_CHECKING:
    from rlx.targets.graph.system import System

__all__ = ["BINARY_STAGES", "Emitter", "Target", "check_kernels"]


BINARY_STAGES = frozenset(["object", "spirv", "hsaco", "wasm", "vhlo", "tpu", "mlxfn", "mlpackage"])
"""The stages whose files are no text."""


def check_kernels(kernels: Sequence[KernelText], frame: Literal["cpu", "gpu"]) -> None:
    """Refuse kernels that share a name, or that were built for the other frame."""
    names = [k.name for k in kernels]
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise ToolchainError(f"two kernels of one object are both called {', '.join(twice)}")
    if foreign := [k for k in kernels if k.frame != frame]:
        raise ToolchainError(
            f"kernel {foreign[0].name} was built for a {foreign[0].frame.upper()} frame; "
            f"build it with a {frame.upper()} KernelTarget"
        )


class Emitter(Protocol):
    """The last stages of a target: kernel text to something that its loader takes."""

    def emit(self, kernels: list[KernelText], stage: str) -> bytes:
        """The file of ``stage`` ("llvm", "asm", "object", "ptx", "spirv", "hsaco") for kernels:
        UTF-8 text, but for the stages of ``BINARY_STAGES``."""
        ...

    def lines(self, kernel: KernelText) -> dict[str, list[int]]:
        """For each stage that can tell, the line of the kernel's text, from 1, that each line of
        the stage's text came from (0: none)."""
        ...


@frozen
class Target:
    """A target for which graphs are compiled.

    ``families`` are the kernel families that have an emitter here; what none of them claims goes
    the common way. A target with a ``system`` has neither kernels nor families: it takes whole
    graphs (``rlx.targets.graph``).
    """

    name: str
    features: Any
    kernels: KernelTarget
    families: tuple[str, ...]
    stages: tuple[str, ...]
    emitter: Emitter
    system: System | None = None

    @property
    def communicates(self) -> bool:
        """Whether what runs the steps has communicators, for collectives: systems that take whole
        graphs run no steps."""
        return self.system is None

    @property
    def programs(self) -> bool:
        """Whether what is compiled for it is a program of memories and kernels in one file, and not
        objects that the native runtime loads."""
        return self.name != "cpu"

    @property
    def spec(self) -> str:
        """The target and its features as ``find_target`` reads them: "cuda:sm_90"."""
        return f"{self.name}:{self.features.name}"
