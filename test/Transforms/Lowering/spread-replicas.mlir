// RUN: plait-opt %s --plait-configure=global-batch=2 --pipe-schedule --plan-place-buffers | FileCheck %s

dist.mesh @mesh ["pp", "dp"] = [1, 2]
nn.parameter @w : tensor<8x8xf32> init<mean = 0.0, std = 0.02> sharding #dist.sharding<@mesh, [{"dp"}, {}]>
nn.parameter @v : tensor<8x8xf32> init<mean = 0.0, std = 0.02> sharding #dist.sharding<@mesh, [{"dp"}, {}]>
nn.parameter @u : tensor<8x8xf32> init<mean = 0.0, std = 0.02> sharding #dist.sharding<@mesh, [{"dp"}, {}]>

// Programs want them.
func.func @forward_0() attributes {pipe.function = #pipe.function<forward, 0>} { return }
func.func @backward_0() attributes {pipe.function = #pipe.function<backward, 0>} { return }
func.func @reduce_0() attributes {pipe.function = #pipe.function<reduce, 0>} { return }
func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>} { return }

// The parameters of a layer are gathered where the layer before computes, and no
// earlier.
// CHECK-LABEL: func.func @gathers(
// CHECK: %[[W:.*]] = nn.read @w
// CHECK-NEXT: %[[GW:.*]] = dist.all_gather %[[W]]
// CHECK-NEXT: %[[V:.*]] = nn.read @v
// CHECK-NEXT: %[[GV:.*]] = dist.all_gather %[[V]]
// CHECK-NEXT: nn.matmul %{{.*}}, %[[GW]]
// CHECK-NEXT: %[[U:.*]] = nn.read @u
// CHECK-NEXT: %[[GU:.*]] = dist.all_gather %[[U]]
// CHECK-NEXT: nn.matmul %{{.*}}, %[[GV]]
// CHECK-NEXT: nn.matmul %{{.*}}, %[[GU]]
func.func @gathers(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %w = nn.read @w value {nn.layer = 0 : i64} : tensor<4x8xf32>
  %gw = dist.all_gather %w on @mesh["dp"] dim 0 {nn.layer = 0 : i64} : tensor<4x8xf32> -> tensor<8x8xf32>
  %0 = nn.matmul %x, %gw "ab,bc->ac" {nn.layer = 0 : i64} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %v = nn.read @v value {nn.layer = 1 : i64} : tensor<4x8xf32>
  %gv = dist.all_gather %v on @mesh["dp"] dim 0 {nn.layer = 1 : i64} : tensor<4x8xf32> -> tensor<8x8xf32>
  %1 = nn.matmul %0, %gv "ab,bc->ac" {nn.layer = 1 : i64} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %u = nn.read @u value {nn.layer = 2 : i64} : tensor<4x8xf32>
  %gu = dist.all_gather %u on @mesh["dp"] dim 0 {nn.layer = 2 : i64} : tensor<4x8xf32> -> tensor<8x8xf32>
  %2 = nn.matmul %1, %gu "ab,bc->ac" {nn.layer = 2 : i64} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %2 : tensor<8x8xf32>
}

// Of a layer several are gathered together: those of the next one follow the first
// work of the layer.
// CHECK-LABEL: func.func @layers(
// CHECK: dist.all_gather
// CHECK: dist.all_gather
// CHECK: dist.all_gather
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: nn.matmul
func.func @layers(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %w = nn.read @w value {nn.layer = 0 : i64} : tensor<4x8xf32>
  %gw = dist.all_gather %w on @mesh["dp"] dim 0 {nn.layer = 0 : i64} : tensor<4x8xf32> -> tensor<8x8xf32>
  %0 = nn.matmul %x, %gw "ab,bc->ac" {nn.layer = 0 : i64} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %v = nn.read @v value {nn.layer = 0 : i64} : tensor<4x8xf32>
  %gv = dist.all_gather %v on @mesh["dp"] dim 0 {nn.layer = 0 : i64} : tensor<4x8xf32> -> tensor<8x8xf32>
  %1 = nn.matmul %0, %gv "ab,bc->ac" {nn.layer = 0 : i64} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %u = nn.read @u value {nn.layer = 1 : i64} : tensor<4x8xf32>
  %gu = dist.all_gather %u on @mesh["dp"] dim 0 {nn.layer = 1 : i64} : tensor<4x8xf32> -> tensor<8x8xf32>
  %2 = nn.matmul %1, %gu "ab,bc->ac" {nn.layer = 1 : i64} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %2 : tensor<8x8xf32>
}

// What tp has divided is gathered where it is used.
// CHECK-LABEL: func.func @others(
// CHECK: nn.matmul
// CHECK: dist.all_gather
// CHECK: nn.matmul
func.func @others(%x: tensor<8x8xf32>, %y: tensor<4x8xf32>) -> tensor<8x8xf32> {
  %w = nn.read @w value {nn.layer = 0 : i64} : tensor<4x8xf32>
  %gw = dist.all_gather %w on @mesh["dp"] dim 0 {nn.layer = 0 : i64} : tensor<4x8xf32> -> tensor<8x8xf32>
  %0 = nn.matmul %x, %gw "ab,bc->ac" {nn.layer = 0 : i64} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %gy = dist.all_gather %y on @mesh["dp"] dim 0 {nn.layer = 1 : i64} : tensor<4x8xf32> -> tensor<8x8xf32>
  %1 = nn.matmul %0, %gy "ab,bc->ac" {nn.layer = 1 : i64} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %1 : tensor<8x8xf32>
}

// What has been reduced is added up behind the next reduction, and what is reduced
// keeps its bytes until then.
// CHECK-LABEL: func.func @reduces(
// CHECK: %[[A:.*]] = nn.matmul {{.*}}plan.places = [#plan.place<slot 2, 0>]
// CHECK-NEXT: %[[RA:.*]] = dist.reduce_scatter %[[A]]
// CHECK-NEXT: %[[B:.*]] = nn.matmul {{.*}}plan.places = [#plan.place<slot 2, 256>]
// CHECK-NEXT: %[[RB:.*]] = dist.reduce_scatter %[[B]]
// CHECK-NEXT: nn.accumulate %[[RA]] to @w
// CHECK-NEXT: nn.accumulate %[[RB]] to @v
func.func @reduces(%x: tensor<8x8xf32>, %y: tensor<8x8xf32>) {
  %a = nn.matmul %x, %y "ba,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %ra = dist.reduce_scatter %a on @mesh["dp"] sum dim 0 : tensor<8x8xf32> -> tensor<4x8xf32>
  nn.accumulate %ra to @w gradient : tensor<4x8xf32>
  %b = nn.matmul %y, %x "ba,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %rb = dist.reduce_scatter %b on @mesh["dp"] sum dim 0 : tensor<8x8xf32> -> tensor<4x8xf32>
  nn.accumulate %rb to @v gradient : tensor<4x8xf32>
  return
}
