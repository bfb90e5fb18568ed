"""From kernel text in MLIR to the source that a driver compiles.

Every kernel takes its buffers in order, then one of 32-bit integers: ``KernelText.sizes``, in which
``range`` is the length of the launch's parallel range wherever it was declared and the others are
``Launch.sizes`` in order; then for each buffer the element at which its view starts. A work group
has ``KernelTarget.block`` work items in x; ``rlx.targets.gpu.program.groups`` says how many groups
a range takes.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx import _mlir
from rlx.errors import UnsupportedError
from rlx.kernels.builder import KernelTarget, KernelText
from rlx.kernels.gpu import FAMILIES
from rlx.kernels.math import CPU_MATH
from rlx.targets.base import Target, check_kernels
from rlx.targets.gpu.language import Language
from rlx.targets.gpu.printer import print_kernels
from rlx.targets.gpu.profiles import Profile

__all__ = ["STAGES", "TextEmitter", "text_target", "to_source"]

STAGES = ("source",)

PIPELINE = "builtin.module(canonicalize,cse)"


def text_target(
    name: str,
    features: Profile,
    language: Language,
    *,
    most_threads: int = 256,
    shared_bytes: int = 16 << 10,
) -> Target:
    """A target whose drivers take source in a shading language. By default a group has as many work
    items, and shares as much, as every device of WebGPU allows."""
    return Target(
        name=name,
        features=features,
        kernels=KernelTarget(
            name=features.name, vector_bytes=0, registers=0, math=CPU_MATH, frame="gpu",
            shared_space="", logical=True, index_bits=32, lacks=features.lacks,
            most_threads=most_threads, shared_bytes=shared_bytes, fused=language.fused,
        ),
        families=FAMILIES,
        stages=STAGES,
        emitter=TextEmitter(name, language),
    )  # fmt: skip


class TextEmitter:
    """The source of kernels in a shading language: the stage ``source``."""

    def __init__(self, target: str, language: Language) -> None:
        self.target, self.language = target, language

    def emit(self, kernels: list[KernelText], stage: str) -> bytes:
        """The source of kernels; UnsupportedError for another stage, or what the language lacks."""
        if stage != "source":
            listed = ", ".join(STAGES)
            raise UnsupportedError(f"target {self.target} has no stage {stage!r}; it has {listed}")
        return to_source(kernels, self.language).encode()

    def lines(self, kernel: KernelText) -> dict[str, list[int]]:
        """Nothing: the printer keeps no lines."""
        return {}


def to_source(kernels: Sequence[KernelText], language: Language) -> str:
    """The source of kernels, as the module docstring says.

    Raises IRError or PassError for text that MLIR refuses, and UnsupportedError for what the
    language lacks.
    """
    check_kernels(kernels, "gpu")
    bodies = "\n".join(k.text for k in kernels)
    text = (
        f"module attributes {{gpu.container_module}} {{\ngpu.module @kernels {{\n{bodies}\n}}\n}}"
    )
    module = _mlir.parse_module(text, _mlir.context())
    _mlir.run_pipeline(module, PIPELINE)
    return print_kernels(module, language)
