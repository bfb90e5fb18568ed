// RUN: %rlx-opt %s --split-input-file --verify-diagnostics --emit=lir

// expected-error@unknown {{a lir module needs a function @main}}
func.func private @kernel() attributes {lir.family = "pool", lir.config = {is = "PoolBackConfig", dtype = f32}}

// -----

// expected-error@+1 {{every argument of a lir entry needs lir.role}}
func.func @main(%arena: memref<8xi8>) {
  %0 = "lir.view"(%arena) {offset = 0 : i64, shape = array<i64>, strides = array<i64>} : (memref<8xi8>) -> memref<?xi8>
  return
}

// -----

// expected-error@+1 {{lir.role is 'heap', expected one of arena, packed, error}}
func.func @main(%arena: memref<8xi8> {lir.role = "heap"}) { return }

// -----

// expected-error@+1 {{a memory is a memref of static shape, found memref<?xi8>}}
func.func @main(%arena: memref<?xi8> {lir.role = "arena"}) { return }

// -----

// expected-error@+1 {{the arena is a memref of bytes, memref<Nxi8>, found memref<i8>}}
func.func @main(%arena: memref<i8> {lir.role = "arena"}) { return }

// -----

// expected-error@+1 {{the packed is a memref of bytes, memref<Nxi8>, found memref<8xi64>}}
func.func @main(%packed: memref<8xi64> {lir.role = "packed"}) { return }

// -----

// expected-error@+1 {{there are two arguments with the role arena, expected one}}
func.func @main(%a: memref<8xi8> {lir.role = "arena"}, %b: memref<8xi8> {lir.role = "arena"}) { return }

// -----

// expected-error@+1 {{the input at argument 0 needs lir.name}}
func.func @main(%x: memref<4xf32> {lir.role = "input"}) { return }

// -----

// expected-error@unknown {{the module needs lir.constant0, the value of its constant 0}}
func.func @main(%x: memref<4xf32> {lir.role = "constant", lir.name = "0"}) { return }

// -----

// expected-error@+1 {{kernel @k needs lir.config}}
func.func private @k() attributes {lir.family = "copy"}
func.func @main(%arena: memref<8xi8> {lir.role = "arena"}) { return }

// -----

// expected-error@+1 {{the config of @k is not one of gather}}
func.func private @k() attributes {lir.family = "gather", lir.config = {is = "GatherConfig", bits = 32 : i64}}
func.func @main(%arena: memref<8xi8> {lir.role = "arena"}) { return }

// -----

// expected-error@unknown {{a kernel config is of the class 'Nothing', expected one of ElementwiseConfig}}
func.func private @k() attributes {lir.family = "copy", lir.config = {is = "Nothing"}}
func.func @main(%arena: memref<8xi8> {lir.role = "arena"}) { return }

// -----

func.func private @other()
func.func @main(%arena: memref<8xi8> {lir.role = "arena"}) {
  // expected-error@+1 {{@other is no kernel: it has no lir.family}}
  func.call @other() : () -> ()
  return
}

// -----

func.func private @k() attributes {lir.family = "pool", lir.config = {is = "PoolBackConfig", dtype = f32}}
func.func @main(%arena: memref<8xi8> {lir.role = "arena"}) {
  // expected-error@+1 {{a launch of @k needs lir.range, an i64}}
  func.call @k() {lir.grain = 1 : i64, lir.scratch = 0 : i64} : () -> ()
  return
}

// -----

func.func private @k() attributes {lir.family = "pool", lir.config = {is = "PoolBackConfig", dtype = f32}}
func.func @main(%arena: memref<8xi8> {lir.role = "arena"}) {
  // expected-error@+1 {{found range 1, grain 0 and scratch 0, expected at least 0, 1 and 0}}
  func.call @k() {lir.range = 1 : i64, lir.grain = 0 : i64, lir.scratch = 0 : i64} : () -> ()
  return
}

// -----

func.func private @k(memref<8xi8>) attributes {lir.family = "pool", lir.config = {is = "PoolBackConfig", dtype = f32}}
func.func @main(%arena: memref<8xi8> {lir.role = "arena"}) {
  // expected-error@+1 {{arguments of @k are views, then constants}}
  func.call @k(%arena) {lir.range = 1 : i64, lir.grain = 1 : i64, lir.scratch = 0 : i64} : (memref<8xi8>) -> ()
  return
}

// -----

