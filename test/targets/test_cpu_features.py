"""Which CPU code is emitted for."""

from __future__ import annotations

import pytest

from rlx import knobs
from rlx.errors import DeviceError
from rlx.targets.cpu import features, make_target
from rlx.targets.cpu.features import PRESETS, best, preset, require, selected
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
