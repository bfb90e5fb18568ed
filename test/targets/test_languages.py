"""Kernels in shading languages: what tables say, what is refused, and what compilers take."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rlx.codegen.builder import Kernel, KernelText
from rlx.codegen.reg import Reg
from rlx.errors import DeviceError, UnsupportedError
from rlx.targets import find_target
from rlx.targets.gpu.emit import text_target, to_source
from rlx.targets.gpu.features import preset
from rlx.targets.gpu.language import STATEMENTS
from rlx.types import DType, bf16, bool_, f16, f32, i8, i32, i64
from support.gpu import hello, kernels_of, mlp
from support.languages import LANGUAGES
from support.shaders import glslang

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
    optional = {"exact", "opaque", "return", "before", "after"}
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


@pytest.mark.parametrize("name", ["wgsl", "glsl", "hlsl"])
def test_compilers_that_know_of_no_nan_do_not_see_a_zero(name: str) -> None:
    hidden = LANGUAGES[name].rows["opaque"].partition("(")[0]
    assert f"* {hidden}(" in source(one(lambda k, x: x * 0.0, f32), name)
    assert f"- {hidden}(" in source(one(lambda k, x: x - x, f32), name)
    assert f"/ {hidden}(" in source(one(lambda k, x: x / x, f32), name)
    assert f"* {hidden}(" not in source(one(lambda k, x: x * 2.0, f32), name)


def test_remainders_of_negative_numbers_are_by_the_quotient_where_they_are_not_defined() -> None:
    text = source(one(lambda k, x: x % 7, i32, out=i32), "glsl")
    assert "/ 7 * 7;" in text and "%" not in text
    assert "% 7;" in source(one(lambda k, x: x % 7, i32, out=i32), "metal")


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


def test_profiles_by_name() -> None:
    assert find_target("opencl:opencl1.2-fp64").features.lacks
    with pytest.raises(DeviceError, match="RLX emits OpenCL C for"):
        find_target("opencl:3")
    with pytest.raises(DeviceError, match="RLX emits WGSL for"):
        find_target("gpu:webgl")
    with pytest.raises(UnsupportedError, match="target opencl has no stage 'ptx'; it has source"):
        find_target("opencl").emitter.emit([], "ptx")


# -- outside judges ------------------------------------------------------------------------


@pytest.mark.slow
def test_nvcc_takes_every_kernel(tmp_path: Path) -> None:
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not on PATH, so nothing here judges CUDA C++")
    for n, text in enumerate(kernels("cuda")):
        path = tmp_path / f"k{n}.cu"
        path.write_text(source(text, "cuda"))
        command = ["nvcc", "-arch=sm_80", "--fmad=false", "-ptx", "-o", f"{path}.ptx", str(path)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 0, (done.stdout + done.stderr)[:3000] + path.read_text()


@pytest.mark.parametrize(("name", "api"), [("glsl", "opengl"), ("hlsl", "directx")])
def test_glslang_takes_small_elements_and_shared_memory(name: str, api: str) -> None:
    for text in kernels(name)[:5]:
        assert glslang(api, source(text, name), text.name)
