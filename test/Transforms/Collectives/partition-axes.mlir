// RUN: plait-opt %s --dist-partition -split-input-file | FileCheck %s

// A dimension that is split over several axes, major to minor.

#whole = #dist.sharding<@mesh, [{}, {}]>
#cp = #dist.sharding<@mesh, [{"cp"}, {}]>
#tp = #dist.sharding<@mesh, [{"tp"}, {}]>
#cp_tp = #dist.sharding<@mesh, [{"cp", "tp"}, {}]>
#tp_cp = #dist.sharding<@mesh, [{"tp", "cp"}, {}]>
#one_each = #dist.sharding<@mesh, [{"cp"}, {"tp"}]>
#cp_sum = #dist.sharding<@mesh, [{"cp"}, {}], partial = {"tp"}>
#tp_sum = #dist.sharding<@mesh, [{"tp"}, {}], partial = {"cp"}>
#sum = #dist.sharding<@mesh, [{}, {}], partial = {"cp", "tp"}>
dist.mesh @mesh ["cp", "tp"] = [2, 3]

// One slice, which knows the whole index.
// CHECK-LABEL: func.func @cut(
func.func @cut(%x: tensor<12x6xf32, #whole>) -> tensor<12x6xf32, #tp_cp> {
  // CHECK-NEXT: dist.slice %arg0 on @mesh["tp", "cp"] dim 0 : tensor<12x6xf32> -> tensor<2x6xf32>
  // CHECK-NEXT: return
  %0 = dist.reshard %x : tensor<12x6xf32, #whole> -> tensor<12x6xf32, #tp_cp>
  return %0 : tensor<12x6xf32, #tp_cp>
}

// CHECK-LABEL: func.func @cut_inner(
func.func @cut_inner(%x: tensor<12x6xf32, #cp>) -> tensor<12x6xf32, #cp_tp> {
  // CHECK-NEXT: dist.slice %arg0 on @mesh["tp"] dim 0 : tensor<6x6xf32> -> tensor<2x6xf32>
  // CHECK-NEXT: return
  %0 = dist.reshard %x : tensor<12x6xf32, #cp> -> tensor<12x6xf32, #cp_tp>
  return %0 : tensor<12x6xf32, #cp_tp>
}

// The innermost blocks are gathered first: then they lie side by side.
// CHECK-LABEL: func.func @gather(
func.func @gather(%x: tensor<12x6xf32, #cp_tp>) -> tensor<12x6xf32, #whole> {
  // CHECK-NEXT: %[[INNER:.*]] = dist.all_gather %arg0 on @mesh["tp"] dim 0 : tensor<2x6xf32> -> tensor<6x6xf32>
  // CHECK-NEXT: dist.all_gather %[[INNER]] on @mesh["cp"] dim 0 : tensor<6x6xf32> -> tensor<12x6xf32>
  // CHECK-NEXT: return
  %0 = dist.reshard %x : tensor<12x6xf32, #cp_tp> -> tensor<12x6xf32, #whole>
  return %0 : tensor<12x6xf32, #whole>
}

// Onto an inner position.
// CHECK-LABEL: func.func @scatter_inner(
func.func @scatter_inner(%x: tensor<12x6xf32, #cp_sum>) -> tensor<12x6xf32, #cp_tp> {
  // CHECK-NEXT: dist.reduce_scatter %arg0 on @mesh["tp"] sum dim 0 : tensor<6x6xf32> -> tensor<2x6xf32>
  // CHECK-NEXT: return
  %0 = dist.reshard %x : tensor<12x6xf32, #cp_sum> -> tensor<12x6xf32, #cp_tp>
  return %0 : tensor<12x6xf32, #cp_tp>
}

// Outer to inner, whatever the order of the partial axes.
// CHECK-LABEL: func.func @scatter_both(
func.func @scatter_both(%x: tensor<12x6xf32, #sum>) -> tensor<12x6xf32, #tp_cp> {
  // CHECK-NEXT: %[[OUTER:.*]] = dist.reduce_scatter %arg0 on @mesh["tp"] sum dim 0 : tensor<12x6xf32> -> tensor<4x6xf32>
  // CHECK-NEXT: dist.reduce_scatter %[[OUTER]] on @mesh["cp"] sum dim 0 : tensor<4x6xf32> -> tensor<2x6xf32>
  // CHECK-NEXT: return
  %0 = dist.reshard %x : tensor<12x6xf32, #sum> -> tensor<12x6xf32, #tp_cp>
  return %0 : tensor<12x6xf32, #tp_cp>
}

