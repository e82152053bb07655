// RUN: plait-opt %s --verify-roundtrip | FileCheck %s

// CHECK: dist.mesh @mesh ["pp", "dp", "tp"] = [2, 2, 2]
dist.mesh @mesh ["pp", "dp", "tp"] = [2, 2, 2]

#partial = #dist.sharding<@mesh, [{}, {}], partial = {"tp"}>
#largest = #dist.sharding<@mesh, [{}, {}], partial = {"tp", "dp"} max>
#owned = #dist.sharding<@mesh, [{"dp"}, {}], partial = {"tp"} owned>
#both = #dist.sharding<@mesh, [{"dp", "tp"}, {}]>
#replicated = #dist.sharding<@mesh, [{}, {}]>
#rounds = #dist.sharding<@mesh, [{}, {"dp", 2, "tp"}]>

// CHECK-LABEL: func @reshards
func.func @reshards(%0: tensor<4x8xf32, #partial>, %1: tensor<4x8xf32, #largest>,
                    %rows: tensor<4x8xf32, #owned>) {
  // CHECK: dist.reshard %{{.*}} : tensor<4x8xf32, #dist.sharding<@mesh, [{}, {}], partial = {"tp"}>> -> tensor<4x8xf32, #dist.sharding<@mesh, [{}, {}]>>
  %2 = dist.reshard %0 : tensor<4x8xf32, #partial> -> tensor<4x8xf32, #replicated>
  // CHECK: dist.reshard %{{.*}} : tensor<4x8xf32, #dist.sharding<@mesh, [{}, {}], partial = {"tp", "dp"} max>> -> tensor<4x8xf32, #dist.sharding<@mesh, [{"dp", "tp"}, {}]>>
  %3 = dist.reshard %1 : tensor<4x8xf32, #largest> -> tensor<4x8xf32, #both>
  // CHECK: dist.reshard %{{.*}} : tensor<4x8xf32, #dist.sharding<@mesh, [{}, {}], partial = {"tp"}>> -> tensor<4x8xf32, #dist.sharding<@mesh, [{}, {"dp", 2, "tp"}]>>
  %4 = dist.reshard %0 : tensor<4x8xf32, #partial> -> tensor<4x8xf32, #rounds>
  // CHECK: dist.reshard %{{.*}} : tensor<4x8xf32, #dist.sharding<@mesh, [{"dp"}, {}], partial = {"tp"} owned>> -> tensor<4x8xf32, #dist.sharding<@mesh, [{}, {}]>>
  %5 = dist.reshard %rows : tensor<4x8xf32, #owned> -> tensor<4x8xf32, #replicated>
  return
}

// CHECK-LABEL: func @collectives
func.func @collectives(%0: tensor<4x8xf32>, %1: tensor<4x7xf32>) {
  // CHECK: dist.all_reduce %{{.*}} on @mesh["tp"] sum : tensor<4x8xf32> -> tensor<4x8xf32>
  %2 = dist.all_reduce %0 on @mesh["tp"] sum : tensor<4x8xf32> -> tensor<4x8xf32>
  // CHECK: dist.all_reduce %{{.*}} on @mesh["pp"] max members [0, 1] : tensor<4x8xf32> -> tensor<4x8xf32>
  %3 = dist.all_reduce %0 on @mesh["pp"] max members [0, 1] : tensor<4x8xf32> -> tensor<4x8xf32>
  // CHECK: dist.all_gather %{{.*}} on @mesh["tp"] dim 1 : tensor<4x8xf32> -> tensor<4x16xf32>
  %4 = dist.all_gather %0 on @mesh["tp"] dim 1 : tensor<4x8xf32> -> tensor<4x16xf32>
  // CHECK: dist.reduce_scatter %{{.*}} on @mesh["tp"] sum dim 1 : tensor<4x8xf32> -> tensor<4x4xf32>
  %5 = dist.reduce_scatter %0 on @mesh["tp"] sum dim 1 : tensor<4x8xf32> -> tensor<4x4xf32>
  // CHECK: dist.all_to_all %{{.*}} on @mesh["tp"] split 1 concat 0 : tensor<4x8xf32> -> tensor<8x4xf32>
  %6 = dist.all_to_all %0 on @mesh["tp"] split 1 concat 0 : tensor<4x8xf32> -> tensor<8x4xf32>
  // CHECK: dist.slice %{{.*}} on @mesh["tp"] dim 1 : tensor<4x8xf32> -> tensor<4x4xf32>
  %7 = dist.slice %0 on @mesh["tp"] dim 1 : tensor<4x8xf32> -> tensor<4x4xf32>
  // The last rank pads: seven elements in two blocks of four.
  // CHECK: dist.slice %{{.*}} on @mesh["tp"] dim 1 : tensor<4x7xf32> -> tensor<4x4xf32>
  %8 = dist.slice %1 on @mesh["tp"] dim 1 : tensor<4x7xf32> -> tensor<4x4xf32>
  // CHECK: dist.all_gather %{{.*}} on @mesh["tp"] dim 1 rounds 4 : tensor<4x8xf32> -> tensor<4x16xf32>
  %9 = dist.all_gather %0 on @mesh["tp"] dim 1 rounds 4 : tensor<4x8xf32> -> tensor<4x16xf32>
  // CHECK: dist.reduce_scatter %{{.*}} on @mesh["tp"] sum dim 1 rounds 2 : tensor<4x8xf32> -> tensor<4x4xf32>
  %10 = dist.reduce_scatter %0 on @mesh["tp"] sum dim 1 rounds 2 : tensor<4x8xf32> -> tensor<4x4xf32>
  // CHECK: dist.slice %{{.*}} on @mesh["tp"] dim 1 rounds 2 : tensor<4x8xf32> -> tensor<4x4xf32>
  %11 = dist.slice %0 on @mesh["tp"] dim 1 rounds 2 : tensor<4x8xf32> -> tensor<4x4xf32>
  return
}

// CHECK-LABEL: func @rows
func.func @rows(%0: tensor<1x4x8xf32>, %1: tensor<2x4x3x8xbf16>, %ids: tensor<2x4x3xi32>) {
  // CHECK: dist.dispatch %{{.*}} by %{{.*}} on @mesh["dp"] experts 3 : (tensor<1x4x8xf32>, tensor<2x4x3xi32>) -> tensor<2x4x8xf32>
  %2 = dist.dispatch %0 by %ids on @mesh["dp"] experts 3 : (tensor<1x4x8xf32>, tensor<2x4x3xi32>) -> tensor<2x4x8xf32>
  // CHECK: dist.combine %{{.*}} by %{{.*}} on @mesh["dp"] experts 3 : (tensor<2x4x3x8xbf16>, tensor<2x4x3xi32>) -> tensor<1x4x3x8xbf16>
  %3 = dist.combine %1 by %ids on @mesh["dp"] experts 3 : (tensor<2x4x3x8xbf16>, tensor<2x4x3xi32>) -> tensor<1x4x3x8xbf16>
  return
}
