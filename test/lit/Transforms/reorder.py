"""Ops that end the life of values come before those that begin new ones."""
# RUN: %python %s > %t.mlir
# RUN: %rlx-opt %t.mlir --split-input-file --simplify --reorder | %filecheck %s
# RUN: %rlx-opt %t.mlir --split-input-file --simplify --reorder --dispatch=common | %filecheck %s --check-prefix=COMMON

# COMMON-LABEL: "the_second_output_ends_a_life"
# COMMON: "mir.cos"
# COMMON: "mir.neg"

# ruff: noqa: E501 (patterns do not break)

from cases import case


# The second output takes no room in the arena: it is made as soon as it can be, and h dies sooner.
# CHECK-LABEL: "the_second_output_ends_a_life"
# CHECK: %[[H:.*]] = "mir.exp"
# CHECK-NEXT: %[[OUT1:.*]] = "mir.neg"(%[[H]])
# CHECK-NEXT: %[[A:.*]] = "mir.sin"(%[[H]])
# CHECK-NEXT: %[[OUT0:.*]] = "mir.cos"(%[[A]])
# CHECK-NEXT: return %[[OUT0]], %[[OUT1]]
@case
def the_second_output_ends_a_life(g):
    h = g.input("x", [64]).exp()
    return h.sin().cos(), -h


# A value that begins to live, and ends none, stays; so does a view of what lives on.
# CHECK-LABEL: "a_new_value_waits"
# CHECK: %[[H:.*]] = "mir.exp"
# CHECK-NEXT: %[[A:.*]] = "mir.sin"(%[[H]])
# CHECK-NEXT: %[[OUT0:.*]] = "mir.cos"(%[[A]])
# CHECK-NEXT: %[[T:.*]] = "mir.transpose"(%[[H]])
# CHECK-NEXT: %[[N:.*]] = "mir.neg"(%[[T]])
# CHECK-NEXT: %[[OUT1:.*]] = "mir.matmul"(%[[N]], %[[N]])
# CHECK-NEXT: return %[[OUT0]], %[[OUT1]], %[[H]]
@case
def a_new_value_waits(g):
    h = g.input("x", [8, 8]).exp()
    n = -h.transpose([1, 0])
    return h.sin().cos(), n @ n, h


# What may be written over an argument waits until the others have read that.
# CHECK-LABEL: "an_update_waits_for_the_readers_of_the_old_value"
# CHECK: %[[H:.*]] = "mir.exp"
# CHECK-NEXT: %[[Y:.*]] = "mir.mul"(%[[H]], %{{.*}})
# CHECK-NEXT: %[[OUT0:.*]] = "mir.cos"(%[[Y]])
# CHECK-NEXT: %[[NEW:.*]] = "mir.add"(%{{.*}}, %[[H]])
@case
def an_update_waits_for_the_readers_of_the_old_value(g):
    h, w = g.input("x", [64]).exp(), g.input("w", [64])
    return (h * w).cos(), w + h
