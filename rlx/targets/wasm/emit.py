"""From kernel text to one WebAssembly module. LLVM's object is a module already, with memory, the
stack pointer and a table imported: what it lacks is an export of each kernel."""

from __future__ import annotations

from collections.abc import Sequence

from rlx.codegen.builder import KernelText
from rlx.targets.cpu.emit import framed
from rlx.targets.llvm import machine
from rlx.targets.llvm.half import with_conversions
from rlx.targets.wasm.features import Features
from rlx.targets.wasm.module import exporting

__all__ = ["compile_module", "to_assembly", "to_llvm"]


def compile_module(kernels: Sequence[KernelText], features: Features) -> bytes:
    """A module that exports a function a kernel, ``(begin, end, buffers, sizes, scratch)`` of i32,
    where the buffers and sizes are addresses of words of 32 bits.

    It imports ``__linear_memory``, ``__stack_pointer`` and ``__indirect_function_table`` of "env";
    its constants lie from address 0 on. ToolchainError if it would need more.
    """
    return exporting(
        machine.emit_object(to_llvm(kernels), features.machine), [k.name for k in kernels]
    )


def to_assembly(kernels: Sequence[KernelText], features: Features) -> str:
    """The assembly of ``compile_module``."""
    return machine.emit_assembly(to_llvm(kernels), features.machine)


def to_llvm(kernels: Sequence[KernelText]) -> str:
    """LLVM 22 text of the kernels and their frames. There is no multiply-add of one rounding, of
    which LLVM would make a call: kernels, whose target says so, are right with two."""
    text = framed(kernels, 32).replace("@llvm.fma.", "@llvm.fmuladd.")
    return with_conversions(text, boxed=False, group="1000")
