"""Kernels in C, by the C compiler of the system."""

from __future__ import annotations

import platform
import shlex
import subprocess
import tempfile
from pathlib import Path

from rlx import knobs
from rlx.base.digest import digest
from rlx.codegen.builder import KernelText
from rlx.errors import ToolchainError
from rlx.targets.cpu.features import Features
from rlx.targets.llvm.machine import undefined_symbols

__all__ = ["compile_c", "dependences"]

# The object stands alone: no calls but its own, no tables that a linker would have to fill in, and
# functions of other files cannot take the place of its own. What is below the stack pointer is
# Windows' own.
_FLAGS = (
    "-std=gnu11", "-O3", "-fPIC", "-ffreestanding", "-fvisibility=hidden", "-fno-builtin",
    "-fno-tree-loop-distribute-patterns", "-fno-stack-protector", "-fno-jump-tables",
    "-fno-asynchronous-unwind-tables", "-fno-math-errno", "-fno-common",
    "-Werror=implicit-function-declaration", "-Werror=incompatible-pointer-types",
    "-Werror=int-conversion",
)  # fmt: skip

_X86_FLAGS = ("-fcf-protection=none", "-mno-red-zone")


def compile_c(kernel: KernelText, features: Features, stage: str) -> bytes:
    """The object or the assembly of a kernel whose text is a C file.

    ToolchainError if there is no compiler for the CPU, or with what the compiler says.
    """
    if stage not in ("asm", "object"):
        raise ToolchainError(f"kernel {kernel.name} is in C, and has no stage {stage!r}")
    data = _translated(kernel, features, "-c" if stage == "object" else "-S")
    if stage == "object" and (missing := undefined_symbols(data)):
        raise ToolchainError(
            f"kernel {kernel.name} uses {', '.join(missing)}, and a kernel stands alone: define"
            " in its source what it calls"
        )
    return data


def dependences(kernel: KernelText, source: str, features: Features) -> str:
    """What an object of a kernel depends on besides its ``source``: the compiler's command, and the
    files that are included. Raises as ``compile_c`` does."""
    command = knobs.c_compiler.get()
    if "include" not in source + command:
        return command
    return f"{command}|{digest(_translated(kernel, features, '-E', '-P'))}"


def _translated(kernel: KernelText, features: Features, *how: str) -> bytes:
    """What the compiler makes of a C file with further flags that say ``how``."""
    machine = platform.machine().replace("AMD64", "x86_64").replace("arm64", "aarch64")
    if machine != features.machine.triple.partition("-")[0]:
        raise ToolchainError(
            f"kernel {kernel.name} is in C, and the C compiler here makes code for {machine}, not"
            f" for {features.name}; write it in MLIR"
        )
    compiler = shlex.split(knobs.c_compiler.get() or "cc")
    own = (*_X86_FLAGS, f"-march={features.isa}") if features.arch == "x86-64" else ()
    flags = (*_FLAGS, *own)
    with tempfile.TemporaryDirectory(prefix="rlx-c-") as folder:
        source, made = Path(folder, "kernel.c"), Path(folder, "kernel.out")
        source.write_text(kernel.text, encoding="utf-8")
        try:
            done = subprocess.run(
                [*compiler, *flags, *how, "-o", str(made), str(source)],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
        except OSError as e:
            raise ToolchainError(
                f"kernel {kernel.name} is in C, and the compiler {compiler[0]!r} does not start:"
                f" {e.strerror}; install one, or name it in {knobs.c_compiler.variable}"
            ) from None
        if done.returncode:
            raise ToolchainError(f"the C compiler refuses kernel {kernel.name}:\n{done.stderr}")
        return made.read_bytes()
