// RUN: plait-opt %s --plait-configure=compress=qsgd4:32 --nn-pack-parameters \
// RUN:   --nn-build-optimizer | FileCheck %s --check-prefix=QSGD
// RUN: plait-opt %s --plait-configure=compress=randk:32+keep:3 --nn-pack-parameters \
// RUN:   --nn-build-optimizer | FileCheck %s --check-prefix=RANDK
// RUN: plait-opt %s --plait-configure=compress=randk:32+keep:3+feedback \
// RUN:   --nn-pack-parameters --nn-build-optimizer | FileCheck %s --check-prefix=FEEDBACK
// RUN: plait-opt %s --plait-configure="compress=ef21-topk:32+keep:3 optimizer=sgd zero=1" \
// RUN:   --nn-pack-parameters --nn-build-optimizer | FileCheck %s --check-prefix=EF21
// RUN: plait-opt %s --plait-configure="compress=randk:32+keep:3+feedback zero=1" \
// RUN:   --nn-pack-parameters --nn-build-optimizer | FileCheck %s --check-prefix=ROWS
// RUN: plait-opt %s --plait-configure="compress=sign:32+feedback zero=1" \
// RUN:   --nn-pack-parameters --nn-build-optimizer | FileCheck %s --check-prefix=SIGNS

// Each replica draws for itself, and a rank counts the blocks of the whole.

// QSGD-LABEL: func.func @reduce_0()
// QSGD: %[[S:.*]] = nn.step_scalar "StepNumber"
// QSGD: %[[T:.*]] = nn.broadcast %[[S]]
// QSGD: %[[U:.*]] = nn.draw {{.*}} at %[[T]] block 32 seed 0 elements [256] keys [4060888886] runs [1] begins [#nn.begin<"tp" * 1 of 2>] replica <"dp" * 1> : tensor<8x32xf32>
// QSGD: %[[G:.*]] = nn.greater {{.*}}, %[[U]]
// QSGD: nn.pack_bits {{.*}} bits 4 {{.*}} -> tensor<8x4xi32>
// QSGD: dist.all_gather {{.*}} on @mesh["dp"] dim 0 : tensor<1x8x4xi32> -> tensor<2x8x4xi32>
// QSGD: dist.all_gather {{.*}} on @mesh["dp"] dim 0 : tensor<1x8xf32> -> tensor<2x8xf32>

// All replicas draw the same, and nobody sends which. Elements are scaled by how
// many there are for each that is sent.

// RANDK-LABEL: func.func @reduce_0()
// RANDK: %[[U:.*]] = nn.draw {{.*}} shared : tensor<8x32xf32>
// RANDK: %[[O:.*]] = nn.occupied
// RANDK: %[[D:.*]] = nn.mul %[[U]], %[[O]]
// RANDK: %[[M:.*]] = nn.keep_top %[[D]] keep 3 block 32 : tensor<8x32xf32>
// RANDK: nn.reduce sum %[[O]]
// RANDK: nn.scale {{.*}} by 0.333333343
// RANDK: %[[C:.*]] = nn.compact {{.*}} where %[[M]] : tensor<8x32xf32> -> tensor<8x3xf32>
// RANDK-NOT: dist.all_gather
// RANDK: dist.all_gather {{.*}} on @mesh["dp"] dim 0 : tensor<1x8x3xf32> -> tensor<2x8x3xf32>
// RANDK-NOT: dist.all_gather
// RANDK: %[[W:.*]] = nn.pack_bits {{.*}} bits 1
// RANDK: %[[B:.*]] = nn.broadcast %[[W]] dims [1, 2] : tensor<8x1xi32> -> tensor<2x8x1xi32>
// RANDK: %[[A:.*]] = nn.unpack_bits %[[B]] bits 1
// RANDK: nn.expand {{.*}} where %[[A]] : tensor<2x8x3xf32> -> tensor<2x8x32xf32>

// With feedback they are sent as they are.

// FEEDBACK-LABEL: func.func @reduce_0()
// FEEDBACK: nn.draw {{.*}} shared
// FEEDBACK-NOT: nn.scale
// FEEDBACK: nn.compact

