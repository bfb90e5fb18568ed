"""What the allow-list lets through, and what it refuses before LLVM could end the process."""

from __future__ import annotations

import pytest

from rlx.errors import ToolchainError
from rlx.targets.cpu.features import PRESETS
from rlx.targets.llvm import machine
from rlx.targets.llvm.allow import check
from rlx.targets.llvm.machine import Machine, emit_assembly, emit_object, undefined_symbols

V3 = PRESETS["x86-64-v3"].machine

GOOD = """
define float @f(float %0) #0 {
  %2 = call float @llvm.fma.f32(float %0, float %0, float %0)
  %3 = fadd float %2, 0x3FF0000000000000
  ret float %3
}
declare float @llvm.fma.f32(float, float, float) #1
attributes #0 = { nounwind "no-builtins" }
attributes #1 = { nocallback memory(none) willreturn }
"""


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("define float @f(float %0) {\n  %2 = frem float %0, %0\n  ret float %2\n}",
         "the instruction frem"),
        ("define void @f(ptr %0) {\n  %2 = atomicrmw add ptr %0, i32 1 seq_cst\n  ret void\n}",
         "the instruction atomicrmw"),
        ("declare float @llvm.tanh.f32(float)", "the function llvm.tanh.f32"),
        ("declare <8 x float> @llvm.exp.v8f32(<8 x float>)", "the function llvm.exp.v8f32"),
        ("declare float @tanhf(float)", "the function tanhf"),
        ("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)", "llvm.memcpy.p0.p0.i64"),
        ("declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()", "llvm.nvvm.read.ptx.sreg.tid.x"),
        ("attributes #0 = { nounwind sanitize_address }", "the attribute sanitize_address"),
        ('attributes #0 = { "probe-stack"="f" }', 'the attribute "probe-stack"'),
        ("define void @f(x86_fp80 %0) {\n  ret void\n}", "the type x86_fp80"),
    ],
)  # fmt: skip
def test_refused_by_name(text: str, named: str) -> None:
    with pytest.raises(ToolchainError, match="would use") as error:
        emit_object(text, V3)
    assert named in str(error.value)


def test_listed_code_passes() -> None:
    check(GOOD, "x86-64")
    check(GOOD, "aarch64")
    assert emit_object(GOOD, V3).startswith(b"\x7fELF")


def test_an_intrinsic_belongs_to_its_architecture() -> None:
    text = "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()"
    check(text, "nvptx64")
    with pytest.raises(ToolchainError, match=r"sreg\.tid\.x"):
        check(text, "aarch64")


def test_unknown_architecture() -> None:
    with pytest.raises(ToolchainError, match="no allow-list for the architecture 'vax'"):
        check(GOOD, "vax")


def test_text_that_llvm_refuses() -> None:
    with pytest.raises(ToolchainError, match="LLVM refused"):
        emit_object("define float @f() {\n  ret i32 0\n}", V3)


def test_unknown_triple() -> None:
    with pytest.raises(ToolchainError, match="no target pdp11"):
        emit_object(GOOD, Machine("x86-64", "pdp11-unknown-none", "generic"))


def test_an_object_with_a_library_call_is_refused() -> None:
    # Without F16C the conversion is a function of compiler-rt.
    plain = Machine("x86-64", "x86_64-unknown-linux-gnu", "x86-64")
    text = "define half @f(double %0) {\n  %2 = fptrunc double %0 to half\n  ret half %2\n}"
    with pytest.raises(ToolchainError, match="__truncdfhf2"):
        emit_object(text, plain)


def test_zeroing_loops_do_not_become_memset() -> None:
    text = """
    define void @f(ptr %0, i64 %1) #0 {
      br label %head
    head:
      %i = phi i64 [ 0, %2 ], [ %next, %head ]
      %at = getelementptr i8, ptr %0, i64 %i
      store i8 0, ptr %at, align 1
      %next = add i64 %i, 1
      %more = icmp ult i64 %next, %1
      br i1 %more, label %head, label %end
    end:
      ret void
    }
    attributes #0 = { nounwind "no-builtins" }
    """.replace("\n    ", "\n")
    for level in range(4):
        assert undefined_symbols(emit_object(text, V3, opt=level)) == []


def test_ptx() -> None:
    nvidia = Machine("nvptx64", "nvptx64-nvidia-cuda", "sm_80", "+ptx70")
    assert ".target sm_80" in emit_assembly(GOOD, nvidia)


def test_undefined_symbols_are_found() -> None:
    import llvmlite.binding as llvm

    target = machine._target_machine(V3, 2)
    module = llvm.parse_assembly(
        "declare void @outside()\ndefine void @f() {\n  call void @outside()\n  ret void\n}"
    )
    module.triple = V3.triple
    assert "outside" in undefined_symbols(target.emit_object(module))
