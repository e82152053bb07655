// RUN: plait-opt %s --plait-configure=zero=1 --nn-pack-parameters --nn-build-optimizer | FileCheck %s

// Both ranks of pp have @p and @q. The gradient of @q on rank 1 is whole on every
// replica: there is nothing to reduce over dp, and its pack cannot be divided. So it
// is not on rank 0 either, and both ranks reduce over pp the same bytes in the same
// order, @p first.
// CHECK: nn.pack @pack0.0 rank 0 [@p] at [0] divided on @mesh["dp"] : tensor<2x32xf32>
// CHECK: nn.pack @pack0.1 rank 0 [@q] at [0] : tensor<1x32xf32>
// CHECK: nn.pack @pack1.0 rank 1 [@p] at [0] divided on @mesh["dp"] : tensor<2x32xf32>
// CHECK: nn.pack @pack1.1 rank 1 [@q] at [0] : tensor<1x32xf32>
#v = #dist.sharding<@mesh, [{}]>
#dv = #dist.sharding<@mesh, [{}], partial = {"dp"}>
#s = #dist.sharding<@mesh, []>
dist.mesh @mesh ["pp", "dp"] = [2, 2]
nn.parameter @p : tensor<6xf32> init<mean = 0.0, std = 0.02> sharding #v
nn.parameter @q : tensor<6xf32> init<mean = 0.0, std = 0.02> sharding #v
nn.accumulator @loss_sum : tensor<f32>
nn.accumulator @token_count : tensor<f32>
func.func @backward_0(%d: tensor<6xf32, #dv> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  nn.accumulate %d to @p gradient : tensor<6xf32, #dv>
  nn.accumulate %d to @q gradient : tensor<6xf32, #dv>
  return
}
func.func @forward_1() attributes {pipe.function = #pipe.function<forward, 1>} {
  %one = nn.fill 1.0 : tensor<f32, #s>
  nn.accumulate %one to @loss_sum value : tensor<f32, #s>
  nn.accumulate %one to @token_count value : tensor<f32, #s>
  return
}
func.func @backward_1(%d: tensor<6xf32, #dv> {pipe.port = #pipe.port<residual 0>}, %v: tensor<6xf32, #v> {pipe.port = #pipe.port<residual 1>}) attributes {pipe.function = #pipe.function<backward, 1>} {
  nn.accumulate %d to @p gradient : tensor<6xf32, #dv>
  nn.accumulate %v to @q gradient : tensor<6xf32, #v>
  return
}

// CHECK-LABEL: func.func @reduce_0()
// CHECK: dist.reduce_scatter {{.*}} : tensor<2x32xf32>
// CHECK: dist.all_reduce {{.*}}"pp"
// CHECK: nn.write {{.*}} to @pack0.0 reduced
// CHECK-NEXT: nn.read @pack0.1 gradient
// CHECK-NEXT: dist.all_reduce {{.*}}"dp"
// CHECK-NEXT: nn.write {{.*}} to @pack0.1 gradient
// CHECK: dist.all_reduce {{.*}}"pp"

// CHECK-LABEL: func.func @reduce_1()
// CHECK: dist.reduce_scatter {{.*}} : tensor<2x32xf32>
// CHECK: dist.all_reduce {{.*}}"pp"
// CHECK: nn.write {{.*}} to @pack1.0 reduced
// CHECK-NEXT: nn.read @pack1.1 gradient
// CHECK-NEXT: dist.all_reduce {{.*}}"pp"
