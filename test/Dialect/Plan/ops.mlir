// RUN: plait-opt %s --verify-roundtrip | FileCheck %s

// CHECK-LABEL: func @clusters
func.func @clusters(%a: tensor<2x4xf32>, %b: tensor<2x4xf32>) {
  // CHECK: plan.cluster(%{{.*}}, %{{.*}}) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: ^bb0(%[[X:.*]]: tensor<2x4xf32>, %[[Y:.*]]: tensor<2x4xf32>):
  // CHECK-NEXT: %[[S:.*]] = nn.add %[[X]], %[[Y]]
  // CHECK-NEXT: plan.yield %[[S]] : tensor<2x4xf32>
  %0 = plan.cluster(%a, %b) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32> {
  ^bb0(%x: tensor<2x4xf32>, %y: tensor<2x4xf32>):
    %s = nn.add %x, %y : tensor<2x4xf32>
    plan.yield %s : tensor<2x4xf32>
  }
  // CHECK: plan.cluster(%{{.*}}) accumulate [2] attributes {plan.places = [#plan.place<@"w gradient", 4096>]}
  %1 = plan.cluster(%a) accumulate [2] attributes {plan.places = [#plan.place<@"w gradient", 4096>]} : (tensor<2x4xf32>) -> tensor<2x4xf32> {
  ^bb0(%x: tensor<2x4xf32>):
    plan.yield %x : tensor<2x4xf32>
  }
  return
}

// CHECK: plan.program @rank0 rank 0 bytes 128 {
plan.program @rank0 rank 0 bytes 128 {
  // CHECK-NEXT: plan.buffer @x activations at 0 bytes 64 live [0, 3]
  plan.buffer @x activations at 0 bytes 64 live [0, 3]
  // CHECK-NEXT: plan.buffer @y transfers at 64 bytes 64 live [0, 1]
  plan.buffer @y transfers at 64 bytes 64 live [0, 1]
  // The place of @y, once that is dead.
  // CHECK-NEXT: plan.buffer @z workspace at 64 bytes 64 live [2, 3]
  plan.buffer @z workspace at 64 bytes 64 live [2, 3]
  // CHECK-NEXT: plan.action forward stage 0 microbatch 0 call @forward_0 [@x, @y]
  plan.action forward stage 0 microbatch 0 call @forward_0 [@x, @y]
  // CHECK-NEXT: plan.action send stage 0 microbatch 0 peer 1 tensor 2 [@y]
  plan.action send stage 0 microbatch 0 peer 1 tensor 2 [@y]
  // CHECK-NEXT: plan.action recv stage 1 microbatch 0 peer 1 backward tensor 0 [@x]
  plan.action recv stage 1 microbatch 0 peer 1 backward tensor 0 [@x]
  // CHECK-NEXT: plan.action backward_input stage 4 microbatch 1 call @backward_input_4 [@x, @z]
  plan.action backward_input stage 4 microbatch 1 call @backward_input_4 [@x, @z]
  // CHECK-NEXT: plan.action backward stage 0 microbatch 0 call @backward_0 [@x, @z]
  plan.action backward stage 0 microbatch 0 call @backward_0 [@x, @z]
  // CHECK-NEXT: plan.action optimizer call @optimizer_0 []
  plan.action optimizer call @optimizer_0 []
}

// The two memories share no bytes, whatever the offsets are.
// CHECK: plan.program @offloads rank 0 bytes 128 host_bytes 64 {
plan.program @offloads rank 0 bytes 128 host_bytes 64 {
  // CHECK-NEXT: plan.buffer @m optimizer host at 0 bytes 64 live [0, 0]
  plan.buffer @m optimizer host at 0 bytes 64 live [0, 0]
  // CHECK-NEXT: plan.buffer @w workspace at 0 bytes 128 live [0, 0]
  plan.buffer @w workspace at 0 bytes 128 live [0, 0]
  // CHECK-NEXT: plan.action optimizer call @optimizer_0 [@w]
  plan.action optimizer call @optimizer_0 [@w]
}

// CHECK-LABEL: func @moves
func.func @moves(%a: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // CHECK-NEXT: %[[M:.*]] = plan.move from_host %{{.*}} : tensor<4x8xf32>
  %0 = plan.move from_host %a : tensor<4x8xf32>
  // CHECK-NEXT: plan.move to_host %[[M]] : tensor<4x8xf32>
  %1 = plan.move to_host %0 : tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}
