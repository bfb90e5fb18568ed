// Times and statistics go to stderr, for all parts of the input together.
// RUN: %rlx-opt %s --split-input-file --simplify --legalize --cse --mlir-timing --mlir-pass-statistics 2>%t.err | %filecheck %s
// RUN: %filecheck %s --check-prefix=STATISTICS < %t.err
// RUN: %filecheck %s --check-prefix=TIMING < %t.err

// CHECK-NOT: report
// CHECK: module {

// STATISTICS: ... Pass statistics report ...
// STATISTICS: {{^simplify$}}
// STATISTICS-NEXT: {{^  \(S\)      2 mul-one$}}
// STATISTICS-NEXT: {{^  \(S\)      1 fold$}}
// STATISTICS-NEXT: {{^legalize$}}
// STATISTICS-NEXT: nothing applied
// STATISTICS-NEXT: {{^cse$}}

// TIMING: ... Execution time report ...
// TIMING: Total Execution Time: {{[0-9.]+}} seconds
// TIMING: ----Wall Time----  ----Name----
// TIMING-NEXT: {{[0-9.]+ \( *[0-9.]+%\)  parse$}}
// TIMING-NEXT: {{ simplify$}}
// TIMING: {{ legalize$}}
// TIMING: {{ cse$}}
// TIMING: {{ Rest$}}
// TIMING-NEXT: (100.0%) Total

func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> {
  %one = "mir.constant"() {value = dense<1.0> : tensor<2xf32>} : () -> tensor<2xf32>
  %0 = "mir.mul"(%x, %one) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
// -----
func.func @g(%x: tensor<2xf32>) -> tensor<2xf32> {
  %half = "mir.constant"() {value = dense<0.5> : tensor<2xf32>} : () -> tensor<2xf32>
  %one = "mir.add"(%half, %half) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %0 = "mir.mul"(%x, %one) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
