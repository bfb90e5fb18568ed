"""The calls of Triton's compiler: its stages one after the other, on text of ours.

Nothing is read from or left in Triton's own cache. The compiler's knobs in the environment
(TRITON_...) hold for it as always, but for what decides the results of arithmetic.
"""

from __future__ import annotations

import importlib
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from rlx.errors import ToolchainError, UnsupportedError
from rlx.kernels.builder import KernelText
from rlx.kernels.triton.machine import TritonMachine

__all__ = ["Compiled", "compile_kernel", "emit_with"]

STAGES = {"llvm": "llir", "asm": "amdgcn", "ptx": "ptx", "hsaco": "hsaco"}
"""What Triton calls the stages of our targets."""

_BUFFER = re.compile(r"\.value_kind: +global_buffer")


@dataclass(frozen=True)
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
        found, said = _run(kernel, machine)
    except Exception as e:  # the compiler raises what its stages do
        reason = " ".join(str(e).split())[:400] or type(e).__name__
        raise ToolchainError(
            f"Triton {machine.version} refused the kernel {kernel.name} for {machine.arch}:"
            f" {reason}; with RLX_TRITON=off it is compiled without"
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
    stages = {ours: _bytes(found[its]) for ours, its in STAGES.items() if its in found}
    code = stages["ptx" if machine.backend == "cuda" else "hsaco"]
    spare = _arguments(stages, kernel.name) - len(kernel.buffers) - 1
    return Compiled(code, threads, shared, spare, stages)


def _run(kernel: KernelText, machine: TritonMachine) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the stages give by their names, and what they say of the kernel."""
    knobs, libtriton, backends, compiler = (
        importlib.import_module(name)
        for name in (
            "triton.knobs", "triton._C.libtriton", "triton.backends.compiler",
            "triton.compiler.compiler",
        )
    )  # fmt: skip
    ir = libtriton.ir
    target = backends.GPUTarget(machine.backend, machine.arch, machine.wave)
    backend, context = compiler.make_backend(target), ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.ttir"
        path.write_text(kernel.text, encoding="utf-8")
        module: Any = ir.parse_mlir_module(str(path), context)
    module.context = context
    given: dict[str, Any] = {
        "num_warps": kernel.block // machine.wave,
        "num_stages": kernel.stages,
        # A multiply-add is where one is written, as everywhere.
        "enable_fp_fusion": False,
        **({"ptx_version": machine.ptx} if machine.ptx else {}),
    }
    options = backend.parse_options(given)
    stages: dict[str, Callable[[Any, dict[str, Any]], Any]] = {}
    backend.add_stages(stages, options, backends.Language.TRITON)
    said: dict[str, Any] = {"target": target, **options.__dict__}
    found: dict[str, Any] = {}
    with knobs.compilation.scope():
        # Lines of a file that is gone would be in the code, and make no two compiles alike.
        knobs.compilation.disable_line_info = True
        for name, stage in stages.items():
            if name != "cubin":  # the driver assembles PTX, for the GPU that it has
                module = found[name] = stage(module, said)
    return found, said


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def _arguments(stages: dict[str, bytes], name: str) -> int:
    """How many pointers a kernel takes, by its code."""
    if "ptx" in stages:
        text = stages["ptx"].decode()
        head = text[text.index(f".entry {name}(") :]
        return head[: head.index(")")].count(".param ")
    # Behind them may be hidden ones, which the driver fills in.
    return len(_BUFFER.findall(stages["asm"].decode()))
