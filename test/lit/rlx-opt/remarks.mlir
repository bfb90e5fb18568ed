// Remarks and warnings are shown and matched as errors are; they fail nothing.
// RUN: %rlx-opt %s --transform-interpreter --verify-diagnostics
// RUN: %rlx-opt %s --transform-interpreter 2>&1 >%t.out | %filecheck %s

// CHECK: remarks.mlir:18:3: remark: a function
// CHECK-NEXT: {{^      func.func @f}}
// CHECK-NEXT: {{^      \^$}}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.readonly}) {
    %f = transform.structured.match ops{["func.func"]} in %root
        : (!transform.any_op) -> !transform.any_op
    transform.debug.emit_remark_at %f, "a function" : !transform.any_op
    transform.yield
  }

  // expected-remark@below {{a function}}
  func.func @f() { return }
}
