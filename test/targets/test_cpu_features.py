"""Which CPU code is emitted for."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from rlx import knobs
from rlx.errors import DeviceError
from rlx.targets.cpu import features, make_target
from rlx.targets.cpu.features import PRESETS, PROCESSORS, best, preset, require, selected
from rlx.targets.cpu.target import kernel_target
from rlx.types import f16, f32, f64

V3, V4 = PRESETS["x86-64-v3"], PRESETS["x86-64-v4"]


def test_presets() -> None:
    assert (V3.vector_bits, V3.registers) == (256, 16)
    assert (V4.vector_bits, V4.registers) == (512, 32)
    assert V3.has < V4.has
    assert PRESETS["aarch64"].machine.triple.startswith("aarch64-")


def test_the_widest_that_fits() -> None:
    assert best(V3.has) == V3
    assert best(V4.has | {"sse4a"}) == V4
    # One missing part of AVX-512 is enough to do without it.
    assert best(V4.has - {"avx512dq"}) == V3
    assert best({"neon"}).isa == "aarch64"
    assert best({"m", "a", "f", "d", "c", "v"}) == PRESETS["riscv64"]


def test_extras_are_kept() -> None:
    found = best(V4.has | {"avx512vnni", "amx-tile", "amx-bf16"})
    assert found.name == "x86-64-v4+amx-bf16+amx-tile+avx512vnni"
    assert preset(found.name) == found
    assert "+avx512vnni" in found.machine.attributes


def test_sve_is_for_one_length_of_its_registers() -> None:
    sve = {"neon", "fullfp16", "sve"}
    assert best(sve | {"sve256", "bf16"}).name == "aarch64-sve256+bf16"
    assert best(sve | {"sve512", "sve2"}).name == "aarch64-sve512+sve2"
    # What NEON has is as wide as 128 bits, and for others RLX emits no code.
    assert best(sve | {"sve128", "sve2"}) == best({"neon", "fullfp16"})
    assert best(sve | {"sve1024"}) == best({"neon", "fullfp16"})
    wide = PRESETS["aarch64-sve512"]
    assert (wide.vector_bits, wide.function_attributes) == (512, "vscale_range(4,4)")
    assert "+sve" in wide.machine.attributes.split(",")
    assert PRESETS["aarch64"].function_attributes == ""


GCC_SAYS = {
    "dotprod": "DOTPROD", "bf16": "BF16_VECTOR_ARITHMETIC", "i8mm": "MATMUL_INT8",
    "fullfp16": "FP16_VECTOR_ARITHMETIC", "sve": "SVE", "sve2": "SVE2",
}  # fmt: skip


@pytest.mark.parametrize("name", PROCESSORS)
def test_processors_have_what_gcc_says(name: str) -> None:
    """All of it, but for SVE where NEON's registers are as wide."""
    command = ["aarch64-linux-gnu-gcc", f"-mcpu={name}", "-dM", "-E", "-x", "c", os.devnull]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} not on PATH (or run `make drivers`)")
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        assert "unknown value" in made.stderr
        pytest.skip(f"this GCC knows no {name}")
    said = {n for n, macro in GCC_SAYS.items() if f"__ARM_FEATURE_{macro} 1" in made.stdout}
    found = preset(name)
    narrow = {"sve", "sve2"} if found.vector_bits == 128 else set[str]()
    assert found.has & set(GCC_SAYS) == said - narrow


def test_a_name_of_a_processor_is_one_of_its_features() -> None:
    assert preset("neoverse-v1").name == "aarch64-sve256+bf16+dotprod+i8mm"
    assert preset("neoverse-n1+i8mm").name == "aarch64+dotprod+fullfp16+i8mm"
    assert preset("a64fx") == PRESETS["aarch64-sve512"]


def test_too_old_a_machine() -> None:
    with pytest.raises(DeviceError, match=r"neither AVX2.*it reports: avx, sse2"):
        best({"avx", "sse2"})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x86-64-v5", "unknown CPU 'x86-64-v5'; did you mean 'x86-64-v4'"),
        (
            "x86-64-v4+avx512vni",
            "extra 'avx512vni' of x86-64-v4; did you mean 'avx512vnni'",
        ),
        ("x86-64-v3+amx-tile", "unknown extra 'amx-tile'.*known are none"),
        ("aarch64+sve2", "unknown extra 'sve2' of aarch64; .*known are bf16, dotprod"),
        ("aarch64-sve384", "unknown CPU 'aarch64-sve384'; did you mean 'aarch64-sve512'"),
        ("neoverse-v3", "unknown CPU 'neoverse-v3'; did you mean 'neoverse-v2'"),
    ],
)
def test_unknown_names(name: str, message: str) -> None:
    with pytest.raises(DeviceError, match=message.replace("+", r"\+")):
        preset(name)


def test_the_knob_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_CPU", "aarch64")
    assert selected() == PRESETS["aarch64"]
    monkeypatch.setenv("RLX_CPU", "z80")
    with pytest.raises(DeviceError, match="unknown CPU 'z80'"):
        selected()


def test_code_for_another_machine_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "detect", lambda: V3)
    assert require(V3) is V3
    with pytest.raises(DeviceError, match=r"x86-64-v4 does not run .*lacks avx512bw, avx512cd"):
        require(V4)
    with pytest.raises(DeviceError, match="aarch64 does not run"):
        require(PRESETS["aarch64"])


def test_what_kernels_see() -> None:
    target = kernel_target(V4)
    assert (target.lanes(f32), target.lanes(f64), target.lanes(f16)) == (16, 8, 16)


def test_the_target_follows_the_knob() -> None:
    here = make_target()
    with knobs.cpu.scoped("x86-64-v3"):
        assert make_target().features.name == "x86-64-v3"
    assert make_target() is here
