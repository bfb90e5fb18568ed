"""The code of a product and of a row-wise kernel uses what the CPU has, and nothing more."""
# RUN: %python %s | %rlx-opt --emit=lir > %t.lir
# RUN: %rlx-opt %t.lir --emit=asm --target=cpu:x86-64-v3 | %filecheck %s --check-prefix=V3
# RUN: %rlx-opt %t.lir --emit=asm --target=cpu:x86-64-v4 | %filecheck %s --check-prefix=V4
# RUN: %rlx-opt %t.lir --emit=asm --target=cpu:aarch64 | %filecheck %s --check-prefix=ARM
# RUN: %rlx-opt %t.lir --emit=asm --target=cpu:aarch64-sve256 | %filecheck %s --check-prefix=SVE
# RUN: %rlx-opt %t.lir --emit=asm --target=cpu:riscv64 | %filecheck %s --check-prefix=RISCV
# RUN: %rlx-opt %t.lir --emit=llvm --target=cpu:x86-64-v3 | %filecheck %s --check-prefix=LLVM

# A kernel is one function without calls of a library, behind a frame of the runtime's ABI.

# V3-NOT: zmm
# V3-DAG: vfmadd{{[0-9]+}}ps {{.*}}%ymm
# V3-DAG: .globl contraction_{{[0-9]+}}
# V3-NOT: callq mem
# V3-NOT: vscalef
# V3-NOT: vmaskmov
# V3-NOT: zmm

# V4-DAG: vfmadd{{[0-9]+}}ps {{.*}}%zmm
# The exponential of softmax takes its power of two by one instruction.
# V4-DAG: vscalefps {{.*}}%zmm
# Its root of two comes from a register, and the end of a row is part of a vector.
# V4-DAG: vpermps {{.*}}%zmm
# V4-DAG: vmovups {{.*}}{%k{{[0-7]}}} {z}

# ARM-NOT: ymm
# ARM: fmla v{{[0-9]+}}.4s

# The end of a row is part of a vector here too, and no register of NEON takes part in a product.
# SVE-NOT: fmla v
# SVE-DAG: fmla z{{[0-9]+}}.s, p
# SVE-DAG: ld1w { z{{[0-9]+}}.s }, p{{[1-9]}}/z

# RISCV-NOT: call{{.*}}fma
# RISCV: vfmacc.v{{[vf]}}

# LLVM-NOT: declare {{.*}}@expf
# LLVM: <8 x float>
# LLVM: define void @{{[a-z]+}}_{{[0-9]+}}(i64 %begin, i64 %end, ptr %buffers, ptr %sizes, ptr %scratch)

# ruff: noqa: E501 (patterns do not break)

from cases import case, layer


@case
def mlp(g):
    x = g.input("x", [8, 16])
    w, b = layer(g, x, 32)
    return g.softmax(g.gelu(x @ w + b), -1)
