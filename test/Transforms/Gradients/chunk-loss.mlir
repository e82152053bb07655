// RUN: plait-opt %s --plait-configure=loss-chunks=2 --nn-chunk-loss | FileCheck %s
// RUN: plait-opt %s --plait-configure=loss-chunks=7 --nn-chunk-loss | FileCheck %s --check-prefix=FOUR
// RUN: plait-opt %s --nn-chunk-loss | FileCheck %s --check-prefix=WHOLE
// RUN: plait-opt %s --plait-configure=loss-chunks=2 --nn-chunk-loss --remarks-filter='nn-chunk.*' -o %t.out 2>&1 | FileCheck %s --check-prefix=REMARK

nn.accumulator @loss_sum : tensor<f32>
nn.accumulator @other : tensor<f32>
nn.parameter @w : tensor<2x8xf32> init<mean = 0.0, std = 0.02>

// Rows of the loss and of the gradient are joined, the gradient of the weight is
// added up, and what stands between is moved behind.
// WHOLE-NOT: nn.chunk
// FOUR: nn.chunk %{{.*}} dim 0 part 3 of 4 : tensor<4x2xf32> -> tensor<1x2xf32>
// REMARK-DAG: logits are computed in 2 chunks of rows
// CHECK-LABEL: func.func @forward_0(
// CHECK-SAME: %[[X:[^:]*]]: tensor<4x2xf32>
// CHECK: %[[W:.*]] = nn.read @w
// CHECK-NOT: tensor<4x8xf32>
// CHECK: %[[A:.*]] = nn.chunk %[[X]] dim 0 part 0 of 2
// CHECK: %[[L:.*]] = nn.matmul %[[A]], %[[W]] "bh,hv->bv" : (tensor<2x2xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
// CHECK: %[[M0:.*]] = nn.reduce max %{{.*}} dims [1] : tensor<2x8xf32> -> tensor<2xf32>
// CHECK: %[[R0:.*]] = nn.log %{{.*}} : tensor<2xf32>
// CHECK: nn.matmul %{{.*}}, %[[W]] "bv,hv->bh" : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x2xf32>
// CHECK: %[[D:.*]] = nn.matmul %[[A]], %{{.*}} "bh,bv->hv"
// CHECK: nn.accumulate %[[D]] to @w gradient
// CHECK: nn.chunk %[[X]] dim 0 part 1 of 2
// CHECK: nn.accumulate %{{.*}} to @w gradient
// CHECK: %[[R:.*]] = nn.concat %[[R0]], %{{.*}} dim 0 : (tensor<2xf32>, tensor<2xf32>) -> tensor<4xf32>
// CHECK: %[[S:.*]] = nn.reduce sum %[[R]] dims [0]
// CHECK: nn.accumulate %[[S]] to @loss_sum
func.func @forward_0(%x: tensor<4x2xf32>) -> tensor<4x2xf32> {
  %w = nn.read @w value : tensor<2x8xf32>
  %0 = nn.matmul %x, %w "bh,hv->bv" : (tensor<4x2xf32>, tensor<2x8xf32>) -> tensor<4x8xf32>
  %m = nn.reduce max %0 dims [1] : tensor<4x8xf32> -> tensor<4xf32>
  %b = nn.broadcast %m dims [0] : tensor<4xf32> -> tensor<4x8xf32>
  %1 = nn.sub %0, %b : tensor<4x8xf32>
  %2 = nn.exp %1 : tensor<4x8xf32>
  %3 = nn.reduce sum %2 dims [1] : tensor<4x8xf32> -> tensor<4xf32>
  %4 = nn.log %3 : tensor<4xf32>
  %5 = nn.reduce sum %4 dims [0] : tensor<4xf32> -> tensor<f32>
  nn.accumulate %5 to @loss_sum value : tensor<f32>
  %6 = nn.broadcast %3 dims [0] : tensor<4xf32> -> tensor<4x8xf32>
  %7 = nn.div %2, %6 : tensor<4x8xf32>
  %8 = nn.matmul %7, %w "bv,hv->bh" : (tensor<4x8xf32>, tensor<2x8xf32>) -> tensor<4x2xf32>
  %9 = nn.matmul %x, %7 "bh,bv->hv" : (tensor<4x2xf32>, tensor<4x8xf32>) -> tensor<2x8xf32>
  nn.accumulate %9 to @w gradient : tensor<2x8xf32>
  return %8 : tensor<4x2xf32>
}

// A bias is read by every chunk; a sum over rows that more than a slot takes is
// added up.
// CHECK-LABEL: func.func @forward_1(
// CHECK-NOT: tensor<4x8xf32>
// CHECK: %[[S0:.*]] = nn.reduce sum %{{.*}} dims [0] : tensor<2x8xf32> -> tensor<8xf32>
// CHECK: %[[S1:.*]] = nn.reduce sum %{{.*}} dims [0] : tensor<2x8xf32> -> tensor<8xf32>
// CHECK: %[[S:.*]] = nn.add %[[S0]], %[[S1]]
// CHECK: return %[[S]]
func.func @forward_1(%x: tensor<4x2xf32>, %bias: tensor<8xf32>) -> tensor<8xf32> {
  %w = nn.read @w value : tensor<2x8xf32>
  %0 = nn.matmul %x, %w "bh,hv->bv" : (tensor<4x2xf32>, tensor<2x8xf32>) -> tensor<4x8xf32>
  %b = nn.broadcast %bias dims [1] : tensor<8xf32> -> tensor<4x8xf32>
  %1 = nn.add %0, %b : tensor<4x8xf32>
  %2 = nn.reduce sum %1 dims [0] : tensor<4x8xf32> -> tensor<8xf32>
  %3 = nn.reduce sum %2 dims [0] : tensor<8xf32> -> tensor<f32>
  nn.accumulate %3 to @loss_sum value : tensor<f32>
  return %2 : tensor<8xf32>
}

