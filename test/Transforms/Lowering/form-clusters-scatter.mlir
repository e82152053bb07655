// RUN: plait-opt %s --plan-form-clusters | FileCheck %s

dist.mesh @mesh ["tp"] = [2]

// Rows are added to a table where it lies, if a matmul has made it for that
// alone: a sum over ranks follows, so that it is in no buffer yet.
// CHECK-LABEL: func.func @tied(
// CHECK-NEXT: %[[T:.*]] = nn.matmul
// CHECK-NEXT: %[[S:.*]] = plan.cluster(%arg2, %arg3, %[[T]])
// CHECK: %[[G:.*]] = nn.embedding_grad
// CHECK-NEXT: %[[A:.*]] = nn.add %{{.*}}, %[[G]]
// CHECK-NEXT: plan.yield %[[A]]
// CHECK: dist.reduce_scatter %[[S]]
func.func @tied(%x: tensor<16x8xf32>, %y: tensor<8x4xf32>, %g: tensor<2x3x4xf32>, %ids: tensor<2x3xi32>) -> tensor<8x4xf32> {
  %0 = nn.matmul %x, %y "ah,hf->af" : (tensor<16x8xf32>, tensor<8x4xf32>) -> tensor<16x4xf32>
  %1 = nn.embedding_grad %g, %ids : (tensor<2x3x4xf32>, tensor<2x3xi32>) -> tensor<16x4xf32>
  %2 = nn.add %0, %1 : tensor<16x4xf32>
  %3 = dist.reduce_scatter %2 on @mesh["tp"] sum dim 0 : tensor<16x4xf32> -> tensor<8x4xf32>
  return %3 : tensor<8x4xf32>
}

// It is not where others read it, where no matmul has made it, and where the
// sum has a place of its own.
// CHECK-LABEL: func.func @not_tied(
// CHECK: nn.embedding_grad
// CHECK-NEXT: plan.yield
// CHECK: nn.embedding_grad
// CHECK-NEXT: plan.yield
// CHECK: nn.embedding_grad
// CHECK-NEXT: plan.yield
// CHECK: return
func.func @not_tied(%x: tensor<16x8xf32>, %y: tensor<8x4xf32>, %g: tensor<2x3x4xf32>, %ids: tensor<2x3xi32>, %t: tensor<16x4xf32>) -> (tensor<8x4xf32>, tensor<16x4xf32>, tensor<8x4xf32>, tensor<16x4xf32>) {
  %0 = nn.matmul %x, %y "ah,hf->af" : (tensor<16x8xf32>, tensor<8x4xf32>) -> tensor<16x4xf32>
  %1 = nn.embedding_grad %g, %ids : (tensor<2x3x4xf32>, tensor<2x3xi32>) -> tensor<16x4xf32>
  %2 = nn.add %0, %1 : tensor<16x4xf32>
  %3 = dist.reduce_scatter %2 on @mesh["tp"] sum dim 0 : tensor<16x4xf32> -> tensor<8x4xf32>
  %4 = nn.embedding_grad %g, %ids {n = 1} : (tensor<2x3x4xf32>, tensor<2x3xi32>) -> tensor<16x4xf32>
  %5 = nn.add %t, %4 : tensor<16x4xf32>
  %6 = dist.reduce_scatter %5 on @mesh["tp"] sum dim 0 : tensor<16x4xf32> -> tensor<8x4xf32>
  %7 = nn.matmul %x, %y "ah,hf->af" {n = 1} : (tensor<16x8xf32>, tensor<8x4xf32>) -> tensor<16x4xf32>
  %8 = nn.embedding_grad %g, %ids {n = 2} : (tensor<2x3x4xf32>, tensor<2x3xi32>) -> tensor<16x4xf32>
  %9 = nn.add %8, %7 : tensor<16x4xf32>
  return %3, %0, %6, %9 : tensor<8x4xf32>, tensor<16x4xf32>, tensor<8x4xf32>, tensor<16x4xf32>
}
