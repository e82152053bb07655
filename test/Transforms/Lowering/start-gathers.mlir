// RUN: plait-opt %s --pipe-schedule --plan-place-buffers | FileCheck %s

dist.mesh @mesh ["tp"] = [2]
nn.parameter @w : tensor<8x8xf32> init<mean = 0.0, std = 0.02>
nn.parameter @v : tensor<8xf32> init<mean = 0.0, std = 0.02>

// Programs want them.
func.func @forward_0() attributes {pipe.function = #pipe.function<forward, 0>} { return }
func.func @backward_0() attributes {pipe.function = #pipe.function<backward, 0>} { return }
func.func @reduce_0() attributes {pipe.function = #pipe.function<reduce, 0>} { return }
func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>} { return }

// What is gathered for a gradient of a weight, and the kernel and the parameter
// that it needs, come behind the collective in front.
// CHECK-LABEL: func.func @starts(
// CHECK: dist.all_reduce
// CHECK-NEXT: nn.read @v
// CHECK-NEXT: plan.cluster
// CHECK: dist.all_gather
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: nn.matmul
func.func @starts(%x: tensor<8x8xf32>, %p: tensor<4x8xf32>) -> tensor<8x8xf32> {
  %0 = dist.all_reduce %x on @mesh["tp"] sum : tensor<8x8xf32> -> tensor<8x8xf32>
  %1 = nn.matmul %0, %x "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %2 = nn.matmul %1, %x "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %3 = nn.read @v value : tensor<8xf32>
  %4 = plan.cluster(%p, %3) : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32> {
  ^bb0(%a: tensor<4x8xf32>, %b: tensor<8xf32>):
    %e = nn.exp %a : tensor<4x8xf32>
    plan.yield %e : tensor<4x8xf32>
  }
  %5 = dist.all_gather %4 on @mesh["tp"] dim 0 : tensor<4x8xf32> -> tensor<8x8xf32>
  %w = nn.matmul %5, %2 "ba,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  nn.accumulate %w to @w gradient : tensor<8x8xf32>
  // The most that lives at once.
  %6 = nn.matmul %x, %x "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %7 = nn.matmul %x, %6 "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %8 = nn.matmul %x, %7 "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %9 = nn.matmul %6, %7 "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %10 = nn.matmul %8, %9 "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %11 = nn.matmul %10, %6 "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %12 = nn.matmul %11, %7 "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %13 = nn.matmul %12, %2 "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %13 : tensor<8x8xf32>
}

// One that others read as well stays, and one for which a matmul computes first.
// CHECK-LABEL: func.func @stays(
// CHECK-NEXT: dist.all_reduce
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: dist.all_gather
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: nn.accumulate
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: dist.all_gather
func.func @stays(%x: tensor<8x8xf32>, %p: tensor<4x8xf32>) -> tensor<8x8xf32> {
  %0 = dist.all_reduce %x on @mesh["tp"] sum : tensor<8x8xf32> -> tensor<8x8xf32>
  %1 = nn.matmul %0, %x "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %2 = dist.all_gather %p on @mesh["tp"] dim 0 : tensor<4x8xf32> -> tensor<8x8xf32>
  %w = nn.matmul %2, %1 "ba,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  nn.accumulate %w to @w gradient : tensor<8x8xf32>
  %3 = nn.matmul %1, %2 "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %4 = nn.matmul %p, %x "ab,bc->ac" : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %5 = dist.all_gather %4 on @mesh["tp"] dim 0 : tensor<4x8xf32> -> tensor<8x8xf32>
  %v = nn.matmul %5, %1 "ba,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  nn.accumulate %v to @w gradient : tensor<8x8xf32>
  // The most that lives at once.
  %6 = nn.matmul %x, %x "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %7 = nn.matmul %x, %6 "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %8 = nn.matmul %x, %7 "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %9 = nn.matmul %6, %7 "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %10 = nn.matmul %8, %9 "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %11 = nn.matmul %10, %6 "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %12 = nn.matmul %11, %7 "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %13 = nn.matmul %12, %3 "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %13 : tensor<8x8xf32>
}

// One that would live beside more than anything else does stays.
// CHECK-LABEL: func.func @large(
// CHECK: dist.all_reduce
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: dist.all_gather
func.func @large(%x: tensor<8x8xf32>, %y: tensor<8x8xf32>, %p: tensor<4x8xf32>) -> tensor<8x8xf32> {
  %0 = nn.matmul %x, %y "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = dist.all_reduce %0 on @mesh["tp"] sum : tensor<8x8xf32> -> tensor<8x8xf32>
  %2 = nn.matmul %1, %1 "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %3 = nn.matmul %2, %2 "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %5 = dist.all_gather %p on @mesh["tp"] dim 0 : tensor<4x8xf32> -> tensor<8x8xf32>
  %w = nn.matmul %5, %3 "ba,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  nn.accumulate %w to @w gradient : tensor<8x8xf32>
  return %x : tensor<8x8xf32>
}