func.func @main(%arena: memref<8xi8> {lir.role = "arena"}) {
  %0 = memref.alloc() : memref<8xi8>
  return
// expected-error@-2 {{memref.alloc is no step of a schedule; there are func.call, scf.if, scf.while, scf.for}}
}

// -----

func.func @main(%arena: memref<8xi8> {lir.role = "arena"}) {
  %0 = "lir.view"(%arena) {offset = 0 : i64, shape = array<i64>, strides = array<i64>} : (memref<8xi8>) -> memref<?xi8>
  // expected-error@+1 {{lir.view: its base is no argument of the entry}}
  %1 = "lir.view"(%0) {offset = 0 : i64, shape = array<i64>, strides = array<i64>} : (memref<?xi8>) -> memref<?xi8>
  return
}

// -----

func.func @main(%arena: memref<8xi8> {lir.role = "arena"}) {
  %true = arith.constant true
  // expected-error@+1 {{an scf.if takes a lir.test that stands right before it}}
  scf.if %true { }
  return
}

// -----

func.func @main(%arena: memref<8xi8> {lir.role = "arena"}) {
  %p = "lir.view"(%arena) {offset = 0 : i64, shape = array<i64>, strides = array<i64>} : (memref<8xi8>) -> memref<?xi8>
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %t = "lir.test"(%p) : (memref<?xi8>) -> i1
  scf.for %i = %c0 to %c1 step %c1 { }
  // expected-error@+1 {{an scf.if takes a lir.test that stands right before it}}
  scf.if %t { }
  return
}

// -----

func.func @main(%arena: memref<8xi8> {lir.role = "arena"}) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  // expected-error@+1 {{an scf.for counts from 0 in steps of 2, expected 0 and 1}}
  scf.for %i = %c0 to %c2 step %c2 { }
  return
}

// -----

func.func @main(%arena: memref<8xi8> {lir.role = "arena"}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %c1 step %c1 {
    // expected-error@+1 {{bounds and step of an scf.for must be constants}}
    scf.for %j = %c0 to %i step %c1 { }
  }
  return
}

// -----

func.func @main(%arena: memref<8xi8> {lir.role = "arena"}) {
  %p = "lir.view"(%arena) {offset = 0 : i64, shape = array<i64>, strides = array<i64>} : (memref<8xi8>) -> memref<?xi64>
  %c0 = arith.constant 0 : index
  // expected-error@+1 {{lir.count must stand before the steps of the scf.for whose round it stores}}
  "lir.count"(%c0, %p) : (index, memref<?xi64>) -> ()
  return
}

// -----

func.func @main(%arena: memref<8xi8> {lir.role = "arena"}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  // expected-error@+1 {{scf.for of a schedule carries no values}}
  %0 = scf.for %i = %c0 to %c1 step %c1 iter_args(%v = %c0) -> index { scf.yield %v : index }
  return
}

// -----

func.func @main(%arena: memref<8xi8> {lir.role = "arena"}) {
  scf.while : () -> () {
    %true = arith.constant true
    // expected-error@+1 {{the condition of scf.condition must be a lir.test}}
    scf.condition(%true)
  } do { scf.yield }
  return
}

// -----

func.func @main(%arena: memref<8xi8> {lir.role = "arena"}) {
  %p = "lir.view"(%arena) {offset = 0 : i64, shape = array<i64>, strides = array<i64>} : (memref<8xi8>) -> memref<?xi8>
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.while : () -> () {
    %t = "lir.test"(%p) : (memref<?xi8>) -> i1
    // expected-error@+1 {{an scf.while takes a lir.test that ends its first region}}
    scf.for %i = %c0 to %c1 step %c1 { }
    scf.condition(%t)
  } do { scf.yield }
  return
}

// -----

func.func @main(%arena: memref<8xi8> {lir.role = "arena"}) {
  %p = "lir.view"(%arena) {offset = 0 : i64, shape = array<i64>, strides = array<i64>} : (memref<8xi8>) -> memref<?xi8>
  // expected-error@+1 {{lir.limit is -2, expected -1 (none) or more}}
  scf.while : () -> () {
    %t = "lir.test"(%p) : (memref<?xi8>) -> i1
    scf.condition(%t)
  } do { scf.yield } attributes {lir.limit = -2 : i64}
  return
}

// -----

func.func @main(%arena: memref<8xi8> {lir.role = "arena"}) {
  // expected-error@-1 {{a lir entry has one block, found 2}}
  cf.br ^next
^next:
  return
}

