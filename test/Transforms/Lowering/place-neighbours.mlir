// RUN: plait-opt %s -split-input-file --plan-place-buffers | FileCheck %s
// RUN: sed 's/cuda, name = "sm_90", cubin = "sm_90"/cpu, name = "x86-64-v3"/' %s > %t.mlir
// RUN: plait-opt %t.mlir -split-input-file --plan-place-buffers | FileCheck %s --check-prefix=CPU

// The gradients of three weights that multiply %x lie in a pack, one behind the other.
// So do %dq, %dk and %dv, which make them, in that order and on a GPU: a library then
// takes all three in one call. A processor gains nothing by it.
module attributes {plait.target = #plait.target<cuda, name = "sm_90", cubin = "sm_90">} {
  pipe.schedule @schedule "by hand" on <looped, ranks = 1, chunks = 1> microbatches 1 ["F0 B0"]
  nn.parameter @q : tensor<16x16xf32> init<mean = 0.0, std = 0.02>
  nn.parameter @k : tensor<16x16xf32> init<mean = 0.0, std = 0.02>
  nn.parameter @v : tensor<16x16xf32> init<mean = 0.0, std = 0.02>
  nn.pack @pack rank 0 [@q, @k, @v] at [0, 256, 512] : tensor<3x256xf32>
  func.func @forward_0() -> (tensor<16x16xf32> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
    %w = nn.read @q value : tensor<16x16xf32>
    %r = nn.matmul %w, %w "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    return %r : tensor<16x16xf32>
  }
  func.func @backward_0(%x: tensor<16x16xf32> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
    // CHECK: slot_bytes = array<i64: 1024, 3072>
    // CHECK: nn.matmul %{{.*}}, %{{.*}} "ab,bc->ac" {plan.places = [#plan.place<slot 1, 2048>]}
    // CHECK: nn.matmul %{{.*}}, %{{.*}} "ab,bc->ac" {plan.places = [#plan.place<slot 1, 0>]}
    // CHECK: nn.matmul %{{.*}}, %{{.*}} "ab,bc->ac" {plan.places = [#plan.place<slot 1, 1024>]}
    // CPU: slot_bytes = array<i64: 1024, 3072>
    // CPU: nn.matmul %{{.*}}, %{{.*}} "ab,bc->ac" {plan.places = [#plan.place<slot 1, 0>]}
    %dv = nn.matmul %x, %x "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %dq = nn.matmul %dv, %x "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %dk = nn.matmul %dq, %x "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %gv = nn.matmul %x, %dv "ba,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    nn.accumulate %gv to @v gradient : tensor<16x16xf32>
    %gk = nn.matmul %x, %dk "ba,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    nn.accumulate %gk to @k gradient : tensor<16x16xf32>
    %gq = nn.matmul %x, %dq "ba,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    nn.accumulate %gq to @q gradient : tensor<16x16xf32>
    return
  }
  func.func @reduce_0() attributes {pipe.function = #pipe.function<reduce, 0>} {
    return
  }
  func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>} {
    return
  }
}

// -----

// %dk takes the bytes of %dv, which is not needed any more: side by side they would
// take twice as many.
module attributes {plait.target = #plait.target<cuda, name = "sm_90", cubin = "sm_90">} {
  pipe.schedule @schedule "by hand" on <looped, ranks = 1, chunks = 1> microbatches 1 ["F0 B0"]
  nn.parameter @q : tensor<16x16xf32> init<mean = 0.0, std = 0.02>
  nn.parameter @k : tensor<16x16xf32> init<mean = 0.0, std = 0.02>
  nn.parameter @v : tensor<16x16xf32> init<mean = 0.0, std = 0.02>
  nn.pack @pack rank 0 [@q, @k, @v] at [0, 256, 512] : tensor<3x256xf32>
  func.func @forward_0() -> (tensor<16x16xf32> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
    %w = nn.read @q value : tensor<16x16xf32>
    %r = nn.matmul %w, %w "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    return %r : tensor<16x16xf32>
  }
  func.func @backward_0(%x: tensor<16x16xf32> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
    // CHECK: slot_bytes = array<i64: 1024, 1024>
    // CPU: slot_bytes = array<i64: 1024, 1024>
    %dv = nn.matmul %x, %x "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %gv = nn.matmul %x, %dv "ba,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    nn.accumulate %gv to @v gradient : tensor<16x16xf32>
    %dk = nn.matmul %x, %x "ab,cb->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %gk = nn.matmul %x, %dk "ba,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    nn.accumulate %gk to @k gradient : tensor<16x16xf32>
    return
  }
  func.func @reduce_0() attributes {pipe.function = #pipe.function<reduce, 0>} {
    return
  }
  func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>} {
    return
  }
}
