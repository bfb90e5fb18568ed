"""The calls of Triton's compiler: its stages one after the other, on text of ours.

Nothing is read from or left in Triton's own cache. The compiler's knobs in the environment
(TRITON_...) hold for it as always, but for what decides the results of arithmetic.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Any

from rlx.base.frozen import frozen
from rlx.codegen.builder import KernelText
from rlx.codegen.triton.machine import TritonMachine
from rlx.errors import ToolchainError, UnsupportedError
from rlx.targets.triton.process import ask

__all__ = ["Compiled", "compile_kernel", "emit_with"]

STAGES = {"llvm": "llir", "asm": "amdgcn", "ptx": "ptx", "hsaco": "hsaco"}
"""What Triton calls the stages of our targets."""

_BUFFER = re.compile(r"\.value_kind: +global_buffer")


@frozen
class Compiled:
    """A kernel as machine code. It runs in groups of ``threads`` that are given ``shared`` bytes of
    dynamic shared memory, and takes ``spare`` null pointers after its arguments. ``stages`` are the
    texts on the way, by our names."""

    code: bytes = field(repr=False)
    threads: int
    shared: int
    spare: int
    stages: dict[str, bytes] = field(repr=False)


def emit_with(
    kernels: Sequence[KernelText], stage: str, machine: TritonMachine | None,
    own: Callable[[list[KernelText]], bytes],
) -> bytes:  # fmt: skip
    """What a target emits of kernels at ``stage``: ``own`` of those that are not Triton's, then the
    others' text one after the other. Of a stage without text there is no such file:
    UnsupportedError for several kernels.
    """
    others = [k for k in kernels if k.frame == "triton"]
    if not others:
        return own(list(kernels))
    assert machine is not None, "TTIR is built for a machine"
    if stage == "hsaco" and len(kernels) > 1:
        raise UnsupportedError(
            "kernels of Triton's are files of their own: emit them one by one, emit asm, or make an"
            " artifact, which holds several files"
        )
    rest = [k for k in kernels if k.frame != "triton"]
    parts = [own(rest)] if rest else []
    return b"\n".join([*parts, *(compile_kernel(k, machine).stages[stage] for k in others)])


@lru_cache(64)
def compile_kernel(kernel: KernelText, machine: TritonMachine) -> Compiled:
    """The machine code of a kernel: PTX or a HSACO.

    Raises ToolchainError for what Triton refuses, and for a kernel that needs what the machine has
    not got, or what no launch of ours gives it.
    """
    try:
        stages, said = _run(kernel, machine)
    except ToolchainError as e:
        raise ToolchainError(
            f"Triton {machine.version} refused the kernel {kernel.name} for {machine.arch}:"
            f" {e.message}; with RLX_TRITON=off it is compiled without"
        ) from e
    threads, shared = said["num_warps"] * machine.wave, said["shared"]
    scratch = max(said["global_scratch_size"] or 0, said["profile_scratch_size"] or 0)
    if shared > machine.shared or scratch or said["num_ctas"] != 1 or threads > 1024:
        raise ToolchainError(
            f"the kernel {kernel.name} as Triton {machine.version} compiles it for {machine.arch}"
            f" takes {shared} bytes of shared memory (there are {machine.shared}), {scratch} bytes"
            f" of scratch, {threads} threads and {said['num_ctas']} blocks of a cluster; compile"
            " with RLX_TRITON=off"
        )
    code = stages["ptx" if machine.backend == "cuda" else "hsaco"]
    spare = _arguments(stages, kernel.name) - len(kernel.buffers) - 1
    return Compiled(code, threads, shared, spare, stages)


def _run(kernel: KernelText, machine: TritonMachine) -> tuple[dict[str, bytes], dict[str, Any]]:
    """What the stages give by our names, and what they say of the kernel."""
    options = {
        "num_warps": kernel.block // machine.wave,
        "num_stages": kernel.stages,
        # A multiply-add is where one is written, as everywhere.
        "enable_fp_fusion": False,
        **({"ptx_version": machine.ptx} if machine.ptx else {}),
    }
    answer = ask(
        {
            "text": kernel.text,
            "backend": machine.backend,
            "arch": machine.arch,
            "wave": machine.wave,
            "options": options,
            "stages": list(STAGES.values()),
        }
    )
    found = answer["found"]
    texts = {ours: b64decode(found[its]) for ours, its in STAGES.items() if its in found}
    return texts, answer["said"]


def _arguments(stages: dict[str, bytes], name: str) -> int:
    """How many pointers a kernel takes, by its code."""
    if "ptx" in stages:
        text = stages["ptx"].decode()
        head = text[text.index(f".entry {name}(") :]
        return head[: head.index(")")].count(".param ")
    # Behind them may be hidden ones, which the driver fills in.
    return len(_BUFFER.findall(stages["asm"].decode()))
