// RUN: plait-opt %s "--plait-configure=compress=int8:32+feedback zero=2" --nn-pack-parameters \
// RUN:   --nn-build-optimizer | FileCheck %s

// By ZeRO 2 micro-batches add gradients to what replicas have not sent, where no
// other ranks have parts of the sums.

#w = #dist.sharding<@mesh, [{"tp"}]>
#dw = #dist.sharding<@mesh, [{"tp"}], partial = {"dp"}>
#b = #dist.sharding<@mesh, [{}]>
#dc = #dist.sharding<@mesh, [{}], partial = {"dp", "tp"}>
#n = #dist.sharding<@mesh, []>
#dn = #dist.sharding<@mesh, [], partial = {"dp"}>
#loss = #dist.sharding<@mesh, [], partial = {"dp"}>
dist.mesh @mesh ["dp", "tp"] = [2, 2]
nn.parameter @w : tensor<128xf32> init<mean = 0.0, std = 0.02> decay sharding #w
// CHECK: nn.pack @pack0.0 rank 0 [@w] at [0] divided on @mesh["dp"] : tensor<2x32xf32>
nn.parameter @c : tensor<40xf32> init<mean = 0.0, std = 0.02> sharding #b
// CHECK: nn.pack @pack0.1 rank 0 [@c] at [0] divided on @mesh["dp"] : tensor<2x32xf32>
nn.parameter @number : tensor<f32> init<mean = 0.0, std = 0.02> sharding #n
nn.accumulator @loss_sum : tensor<f32>
nn.accumulator @token_count : tensor<f32>
func.func @forward_0(%loss: tensor<f32, #loss> {pipe.port = #pipe.port<input 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  nn.accumulate %loss to @loss_sum value : tensor<f32, #loss>
  nn.accumulate %loss to @token_count value : tensor<f32, #loss>
  return
}
// CHECK-LABEL: func.func @backward_0
func.func @backward_0(%dw: tensor<128xf32, #dw> {pipe.port = #pipe.port<residual 0>}, %dc: tensor<40xf32, #dc> {pipe.port = #pipe.port<residual 1>}, %dn: tensor<f32, #dn> {pipe.port = #pipe.port<residual 2>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  // CHECK: nn.accumulate %arg0 to @w error
  nn.accumulate %dw to @w gradient : tensor<128xf32, #dw>
  // CHECK: nn.accumulate %arg1 to @c gradient
  nn.accumulate %dc to @c gradient : tensor<40xf32, #dc>
  // CHECK: nn.accumulate %arg2 to @number gradient
  nn.accumulate %dn to @number gradient : tensor<f32, #dn>
  return
}

// CHECK-LABEL: func.func @reduce_0()
// CHECK: %[[DC:.*]] = nn.read @pack0.1 gradient
// CHECK: dist.all_reduce %[[DC]] on @mesh["tp"] sum
// CHECK: nn.read @pack0.1 error
// CHECK: nn.write {{.*}} to @pack0.1 reduced : tensor<1x32xf32>
// CHECK-NOT: nn.read @pack0.0 gradient
// CHECK: %[[E:.*]] = nn.read @pack0.0 error : tensor<2x32xf32>
// CHECK-NEXT: nn.parts %[[E]] over "dp"
// CHECK: %[[L:.*]] = nn.sub %[[E]], {{.*}}
// CHECK: dist.all_to_all {{.*}} on @mesh["dp"]
// CHECK: nn.write %[[L]] to @pack0.0 error
// CHECK: nn.write {{.*}} to @pack0.0 reduced : tensor<1x32xf32>
