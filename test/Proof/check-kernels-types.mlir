// RUN: sed 's/4x8/4x16/g' %s > %t.mlir
// RUN: not plait-opt %s --plait-check-kernels=code-of=%t.mlir 2>&1 | FileCheck %s

// CHECK: error: 'plan.cluster' op has other types in code-of
func.func @forward_0(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = plan.cluster(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32> {
  ^bb0(%a: tensor<4x8xf32>):
    %1 = nn.sigmoid %a : tensor<4x8xf32>
    plan.yield %1 : tensor<4x8xf32>
  }
  return %0 : tensor<4x8xf32>
}
