// RUN: plait-opt %s --plan-place-buffers -split-input-file | FileCheck %s

// What a backward pass makes lies where its residuals were, once it has read
// them: %b where %s was, and %c where %r was. %a is made when both are still to
// be read, and is all that the workspace has.
module {
  pipe.schedule @schedule "by hand" on <looped, ranks = 1, chunks = 1> microbatches 1 ["F0 B0"]
  nn.parameter @w : tensor<16x16xf32> init<mean = 0.0, std = 0.02>
  func.func @forward_0() -> (tensor<16x16xf32> {pipe.port = #pipe.port<residual 0>}, tensor<16x16xf32> {pipe.port = #pipe.port<residual 1>}) attributes {pipe.function = #pipe.function<forward, 0>} {
    %w = nn.read @w value : tensor<16x16xf32>
    %r = nn.matmul %w, %w "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %s = nn.matmul %r, %w "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    return %r, %s : tensor<16x16xf32>, tensor<16x16xf32>
  }
  // CHECK-LABEL: func.func @backward_0(
  // CHECK-SAME: plan.slot_bytes = array<i64: 1024, 1024, 1024>
  func.func @backward_0(%r: tensor<16x16xf32> {pipe.port = #pipe.port<residual 0>}, %s: tensor<16x16xf32> {pipe.port = #pipe.port<residual 1>}) attributes {pipe.function = #pipe.function<backward, 0>} {
    // CHECK-NEXT: nn.matmul {{.*}} {plan.places = [#plan.place<slot 2, 0>]}
    %a = nn.matmul %s, %s "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    // CHECK-NEXT: nn.matmul {{.*}} {plan.places = [#plan.place<slot 1, 0>]}
    %b = nn.matmul %a, %r "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    // CHECK-NEXT: nn.matmul {{.*}} {plan.places = [#plan.place<slot 0, 0>]}
    %c = nn.matmul %b, %a "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %d = nn.matmul %c, %b "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    nn.accumulate %d to @w gradient : tensor<16x16xf32>
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

// A backward pass in halves: the first one leaves alone what the second one
// reads.
module {
  pipe.schedule @schedule "by hand" on <looped, ranks = 1, chunks = 1> microbatches 1 ["F0 I0 W0"]
  nn.parameter @w : tensor<16x16xf32> init<mean = 0.0, std = 0.02>
  func.func @forward_0() -> (tensor<16x16xf32> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
    %w = nn.read @w value : tensor<16x16xf32>
    %r = nn.matmul %w, %w "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    return %r : tensor<16x16xf32>
  }
  // CHECK-LABEL: func.func @backward_input_0(
  // CHECK-SAME: plan.slot_bytes = array<i64: 1024, 1024, 1024>
  func.func @backward_input_0(%r: tensor<16x16xf32> {pipe.port = #pipe.port<residual 0>}) -> (tensor<16x16xf32> {pipe.port = #pipe.port<residual 1>}) attributes {pipe.function = #pipe.function<backward_input, 0>} {
    %a = nn.matmul %r, %r "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    // CHECK: nn.matmul {{.*}} {plan.places = [#plan.place<slot 1, 0>]}
    // CHECK-NEXT: return
    %b = nn.matmul %a, %a "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    return %b : tensor<16x16xf32>
  }
  // CHECK-LABEL: func.func @backward_weight_0(
  // CHECK-SAME: plan.slot_bytes = array<i64: 1024, 1024, 1024>
  func.func @backward_weight_0(%r: tensor<16x16xf32> {pipe.port = #pipe.port<residual 0>}, %b: tensor<16x16xf32> {pipe.port = #pipe.port<residual 1>}) attributes {pipe.function = #pipe.function<backward_weight, 0>} {
    // CHECK-NEXT: nn.matmul {{.*}} {plan.places = [#plan.place<slot 2, 0>]}
    %c = nn.matmul %r, %b "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    // CHECK-NEXT: nn.matmul {{.*}} {plan.places = [#plan.place<slot {{[01]}}, 0>]}
    %d = nn.matmul %c, %c "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %e = nn.matmul %d, %c "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    nn.accumulate %e to @w gradient : tensor<16x16xf32>
    return
  }
  func.func @reduce_0() attributes {pipe.function = #pipe.function<reduce, 0>} {
    return
  }
  func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>} {
    return
  }
}
