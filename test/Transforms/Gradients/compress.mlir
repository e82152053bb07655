// RUN: plait-opt %s --plait-configure=compress=int8:32+feedback --nn-pack-parameters \
// RUN:   --nn-build-optimizer | FileCheck %s

// What replicas send of gradients: chunks are rows of a pack, and each parameter
// begins with one of its own.

#w = #dist.sharding<@mesh, [{"tp"}]>
#dw = #dist.sharding<@mesh, [{"tp"}], partial = {"dp"}>
#b = #dist.sharding<@mesh, [{}]>
#db = #dist.sharding<@mesh, [{}], partial = {"dp"}>
#dc = #dist.sharding<@mesh, [{}], partial = {"dp", "tp"}>
#n = #dist.sharding<@mesh, []>
#dn = #dist.sharding<@mesh, [], partial = {"dp"}>
#loss = #dist.sharding<@mesh, [], partial = {"dp"}>
dist.mesh @mesh ["dp", "tp"] = [2, 2]
nn.parameter @w : tensor<128xf32> init<mean = 0.0, std = 0.02> decay sharding #w
nn.parameter @v : tensor<128xf32> init<mean = 0.0, std = 0.02> decay sharding #w
// CHECK: nn.pack @pack0.0 rank 0 [@w, @v] at [0, 64] : tensor<4x32xf32>
nn.parameter @b : tensor<4xf32> init<mean = 0.0, std = 0.02> sharding #b
nn.parameter @c : tensor<40xf32> init<mean = 0.0, std = 0.02> sharding #b
// CHECK: nn.pack @pack0.1 rank 0 [@b] at [0] : tensor<1x32xf32>
// CHECK: nn.pack @pack0.2 rank 0 [@c] at [0] : tensor<2x32xf32>
// Nothing is added to it: it is no gradient that anybody would compress.
nn.parameter @frozen : tensor<4xf32> init<mean = 0.0, std = 0.02> sharding #b
nn.parameter @number : tensor<f32> init<mean = 0.0, std = 0.02> sharding #n
nn.accumulator @loss_sum : tensor<f32>
nn.accumulator @token_count : tensor<f32>
func.func @forward_0(%loss: tensor<f32, #loss> {pipe.port = #pipe.port<input 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  nn.accumulate %loss to @loss_sum value : tensor<f32, #loss>
  nn.accumulate %loss to @token_count value : tensor<f32, #loss>
  %f = nn.read @frozen value : tensor<4xf32, #b>
  return
}
func.func @backward_0(%dw: tensor<128xf32, #dw> {pipe.port = #pipe.port<residual 0>}, %db: tensor<4xf32, #db> {pipe.port = #pipe.port<residual 1>}, %dc: tensor<40xf32, #dc> {pipe.port = #pipe.port<residual 2>}, %dn: tensor<f32, #dn> {pipe.port = #pipe.port<residual 3>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  nn.accumulate %dw to @w gradient : tensor<128xf32, #dw>
  nn.accumulate %dw to @v gradient : tensor<128xf32, #dw>
  nn.accumulate %db to @b gradient : tensor<4xf32, #db>
  nn.accumulate %dc to @c gradient : tensor<40xf32, #dc>
  nn.accumulate %dn to @number gradient : tensor<f32, #dn>
  return
}

// Last parameters come first: what is packed of them is complete first.
// A sum over other axes comes before, and is of gradients as they are.
// CHECK-LABEL: func.func @reduce_0()
// CHECK: %[[DC:.*]] = nn.read @pack0.2 gradient : tensor<2x32xf32>
// CHECK: %[[DC1:.*]] = dist.all_reduce %[[DC]] on @mesh["tp"] sum : tensor<2x32xf32>
// CHECK: nn.write %[[DC1]] to @pack0.2 gradient
// CHECK: nn.parts {{.*}} over "dp" : tensor<2x32xf32> -> tensor<2x32xf32>
// CHECK: nn.parts {{.*}} over "dp" : tensor<1x32xf32> -> tensor<1x32xf32>

// CHECK-DAG: %[[E:.*]] = nn.read @pack0.0 error : tensor<4x32xf32>
// CHECK-DAG: %[[G:.*]] = nn.read @pack0.0 gradient : tensor<4x32xf32>
// CHECK: %[[V:.*]] = nn.add %[[G]], %[[E]] : tensor<4x32xf32>
// CHECK: %[[P:.*]] = nn.parts %[[V]] over "dp"
// CHECK: %[[M:.*]] = nn.reduce max {{.*}} dims [1] : tensor<4x32xf32> -> tensor<4xf32>
// CHECK: %[[Q:.*]] = nn.round {{.*}} : tensor<4x32xf32>
// CHECK: %[[S:.*]] = nn.scale %[[M]] by {{0.00787401571|7.874016e-03}} : tensor<4xf32>
// CHECK: %[[D:.*]] = nn.mul %[[Q]], {{.*}} : tensor<4x32xf32>
// CHECK: %[[U:.*]] = nn.unite %[[D]] over "dp"
// CHECK: %[[L:.*]] = nn.sub %[[V]], %[[U]]
// CHECK-COUNT-4: nn.slice %[[Q]] part {{[0-3]}} of 4 : tensor<4x32xf32> -> tensor<4x8xf32>
// CHECK: nn.pack_bits {{.*}} bits 8 {{.*}} -> tensor<4x8xi32>
// CHECK: dist.all_gather {{.*}} on @mesh["dp"] dim 0 : tensor<1x4x8xi32> -> tensor<2x4x8xi32>
// CHECK: dist.all_gather {{.*}} on @mesh["dp"] dim 0 : tensor<1x4xf32> -> tensor<2x4xf32>
// CHECK: nn.unpack_bits {{.*}} bits 8 : tensor<2x4x8xi32> -> tensor<2x4x32xf32>
// CHECK: %[[T:.*]] = nn.reduce sum {{.*}} dims [0] : tensor<2x4x32xf32> -> tensor<4x32xf32>
// CHECK: nn.write %[[L]] to @pack0.0 error
// CHECK: nn.write %[[T]] to @pack0.0 gradient
// A number is summed as it is.
// CHECK: nn.read @number gradient
// CHECK-NEXT: dist.all_reduce {{.*}} on @mesh["dp"] sum : tensor<f32>
