"""HLSL: its profiles, what a run of it says, and the SPIR-V that glslang makes of it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import rlx
from rlx.compiler.driver import compile_program
from rlx.errors import DeviceError, ToolchainError
from rlx.targets import find_target
from support.gpu import mlp
from support.shaders import glslang


def test_profiles_by_name() -> None:
    assert find_target("directx").features.name == "sm5.0"
    with pytest.raises(DeviceError, match=r"RLX emits HLSL for sm5\.0"):
        find_target("directx:sm4")


def test_a_session_says_what_runs_instead() -> None:
    with pytest.raises(
        DeviceError, match=r"'directx' is not available: RLX makes HLSL.*'gpu' runs"
    ):
        rlx.Session("directx")


@pytest.mark.parametrize("api", ["directx", "opengl"])
def test_a_file_of_many_kernels_gives_valid_spirv_for_each(api: str, tmp_path: Path) -> None:
    program, _ = compile_program(mlp(), find_target(api))
    assert len(program.kernels) > 1 and len({k.code for k in program.kernels}) == 1
    for kernel in program.kernels[:3]:
        path = tmp_path / f"{kernel.name}.spv"
        path.write_bytes(glslang(api, kernel.code.decode(), kernel.name))
        if shutil.which("spirv-val") is None:
            pytest.skip("no spirv-val (`make drivers` has it)")
        command = ["spirv-val", "--target-env", "vulkan1.1", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    with pytest.raises(ToolchainError, match="glslang"):
        glslang(api, "no shader", "k")
