// RUN: plait-opt %s "--plait-configure=compress=int8:32+feedback zero=3" --nn-pack-parameters \
// RUN:   --nn-build-optimizer | FileCheck %s

// By ZeRO 3 replicas have parts of values, and what they have not sent is whole.

#w = #dist.sharding<@mesh, [{"dp"}, {}]>
#dw = #dist.sharding<@mesh, [{}, {}], partial = {"dp"}>
#b = #dist.sharding<@mesh, [{}]>
#db = #dist.sharding<@mesh, [{}], partial = {"dp"}>
#loss = #dist.sharding<@mesh, [], partial = {"dp"}>
dist.mesh @mesh ["dp"] = [2]
nn.parameter @w : tensor<4x32xf32> init<mean = 0.0, std = 0.02> decay sharding #w
// CHECK: nn.pack @pack0.0 rank 0 [@w] at [0] divided on @mesh["dp"] blocks : tensor<4x32xf32>
nn.parameter @v : tensor<2x64xf32> init<mean = 0.0, std = 0.02> decay sharding #w
// CHECK: nn.pack @pack0.1 rank 0 [@v] at [0] divided on @mesh["dp"] blocks : tensor<4x32xf32>
nn.parameter @b : tensor<40xf32> init<mean = 0.0, std = 0.02> sharding #b
// CHECK: nn.pack @pack0.2 rank 0 [@b] at [0] divided on @mesh["dp"] : tensor<2x32xf32>{{$}}
nn.accumulator @loss_sum : tensor<f32>
nn.accumulator @token_count : tensor<f32>
func.func @forward_0(%loss: tensor<f32, #loss> {pipe.port = #pipe.port<input 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  nn.accumulate %loss to @loss_sum value : tensor<f32, #loss>
  nn.accumulate %loss to @token_count value : tensor<f32, #loss>
  return
}
// CHECK-LABEL: func.func @backward_0
func.func @backward_0(%dw: tensor<4x32xf32, #dw> {pipe.port = #pipe.port<residual 0>}, %dv: tensor<2x64xf32, #dw> {pipe.port = #pipe.port<residual 1>}, %db: tensor<40xf32, #db> {pipe.port = #pipe.port<residual 2>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  // CHECK: nn.accumulate %arg0 to @w error
  nn.accumulate %dw to @w gradient : tensor<4x32xf32, #dw>
  // CHECK: nn.accumulate %arg1 to @v error
  nn.accumulate %dv to @v gradient : tensor<2x64xf32, #dw>
  // CHECK: nn.accumulate %arg2 to @b error
  nn.accumulate %db to @b gradient : tensor<40xf32, #db>
  return
}

// CHECK-LABEL: func.func @reduce_0()
// CHECK: nn.read @pack0.0 error : tensor<4x32xf32>
// CHECK: dist.all_to_all {{.*}} on @mesh["dp"]
// CHECK: nn.write {{.*}} to @pack0.0 error : tensor<4x32xf32>
// CHECK: nn.write {{.*}} to @pack0.0 reduced : tensor<2x32xf32>

// Nothing is gathered of what lies in parts.
// CHECK-LABEL: func.func @optimizer_0()
// CHECK: nn.read @pack0.0 reduced : tensor<2x32xf32>
// CHECK-NOT: dist.all_gather
// CHECK: nn.write {{.*}} to @pack0.0 value : tensor<2x32xf32>
// CHECK: nn.write {{.*}} to @pack0.1 value : tensor<2x32xf32>
// CHECK: dist.all_gather
// CHECK: nn.write {{.*}} to @pack0.2 value : tensor<2x32xf32>
