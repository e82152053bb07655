// RUN: plait-opt %s --plan-place-buffers | FileCheck %s

// Two virtual stages in a V of one rank, with a backward pass in halves. What the
// first stage gives is what the second takes: one buffer, and no transfer. Both
// stages add to @w: the function that is called first, the second stage's,
// overwrites what was there (2), the other ones add (1). What only the weight
// gradient needs lives until then.
module attributes {pipe.placement = #pipe.placement<v, ranks = 1, chunks = 2>} {
  pipe.schedule @schedule "by hand" on <v, ranks = 1, chunks = 2> microbatches 1 ["F0 1F0 1I0 I0 1W0 W0"]
  nn.parameter @w : tensor<16x16xf32> init<mean = 0.0, std = 0.02>
  func.func @forward_0() -> (tensor<16x16xf32> {pipe.port = #pipe.port<output 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
    %w = nn.read @w value : tensor<16x16xf32>
    %0 = nn.matmul %w, %w "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    return %0 : tensor<16x16xf32>
  }
  func.func @backward_input_0(%dy: tensor<16x16xf32> {pipe.port = #pipe.port<output_gradient 0>}) attributes {pipe.function = #pipe.function<backward_input, 0>} {
    return
  }
  // CHECK: func.func @backward_weight_0(
  func.func @backward_weight_0(%dy: tensor<16x16xf32> {pipe.port = #pipe.port<output_gradient 0>}) attributes {pipe.function = #pipe.function<backward_weight, 0>} {
    // CHECK: nn.matmul {{.*}} {plan.accumulate = 1 : i32, plan.places = [#plan.place<@"w gradient", 0>]}
    %0 = nn.matmul %dy, %dy "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    nn.accumulate %0 to @w gradient : tensor<16x16xf32>
    return
  }
  func.func @forward_1(%x: tensor<16x16xf32> {pipe.port = #pipe.port<input 0>}) -> (tensor<16x16xf32> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<forward, 1>} {
    %0 = nn.matmul %x, %x "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    return %0 : tensor<16x16xf32>
  }
  func.func @backward_input_1(%x: tensor<16x16xf32> {pipe.port = #pipe.port<input 0>}) -> (tensor<16x16xf32> {pipe.port = #pipe.port<input_gradient 0>}) attributes {pipe.function = #pipe.function<backward_input, 1>} {
    %0 = nn.matmul %x, %x "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    return %0 : tensor<16x16xf32>
  }
  // CHECK: func.func @backward_weight_1(
  func.func @backward_weight_1(%r: tensor<16x16xf32> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward_weight, 1>} {
    // CHECK: nn.matmul {{.*}} {plan.accumulate = 2 : i32, plan.places = [#plan.place<@"w gradient", 0>]}
    %0 = nn.matmul %r, %r "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    nn.accumulate %0 to @w gradient : tensor<16x16xf32>
    return
  }
  func.func @reduce_0() attributes {pipe.function = #pipe.function<reduce, 0>} {
    return
  }
  func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>} {
    return
  }
}
// CHECK: plan.program @rank0 rank 0
// CHECK-DAG: plan.buffer @"activation 0 after stage 0, microbatch 0" transfers at {{[0-9]+}} bytes 1024 live [0, 2]
// CHECK-DAG: plan.buffer @"gradient 0 after stage 0, microbatch 0" transfers at {{[0-9]+}} bytes 1024 live [2, 5]
// CHECK-DAG: plan.buffer @"residuals 0 of stage 1, microbatch 0" activations at {{[0-9]+}} bytes 1024 live [1, 4]
// CHECK: plan.action forward stage 0 microbatch 0 call @forward_0 [@"activation 0 after stage 0, microbatch 0", @"workspace of action 0"]
// CHECK-NEXT: plan.action forward stage 1 microbatch 0 call @forward_1 [@"activation 0 after stage 0, microbatch 0", @"residuals 0 of stage 1, microbatch 0",
// CHECK-NEXT: plan.action backward_input stage 1 microbatch 0 call @backward_input_1 [@"activation 0 after stage 0, microbatch 0", @"gradient 0 after stage 0, microbatch 0",
// CHECK-NEXT: plan.action backward_input stage 0 microbatch 0 call @backward_input_0 [@"gradient 0 after stage 0, microbatch 0",
// CHECK-NEXT: plan.action backward_weight stage 1 microbatch 0 call @backward_weight_1
// CHECK-NEXT: plan.action backward_weight stage 0 microbatch 0 call @backward_weight_0
// CHECK-NEXT: plan.action reduce call @reduce_0
// CHECK-NEXT: plan.action optimizer call @optimizer_0
