"""Kernels in shading languages: what tables say, what is refused, and what compilers take."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rlx.errors import DeviceError, ToolchainError, UnsupportedError
from rlx.kernels.builder import Kernel, KernelText
from rlx.kernels.reg import Reg
from rlx.targets import find_target
from rlx.targets.gpu.emit import text_target, to_source
from rlx.targets.gpu.features import preset
from rlx.targets.gpu.language import STATEMENTS
from rlx.targets.gpu.languages import LANGUAGES
from rlx.types import DType, bf16, bool_, f16, f32, i8, i32, i64
from support.gpu import hello, kernels_of, mlp

ALL = pytest.mark.parametrize("name", LANGUAGES)


def kernels(name: str) -> list[KernelText]:
    """The kernels of two graphs, and of small elements, barriers and loops, for a language."""
    target = text_target("t", preset("webgpu"), LANGUAGES[name])
    found = [one(lambda k, x: x, dt, out=dt) for dt in (i8, bool_, f16, bf16)]
    graphs = [k for g in (hello(), mlp()) for k in kernels_of(g, target, "native", g.name)]
    return [*found, shared(), *graphs]


def one(emit: Callable[..., Reg], *dtypes: DType, out: DType = f32) -> KernelText:
    """A kernel of one function, element by element."""
    k = Kernel("k", find_target("gpu" if out is not i64 else "opencl").kernels)
    buffers = [k.buffer(f"in{n}", dt) for n, dt in enumerate(dtypes)]
    y = k.buffer("out", out)
    k.parallel(lambda i: k.store(emit(k, *(k.load(b, i) for b in buffers)), y, i))
    return k.text()


def shared() -> KernelText:
    """A sum of the 64 elements that a block's threads take."""
    k = Kernel("total", find_target("gpu").kernels)
    x, y = k.buffer("x", f32), k.buffer("y", f32)

    def block(i: Reg, thread: Reg) -> None:
        (found,) = k.block_fold(thread, [k.load(x, i * 64 + thread)], lambda _, a, b: a + b)
        k.when(thread < 1, lambda: k.store(found, y, i))

    k.parallel_blocks(64, block)
    return k.text()


def source(text: KernelText, name: str) -> str:
    return to_source([text], LANGUAGES[name])


@ALL
def test_a_table_has_every_statement(name: str) -> None:
    optional = {"exact", "return", "before", "after"}
    assert set(LANGUAGES[name].rows) >= STATEMENTS - optional


@ALL
def test_a_kernel_says_its_group_and_its_buffers(name: str) -> None:
    text = source(shared(), name)
    assert "64" in text and text.count("{") == text.count("}")
    assert LANGUAGES[name].rows["gpu.barrier"] in text


@ALL
def test_what_has_no_literal_is_told_by_its_bits(name: str) -> None:
    low = float("-inf")
    text = source(one(lambda k, x: k.maximum(x * x, k.select(x > 1.0, x, low)), f32), name)
    assert "0xff800000" in text and "inf" not in text.lower()
    assert "rlx_maximum" in text, "a built-in max would lose nan"


@ALL
def test_the_least_integer_is_no_negated_number(name: str) -> None:
    text = source(one(lambda k, x: (x ^ -(2**31)) + -5, i32, out=i32), name)
    assert "-2147483648)" in text if name == "wgsl" else "-2147483648" not in text


def test_small_elements_share_words_in_wgsl() -> None:
    text = source(one(lambda k, x: x, i8, out=i8), "wgsl")
    assert "array<atomic<u32>>" in text and "atomicAnd" in text and "atomicOr" in text
    text = source(one(lambda k, x: x * 2.0, f16), "wgsl")
    assert "rlx_from_half" in text and "atomic" not in text


def test_sums_keep_their_roundings_where_compilers_reorder() -> None:
    text = source(one(lambda k, x: (x + 12582912.0) - 12582912.0, f32), "wgsl")
    assert "rlx_exact(" in text and "group.z" in text
    assert "precise float" in source(one(lambda k, x: x * 2.0 + 1.0, f32), "glsl")
    assert "FP_CONTRACT OFF" in source(one(lambda k, x: x, f32), "opencl")


def test_what_a_language_lacks_is_refused_by_name() -> None:
    wide = one(lambda k, x: x + 1, i64, out=i64)
    assert "long" in source(wide, "opencl")
    with pytest.raises(UnsupportedError, match=r"k computes with i64, which WGSL lacks"):
        source(wide, "wgsl")
    with pytest.raises(UnsupportedError, match="computes with i64, which webgpu lacks"):
        Kernel("k", find_target("gpu").kernels).buffer("x", i64)
    far = one(lambda k, x: k.load(k._buffers[0], 1 << 31), f32)
    with pytest.raises(UnsupportedError, match="uses the index 2147483648, beyond 32 bits"):
        source(far, "opencl")
    sine = one(lambda k, x: k.unary("math.sin", x), f32)
    with pytest.raises(UnsupportedError, match=r"OpenCL C has no math\.sin from f32 to f32"):
        source(sine, "opencl")


def hello_kernel() -> KernelText:
    return kernels_of(hello(), find_target("gpu"))[0]


def test_profiles_by_name() -> None:
    assert find_target("opencl:opencl1.2-fp64").features.lacks
    with pytest.raises(DeviceError, match="RLX emits OpenCL C for"):
        find_target("opencl:3")
    with pytest.raises(DeviceError, match="RLX emits WGSL for"):
        find_target("gpu:webgl")
    with pytest.raises(UnsupportedError, match="target opencl has no stage 'ptx'; it has source"):
        find_target("opencl").emitter.emit([], "ptx")


# -- outside judges ------------------------------------------------------------------------

COMPILERS: dict[str, Callable[[Path, str], list[str]]] = {
    "cuda": lambda p, _: ["nvcc", "-arch=sm_80", "--fmad=false", "-ptx", "-o", f"{p}.ptx", str(p)],
    "glsl": lambda p, _: ["glslangValidator", "-V", "-o", f"{p}.spv", str(p)],
    "hlsl": lambda p, entry: ["glslangValidator", "-D", "-V", "-S", "comp", "-e", entry,
                              "-o", f"{p}.spv", str(p)],
}  # fmt: skip


@pytest.mark.parametrize("name", COMPILERS)
def test_a_compiler_takes_every_kernel(name: str, tmp_path: Path) -> None:
    command = COMPILERS[name](tmp_path, "")[0]
    if shutil.which(command) is None:
        pytest.skip(f"{command} is not on PATH, so nothing here judges {name}")
    for n, text in enumerate(kernels(name)):
        path = tmp_path / f"k{n}{LANGUAGES[name].suffix}"
        path.write_text(source(text, name))
        done = subprocess.run(
            COMPILERS[name](path, text.name), check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[:3000] + path.read_text()
