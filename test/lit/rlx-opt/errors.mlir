// RUN: %rlx-opt %s --split-input-file --verify-diagnostics --emit=lir

// What RLX's passes refuse, at its place in the text.

// expected-error@unknown {{the module has no function @main, which share-inputs starts from}}
func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }

// -----

// expected-error@+1 {{argument 0 of @main is neither input nor param; write {rlx.input = "x"}}}
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }

// -----

// expected-error@+1 {{argument 0 of @main is f32, expected a tensor}}
func.func @main(%x: f32 {rlx.input = "x"}) -> f32 { return %x : f32 }

// -----

// expected-error@+1 {{func @helper has 0 blocks, expected one}}
func.func private @helper()
func.func @main() { return }

// -----

// expected-error@+1 {{func @main has 2 blocks, expected one}}
func.func @main() {
  cf.br ^end
^end:
  return
}

// -----

// A dim that is not bound has no size to compile for.
// expected-error@+1 {{argument 0 of @main is tensor<?xf32, ["n"]>; mir-to-lir needs the size of every dim: write them into the text, or save graph.bind({...})}}
func.func @main(%x: tensor<?xf32, ["n"]> {rlx.input = "x"}) -> tensor<?xf32, ["n"]> {
  %0 = "mir.neg"(%x) : (tensor<?xf32, ["n"]>) -> tensor<?xf32, ["n"]>
  return %0 : tensor<?xf32, ["n"]>
}
