"""Triton's compiler on kernels in TTIR, ahead of time and without a GPU: the code, what its
launches need, and what is refused. Without the package triton most of this is skipped."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import rlx
from rlx import knobs
from rlx.codegen.builder import KernelTarget, KernelText
from rlx.codegen.program import Program, Step
from rlx.codegen.reg import Reg
from rlx.codegen.strides import row_major
from rlx.codegen.triton.machine import TritonMachine
from rlx.codegen.triton.pointwise import pointwise
from rlx.codegen.triton.text import Text
from rlx.errors import DeviceError, KnobError, ToolchainError, UnsupportedError
from rlx.kernels.attention import triton as attention
from rlx.kernels.attention.args import AttentionConfig, AttentionSizes, Strides
from rlx.kernels.matmul import triton as contraction
from rlx.kernels.registry import emit_kernel
from rlx.lowering.compilation import Options
from rlx.runtime.cache.key import artifact_parts
from rlx.targets import find_target, triton
from rlx.targets.cuda.features import preset
from rlx.targets.triton import process
from rlx.targets.triton.compile import compile_kernel
from rlx.types import DType, bf16, f16, f32
from support.drivers import counter, mocked, pair
from support.gpu import assemble, disassemble, hello
from support.hsaco import Hsaco
from support.sweeps import covering

TARGETS: dict[str, tuple[tuple[DType, str], ...]] = {
    "cuda:sm_75": ((f32, "fma.rn.f32"),),
    "cuda:sm_80": ((f16, "mma.sync.aligned.m16n8k16"), (bf16, "mma.sync"), (f32, "fma.rn.f32")),
    "cuda:sm_90": ((f16, "mma.sync"),),
    "cuda:sm_90a": ((f16, "wgmma.mma_async"), (bf16, "wgmma.mma_async")),
    "cuda:sm_100a": ((f16, "tcgen05.mma"), (bf16, "tcgen05.mma")),
    "cuda:sm_120": ((bf16, "mma.sync"),),
    "rocm:gfx90a": ((bf16, "v_mfma_"), (f32, "v_mfma_f32")),
    "rocm:gfx942": ((f16, "v_mfma_"), (f32, "v_mfma_f32")),
    "rocm:gfx950": ((bf16, "v_mfma_"),),
    "rocm:gfx1100": ((f16, "v_wmma_"),),
    "rocm:gfx1201": ((bf16, "v_wmma_"),),
}
"""The element types that are compiled for each target, and an instruction that multiplies them."""

CASES = [(target, dt, unit) for target, rows in TARGETS.items() for dt, unit in rows]


@pytest.fixture
def here() -> None:
    """A Triton that RLX calls."""
    if not triton.usable(triton.installed()):  # it is not imported: that is for its own process
        pytest.skip(f"there is no Triton {triton.TESTED} (run `make drivers`)")


def target_of(name: str) -> KernelTarget:
    """The kernels' view of a target with Triton, whatever the element type."""
    with knobs.triton.scoped("on"):
        return find_target(name).kernels


def compiled(text: KernelText, target: KernelTarget) -> Any:
    assert target.triton is not None
    return compile_kernel(text, target.triton)


def product(target: KernelTarget, dt: DType, shape: tuple[int, int, int]) -> KernelText:
    """A product with a bias and an activation; B is transposed."""
    m, n, k = shape
    steps = (Step("mir.add", (0, 1), (dt, dt), dt), Step("mir.relu", (2,), (dt,), dt))
    strides = [row_major((m, k)), (1, k), (0, 1), row_major((m, n))]
    assert target.triton is not None
    config, _ = contraction.launch(
        Program((dt, dt), steps, (3,)), target.triton, dt, shape, strides, [0] * 4
    )
    return emit_kernel(contraction.name, "k", config, target)


