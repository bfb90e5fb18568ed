"""The C++ tests of the native runtime, built by CMake and run (sanitized: `make sanitize`)."""

import subprocess
from pathlib import Path

import pytest

from support.cpp import run


@pytest.mark.parametrize("name", ["rlx_native_tests", "rlx_portable_tests"])
def test_cpp(native_build: Path, name: str):
    assert "passed" in run(native_build / "test" / "native" / name)


@pytest.mark.parametrize("target", ["objects", "schedules"])
def test_mutated_inputs(native_build: Path, target: str):
    assert "refused" in run(native_build / "test" / "native" / "fuzz", target, "20000", "1")


AARCH64_IR = """
target triple = "aarch64-unknown-linux-gnu"
@table = private constant [4 x float] [float 1.0, float 2.0, float 3.0, float 4.0]
@pair = private constant <4 x float> <float 1.0, float 2.0, float 3.0, float 4.0>
@counter = internal global i64 0
@outer = global double 5.0
define internal i64 @helper(i64 %x) noinline {
  %old = load i64, ptr @counter
  %new = add i64 %old, %x
  store i64 %new, ptr @counter
  ret i64 %new
}
define void @kernel(i64 %begin, i64 %end, ptr %out) {
  %n = call i64 @helper(i64 %begin)
  %slot = getelementptr [4 x float], ptr @table, i64 0, i64 %end
  %a = load float, ptr %slot
  store float %a, ptr %out
  %v = load <4 x float>, ptr @pair
  %to = getelementptr i8, ptr %out, i64 16
  store <4 x float> %v, ptr %to
  %d = load double, ptr @outer
  %far = getelementptr i8, ptr %out, i64 32
  store double %d, ptr %far
  ret void
}
"""


def test_objects_of_llvm_for_aarch64_link_here_too(native_build: Path, tmp_path: Path):
    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("aarch64-unknown-linux-gnu")
    machine = target.create_target_machine(reloc="pic", codemodel="small")
    path = tmp_path / "kernel.o"
    path.write_bytes(machine.emit_object(llvm.parse_assembly(AARCH64_IR)))
    link = native_build / "test" / "native" / "link_object"
    assert run(link, "aarch64", path).split() == ["kernel", "outer"]
    refused = subprocess.run([link, "x86_64", path], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "machine number 183" in refused.stderr
