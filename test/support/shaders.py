"""GLSL and HLSL on Vulkan: glslang compiles them to SPIR-V, and the Vulkan driver runs that."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlx.errors import ToolchainError
from rlx.targets.gpu.driver import Kernel
from rlx.targets.gpu.languages.glsl import defined
from rlx.targets.vulkan.launch import VulkanDriver

__all__ = ["ShaderDriver", "Source", "glslang"]

COMPILER = "glslangValidator"


def glslang(api: str, source: str, kernel: str) -> bytes:
    """The SPIR-V of a kernel whose file is in the language of a target, as glslang makes it.

    ToolchainError with what it said if it refuses the file; without glslang the test is skipped.
    """
    if shutil.which(COMPILER) is None:
        pytest.skip(f"{COMPILER} is not on PATH (`make drivers` has it)")
    if api == "directx":
        options = ["-D", "-e", kernel]
    else:
        options, source = ["-e", kernel, "--source-entrypoint", "main"], defined(source, kernel)
    with tempfile.TemporaryDirectory() as folder:
        text, binary = Path(folder, "kernel.comp"), Path(folder, "kernel.spv")
        text.write_text(source, encoding="utf-8")
        command = [COMPILER, "-V", "-S", "comp", *options, "-o", str(binary), str(text)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ToolchainError(f"{COMPILER}: {done.stdout}{done.stderr}")
        return binary.read_bytes()


class Source:
    """A file of kernels, each of which can be had without the others: glslang takes a fifth of a
    second for a file of a hundred, whichever of them it compiles."""

    def __init__(self, text: str) -> None:
        self.parts = text.split("\n\n")
        self.names = set(re.findall(r"^void (\w+)\(", text, re.MULTILINE))
        # What a kernel declares is called by its name and a number.
        named = re.compile(rf"\b({'|'.join(self.names)})(?:_\w\d+)?\b") if self.names else None
        self.owners = [found[1] if named and (found := named.search(p)) else "" for p in self.parts]

    def of(self, kernel: str) -> str:
        """The file with one of its kernels."""
        if kernel not in self.names:
            return "\n\n".join(self.parts)
        found = zip(self.parts, self.owners, strict=True)
        return "\n\n".join(part for part, owner in found if owner in ("", kernel))


class ShaderDriver(VulkanDriver):
    """Takes the source of a target ``language``, where the Vulkan driver takes SPIR-V."""

    language: str

    def _load_module(self, kernel: Kernel) -> Any:
        return Source(kernel.code.decode())

    def _free_module(self, module: Any) -> None:
        pass

    def _load(self, module: Any, kernel: Kernel) -> Any:
        code = glslang(self.language, module.of(kernel.name), kernel.name)
        binary = super()._load_module(replace(kernel, code=code))
        try:
            return super()._load(binary, kernel)
        finally:
            super()._free_module(binary)