def attend(target: KernelTarget, dt: DType, rows: int, dim: int) -> KernelText:
    """Attention with a causal mask, of two heads for each key head."""
    q, k = Strides(rows * 4 * dim, dim, 4 * dim), Strides(rows * 2 * dim, dim, 2 * dim)
    sizes = AttentionSizes(2, 4, 2, rows, rows, dim, 0.1, q, k, k, q)
    assert target.triton is not None
    config, _ = attention.launch(AttentionConfig(dt, "causal"), target.triton, sizes, [0] * 4)
    return emit_kernel(attention.name, "k", config, target)


def judged(name: str, made: Any, text: KernelText, folder: Path) -> str:
    """The listing of a kernel's code, which the makers' tools take."""
    api, _, isa = name.partition(":")
    assert (made.threads, made.spare) == (text.block, 2)
    if api == "rocm":
        file = Hsaco.read(made.code)
        found = file.descriptor("k")
        assert found.kernarg >= 8 * (len(text.buffers) + 1 + made.spare)
        assert found.group_segment == 0, "all of it is given by the launch"
        disassemble(made.code, folder)
        return made.stages["asm"].decode()
    ptx = made.code.decode()
    found = re.search(r"\.version (\d)\.(\d)\n\.target (\w+)", ptx)
    assert found is not None
    assert int(found[1] + found[2]) == preset(found[3]).ptx, "every driver of the GPU knows it"
    assert found[3] == isa or (found[3] == "sm_89" and int(isa[3:]) > 89)
    assert re.search(r"\.reqntid (\d+)", ptx)[1] == str(text.block)  # type: ignore[index]
    assert "tf32" not in ptx and not re.search(r"\b(?:add|mul|sub)\.f32", ptx)
    assemble(made.code, found[3], folder)
    return ptx


@pytest.mark.parametrize(
    ("name", "dt", "unit"),
    covering(CASES, lambda case: [case[2], (case[0].partition(":")[0], case[1])]),
)
@pytest.mark.usefixtures("here")
def test_kernels_of_every_target(name: str, dt: DType, unit: str, tmp_path: Path) -> None:
    target = target_of(name)
    large = (1024, 1024, 256) if dt is not f32 else (256, 256, 64)
    for text in (product(target, dt, large), attend(target, dt, 512 if dt is not f32 else 64, 64)):
        made = compiled(text, target)
        assert unit in judged(name, made, text, tmp_path)
        assert 0 < made.shared <= target.triton.shared  # type: ignore[union-attr]


@pytest.mark.usefixtures("here")
def test_what_is_ragged_and_what_is_large(tmp_path: Path) -> None:
    target = target_of("cuda:sm_90a")
    texts = [product(target, f16, s) for s in ((8192, 8192, 4096), (9, 33, 7), (300, 20, 70))]
    texts += [attend(target, bf16, rows, dim) for rows, dim in ((9, 20), (2048, 128), (300, 256))]
    for text in texts:
        made = compiled(text, target)
        judged("cuda:sm_90a", made, text, tmp_path)
    vectors = compiled(texts[0], target).code.decode()
    copies = r"cp\.async\.c\w\.shared\.global \[[^]]*\], \[[^]]*\], (\w+)"
    assert set(re.findall(copies, vectors)) == {"0x10"}, "16 bytes at a time"


@pytest.mark.usefixtures("here")
def test_the_same_kernel_is_the_same_code() -> None:
    target = target_of("rocm:gfx942")
    text = product(target, f16, (64, 64, 64))
    first = compiled(text, target)
    compile_kernel.cache_clear()
    assert compiled(text, target).code == first.code
    assert b"/tmp" not in first.code and b"/tmp" not in first.stages["llvm"]


FUNCTIONS = ("exp", "log", "tanh", "erf", "gelu", "expm1", "log1p", "log2", "exp2", "sinh", "cosh",
             "asin", "acos", "atan", "asinh", "acosh", "atanh")  # fmt: skip


