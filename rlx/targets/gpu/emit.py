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
from rlx.kernels.builder import KernelText
from rlx.targets.base import check_kernels
from rlx.targets.gpu.language import Language
from rlx.targets.gpu.printer import print_kernels

__all__ = ["TextEmitter", "to_source"]

PIPELINE = "builtin.module(canonicalize,cse)"


class TextEmitter:
    """The source of kernels in a shading language: the stage ``source``."""

    def __init__(self, target: str, language: Language) -> None:
        self.target, self.language = target, language

    def emit(self, kernels: list[KernelText], stage: str) -> bytes:
        if stage != "source":
            raise UnsupportedError(f"target {self.target} has no stage {stage!r}; it has source")
        return to_source(kernels, self.language).encode()

    def lines(self, kernel: KernelText) -> dict[str, list[int]]:
        return {}


def to_source(kernels: Sequence[KernelText], language: Language) -> str:
    """The source of kernels, as the module docstring says.

    Raises IRError or PassError for text that MLIR refuses, and UnsupportedError for what the
    language lacks.
    """
    check_kernels(kernels, "gpu")
    bodies = "\n".join(k.text for k in kernels)
    text = f"module attributes {{gpu.container_module}} {{\ngpu.module @kernels {{\n{bodies}\n}}\n}}"
    module = _mlir.parse_module(text, _mlir.context())
    _mlir.run_pipeline(module, PIPELINE)
    return print_kernels(module, language)
