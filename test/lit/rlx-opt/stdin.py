"""IR comes from a file or from standard input and goes to standard output; nothing else does."""
# RUN: %python %s > %t.mlir
# RUN: %rlx-opt < %t.mlir 2>%t.err | %filecheck %s
# RUN: %rlx-opt - < %t.mlir | %filecheck %s
# RUN: %rlx-opt %t.mlir -o %t.out | %python -c "import sys; sys.exit(bool(sys.stdin.read()))"
# RUN: %filecheck %s < %t.out
# RUN: %rlx-opt %t.mlir --emit=lir --report --mlir-timing >%t.lir 2>%t.err
# RUN: %rlx-opt %t.lir > %t.again
# RUN: %filecheck %s --check-prefix=REPORT < %t.err
# RUN: not %rlx-opt < %s 2>&1 | %filecheck %s --check-prefix=WHERE

# CHECK: module attributes {rlx.graph = "hello"}
# CHECK-NEXT: func.func @main

# REPORT: nothing to fuse
# REPORT: native{{ +}}contraction: matmul x 1
# REPORT: %)  mir-to-lir

# WHERE: <stdin>:1:1: error: empty operation name is invalid
# WHERE-NEXT: """IR comes
# WHERE-NEXT: ^

from cases import case


@case
def hello(g):
    return g.input("x", [1, 4]) @ g.param("w", [4, 2])
