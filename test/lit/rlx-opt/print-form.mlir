// How IR is printed: with locations, generically, without large literals.
// RUN: %rlx-opt %s | %filecheck %s --check-prefix=PLAIN
// RUN: %rlx-opt %s --mlir-print-debuginfo --mlir-print-op-generic --mlir-elide-elementsattrs-if-larger=3 | %filecheck %s
// RUN: %rlx-opt %s --cse --mlir-print-ir-after-all --mlir-elide-elementsattrs-if-larger=4 2>&1 >%t.out | %filecheck %s --check-prefix=DUMP

// PLAIN-NOT: loc(
// PLAIN: module {
// PLAIN: dense<[1.000000e+00, 2.000000e+00, 3.000000e+00, 4.000000e+00]>
// PLAIN-NOT: loc(

// CHECK: "builtin.module"() ({
// CHECK: "func.func"()
// CHECK: dense_resource<__elided__>
// CHECK: loc("-":19:8)

// DUMP: dense<[1.000000e+00, 2.000000e+00, 3.000000e+00, 4.000000e+00]>

func.func @f() -> tensor<4xf32> {
  %0 = "mir.constant"() {value = dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>} : () -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
