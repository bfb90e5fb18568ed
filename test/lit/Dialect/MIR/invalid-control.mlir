// RUN: %rlx-opt %s --split-input-file --verify-diagnostics --emit=lir

// What is wrong with a control function is said where it is called.

func.func private @other(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
func.func @main(%x: tensor<f32> {rlx.input = "x"}) -> tensor<f32> {
  // expected-error @+1 {{@other is no control function: it has no rlx.control}}
  %0 = func.call @other(%x) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

func.func private @loop(tensor<f32>) -> tensor<f32> attributes {rlx.control = "until"}
func.func @main(%x: tensor<f32> {rlx.input = "x"}) -> tensor<f32> {
  // expected-error @+1 {{rlx.control is 'until', expected one of cond, while_loop, scan}}
  %0 = func.call @loop(%x) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

func.func private @same(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
func.func private @choose(tensor<i1>, tensor<f32>) -> tensor<f32> attributes
    {rlx.control = "cond", then = @same}
func.func @main(%p: tensor<i1> {rlx.input = "p"}, %x: tensor<f32> {rlx.input = "x"}) -> tensor<f32> {
  // expected-error @+1 {{@choose needs the attribute 'otherwise'}}
  %0 = func.call @choose(%p, %x) : (tensor<i1>, tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

func.func private @choose(tensor<i1>, tensor<f32>) -> tensor<f32> attributes
    {rlx.control = "cond", then = @nobody, otherwise = @nobody}
func.func @main(%p: tensor<i1> {rlx.input = "p"}, %x: tensor<f32> {rlx.input = "x"}) -> tensor<f32> {
  // expected-error @+1 {{'then' of @choose is @nobody, expected a defined function}}
  %0 = func.call @choose(%p, %x) : (tensor<i1>, tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

func.func private @same(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
func.func private @choose(tensor<f32>, tensor<f32>) -> tensor<f32> attributes
    {rlx.control = "cond", then = @same, otherwise = @same}
func.func @main(%x: tensor<f32> {rlx.input = "x"}) -> tensor<f32> {
  // expected-error @+1 {{the condition is f32, expected a bool}}
  %0 = func.call @choose(%x, %x) : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

func.func private @same(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
func.func private @choose(tensor<i1>, tensor<f32>) -> tensor<2xf32> attributes
    {rlx.control = "cond", then = @same, otherwise = @same}
func.func @main(%p: tensor<i1> {rlx.input = "p"}, %x: tensor<f32> {rlx.input = "x"}) -> tensor<2xf32> {
  // expected-error @+1 {{@choose: results and what its bodies give differ: 2xf32 and f32}}
  %0 = func.call @choose(%p, %x) : (tensor<i1>, tensor<f32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

// -----

func.func private @go(%x: tensor<f32>) -> tensor<i1> {
  %0 = "mir.lt"(%x, %x) : (tensor<f32>, tensor<f32>) -> tensor<i1>
  return %0 : tensor<i1>
}
func.func private @again(%x: tensor<f32>) -> tensor<f32> {
  // expected-error @+1 {{@again runs itself; a loop is a while_loop}}
  %0 = func.call @loop(%x) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @loop(tensor<f32>) -> tensor<f32> attributes
    {rlx.control = "while_loop", test = @go, body = @again, carries = 1 : i64, limit = -1 : i64}
func.func @main(%x: tensor<f32> {rlx.input = "x"}) -> tensor<f32> {
  %0 = func.call @loop(%x) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

func.func private @go(%x: tensor<f32>) -> tensor<i1> {
  %0 = "mir.lt"(%x, %x) : (tensor<f32>, tensor<f32>) -> tensor<i1>
  return %0 : tensor<i1>
}
func.func private @again(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
func.func private @loop(tensor<f32>) -> tensor<f32> attributes
    {rlx.control = "while_loop", test = @go, body = @again, carries = 1 : i64, limit = "none"}
func.func @main(%x: tensor<f32> {rlx.input = "x"}) -> tensor<f32> {
  // expected-error @+1 {{attribute 'limit' of @loop is no int}}
  %0 = func.call @loop(%x) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