// What leads to something else than the loss, and what is not larger than its
// input, is left as it is.
// CHECK-LABEL: func.func @forward_2(
// CHECK-NOT: nn.chunk
func.func @forward_2(%x: tensor<4x2xf32>, %y: tensor<4x8xf32>, %v: tensor<8x8xf32>) {
  %w = nn.read @w value : tensor<2x8xf32>
  %0 = nn.matmul %x, %w "bh,hv->bv" : (tensor<4x2xf32>, tensor<2x8xf32>) -> tensor<4x8xf32>
  %1 = nn.reduce sum %0 dims [0, 1] : tensor<4x8xf32> -> tensor<f32>
  nn.accumulate %1 to @other value : tensor<f32>
  %2 = nn.matmul %y, %v "bh,hv->bv" : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %3 = nn.reduce sum %2 dims [0, 1] : tensor<4x8xf32> -> tensor<f32>
  nn.accumulate %3 to @loss_sum value : tensor<f32>
  return
}

// All logits are needed elsewhere.
// REMARK-DAG: all of a tensor as large as the logits is needed elsewhere
// CHECK-LABEL: func.func @forward_3(
// CHECK-NOT: nn.chunk
func.func @forward_3(%x: tensor<4x2xf32>) -> tensor<4x8xf32> {
  %w = nn.read @w value : tensor<2x8xf32>
  %0 = nn.matmul %x, %w "bh,hv->bv" : (tensor<4x2xf32>, tensor<2x8xf32>) -> tensor<4x8xf32>
  %1 = nn.reduce sum %0 dims [1] : tensor<4x8xf32> -> tensor<4xf32>
  %2 = nn.reduce sum %1 dims [0] : tensor<4xf32> -> tensor<f32>
  nn.accumulate %2 to @loss_sum value : tensor<f32>
  return %0 : tensor<4x8xf32>
}

// A maximum over rows needs all of them.
// REMARK-DAG: 'nn.reduce' needs all rows, or counts them
// CHECK-LABEL: func.func @forward_4(
// CHECK-NOT: nn.chunk
func.func @forward_4(%x: tensor<4x2xf32>) {
  %w = nn.read @w value : tensor<2x8xf32>
  %0 = nn.matmul %x, %w "bh,hv->bv" : (tensor<4x2xf32>, tensor<2x8xf32>) -> tensor<4x8xf32>
  %1 = nn.reduce max %0 dims [0] : tensor<4x8xf32> -> tensor<8xf32>
  %2 = nn.reduce sum %1 dims [0] : tensor<8xf32> -> tensor<f32>
  nn.accumulate %2 to @loss_sum value : tensor<f32>
  return
}

// Two logits that are added before the loss are not told apart.
// REMARK-DAG: other logits lead to the same
// CHECK-LABEL: func.func @forward_5(
// CHECK-NOT: nn.chunk
func.func @forward_5(%x: tensor<4x2xf32>, %y: tensor<4x2xf32>) {
  %w = nn.read @w value : tensor<2x8xf32>
  %0 = nn.matmul %x, %w "bh,hv->bv" : (tensor<4x2xf32>, tensor<2x8xf32>) -> tensor<4x8xf32>
  %1 = nn.matmul %y, %w "bh,hv->bv" : (tensor<4x2xf32>, tensor<2x8xf32>) -> tensor<4x8xf32>
  %2 = nn.add %0, %1 : tensor<4x8xf32>
  %3 = nn.reduce sum %2 dims [1] : tensor<4x8xf32> -> tensor<4xf32>
  %4 = nn.reduce sum %3 dims [0] : tensor<4xf32> -> tensor<f32>
  nn.accumulate %4 to @loss_sum value : tensor<f32>
  return
}

// Two heads of one loss are.
// CHECK-LABEL: func.func @forward_6(
// CHECK-NOT: tensor<4x8xf32>
// CHECK: nn.chunk %{{.*}} dim 0 part 1 of 2
// CHECK: nn.concat
// CHECK: nn.chunk %{{.*}} dim 0 part 1 of 2
// CHECK: nn.concat
// CHECK: nn.add %{{.*}} : tensor<4xf32>
func.func @forward_6(%x: tensor<4x2xf32>, %y: tensor<4x2xf32>) {
  %w = nn.read @w value : tensor<2x8xf32>
  %0 = nn.matmul %x, %w "bh,hv->bv" : (tensor<4x2xf32>, tensor<2x8xf32>) -> tensor<4x8xf32>
  %1 = nn.reduce sum %0 dims [1] : tensor<4x8xf32> -> tensor<4xf32>
  %2 = nn.matmul %y, %w "bh,hv->bv" : (tensor<4x2xf32>, tensor<2x8xf32>) -> tensor<4x8xf32>
  %3 = nn.reduce sum %2 dims [1] : tensor<4x8xf32> -> tensor<4xf32>
  %4 = nn.add %1, %3 : tensor<4xf32>
  %5 = nn.reduce sum %4 dims [0] : tensor<4xf32> -> tensor<f32>
  nn.accumulate %5 to @loss_sum value : tensor<f32>
  return
}