// A sum that goes outside of what is there: that makes room, and comes back.
// CHECK-LABEL: func.func @scatter_outer(
func.func @scatter_outer(%x: tensor<12x6xf32, #tp_sum>) -> tensor<12x6xf32, #cp_tp> {
  // CHECK-NEXT: %[[ROOM:.*]] = dist.all_gather %arg0 on @mesh["tp"] dim 0 : tensor<4x6xf32> -> tensor<12x6xf32>
  // CHECK-NEXT: %[[SUM:.*]] = dist.reduce_scatter %[[ROOM]] on @mesh["cp"] sum dim 0 : tensor<12x6xf32> -> tensor<6x6xf32>
  // CHECK-NEXT: dist.slice %[[SUM]] on @mesh["tp"] dim 0 : tensor<6x6xf32> -> tensor<2x6xf32>
  // CHECK-NEXT: return
  %0 = dist.reshard %x : tensor<12x6xf32, #tp_sum> -> tensor<12x6xf32, #cp_tp>
  return %0 : tensor<12x6xf32, #cp_tp>
}

// The inner axis moves to another dimension, and back.
// CHECK-LABEL: func.func @exchange(
func.func @exchange(%x: tensor<12x6xf32, #cp_tp>) -> tensor<12x6xf32, #cp_tp> {
  // CHECK-NEXT: %[[COLUMNS:.*]] = dist.all_to_all %arg0 on @mesh["tp"] split 1 concat 0 : tensor<2x6xf32> -> tensor<6x2xf32>
  // CHECK-NEXT: dist.all_to_all %[[COLUMNS]] on @mesh["tp"] split 0 concat 1 : tensor<6x2xf32> -> tensor<2x6xf32>
  // CHECK-NEXT: return
  %0 = dist.reshard %x : tensor<12x6xf32, #cp_tp> -> tensor<12x6xf32, #one_each>
  %1 = dist.reshard %0 : tensor<12x6xf32, #one_each> -> tensor<12x6xf32, #cp_tp>
  return %1 : tensor<12x6xf32, #cp_tp>
}

// What no sequence of exchanges does goes through a gather.
// CHECK-LABEL: func.func @swap(
func.func @swap(%x: tensor<12x6xf32, #cp_tp>, %y: tensor<12x6xf32, #cp>) -> (tensor<12x6xf32, #tp_cp>, tensor<12x6xf32, #tp>) {
  // CHECK-NEXT: %[[INNER:.*]] = dist.all_gather %arg0 on @mesh["tp"] dim 0
  // CHECK-NEXT: %[[ALL:.*]] = dist.all_gather %[[INNER]] on @mesh["cp"] dim 0
  // CHECK-NEXT: dist.slice %[[ALL]] on @mesh["tp", "cp"] dim 0 : tensor<12x6xf32> -> tensor<2x6xf32>
  %0 = dist.reshard %x : tensor<12x6xf32, #cp_tp> -> tensor<12x6xf32, #tp_cp>
  // CHECK-NEXT: %[[ALL:.*]] = dist.all_gather %arg1 on @mesh["cp"] dim 0
  // CHECK-NEXT: dist.slice %[[ALL]] on @mesh["tp"] dim 0 : tensor<12x6xf32> -> tensor<4x6xf32>
  // CHECK-NEXT: return
  %1 = dist.reshard %y : tensor<12x6xf32, #cp> -> tensor<12x6xf32, #tp>
  return %0, %1 : tensor<12x6xf32, #tp_cp>, tensor<12x6xf32, #tp>
}