// Where replicas update other rows, each gets its own ones of all, and takes them of
// what all know.

// ROWS-LABEL: func.func @reduce_0()
// ROWS: %[[M:.*]] = nn.keep_top
// ROWS: dist.all_to_all {{.*}} on @mesh["dp"] split 1 concat 0 : tensor<1x8x3xf32> -> tensor<2x4x3xf32>
// ROWS: %[[W:.*]] = nn.pack_bits {{.*}} bits 1 {{.*}} -> tensor<8x1xi32>
// ROWS: %[[R:.*]] = dist.slice %[[W]] on @mesh["dp"] dim 0 : tensor<8x1xi32> -> tensor<4x1xi32>
// ROWS: nn.broadcast %[[R]] dims [1, 2] : tensor<4x1xi32> -> tensor<2x4x1xi32>
// ROWS: nn.reduce sum {{.*}} dims [0] : tensor<2x4x32xf32> -> tensor<4x32xf32>
// ROWS-NOT: dist.slice
// ROWS: nn.write {{.*}} to @pack0.0 reduced

// SIGNS-LABEL: func.func @reduce_0()
// SIGNS: dist.all_to_all {{.*}} on @mesh["dp"] split 1 concat 0 : tensor<1x8x1xi32> -> tensor<2x4x1xi32>
// SIGNS: dist.all_to_all {{.*}} on @mesh["dp"] split 1 concat 0 : tensor<1x8xf32> -> tensor<2x4xf32>
// SIGNS: nn.occupied {{.*}} : tensor<8x32xf32>
// SIGNS: dist.slice {{.*}} : tensor<8x1xi32> -> tensor<4x1xi32>
// SIGNS-NOT: dist.all_gather
// SIGNS: nn.write {{.*}} to @pack0.0 reduced

// What is sent is added to what is known of the replica, and of all of them: a rank
// keeps its rows of that.

// EF21-LABEL: func.func @reduce_0()
// EF21: %[[H:.*]] = nn.read @pack0.0 estimate : tensor<8x32xf32>
// EF21: %[[G:.*]] = nn.read @pack0.0 gradient : tensor<8x32xf32>
// EF21: %[[V:.*]] = nn.sub %[[G]], %[[H]]
// EF21: nn.parts %[[V]]
// EF21: %[[C:.*]] = nn.unite
// EF21: %[[N:.*]] = nn.add %[[H]], %[[C]]
// EF21: dist.all_to_all
// EF21: %[[R:.*]] = nn.reduce sum {{.*}} dims [0] : tensor<2x4x32xf32> -> tensor<4x32xf32>
// EF21: nn.write %[[N]] to @pack0.0 estimate
// EF21: %[[B:.*]] = nn.read @pack0.0 estimate_sum : tensor<4x32xf32>
// EF21: %[[A:.*]] = nn.add %[[B]], %[[R]]
// EF21: nn.write %[[A]] to @pack0.0 estimate_sum
// EF21: nn.write %[[A]] to @pack0.0 reduced

#w = #dist.sharding<@mesh, [{}, {"tp"}]>
#dw = #dist.sharding<@mesh, [{}, {"tp"}], partial = {"dp"}>
#dl = #dist.sharding<@mesh, [], partial = {"dp"}>
dist.mesh @mesh ["dp", "tp"] = [2, 2]
nn.parameter @w : tensor<8x64xf32> init<mean = 0.0, std = 0.02> sharding #w
nn.accumulator @loss_sum : tensor<f32>
nn.accumulator @token_count : tensor<f32>
func.func @forward_0(%loss: tensor<f32, #dl> {pipe.port = #pipe.port<input 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  nn.accumulate %loss to @loss_sum value : tensor<f32, #dl>
  nn.accumulate %loss to @token_count value : tensor<f32, #dl>
  return
}
func.func @backward_0(%dw: tensor<8x64xf32, #dw> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  nn.accumulate %dw to @w gradient : tensor<8x64xf32, #dw>
  return
}
