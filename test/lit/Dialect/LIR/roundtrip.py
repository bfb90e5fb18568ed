"""The schedule of a graph with a prologue, constants and fault sites prints back to itself, and is
a starting point for the stages after it."""
# RUN: %python %s | %rlx-opt --emit=lir > %t.lir
# RUN: %rlx-opt %t.lir --verify-roundtrip --emit=lir > %t.again
# RUN: %python -c "import sys; a, b = (open(p).read() for p in sys.argv[1:]); sys.exit(a != b)" %t.lir %t.again
# RUN: %rlx-opt %t.lir --emit=llvm | %filecheck %s

# CHECK-DAG: define void @contraction_{{[0-9]+}}(i64 %begin, i64 %end, ptr %buffers, ptr %sizes, ptr %scratch)
# CHECK-DAG: define internal void @contraction_{{[0-9]+}}_body(

from cases import case, layer

# ruff: noqa: E501 (commands do not break)


@case
def everything(g):
    x, i = g.input("x", [8, 16]), g.input("i", [2], "i64")
    w, b = layer(g, x, 32)
    return g.gather(g.gelu(x @ w + b), i, axis=0), g.gather(x, g.constant([1, 0], "i64"), axis=0)
