// RUN: plait-opt %s --plait-configure=compress=int8:32+feedback+both --nn-pack-parameters \
// RUN:   --nn-build-optimizer | FileCheck %s
// RUN: plait-opt %s --plait-configure=compress=sign:32+both --nn-pack-parameters \
// RUN:   --nn-build-optimizer | FileCheck %s --check-prefix=SIGN
// RUN: plait-opt %s --plait-configure=compress=randk:32+feedback+rounds:2+both --nn-pack-parameters \
// RUN:   --nn-build-optimizer | FileCheck %s --check-prefix=DRAWN

// Replicas add up as many rows each, of which there are 4 for 3 chunks, and keep
// what they have not sent of these.

// CHECK: nn.pack @pack0.0 rank 0 [@w] at [0] divided on @mesh["dp"] sums : tensor<4x32xf32>
// CHECK-LABEL: func.func @reduce_0()
// CHECK: nn.parts %{{.*}} over "dp" : tensor<4x32xf32> -> tensor<4x32xf32>
// CHECK: dist.all_to_all {{.*}} on @mesh["dp"] split 1 concat 0 : tensor<1x4x8xi32> -> tensor<2x2x8xi32>
// CHECK: dist.all_to_all {{.*}} on @mesh["dp"] split 1 concat 0 : tensor<1x4xf32> -> tensor<2x2xf32>
// CHECK: %[[S:.*]] = nn.reduce sum {{.*}} dims [0] : tensor<2x2x32xf32> -> tensor<2x32xf32>
// CHECK: nn.write {{.*}} to @pack0.0 error : tensor<4x32xf32>
// CHECK: %[[E:.*]] = nn.read @pack0.0 sum_error : tensor<2x32xf32>
// CHECK: %[[V:.*]] = nn.add %[[S]], %[[E]]
// CHECK: %[[P:.*]] = nn.parts %[[V]] over "dp" alone : tensor<2x32xf32> -> tensor<2x32xf32>
// CHECK: %[[U:.*]] = nn.unite {{.*}} over "dp" : tensor<2x32xf32> -> tensor<2x32xf32>
// CHECK: %[[L:.*]] = nn.sub %[[V]], %[[U]]
// CHECK: dist.all_gather {{.*}} on @mesh["dp"] dim 0 : tensor<2x8xi32> -> tensor<4x8xi32>
// CHECK: dist.all_gather {{.*}} on @mesh["dp"] dim 0 : tensor<2xf32> -> tensor<4xf32>
// CHECK: %[[T:.*]] = nn.unite {{.*}} over "dp" : tensor<4x32xf32> -> tensor<4x32xf32>
// CHECK: nn.write %[[L]] to @pack0.0 sum_error : tensor<2x32xf32>
// CHECK: nn.write %[[T]] to @pack0.0 gradient : tensor<4x32xf32>

// Nothing is kept without feedback. Where the parameter ends is told of the
// rank's rows.

// SIGN: nn.pack @pack0.0 rank 0 [@w] at [0] : tensor<4x32xf32>
// SIGN-LABEL: func.func @reduce_0()
// SIGN: nn.parts {{.*}} over "dp" alone : tensor<2x32xf32> -> tensor<2x32xf32>
// SIGN: nn.occupied {{.*}} elements [70] : tensor<4x32xf32>
// SIGN: dist.slice {{.*}} on @mesh["dp"] dim 0 : tensor<4x1xi32> -> tensor<2x1xi32>
// SIGN: dist.all_gather {{.*}} on @mesh["dp"] dim 0 : tensor<2x1xi32> -> tensor<4x1xi32>
// SIGN: nn.occupied {{.*}} elements [70] : tensor<4x32xf32>

// Rounds are counted on from 16, and the elements are those of all rows.

// DRAWN-LABEL: func.func @reduce_0()
// DRAWN: nn.draw {{.*}} block 32 seed 0 {{.*}} shared : tensor<4x32xf32>
// DRAWN: nn.draw {{.*}} block 32 seed 1 {{.*}} shared : tensor<4x32xf32>
// DRAWN: nn.draw {{.*}} block 32 seed 16 {{.*}} shared : tensor<4x32xf32>
// DRAWN: dist.all_gather {{.*}} on @mesh["dp"] dim 0 : tensor<2x1xf32> -> tensor<4x1xf32>
// DRAWN: nn.draw {{.*}} block 32 seed 17 {{.*}} shared : tensor<4x32xf32>
// DRAWN: dist.all_gather {{.*}} on @mesh["dp"] dim 0 : tensor<2x1xf32> -> tensor<4x1xf32>

#w = #dist.sharding<@mesh, [{}]>
#dw = #dist.sharding<@mesh, [{}], partial = {"dp"}>
#loss = #dist.sharding<@mesh, [], partial = {"dp"}>
dist.mesh @mesh ["dp"] = [2]
nn.parameter @w : tensor<70xf32> init<mean = 0.0, std = 0.02> sharding #w
nn.accumulator @loss_sum : tensor<f32>
nn.accumulator @token_count : tensor<f32>
func.func @forward_0(%loss: tensor<f32, #loss> {pipe.port = #pipe.port<input 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  nn.accumulate %loss to @loss_sum value : tensor<f32, #loss>
  nn.accumulate %loss to @token_count value : tensor<f32, #loss>
  return
}
func.func @backward_0(%dw: tensor<70xf32, #dw> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  nn.accumulate %dw to @w gradient : tensor<70xf32, #dw>
  return
}
