// RUN: plait-opt %s --plait-configure="offload=activations global-batch=2" --plan-insert-moves --pipe-schedule --plan-place-buffers \
// RUN:   --plan-lower-to-steps | FileCheck %s

nn.parameter @w : tensor<16x16xf32> init<mean = 0.0, std = 0.02>

// CHECK-LABEL: plan.function @forward_0 does <forward, 0> slots ["tokens", "residuals 0", "residuals 1", "workspace"]
// CHECK: plan.gemm {{.*}} c <slot 3, 0, 1024>
// CHECK-NEXT: plan.copy to_host <slot 3, 0, 1024> -> <slot 1, 0, 1024>
// What a copy reads is kept until the next one.
// CHECK-NEXT: plan.gemm {{.*}} c <slot 3, 1024, 1024>
// CHECK-NEXT: plan.copy to_host <slot 3, 1024, 1024> -> <slot 2, 0, 1024>
func.func @forward_0(%ids: tensor<8xi32> {pipe.port = #pipe.port<tokens>}) -> (tensor<16x16xf32> {pipe.port = #pipe.port<residual 0>}, tensor<16x16xf32> {pipe.port = #pipe.port<residual 1>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  %w = nn.read @w value : tensor<16x16xf32>
  %a = nn.matmul %w, %w "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %b = nn.matmul %a, %w "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  return %a, %b : tensor<16x16xf32>, tensor<16x16xf32>
}

// CHECK: plan.program @rank0 rank 0 bytes {{.*}} host_bytes 2048
// CHECK: plan.buffer @"residuals 0 of stage 0, microbatch 0" activations host at 0 bytes 1024
func.func @backward_0(%a: tensor<16x16xf32> {pipe.port = #pipe.port<residual 0>}, %b: tensor<16x16xf32> {pipe.port = #pipe.port<residual 1>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  %0 = nn.matmul %b, %b "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  nn.accumulate %0 to @w gradient : tensor<16x16xf32>
  %1 = nn.matmul %a, %b "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  nn.accumulate %1 to @w gradient : tensor<16x16xf32>
  return
}

func.func @reduce_0() attributes {pipe.function = #pipe.function<reduce, 0>} {
  return
}

func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>} {
  return
}
