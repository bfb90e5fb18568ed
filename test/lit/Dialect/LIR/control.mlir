// RUN: %rlx-opt %inputs/control.lir --verify-roundtrip --canonicalize --cse --emit=lir | %filecheck %s
// RUN: %rlx-opt %inputs/control.lir --emit=llvm | %filecheck %s --check-prefix=LLVM

// What a test reads may change between steps: upstream passes leave every one of them in place.

// CHECK: scf.for %[[I:[a-z0-9_]+]] = %
// CHECK: "lir.count"(%[[I]], %[[ROUND:[a-z0-9_]+]])
// CHECK: call @less(%[[ROUND]], %{{.*}}, %[[FLAG:[a-z0-9_]+]]) {
// CHECK: %[[T:[a-z0-9_]+]] = "lir.test"(%[[FLAG]])
// CHECK: scf.if %[[T]] {
// CHECK: call @add(%{{.*}}, %[[ROUND]], %{{.*}}) {
// CHECK: scf.while
// CHECK: call @less(
// CHECK: %[[M:[a-z0-9_]+]] = "lir.test"(%[[FLAG]])
// CHECK: scf.condition(%[[M]])
// CHECK: call @add(
// CHECK: lir.limit = 100

// LLVM-DAG: define void @add(
// LLVM-DAG: define void @less(
