// RUN: plait-opt %s --pipe-schedule --plan-place-buffers | FileCheck %s

dist.mesh @mesh ["tp"] = [2]
nn.parameter @w : tensor<8x8xf32> init<mean = 0.0, std = 0.02>
nn.parameter @v : tensor<8x8xf32> init<mean = 0.0, std = 0.02>

// Programs want them.
func.func @forward_0() attributes {pipe.function = #pipe.function<forward, 0>} { return }
func.func @backward_0() attributes {pipe.function = #pipe.function<backward, 0>} { return }
func.func @reduce_0() attributes {pipe.function = #pipe.function<reduce, 0>} { return }
func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>} { return }

// The matmul for @w's gradient need not be in front of the sum, and what it
// reads is an argument. The one whose result is summed stays.
// CHECK-LABEL: func.func @delayed(
// CHECK: %[[X:.*]] = nn.matmul
// CHECK-NEXT: %[[S:.*]] = dist.all_reduce %[[X]]
// CHECK-NEXT: %[[W:.*]] = nn.matmul
// CHECK-NEXT: nn.accumulate %[[W]] to @w
// CHECK-NEXT: %[[V:.*]] = nn.matmul %[[S]]
// CHECK-NEXT: nn.accumulate %[[V]] to @v
func.func @delayed(%x: tensor<8x8xf32>, %y: tensor<8x8xf32>) {
  %w = nn.matmul %x, %y "ba,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  nn.accumulate %w to @w gradient : tensor<8x8xf32>
  %0 = nn.matmul %x, %y "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = dist.all_reduce %0 on @mesh["tp"] sum : tensor<8x8xf32> -> tensor<8x8xf32>
  %v = nn.matmul %1, %y "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  nn.accumulate %v to @v gradient : tensor<8x8xf32>
  return
}

// %0 would have to live beside two others, and nothing else does: the matmul
// stays.
// CHECK-LABEL: func.func @stays(
// CHECK: nn.accumulate %{{.*}} to @w
// CHECK: dist.all_reduce
func.func @stays(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %0 = nn.matmul %x, %x "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %w = nn.matmul %x, %0 "ba,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  nn.accumulate %w to @w gradient : tensor<8x8xf32>
  %1 = nn.matmul %x, %x "ab,cb->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %2 = nn.matmul %x, %1 "ab,cb->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %3 = dist.all_reduce %2 on @mesh["tp"] sum : tensor<8x8xf32> -> tensor<8x8xf32>
  %4 = nn.matmul %3, %1 "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %4 : tensor<8x8xf32>
}

// GPUs launch both gathers together, if nothing comes between.
// CHECK-LABEL: func.func @behind_both(
// CHECK: dist.all_gather
// CHECK-NEXT: dist.all_gather
// CHECK-NEXT: %[[W:.*]] = nn.matmul
// CHECK-NEXT: nn.accumulate %[[W]] to @w
func.func @behind_both(%x: tensor<8x8xf32>, %k: tensor<4x8xf32>, %v: tensor<4x8xf32>) -> tensor<8x8xf32> {
  %w = nn.matmul %x, %x "ba,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  nn.accumulate %w to @w gradient : tensor<8x8xf32>
  %0 = dist.all_gather %k on @mesh["tp"] dim 0 : tensor<4x8xf32> -> tensor<8x8xf32>
  %1 = dist.all_gather %v on @mesh["tp"] dim 0 : tensor<4x8xf32> -> tensor<8x8xf32>
  %2 = nn.matmul %0, %1 "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %2 : tensor<8x8xf32>
}