// -----

func.func @main(%arena: memref<64xi8> {lir.role = "arena"}) {
  %0 = "lir.view"(%arena) {offset = 0 : i64, shape = array<i64: 2>, strides = array<i64: 1>} : (memref<64xi8>) -> memref<?xf32>
  // expected-error@+1 {{it takes 1 or 2 places, found nothing}}
  "lir.collective"() {kind = "all_reduce", reduction = "sum", axis = "data", ranks = 2 : i64, count = 2 : i64, peers = array<i64>, site = 0 : i64} : () -> ()
  return
}

// -----

func.func @main(%arena: memref<64xi8> {lir.role = "arena"}) {
  %0 = "lir.view"(%arena) {offset = 0 : i64, shape = array<i64: 2>, strides = array<i64: 1>} : (memref<64xi8>) -> memref<?xf32>
  // expected-error@+1 {{kind is 'all_sum', expected one of all_reduce}}
  "lir.collective"(%0, %0) {kind = "all_sum", reduction = "sum", axis = "data", ranks = 2 : i64, count = 2 : i64, peers = array<i64>, site = 0 : i64} : (memref<?xf32>, memref<?xf32>) -> ()
  return
}

// -----

func.func @main(%arena: memref<64xi8> {lir.role = "arena"}) {
  %0 = "lir.view"(%arena) {offset = 0 : i64, shape = array<i64: 2>, strides = array<i64: 1>} : (memref<64xi8>) -> memref<?xf32>
  // expected-error@+1 {{reduction is 'mean', expected one of sum}}
  "lir.collective"(%0, %0) {kind = "all_reduce", reduction = "mean", axis = "data", ranks = 2 : i64, count = 2 : i64, peers = array<i64>, site = 0 : i64} : (memref<?xf32>, memref<?xf32>) -> ()
  return
}

// -----

func.func @main(%arena: memref<64xi8> {lir.role = "arena"}) {
  %0 = "lir.view"(%arena) {offset = 0 : i64, shape = array<i64: 2>, strides = array<i64: 1>} : (memref<64xi8>) -> memref<?xf32>
  // expected-error@+1 {{the axis of a mesh is called 'a b', expected letters}}
  "lir.collective"(%0, %0) {kind = "all_reduce", reduction = "sum", axis = "a b", ranks = 2 : i64, count = 2 : i64, peers = array<i64>, site = 0 : i64} : (memref<?xf32>, memref<?xf32>) -> ()
  return
}

// -----

func.func @main(%arena: memref<64xi8> {lir.role = "arena"}) {
  %0 = "lir.view"(%arena) {offset = 0 : i64, shape = array<i64: 2>, strides = array<i64: 1>} : (memref<64xi8>) -> memref<?xf32>
  // expected-error@+1 {{axis is 'é', expected ASCII}}
  "lir.collective"(%0, %0) {kind = "all_reduce", reduction = "sum", axis = "é", ranks = 2 : i64, count = 2 : i64, peers = array<i64>, site = 0 : i64} : (memref<?xf32>, memref<?xf32>) -> ()
  return
}

// -----

func.func @main(%arena: memref<64xi8> {lir.role = "arena"}) {
  %0 = "lir.view"(%arena) {offset = 0 : i64, shape = array<i64: 2>, strides = array<i64: 1>} : (memref<64xi8>) -> memref<?xf32>
  // expected-error@+1 {{peers is 3 : i64, expected an array of i64}}
  "lir.collective"(%0, %0) {kind = "all_reduce", reduction = "sum", axis = "data", ranks = 2 : i64, count = 2 : i64, peers = 3 : i64, site = 0 : i64} : (memref<?xf32>, memref<?xf32>) -> ()
  return
}

// -----

func.func @main(%arena: memref<64xi8> {lir.role = "arena"}) {
  %0 = "lir.view"(%arena) {offset = 0 : i64, shape = array<i64: 2>, strides = array<i64: 1>} : (memref<64xi8>) -> memref<?xf32>
  // expected-error@+1 {{axis_index has 2 places}}
  "lir.collective"(%0, %0) {kind = "axis_index", reduction = "sum", axis = "data", ranks = 2 : i64, count = 2 : i64, peers = array<i64>, site = 0 : i64} : (memref<?xf32>, memref<?xf32>) -> ()
  return
}
