// RUN: plait-opt %s --pipe-schedule --plan-place-buffers | FileCheck %s
// RUN: sed 's/latency = 1.5e-09/latency = 3.5e-09/' %s > %t.slow.mlir
// RUN: plait-opt %t.slow.mlir --pipe-schedule --plan-place-buffers | FileCheck %s --check-prefix=SLOW

// A matmul of 1024 operations takes a nanosecond, a sum as long as one and a half,
// or, over slower links, as three and a half.
module attributes {
  plait.cluster = #plait.cluster<name = "two", device = "d", nodes = 1, devices_per_node = 2, memory = 100, reserved = 1, peak_flops = 1.0e+09 : f64,
    rates = <gemm_flops = 1.024e+12 : f64, memory_bandwidth = 1.0e+09 : f64, links = [
      #plait.link<axis = "tp", latency = 1.5e-09 : f64, bandwidth = 1.0e+30 : f64>]>>} {
dist.mesh @mesh ["tp"] = [2]
nn.parameter @u : tensor<8x8xf32> init<mean = 0.0, std = 0.02>
nn.parameter @v : tensor<8x8xf32> init<mean = 0.0, std = 0.02>
nn.parameter @w : tensor<8x8xf32> init<mean = 0.0, std = 0.02>

// Programs want them.
func.func @forward_0() attributes {pipe.function = #pipe.function<forward, 0>} { return }
func.func @backward_0() attributes {pipe.function = #pipe.function<backward, 0>} { return }
func.func @reduce_0() attributes {pipe.function = #pipe.function<reduce, 0>} { return }
func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>} { return }

// The first sum takes the newest matmul and half of the one before it. The second one
// takes what none has taken of, and the other half, which then stands here as a whole.
// The slower one takes all that there is, and leaves the second nothing.
// CHECK-LABEL: func.func @shared(
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: dist.all_reduce
// CHECK-NEXT: %[[W:.*]] = nn.matmul
// CHECK-NEXT: nn.accumulate %[[W]] to @w
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: dist.all_reduce
// CHECK-NEXT: %[[U:.*]] = nn.matmul
// CHECK-NEXT: nn.accumulate %[[U]] to @u
// CHECK-NEXT: %[[V:.*]] = nn.matmul
// CHECK-NEXT: nn.accumulate %[[V]] to @v
// CHECK-NEXT: nn.matmul
// SLOW-LABEL: func.func @shared(
// SLOW-NEXT: nn.matmul
// SLOW-NEXT: dist.all_reduce
// SLOW-NEXT: nn.matmul
// SLOW-NEXT: nn.accumulate {{.*}} to @u
// SLOW-NEXT: nn.matmul
// SLOW-NEXT: nn.accumulate {{.*}} to @v
// SLOW-NEXT: nn.matmul
// SLOW-NEXT: nn.accumulate {{.*}} to @w
// SLOW-NEXT: nn.matmul
// SLOW-NEXT: dist.all_reduce
// SLOW-NEXT: nn.matmul
func.func @shared(%x: tensor<8x8xf32>, %y: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %u = nn.matmul %x, %y "ba,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  nn.accumulate %u to @u gradient : tensor<8x8xf32>
  %v = nn.matmul %x, %x "ba,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  nn.accumulate %v to @v gradient : tensor<8x8xf32>
  %w = nn.matmul %y, %y "ba,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  nn.accumulate %w to @w gradient : tensor<8x8xf32>
  %0 = nn.matmul %x, %y "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = dist.all_reduce %0 on @mesh["tp"] sum : tensor<8x8xf32> -> tensor<8x8xf32>
  %2 = nn.matmul %1, %y "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %3 = dist.all_reduce %2 on @mesh["tp"] sum : tensor<8x8xf32> -> tensor<8x8xf32>
  %4 = nn.matmul %3, %y "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %4 : tensor<8x8xf32>
}

// Two matmuls between the sum and what waits for it are enough for the faster one.
// CHECK-LABEL: func.func @enough(
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: nn.accumulate
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: dist.all_reduce
// SLOW-LABEL: func.func @enough(
// SLOW-NEXT: nn.matmul
// SLOW-NEXT: dist.all_reduce
// SLOW-NEXT: nn.matmul
// SLOW-NEXT: nn.accumulate
func.func @enough(%x: tensor<8x8xf32>, %y: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %w = nn.matmul %y, %y "ba,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  nn.accumulate %w to @w gradient : tensor<8x8xf32>
  %0 = nn.matmul %x, %y "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = dist.all_reduce %0 on @mesh["tp"] sum : tensor<8x8xf32> -> tensor<8x8xf32>
  %2 = nn.matmul %x, %y "ab,cb->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %3 = nn.matmul %2, %y "ab,cb->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %4 = nn.matmul %1, %3 "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %4 : tensor<8x8xf32>
}

// What only a gradient of a weight reads is not waited for.
// CHECK-LABEL: func.func @for_weights(
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: nn.accumulate {{.*}} to @w
// CHECK: dist.all_gather
// SLOW-LABEL: func.func @for_weights(
// SLOW-NEXT: nn.matmul
// SLOW-NEXT: nn.accumulate {{.*}} to @w
// SLOW: dist.all_gather
func.func @for_weights(%x: tensor<4x8xf32>, %y: tensor<8x8xf32>) {
  %w = nn.matmul %y, %y "ba,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  nn.accumulate %w to @w gradient : tensor<8x8xf32>
  %1 = dist.all_gather %x on @mesh["tp"] dim 0 : tensor<4x8xf32> -> tensor<8x8xf32>
  %v = nn.matmul %1, %y "ba,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  nn.accumulate %v to @v gradient : tensor<8x8xf32>
  return
}
}
