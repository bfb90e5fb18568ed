"""Graphs and samples as kernels of a target that this machine need not have."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Literal

import pytest

import rlx
from rlx.codegen.builder import Kernel, KernelText
from rlx.codegen.reg import Reg
from rlx.dialects.context import SharedContext
from rlx.dialects.export import to_mlir
from rlx.errors import RlxError, UnsupportedError
from rlx.ir.graph import Graph
from rlx.kernels.fallback import emit as common
from rlx.kernels.fallback.emit import CommonConfig
from rlx.kernels.registry import emit_kernel
from rlx.lowering.compilation import Compilation, Options
from rlx.lowering.pipeline import planned
from rlx.targets.base import Target
from rlx.types import DType, f16, f32, i64
from support.samples import Case, cases

__all__ = [
    "Emitted", "assemble", "disassemble", "emit_by_families", "emit_samples", "hello", "kernel_of",
    "kernels_of", "mlp", "tool", "validate",
]  # fmt: skip

Dispatch = Literal["common", "native"]


@cache
def hello() -> Graph:
    """The smallest graph: x[1, 4] @ w[4, 2]."""
    g = rlx.Graph("hello")
    g.set_outputs([g.input("x", [1, 4], "f32") @ g.param("w", [4, 2], "f32")])
    return g


@cache
def mlp() -> Graph:
    """Two layers: a product with bias and gelu, then a product with a softmax."""
    g = rlx.Graph("mlp")
    x = g.input("x", [3, 16], "f32")
    w1, b1 = g.param("w1", [16, 32], "f32"), g.param("b1", [32], "f32")
    hidden = g.gelu(x @ w1 + b1)
    g.set_outputs([g.softmax(hidden @ g.param("w2", [32, 10], "f32"), axis=-1)])
    return g


_contexts = SharedContext()


def kernels_of(
    graph: Graph, target: Target, dispatch: Dispatch = "common", prefix: str = ""
) -> list[KernelText]:
    """The kernels of a graph by the whole pipeline, in the order in which they are met."""
    compilation = Compilation(target, Options(dispatch=dispatch))
    with _contexts.get() as context:
        schedule = planned(to_mlir(graph, context), compilation)
    return [
        emit_kernel(k.family, f"{prefix}{k.name}", k.config, target.kernels)
        for k in schedule.kernels
    ]


def kernel_of(
    target: Target, emit: Callable[..., Reg], *dtypes: DType, out: DType = f32
) -> KernelText:
    """A kernel of one function of a builder and registers, element by element."""
    k = Kernel("k", target.kernels)
    buffers = [k.buffer(f"in{n}", dt) for n, dt in enumerate(dtypes)]
    y = k.buffer("out", out)
    k.parallel(lambda i: k.store(emit(k, *(k.load(b, i) for b in buffers)), y, i))
    return k.text()


@dataclass
class Emitted:
    """What a target made of the samples: kernels, the file that holds them all, and refusals by
    op (with the element type, if it is not f32)."""

    kernels: list[KernelText] = field(default_factory=list)
    refused: dict[str, list[str]] = field(default_factory=dict)
    file: bytes = b""


def emit_samples(
    target: Target, dtypes: Iterable[DType], dispatch: Dispatch = "common", every: int = 1
) -> Emitted:
    """Every sample of every op in these element types, or one of ``every`` so many, as kernels of
    one file. An op with a loop nest of its own is emitted from it, a composite one by the whole
    pipeline."""
    out = Emitted()
    for n, case in enumerate(islice(cases(*dtypes), 0, None, every)):
        try:
            out.kernels += _kernels_of_case(case, target, dispatch, f"k{n}_")
        except UnsupportedError as e:
            out.refused.setdefault(case.op.name, []).append(e.message)
    stage = target.stages[-1]
    try:
        out.file = target.emitter.emit(out.kernels, stage)
    except RlxError:
        # Which of them it was: one file a kernel takes many times as long.
        for k in out.kernels:
            try:
                target.emitter.emit([k], stage)
            except RlxError as e:
                raise AssertionError(f"no {stage} for the kernel\n{k.text}\n{e}") from e
        raise
    return out


def emit_by_families(target: Target) -> Emitted:
    """Every sample by the kernels of families: all of those have some, and none is refused."""
    emitted = emit_samples(target, [f32, f16, i64], "native")
    assert not emitted.refused
    families = {re.sub(r"^k\d+_|_\d+$", "", k.name) for k in emitted.kernels}
    blocks = {"gpu_attention", "gpu_contraction", "gpu_reduce", "rowwise"}
    assert families == {"common", "copy", "elementwise", "gather", *blocks}
    return emitted


def _kernels_of_case(
    case: Case, target: Target, dispatch: Dispatch, prefix: str
) -> list[KernelText]:
    node = case.node()
    whole = hasattr(case.op, "loops") or hasattr(case.op, "scalar") or not node.present
    if dispatch == "common" and whole:
        return [common.emit(f"{prefix}common", CommonConfig.of(node), target.kernels)]
    if not node.present:
        return []
    graph = node.present[0].graph
    assert graph is not None
    graph.set_outputs(list(node.results))
    return kernels_of(graph, target, dispatch, prefix)


def assemble(ptx: bytes, isa: str, folder: Path) -> None:
    """Have NVIDIA's assembler take a PTX file; without one the test is skipped."""
    path = folder / "kernels.ptx"
    path.write_bytes(ptx)
    _accepts([_needed("ptxas"), f"-arch={isa}", str(path), "-o", str(folder / "kernels.cubin")])


def validate(spirv: bytes, folder: Path) -> None:
    """Have Khronos's validator take a SPIR-V file by Vulkan's rules; without one the test is
    skipped."""
    path = folder / "kernels.spv"
    path.write_bytes(spirv)
    _accepts([_needed("spirv-val"), "--target-env", "vulkan1.1", str(path)])


def disassemble(hsaco: bytes, folder: Path) -> None:
    """Have LLVM's disassembler read the code of a HSACO, where one is here that knows all of the
    architectures: then it must know every instruction."""
    found = tool("llvm-objdump")
    if found is None:
        return
    path = folder / "kernels.hsaco"
    path.write_bytes(hsaco)
    listing = subprocess.run([found, "-d", str(path)], check=True, capture_output=True, text=True)
    assert "s_endpgm" in listing.stdout and "<unknown>" not in listing.stdout


@cache
def tool(name: str) -> str | None:
    """The path of a program that judges code, if it is here."""
    if name == "llvm-objdump":
        found = next((t for t in ("llvm-objdump-22", name) if shutil.which(t)), None)
        return found if found and _version(found) >= 20 else None
    places = [Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "bin"]
    if name == "ptxas":
        for package in map(importlib.util.find_spec, ("nvidia", "triton")):  # `make drivers`
            for place in (package.submodule_search_locations or []) if package else []:
                places += (p.parent for p in Path(place).glob("**/bin/ptxas"))
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(map(str, places)))


def _version(llvm: str) -> int:
    said = subprocess.run([llvm, "--version"], check=True, capture_output=True, text=True).stdout
    return int(said.partition("LLVM version ")[2].partition(".")[0])


def _needed(name: str) -> str:
    found = tool(name)
    if found is None:
        pytest.skip(f"{name} is not here, so nothing judges the emitted code (run `make drivers`)")
    return found


def _accepts(command: list[str]) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[:4000]
