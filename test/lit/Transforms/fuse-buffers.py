"""A region reads no more than a kernel of the target may bind: its result and the numbers of the
launch are two of those buffers."""
# RUN: %python %s > %t.mlir
# RUN: %rlx-opt %t.mlir --split-input-file --target=webgpu --emit=fused | %filecheck %s
# RUN: %rlx-opt %t.mlir --split-input-file --target=webgpu --emit=fused --report 2>&1 >%t.out | %filecheck %s --check-prefix=MISS
# RUN: %rlx-opt %t.mlir --split-input-file --target=webgpu:webgpu+buffers16 --emit=fused | %filecheck %s --check-prefix=MORE
# RUN: %rlx-opt %t.mlir --split-input-file --target=cpu --emit=fused | %filecheck %s --check-prefix=MORE

# ruff: noqa: E501 (patterns do not break)

from cases import case


def sum_of(xs):
    total = xs[0]
    for x in xs[1:]:
        total = total + x
    return total


# Six operands, the result and the numbers are eight buffers.
# CHECK-LABEL: "sum_of_six"
# CHECK: "mir.fused"
# CHECK-COUNT-5: "mir.add"
# CHECK: {kind = "elementwise"}
# CHECK-NEXT: return
@case
def sum_of_six(g):
    return sum_of([g.input(f"x{i}", [4]) for i in range(6)])


# CHECK-LABEL: "sum_of_seven"
# CHECK: %[[X:.*]] = "mir.add"(%arg0, %arg1)
# CHECK-NEXT: "mir.fused"
# CHECK-NEXT: "mir.add"(%[[X]], %arg2)
# CHECK-COUNT-4: "mir.add"
# CHECK: {kind = "elementwise"}
# CHECK-NEXT: return
# MISS: elementwise of add: it binds 9 buffers, and a kernel of webgpu 8 at most (what the next region makes is stored once and read again)
# MORE-LABEL: "sum_of_seven"
# MORE: "mir.fused"
# MORE-COUNT-6: "mir.add"
# MORE: {kind = "elementwise"}
# MORE-NEXT: return
@case
def sum_of_seven(g):
    return sum_of([g.input(f"x{i}", [4]) for i in range(7)])


# What is read twice is bound once.
# CHECK-LABEL: "sum_of_few"
# CHECK: "mir.fused"
# CHECK-COUNT-11: "mir.add"
# CHECK: {kind = "elementwise"}
# CHECK-NEXT: return
@case
def sum_of_few(g):
    xs = [g.input(f"x{i}", [4]) for i in range(6)]
    return sum_of([*xs, *xs])


# CHECK-LABEL: "softmax_of_sum"
# CHECK: %[[X:.*]] = "mir.add"(%arg0, %arg1)
# CHECK-NEXT: "mir.fused"
# CHECK-COUNT-5: "mir.add"
# CHECK: "mir.softmax"
# CHECK: {kind = "rowwise"}
# CHECK-NEXT: return
# MISS: rowwise of add: it binds 9 buffers
@case
def softmax_of_sum(g):
    return sum_of([g.input(f"x{i}", [4, 8]) for i in range(7)]).softmax(-1)


# CHECK-LABEL: "product_with_residuals"
# CHECK: %[[Y:.*]] = "mir.fused"
# CHECK-NEXT: "mir.matmul"
# CHECK-COUNT-4: "mir.add"
# CHECK: {kind = "contraction"}
# CHECK: "mir.fused"
# CHECK-NEXT: "mir.add"(%[[Y]], %arg6)
# CHECK-NEXT: "mir.add"
# CHECK-NEXT: "mir.yield"
# CHECK-NEXT: {kind = "elementwise"}
# MISS: contraction of add: it binds 9 buffers
@case
def product_with_residuals(g):
    y = g.input("a", [4, 8]) @ g.input("b", [8, 16])
    return sum_of([y, *(g.input(f"x{i}", [4, 16]) for i in range(6))])