@pytest.mark.parametrize("name", ["cuda:sm_80", "rocm:gfx942"])
@pytest.mark.usefixtures("here")
def test_the_math_functions_compile_on_blocks(name: str, tmp_path: Path) -> None:
    target = target_of(name)
    t = Text("k", [("x", f32), *((f, f32) for f in FUNCTIONS)], [])
    at = t.row(t.arange(64))
    here = t.compare("lt", at, t.size("range") * 64)
    (x, *outs) = (t.buffer(n) for n, _ in t.buffers)
    values = t.read(x, x.base + at)
    for f, out in zip(FUNCTIONS, outs, strict=True):

        def call(k: Any, xs: Any, f: str = f) -> list[Reg]:
            return [k.round_to(k.round_to(k.call(f, xs[0]), bf16), f16)]

        (y,) = pointwise(t, call, [values], [f32])
        t.write(out, out.base + at, y, here)
    text = t.text(4, target.triton.wave, 1)  # type: ignore[union-attr]
    judged(name, compiled(text, target), text, tmp_path)


# -- artifacts -----------------------------------------------------------------------------

LOADED = """
import sys
sys.modules["triton"] = sys.modules["torch_mlir"] = sys.modules["llvmlite"] = None
from rlx.runtime.artifact import Artifact
(v,) = Artifact.load(sys.argv[1]).variants
print([(k.shared, k.spare, k.workgroup[0]) for k in v.program.kernels])
"""