// An exchange moves equal blocks: a remainder is cut out of the whole.
// CHECK-LABEL: func.func @remainder(
func.func @remainder(%x: tensor<12x7xf32, #tp>) -> tensor<12x7xf32, #dist.sharding<@mesh, [{}, {"tp"}]>> {
  // CHECK-NEXT: %[[ALL:.*]] = dist.all_gather %arg0 on @mesh["tp"] dim 0
  // CHECK-NEXT: dist.slice %[[ALL]] on @mesh["tp"] dim 1 : tensor<12x7xf32> -> tensor<12x3xf32>
  // CHECK-NEXT: return
  %0 = dist.reshard %x : tensor<12x7xf32, #tp> -> tensor<12x7xf32, #dist.sharding<@mesh, [{}, {"tp"}]>>
  return %0 : tensor<12x7xf32, #dist.sharding<@mesh, [{}, {"tp"}]>>
}

// -----

// Each op that computes with indices learns where the block begins.
#rows = #dist.sharding<@mesh, [{"dp", "tp"}, {}]>
#ids = #dist.sharding<@mesh, [{}]>
#partial = #dist.sharding<@mesh, [{}, {}], partial = {"dp", "tp"}>
#columns = #dist.sharding<@mesh, [{}, {"tp", "dp"}]>
#split = #dist.sharding<@mesh, [{"dp", "tp"}]>
#sum = #dist.sharding<@mesh, [], partial = {"dp", "tp"}>
dist.mesh @mesh ["dp", "pp", "tp"] = [2, 1, 3]
// CHECK-LABEL: func.func @indices(
func.func @indices(%table: tensor<12x4xf32, #rows>, %ids: tensor<6xi32, #ids>, %x: tensor<6x24xf32, #columns>)
    -> (tensor<6x4xf32, #partial>, tensor<12xi32, #split>, tensor<6x24xf32, #columns>) {
  // CHECK-NEXT: nn.embedding {{.*}} {begin = #nn.begin<"dp" * 6, "tp" * 2>} : (tensor<2x4xf32>, tensor<6xi32>) -> tensor<6x4xf32>
  %0 = nn.embedding %table, %ids : (tensor<12x4xf32, #rows>, tensor<6xi32, #ids>) -> tensor<6x4xf32, #partial>
  // CHECK-NEXT: nn.iota along 0 {begin = #nn.begin<"dp" * 6, "tp" * 2>} : tensor<2xi32>
  %1 = nn.iota along 0 : tensor<12xi32, #split>
  // CHECK-NEXT: nn.pick %arg2, %arg1 {begin = #nn.begin<"tp" * 8, "dp" * 4>} : tensor<6x4xf32>
  %2 = nn.pick %x, %ids : tensor<6x24xf32, #columns>, tensor<6xi32, #ids> -> tensor<6x24xf32, #columns>
  return %0, %1, %2 : tensor<6x4xf32, #partial>, tensor<12xi32, #split>, tensor<6x24xf32, #columns>
}

// Of 10 elements over 6 ranks the last one has none; the last but one no padding.
// CHECK-LABEL: func.func @padding(
func.func @padding(%x: tensor<10xf32, #split>, %g: tensor<6x4xf32, #dist.sharding<@mesh, [{}, {}]>>, %ids: tensor<6xi32, #ids>)
    -> (tensor<f32, #sum>, tensor<10x4xf32, #rows>) {
  // CHECK-NEXT: %[[EXP:.*]] = nn.exp %arg0 : tensor<2xf32>
  // CHECK-NEXT: %[[MASKED:.*]] = nn.mask_padding %[[EXP]] dim 0 begin<"dp" * 6, "tp" * 2> limit 10 by 0.0
  // CHECK-NEXT: nn.reduce sum %[[MASKED]]
  %0 = nn.exp %x : tensor<10xf32, #split>
  %1 = nn.reduce sum %0 dims [0] : tensor<10xf32, #split> -> tensor<f32, #sum>
  // CHECK-NEXT: nn.embedding_grad %arg1, %arg2 {begin = #nn.begin<"dp" * 6, "tp" * 2>, limit = 10 : i64}
  %2 = nn.embedding_grad %g, %ids : (tensor<6x4xf32, #dist.sharding<@mesh, [{}, {}]>>, tensor<6xi32, #ids>) -> tensor<10x4xf32, #rows>
  return %1, %2 : tensor<f32, #sum>, tensor<10x4xf32, #rows>
}
