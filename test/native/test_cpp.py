"""The C++ tests of the native runtime, built by CMake and run (sanitized: `make sanitize`)."""

import subprocess
from pathlib import Path

import pytest

from rlx.targets.llvm.elf import Object, SectionType
from support.cpp import run

RELOCATIONS = SectionType.RELOCATIONS


@pytest.mark.parametrize("name", ["rlx_native_tests", "rlx_portable_tests"])
def test_cpp(native_build: Path, name: str):
    assert "passed" in run(native_build / "test" / "native" / name)


@pytest.mark.parametrize("target", ["objects", "schedules"])
def test_mutated_inputs(native_build: Path, target: str):
    assert "refused" in run(native_build / "test" / "native" / "fuzz", target, "20000", "1")


IR = """
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


OBJECTS = {"aarch64": ("small", "", 183), "riscv64": ("medium", "+m,+a,+f,+d,+c,+v,-relax", 243)}
"""By machine: the code model, LLVM's features, and the number in an ELF file's head."""


def _object(machine: str) -> bytes:
    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    model, features, _ = OBJECTS[machine]
    target = llvm.Target.from_triple(f"{machine}-unknown-linux-gnu")
    abi = "lp64d" if machine == "riscv64" else ""
    made = target.create_target_machine(
        reloc="pic", codemodel=model, features=features, abiname=abi
    )
    return made.emit_object(
        llvm.parse_assembly(f'target triple = "{machine}-unknown-linux-gnu"\n{IR}')
    )


@pytest.mark.parametrize("machine", OBJECTS)
def test_objects_of_llvm_for_other_machines_link_here_too(
    machine: str, native_build: Path, tmp_path: Path
):
    path = tmp_path / "kernel.o"
    path.write_bytes(_object(machine))
    link = native_build / "test" / "native" / "link_object"
    assert run(link, machine, path).split() == ["kernel", "outer"]
    refused = subprocess.run([link, "x86_64", path], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert f"machine number {OBJECTS[machine][2]}" in refused.stderr


def test_half_of_an_address_is_refused(native_build: Path, tmp_path: Path):
    """A lower half whose upper one is no more: the types of those relocations are 0 here."""
    path = tmp_path / "kernel.o"
    data = bytearray(_object("riscv64"))
    for section in (s for s in Object.read(bytes(data)).sections if s.kind == RELOCATIONS):
        start = data.index(section.data)
        for at in range(start, start + len(section.data), 24):
            if data[at + 8] in (20, 23):
                data[at + 8] = 0
    path.write_bytes(data)
    link = native_build / "test" / "native" / "link_object"
    refused = subprocess.run([link, "riscv64", path], capture_output=True, text=True, check=False)
    assert "no upper half at" in refused.stderr
