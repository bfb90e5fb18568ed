"""Every stage from the text of any stage before it, and all ways to the same end."""
# RUN: %python %s > %t.hir
# RUN: %rlx-opt %t.hir --emit=hir | %filecheck %s --check-prefix=HIR
# RUN: %rlx-opt %t.hir --emit=mir -o %t.mir
# RUN: %filecheck %s --check-prefix=MIR < %t.mir
# RUN: %rlx-opt %t.mir --emit=fused -o %t.fused
# RUN: %filecheck %s --check-prefix=FUSED < %t.fused
# RUN: %rlx-opt %t.fused --emit=lir -o %t.lir
# RUN: %filecheck %s --check-prefix=LIR < %t.lir
# RUN: %rlx-opt %t.lir --emit=llvm -o %t.ll
# RUN: %filecheck %s --check-prefix=LLVM < %t.ll
# RUN: %rlx-opt %t.hir --emit=llvm -o %t.direct
# RUN: %python -c "import sys; a, b = (open(p).read() for p in sys.argv[1:]); sys.exit(a != b)" %t.ll %t.direct
# RUN: not %rlx-opt %t.lir --emit=mir 2>&1 | %filecheck %s --check-prefix=BACK
# RUN: not %rlx-opt %t.lir --fuse 2>&1 | %filecheck %s --check-prefix=LEVEL

# HIR: "hir.linear"
# MIR-NOT: hir.
# MIR: "mir.matmul"
# FUSED: "mir.fused"
# LIR: func.func @main(%{{.*}} {lir.role = "arena"}
# LLVM: define void @contraction_
# BACK: error: the input is lir already; it cannot go back to mir
# LEVEL: error: the input is lir already; fuse takes hir or mir

from cases import case, layer

# ruff: noqa: E501 (commands do not break)


@case
def mlp(g):
    x = g.input("x", [8, 16])
    return g.linear(x, *layer(g, x, 32), activation="gelu")