@pytest.mark.parametrize("name", ["cuda:sm_90a", "rocm:gfx942"])
@pytest.mark.usefixtures("here")
def test_artifacts_hold_the_code(name: str, tmp_path: Path) -> None:
    g = rlx.Graph("product")
    g.set_outputs([g.relu(g.input("x", [64, 64], "f16") @ g.param("w", [64, 64], "f16")).sum()])
    with knobs.triton.scoped("auto"):
        artifact = rlx.compile_artifact(g, name)
        artifact.save(tmp_path / "x.rlx")
    kernels = artifact.variants[0].program.kernels  # type: ignore[union-attr]
    first, *others = kernels
    assert first.spare == 2 and first.shared > 0, "it is Triton's"
    assert others and all((k.spare, k.shared) == (0, 0) for k in others)
    assert len({k.code for k in kernels}) == 2, "the others are one file"
    done = subprocess.run(
        [sys.executable, "-c", LOADED, str(tmp_path / "x.rlx")], check=True, capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.stdout.strip() == str([(k.shared, k.spare, k.workgroup[0]) for k in kernels])


@pytest.mark.usefixtures("here")
def test_stages_of_both_kinds_of_kernels() -> None:
    target = target_of("rocm:gfx942")
    text = product(target, f16, (64, 64, 64))
    emitter = find_emitter("rocm:gfx942")
    assert emitter.emit([text], "hsaco").startswith(b"\x7fELF")
    assert b"v_mfma" in emitter.emit([text, replace(text)], "asm")
    with pytest.raises(UnsupportedError, match="are files of their own"):
        emitter.emit([text, text], "hsaco")


def find_emitter(name: str) -> Any:
    with knobs.triton.scoped("on"):
        return find_target(name).emitter


# -- refusals ------------------------------------------------------------------------------


@pytest.mark.usefixtures("here")
def test_what_a_launch_cannot_give_is_refused() -> None:
    target = target_of("cuda:sm_80")
    text = product(target, f16, (64, 64, 64))
    assert target.triton is not None
    with pytest.raises(ToolchainError, match=r"of shared memory \(there are 100\).*RLX_TRITON=off"):
        compile_kernel(text, replace(target.triton, shared=100))
    broken = replace(text, text=text.text.replace("tt.dot", "tt.dote"))
    with pytest.raises(ToolchainError, match=r"Triton 3\.\d\S* refused the kernel k for 80"):
        compile_kernel(broken, target.triton)


@pytest.mark.usefixtures("here")
def test_a_compiler_that_crashes_is_an_error_and_the_next_one_starts_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = target_of("cuda:sm_80")
    assert target.triton is not None
    crashes = tmp_path / "crashes.py"
    crashes.write_text("import os, sys; sys.stdin.readline(); print('oh', file=sys.stderr)\n"
                       "sys.stderr.flush(); os.abort()", encoding="utf-8")  # fmt: skip
    compile_kernel.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(process, "_SCRIPT", crashes)
        patch.setattr(process, "_asker", process._Asker())
        with pytest.raises(ToolchainError, match=r"refused the kernel k .*ended with -6: oh"):
            compile_kernel(product(target, f16, (64, 64, 64)), target.triton)
        patch.setattr(process, "_SCRIPT", process.Path(process.__file__).with_name("stages.py"))
        assert compile_kernel(product(target, f16, (64, 64, 64)), target.triton).code
        process._asker.end()


def test_triton_is_used_as_the_knob_says() -> None:
    def machine(mode: str, version: str | None) -> TritonMachine | None:
        with knobs.triton.scoped(mode), mock.patch.object(triton, "installed", lambda: version):
            return find_target("cuda:sm_80").kernels.triton

    assert machine("auto", None) is None and machine("off", "3.9.0") is None
    assert machine("auto", "3.10.1") is None, "a version that RLX was not tested with"
    found = machine("auto", "3.9.1")
    assert found is not None and (found.version, found.always) == ("3.9.1", False)
    assert machine("on", "3.9.0").always  # type: ignore[union-attr]
    with pytest.raises(ToolchainError, match=r"is not installed; RLX calls version 3\.9"):
        machine("on", None)
    with pytest.raises(ToolchainError, match=r"is here as version 3\.10\.1"):
        machine("on", "3.10.1")
    with mock.patch.dict("os.environ", {"RLX_TRITON": "yes"}), pytest.raises(KnobError):
        knobs.triton.get()


def test_machines() -> None:
    def machine(name: str) -> TritonMachine:
        return preset(name).triton("3.9", always=False)

    assert machine("sm_75").units == (), "Triton has no code for its matrix units any more"
    for name in ("sm_90", "sm_100", "sm_120"):
        assert machine(name) == machine("sm_89"), "code for one is to run on later ones"
    hopper = machine("sm_90a")
    assert (hopper.arch, hopper.shared, hopper.direct, hopper.ptx) == (90, 227 << 10, True, 80)


def test_the_cache_tells_tritons_apart() -> None:
    def part(target: str, mode: str) -> str | None:
        with knobs.triton.scoped(mode):
            parts = artifact_parts(hello(), target, "x", Options(), ())
        return next((p.text for p in parts if p.name == "triton"), None)

    assert part("cpu", "auto") is None
    assert part("cuda", "off") == "off" == part("rocm", "off")
    assert part("cuda", "auto") != part("cuda", "on")
    assert "triton" in (part("cuda", "auto") or "")


# -- launches ------------------------------------------------------------------------------


@pytest.mark.parametrize(("api", "shared"), [("cuda", 200_000), ("cuda", 100), ("rocm", 60_000)])
def test_what_a_launch_gives(api: str, shared: int) -> None:
    """Dynamic shared memory, which CUDA is asked for beyond 48 KiB, and null pointers at the
    end."""
    driver = mocked(api)()
    given: list[list[int]] = []
    do = driver.do

    def watch(what: str, *args: Any) -> None:
        if what == "launch":
            places = list(args[9])
            given.append([ctypes.c_uint64.from_address(p).value for p in places])
        do(what, *args)

    with mock.patch.object(driver, "do", watch):
        work = pair(driver)
        handle = driver.load(replace(work.handle.kernel, shared=shared, spare=2))
        driver.run([replace(work.launch(), handle=handle)])
        driver.sync()
    assert counter(driver, "mock_shared").value == shared
    assert len(given[0]) == 5 and given[0][3:] == [0, 0] and 0 not in given[0][:3]
    with pytest.raises(DeviceError, match=r"groups that share 300000 bytes; at most"):
        driver.load(replace(work.handle.kernel, shared=300_000))
    driver.close()
