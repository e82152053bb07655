// RUN: plait-opt %s --plait-configure=zero=1 --nn-pack-parameters --nn-build-optimizer | FileCheck %s
// RUN: plait-opt %s --plait-configure="zero=1 reduce-precision=bf16" --nn-pack-parameters --nn-build-optimizer | FileCheck %s --check-prefix=ROUND

// Ranks of one sequence divide the state as replicas do: the nearer ones first.
// What is summed over one of the axes alone is divided over that one.
// CHECK: nn.pack @pack0.0 rank 0 [@a] at [0] divided on @mesh["cp", "dp"] : tensor<8x32xf32>
// CHECK: nn.pack @pack0.1 rank 0 [@b] at [0] divided on @mesh["cp"] : tensor<2x32xf32>
#v = #dist.sharding<@mesh, [{}]>
#both = #dist.sharding<@mesh, [{}], partial = {"dp", "cp"}>
#one = #dist.sharding<@mesh, [{}], partial = {"cp"}>
#s = #dist.sharding<@mesh, []>
dist.mesh @mesh ["pp", "dp", "cp", "tp"] = [1, 4, 2, 1]
nn.parameter @a : tensor<200xf32> init<mean = 0.0, std = 0.02> sharding #v
nn.parameter @b : tensor<40xf32> init<mean = 0.0, std = 0.02> sharding #v
nn.accumulator @loss_sum : tensor<f32>
nn.accumulator @token_count : tensor<f32>
func.func @forward_0() attributes {pipe.function = #pipe.function<forward, 0>} {
  %x = nn.fill 1.0 : tensor<f32, #s>
  nn.accumulate %x to @loss_sum value : tensor<f32, #s>
  nn.accumulate %x to @token_count value : tensor<f32, #s>
  return
}
func.func @backward_0(%a: tensor<200xf32, #both> {pipe.port = #pipe.port<residual 0>}, %b: tensor<40xf32, #one> {pipe.port = #pipe.port<residual 1>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  nn.accumulate %a to @a gradient : tensor<200xf32, #both>
  nn.accumulate %b to @b gradient : tensor<40xf32, #one>
  return
}
// What is between the two scatters is in no slot.
// CHECK-LABEL: func.func @reduce_0()
// CHECK: %[[B:.*]] = nn.read @pack0.1 gradient : tensor<2x32xf32>
// CHECK-NEXT: %[[P:.*]] = dist.reduce_scatter %[[B]] on @mesh["cp"] sum dim 0 : tensor<2x32xf32> -> tensor<1x32xf32>
// CHECK-NEXT: nn.write %[[P]] to @pack0.1 reduced : tensor<1x32xf32>
// CHECK-NEXT: %[[A:.*]] = nn.read @pack0.0 gradient : tensor<8x32xf32>
// CHECK-NEXT: %[[H:.*]] = dist.reduce_scatter %[[A]] on @mesh["cp"] sum dim 0 : tensor<8x32xf32> -> tensor<4x32xf32>
// CHECK-NEXT: %[[R:.*]] = dist.reduce_scatter %[[H]] on @mesh["dp"] sum dim 0 : tensor<4x32xf32> -> tensor<1x32xf32>
// CHECK-NEXT: nn.write %[[R]] to @pack0.0 reduced : tensor<1x32xf32>
// CHECK-NEXT: return
// ROUND-LABEL: func.func @reduce_0()
// ROUND: %[[H:.*]] = dist.reduce_scatter %{{.*}} on @mesh["cp"] sum dim 0 : tensor<8x32xbf16> -> tensor<4x32xbf16>
// ROUND-NEXT: %[[R:.*]] = dist.reduce_scatter %[[H]] on @mesh["dp"] sum dim 0 : tensor<4x32xbf16> -> tensor<1x32xbf16>
// ROUND-NEXT: %[[W:.*]] = nn.cast %[[R]] : tensor<1x32xbf16> -> tensor<1x32xf32>
// ROUND-NEXT: nn.write %[[W]] to @pack0.0 reduced : tensor<1x32xf32>
// Values are gathered in the other order.
// CHECK-LABEL: func.func @optimizer_0()
// CHECK: %[[G:.*]] = dist.all_gather %{{.*}} on @mesh["dp"] dim 0 : tensor<1x32xf32> -> tensor<4x32xf32>
// CHECK-NEXT: %[[V:.*]] = dist.all_gather %[[G]] on @mesh["cp"] dim 0 : tensor<4x32xf32> -> tensor<8x32xf32>
// CHECK-NEXT: nn.write %[[V]] to @pack0.0 value : tensor<8x32xf32>
