"""What depends on a loop's captures alone is computed before the loop, and in @prologue if it can."""
# RUN: %python %s > %t.mlir
# RUN: %rlx-opt %t.mlir --split-input-file --simplify --hoist | %filecheck %s
# RUN: %rlx-opt %t.mlir --split-input-file --simplify --hoist --dispatch=common | %filecheck %s --check-prefix=COMMON

# COMMON-NOT: @prologue

# ruff: noqa: E501 (patterns do not break)

from cases import case

import rlx


# CHECK-LABEL: "a_weight_transposed_in_a_scan"
# CHECK: func.func private @body
# CHECK-SAME: %[[T:[a-z0-9]+]]: tensor<8x8xf32>, %{{[a-z0-9]+}}: tensor<2x8xf32>)
# CHECK-NOT: "mir.transpose"
# CHECK: "mir.matmul"(%{{.*}}, %[[T]])
# CHECK: func.func @prologue
# CHECK: "mir.transpose"
# CHECK: func.func @main
# CHECK: call @scan{{.*}} : (tensor<2x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<3x2x8xf32>)
@case
def a_weight_transposed_in_a_scan(g):
    w, x = g.param("w", [8, 8]), g.input("x", [3, 2, 8])
    h, _ = rlx.scan(lambda h, e: (h @ w.T + e, None), g.input("h", [2, 8]), x)
    return h


# Both functions of a while take what left one of them.
# CHECK-LABEL: "the_test_of_a_while"
# CHECK: func.func private @test{{.*}}(%{{.*}}: tensor<8x8xf32>, %{{.*}}: tensor<8x8xf32>, %[[E:[a-z0-9]+]]: tensor<8x8xf32>)
# CHECK-NOT: "mir.exp"
# CHECK: func.func private @body{{.*}}(%{{.*}}: tensor<8x8xf32>, %{{.*}}: tensor<8x8xf32>, %{{.*}}: tensor<8x8xf32>)
# CHECK: func.func @main
# CHECK: %[[E:.*]] = "mir.exp"
# CHECK: call @while_loop{{.*}}({{.*}}, %[[E]])
@case
def the_test_of_a_while(g):
    x, y = g.input("x", [8, 8]), g.input("y", [8, 8])
    return rlx.while_loop(lambda v: (v * y.exp()).sum() < 9.0, lambda v: v + y, (x,), limit=9)


# From the inner loop into the outer one, and out of that.
# CHECK-LABEL: "nested"
# CHECK: func.func @main
# CHECK: "mir.exp"
# CHECK: call @scan
@case
def nested(g):
    x, y = g.input("x", [8, 8]), g.input("y", [8, 8])
    inner = lambda v, _: (v + y.exp(), None)
    return rlx.scan(lambda v, _: (rlx.scan(inner, v, length=3)[0], None), x, length=2)[0]


# What may end a run stays where it may not be reached: a loop may have no round.
# CHECK-LABEL: "a_gather_stays"
# CHECK: "mir.gather"
# CHECK: func.func @main
# CHECK-NOT: "mir.gather"
@case
def a_gather_stays(g):
    x, y, i = g.input("x", [8, 8]), g.input("y", [9, 8]), g.input("i", [8], "i64")
    return rlx.while_loop(lambda v: v.sum() < 9.0, lambda v: v + g.gather(y, i), (x,))


# A branch may not run, and what is in a cond stays there.
# CHECK-LABEL: "a_cond_in_a_loop"
# CHECK: func.func private @then
# CHECK: "mir.exp"
# CHECK: func.func @main
# CHECK-NOT: "mir.exp"
@case
def a_cond_in_a_loop(g):
    x, y = g.input("x", [8, 8]), g.input("y", [8, 8])
    step = lambda v, _: (rlx.cond(v.sum() > 0, lambda: v + y.exp(), lambda: v), None)
    return rlx.scan(step, x, length=2)[0]


# Small values are those of a loop that is one kernel; a broadcast is an address, and a table that
# is larger than what it is made of would be memory.
# CHECK-LABEL: "what_stays"
# CHECK: func.func private @body
# CHECK: "mir.exp"
# CHECK: "mir.expand"
# CHECK: "mir.mul"
# CHECK: func.func @main
# CHECK-NOT: "mir.exp"
# CHECK-NOT: "mir.mul"
@case
def what_stays(g):
    x, y, z = g.input("x", [9, 9]), g.input("y", [9, 1]), g.input("z", [1, 9])
    return rlx.scan(lambda v, _: (v + y.exp() + y * z, None), x, length=2)[0]
