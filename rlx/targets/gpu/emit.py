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
from rlx.codegen.builder import KernelText
from rlx.targets.base import Target, check_kernels
from rlx.targets.gpu.language import Language
from rlx.targets.gpu.printer import print_kernels
from rlx.targets.gpu.profiles import Profile
from rlx.targets.gpu.target import gpu_target

__all__ = ["text_target", "to_source"]

PIPELINE = "builtin.module(canonicalize,cse)"


def text_target(name: str, profile: Profile, language: Language) -> Target:
    """A target whose drivers take source in a shading language. A group has as many work items as
    every device of WebGPU allows."""
    return gpu_target(
        name,
        profile,
        {"source": lambda kernels: to_source(kernels, language).encode()},
        shared_space="",
        logical=True,
        index_bits=32,
        lacks=profile.lacks,
        most_threads=256,
        shared_bytes=profile.shared_bytes,
        most_buffers=profile.most_buffers,
        fused=language.fused,
        rounded_quotients=language.rounded_quotients,
    )


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
