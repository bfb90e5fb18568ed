"""Outside judges of the code of GPU targets, which need no GPU: for each target the programs that
take its code and must have nothing to say of it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rlx.errors import ToolchainError
from rlx.targets.base import Target
from rlx.targets.cuda.features import PRESETS as CAPABILITIES
from rlx.targets.gpu.work import Kernel
from rlx.targets.rocm.features import PRESETS as ARCHITECTURES
from support import web
from support.gpu import assemble, disassemble, tool, validate
from support.hsaco import check_hsaco
from support.shaders import COMPILER as GLSLANG
from support.shaders import Source, glslang

__all__ = ["JUDGES", "Judge"]


@dataclass(frozen=True)
class Judge:
    """``says`` raises an error with what a program says of the kernels of one file, ``names`` are
    the targets that it is asked about, ``missing`` says why it is not here ("" if it is), and
    ``batch`` how many cases a file may be of: some read it anew for each of its kernels."""

    says: Callable[[Target, Sequence[Kernel], Path], None]
    names: tuple[str, ...]
    missing: Callable[[], str]
    batch: int = 100

    def __call__(self, target: Target, kernels: Sequence[Kernel]) -> None:
        """ToolchainError with what is said, if anything is."""
        for code in dict.fromkeys(k.code for k in kernels):
            with tempfile.TemporaryDirectory() as folder:
                try:
                    self.says(target, [k for k in kernels if k.code == code], Path(folder))
                except AssertionError as e:
                    raise ToolchainError(f"{target.features.name}: {e}") from None


def _ptx(target: Target, kernels: Sequence[Kernel], folder: Path) -> None:
    assemble(kernels[0].code, target.features.isa, folder)


def _hsaco(target: Target, kernels: Sequence[Kernel], folder: Path) -> None:
    code, features = kernels[0].code, target.features
    listed: list[Any] = [
        SimpleNamespace(name=k.name, block=k.workgroup[0], buffers=k.bindings) for k in kernels
    ]
    check_hsaco(code, features.isa, features.wave, listed)
    disassemble(code, folder)


def _spirv(target: Target, kernels: Sequence[Kernel], folder: Path) -> None:
    validate(kernels[0].code, folder)


def _shader(target: Target, kernels: Sequence[Kernel], folder: Path) -> None:
    source = Source(kernels[0].code.decode())
    for kernel in kernels:
        validate(glslang(target.name, source.of(kernel.name), kernel.name), folder)


def _wgsl(target: Target, kernels: Sequence[Kernel], folder: Path) -> None:
    said = web.messages(kernels[0].code)
    assert not said, said


def _without(*names: str) -> Callable[[], str]:
    return lambda: "; ".join(f"{n} is not here" for n in names if tool(n) is None)


JUDGES = {
    "cuda": Judge(_ptx, tuple(f"cuda:{isa}" for isa in CAPABILITIES), _without("ptxas")),
    "rocm": Judge(_hsaco, tuple(f"rocm:{isa}" for isa in ARCHITECTURES), _without("llvm-objdump")),
    "vulkan": Judge(_spirv, ("vulkan",), _without("spirv-val")),
    "directx": Judge(_shader, ("directx",), _without(GLSLANG, "spirv-val"), 20),
    "webgpu": Judge(_wgsl, (web.PAGE,), web.why_not),
}
"""The judges by target: NVIDIA's assembler of PTX for every capability, LLVM's disassembler and the
rules of ROCm's loader, Khronos's validator, its compiler of HLSL, and Chromium's Tint. What is not
here is run by a compiler of the driver's own."""
