// RUN: %rlx-opt %s --split-input-file --verify-diagnostics

func.func @base_that_is_no_memory(%m: tensor<8xi8>) {
  // expected-error@+1 {{lir.view: the base is tensor<8xi8>, expected a memref}}
  %0 = "lir.view"(%m) {offset = 0 : i64, shape = array<i64: 2>, strides = array<i64: 1>} : (tensor<8xi8>) -> memref<?xf32>
  return
}

// -----

func.func @result_that_is_no_memory(%m: memref<8xi8>) {
  // expected-error@+1 {{lir.view: the result is tensor<2xf32>, expected a memref}}
  %0 = "lir.view"(%m) {offset = 0 : i64, shape = array<i64: 2>, strides = array<i64: 1>} : (memref<8xi8>) -> tensor<2xf32>
  return
}

// -----

func.func @without_a_base() {
  // expected-error@+1 {{lir.view: it takes a base and rounds and gives 1 result, found 0 and 1}}
  %0 = "lir.view"() {offset = 0 : i64, shape = array<i64: 2>, strides = array<i64: 1>} : () -> memref<?xf32>
  return
}

// -----

func.func @without_an_offset(%m: memref<8xi8>) {
  // expected-error@+1 {{lir.view: offset must be an i64}}
  %0 = "lir.view"(%m) {shape = array<i64: 2>, strides = array<i64: 1>} : (memref<8xi8>) -> memref<?xf32>
  return
}

// -----

func.func @offset_of_a_wrong_kind(%m: memref<8xi8>) {
  // expected-error@+1 {{lir.view: offset must be an i64}}
  %0 = "lir.view"(%m) {offset = "0", shape = array<i64: 2>, strides = array<i64: 1>} : (memref<8xi8>) -> memref<?xf32>
  return
}

// -----

func.func @without_strides(%m: memref<8xi8>) {
  // expected-error@+1 {{lir.view: shape and strides must be arrays of i64}}
  %0 = "lir.view"(%m) {offset = 0 : i64, shape = array<i64: 2>} : (memref<8xi8>) -> memref<?xf32>
  return
}

// -----

func.func @shape_of_a_wrong_kind(%m: memref<8xi8>) {
  // expected-error@+1 {{lir.view: shape and strides must be arrays of i64}}
  %0 = "lir.view"(%m) {offset = 0 : i64, shape = array<i32: 2>, strides = array<i64: 1>} : (memref<8xi8>) -> memref<?xf32>
  return
}

// -----

func.func @ranks_that_differ(%m: memref<8xi8>) {
  // expected-error@+1 {{lir.view: shape has 2 dims and strides 1}}
  %0 = "lir.view"(%m) {offset = 0 : i64, shape = array<i64: 1, 2>, strides = array<i64: 1>} : (memref<8xi8>) -> memref<?xf32>
  return
}

// -----

func.func @negative_offset(%m: memref<8xi8>) {
  // expected-error@+1 {{lir.view: offset, shape and strides must not be negative}}
  %0 = "lir.view"(%m) {offset = -4 : i64, shape = array<i64: 2>, strides = array<i64: 1>} : (memref<8xi8>) -> memref<?xf32>
  return
}

// -----

func.func @negative_stride(%m: memref<8xi8>) {
  // expected-error@+1 {{lir.view: offset, shape and strides must not be negative}}
  %0 = "lir.view"(%m) {offset = 0 : i64, shape = array<i64: 2>, strides = array<i64: -1>} : (memref<8xi8>) -> memref<?xf32>
  return
}

// -----

func.func @over_the_end(%m: memref<8xi8>) {
  // expected-error@+1 {{lir.view: bytes 4 to 12 of a memory of 8 bytes}}
  %0 = "lir.view"(%m) {offset = 4 : i64, shape = array<i64: 2>, strides = array<i64: 1>} : (memref<8xi8>) -> memref<?xf32>
  return
}

// -----

func.func @over_the_end_by_its_stride(%m: memref<4xf32>) {
  // expected-error@+1 {{lir.view: bytes 0 to 20 of a memory of 16 bytes}}
  %0 = "lir.view"(%m) {offset = 0 : i64, shape = array<i64: 2, 1>, strides = array<i64: 4, 1>} : (memref<4xf32>) -> memref<?xf32>
  return
}

// -----

func.func @test_of_no_bool(%m: memref<8xi8>) {
  %0 = "lir.view"(%m) {offset = 0 : i64, shape = array<i64: 1>, strides = array<i64: 1>} : (memref<8xi8>) -> memref<?xf32>
  // expected-error@+1 {{lir.test: it reads a view of i8 and gives an i1, found memref<?xf32> and i1}}
  %1 = "lir.test"(%0) : (memref<?xf32>) -> i1
  return
}

// -----

func.func @test_that_gives_no_bool(%m: memref<?xi8>) {
  // expected-error@+1 {{lir.test: it reads a view of i8 and gives an i1, found memref<?xi8> and i32}}
  %1 = "lir.test"(%m) : (memref<?xi8>) -> i32
  return
}

// -----

func.func @test_of_nothing() {
  // expected-error@+1 {{lir.test: it reads a view of i8 and gives an i1, found nothing and i1}}
  %1 = "lir.test"() : () -> i1
  return
}

// -----

func.func @count_in_bytes(%i: index, %m: memref<?xi8>) {
  // expected-error@+1 {{lir.count: it stores an index in a view of i64, found index and memref<?xi8>}}
  "lir.count"(%i, %m) : (index, memref<?xi8>) -> ()
  return
}

// -----

func.func @count_of_no_index(%i: i64, %m: memref<?xi64>) {
  // expected-error@+1 {{lir.count: it stores an index in a view of i64, found i64 and memref<?xi64>}}
  "lir.count"(%i, %m) : (i64, memref<?xi64>) -> ()
  return
}

// -----

func.func @a_round_without_a_move(%m: memref<8xi8>, %i: index) {
  // expected-error@+1 {{lir.view: moves must be 1 numbers of i64, one for each round}}
  %0 = "lir.view"(%m, %i) {offset = 0 : i64, shape = array<i64: 2>, strides = array<i64: 1>} : (memref<8xi8>, index) -> memref<?xf32>
  return
}

// -----

func.func @a_move_backwards(%m: memref<8xi8>, %i: index) {
  // expected-error@+1 {{lir.view: moves must not be negative}}
  %0 = "lir.view"(%m, %i) {offset = 0 : i64, moves = array<i64: -8>, shape = array<i64: 2>, strides = array<i64: 1>} : (memref<8xi8>, index) -> memref<?xf32>
  return
}
