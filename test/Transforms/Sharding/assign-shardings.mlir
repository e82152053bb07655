// RUN: plait-opt %s --dist-assign-shardings -split-input-file | FileCheck %s

// What the solver chooses for a whole layer: megatron-gpt2.mlir, -llama.mlir.

//===----------------------------------------------------------------------===//
// The solver, over tp
//===----------------------------------------------------------------------===//

// w3 · w2 · w1 · x: the first matmul is split along what it makes, the second
// along the same features, which it sums over. So nothing moves between the
// two, and one sum is due after them.
dist.mesh @mesh ["tp"] = [2]
// CHECK: nn.parameter @w1 {{.*}} sharding #dist.sharding<@mesh, [{}, {"tp"}]>
nn.parameter @w1 : tensor<256x256xf32> init<mean = 0.0, std = 0.02>
// CHECK: nn.parameter @w2 {{.*}} sharding #dist.sharding<@mesh, [{"tp"}, {}]>
nn.parameter @w2 : tensor<256x256xf32> init<mean = 0.0, std = 0.02>
// CHECK: nn.parameter @w3 {{.*}} sharding #dist.sharding<@mesh, [{}, {"tp"}]>
nn.parameter @w3 : tensor<256x256xf32> init<mean = 0.0, std = 0.02>
// CHECK-LABEL: func.func @loss(
// CHECK-NOT: dist.reshard
// CHECK: nn.matmul {{.*}} "bi,ij->bj" {{.*}} -> tensor<64x256xf32, #dist.sharding<@mesh, [{}, {"tp"}]>>
// CHECK-NOT: dist.reshard
// CHECK: %[[SUM:.*]] = nn.matmul {{.*}} "bj,jk->bk" {{.*}} -> tensor<64x256xf32, #dist.sharding<@mesh, [{}, {}], partial = {"tp"}>>
// CHECK-NEXT: dist.reshard %[[SUM]] : {{.*}} -> tensor<64x256xf32, #dist.sharding<@mesh, [{}, {}]>>
// CHECK-NOT: dist.reshard
// CHECK: nn.matmul {{.*}} "bk,kl->bl" {{.*}} -> tensor<64x256xf32, #dist.sharding<@mesh, [{}, {"tp"}]>>
// CHECK-NOT: dist.reshard
// CHECK: return
func.func @loss(%x: tensor<64x256xf32>) -> tensor<64x256xf32> {
  %w1 = nn.read @w1 value : tensor<256x256xf32>
  %1 = nn.matmul %x, %w1 "bi,ij->bj" : (tensor<64x256xf32>, tensor<256x256xf32>) -> tensor<64x256xf32>
  %w2 = nn.read @w2 value : tensor<256x256xf32>
  %2 = nn.matmul %1, %w2 "bj,jk->bk" : (tensor<64x256xf32>, tensor<256x256xf32>) -> tensor<64x256xf32>
  %w3 = nn.read @w3 value : tensor<256x256xf32>
  %3 = nn.matmul %2, %w3 "bk,kl->bl" : (tensor<64x256xf32>, tensor<256x256xf32>) -> tensor<64x256xf32>
  return %3 : tensor<64x256xf32>
}

// -----

// A sharding that is given is kept, and the rest follows: with w2 split along
// what it makes, its input has to be gathered, and w3 is the one that sums.
dist.mesh @mesh ["tp"] = [2]
nn.parameter @w1 : tensor<256x256xf32> init<mean = 0.0, std = 0.02>
// CHECK: nn.parameter @w2 {{.*}} sharding #dist.sharding<@mesh, [{}, {"tp"}]>
nn.parameter @w2 : tensor<256x256xf32> init<mean = 0.0, std = 0.02> sharding #dist.sharding<@mesh, [{}, {"tp"}]>
// CHECK: nn.parameter @w3 {{.*}} sharding #dist.sharding<@mesh, [{"tp"}, {}]>
nn.parameter @w3 : tensor<256x256xf32> init<mean = 0.0, std = 0.02>
// CHECK-LABEL: func.func @loss(
// CHECK: dist.reshard {{.*}} #dist.sharding<@mesh, [{}, {"tp"}]>> -> tensor<64x256xf32, #dist.sharding<@mesh, [{}, {}]>>
// CHECK-NEXT: nn.matmul {{.*}} "bj,jk->bk" {{.*}} -> tensor<64x256xf32, #dist.sharding<@mesh, [{}, {"tp"}]>>
// CHECK-NOT: dist.reshard
// CHECK: return
func.func @loss(%x: tensor<64x256xf32>) -> tensor<64x256xf32> {
  %w2 = nn.read @w2 value : tensor<256x256xf32>
  %w1 = nn.read @w1 value : tensor<256x256xf32>
  %1 = nn.matmul %x, %w1 "bi,ij->bj" : (tensor<64x256xf32>, tensor<256x256xf32>) -> tensor<64x256xf32>
  %2 = nn.matmul %1, %w2 "bj,jk->bk" : (tensor<64x256xf32>, tensor<256x256xf32>) -> tensor<64x256xf32>
  %w3 = nn.read @w3 value : tensor<256x256xf32>
  %3 = nn.matmul %2, %w3 "bk,kl->bl" : (tensor<64x256xf32>, tensor<256x256xf32>) -> tensor<64x256xf32>
  return %3 : tensor<64x256xf32>
}

// -----

// "Not split at all" can be given as well.
dist.mesh @mesh ["tp"] = [2]
// CHECK: nn.parameter @w {{.*}} sharding #dist.sharding<@mesh, [{}, {}]>
nn.parameter @w : tensor<256x256xf32> init<mean = 0.0, std = 0.02> sharding #dist.sharding<@mesh, [{}, {}]>
// CHECK-LABEL: func.func @loss(
func.func @loss(%x: tensor<64x256xf32>) -> tensor<64x256xf32> {
  // CHECK: nn.read @w value : tensor<256x256xf32, #dist.sharding<@mesh, [{}, {}]>>
  %w = nn.read @w value : tensor<256x256xf32>
  %1 = nn.matmul %x, %w "bi,ij->bj" : (tensor<64x256xf32>, tensor<256x256xf32>) -> tensor<64x256xf32>
  return %1 : tensor<64x256xf32>
}

// -----

// A norm needs whole rows. A scale that is given as split is stored in blocks
// and gathered where it is used.
dist.mesh @mesh ["tp"] = [2]
// CHECK: nn.parameter @scale {{.*}} sharding #dist.sharding<@mesh, [{"tp"}]>
nn.parameter @table : tensor<16x256xf32> init<mean = 0.0, std = 0.02>
nn.parameter @scale : tensor<256xf32> init<mean = 1.0, std = 0.0> sharding #dist.sharding<@mesh, [{"tp"}]>
// CHECK-LABEL: func.func @loss(
func.func @loss(%ids: tensor<64xi32>) -> tensor<64x256xf32> {
  %table = nn.read @table value : tensor<16x256xf32>
  %x = nn.embedding %table, %ids : (tensor<16x256xf32>, tensor<64xi32>) -> tensor<64x256xf32>
  // CHECK: %[[BLOCK:.*]] = nn.read @scale
  %scale = nn.read @scale value : tensor<256xf32>
  // CHECK: %[[ALL:.*]] = dist.reshard %[[BLOCK]] : tensor<256xf32, #dist.sharding<@mesh, [{"tp"}]>> -> tensor<256xf32, #dist.sharding<@mesh, [{}]>>
  // CHECK-NEXT: nn.rms_norm %{{.*}}, %[[ALL]]
  %y:2 = nn.rms_norm %x, %scale epsilon 1.0e-05 : (tensor<64x256xf32>, tensor<256xf32>) -> (tensor<64x256xf32>, tensor<64xf32>)
  return %y#0 : tensor<64x256xf32>
}

// -----

// Layers whose ops are alike get one answer; a layer in which a sharding is
// given is not like the others, and leaves them alone.
dist.mesh @mesh ["tp"] = [2]
// CHECK: nn.parameter @up0 {{.*}} sharding #dist.sharding<@mesh, [{}, {"tp"}]>
nn.parameter @up0 : tensor<256x256xf32> init<mean = 0.0, std = 0.02>
// CHECK: nn.parameter @down0 {{.*}} sharding #dist.sharding<@mesh, [{"tp"}, {}]>
nn.parameter @down0 : tensor<256x256xf32> init<mean = 0.0, std = 0.02>
// CHECK: nn.parameter @up1 {{.*}} sharding #dist.sharding<@mesh, [{}, {}]>
nn.parameter @up1 : tensor<256x256xf32> init<mean = 0.0, std = 0.02> sharding #dist.sharding<@mesh, [{}, {}]>
nn.parameter @down1 : tensor<256x256xf32> init<mean = 0.0, std = 0.02>
// CHECK: nn.parameter @up2 {{.*}} sharding #dist.sharding<@mesh, [{}, {"tp"}]>
nn.parameter @up2 : tensor<256x256xf32> init<mean = 0.0, std = 0.02>
// CHECK: nn.parameter @down2 {{.*}} sharding #dist.sharding<@mesh, [{"tp"}, {}]>
nn.parameter @down2 : tensor<256x256xf32> init<mean = 0.0, std = 0.02>
// CHECK-LABEL: func.func @loss(
func.func @loss(%x: tensor<64x256xf32>) -> tensor<64x256xf32> {
  %up0 = nn.read @up0 value {nn.layer = 0} : tensor<256x256xf32>
  %0 = nn.matmul %x, %up0 "bi,ij->bj" {nn.layer = 0} : (tensor<64x256xf32>, tensor<256x256xf32>) -> tensor<64x256xf32>
  %down0 = nn.read @down0 value {nn.layer = 0} : tensor<256x256xf32>
  // A reshard after an op of a layer is part of that layer.
  // CHECK: dist.reshard {{.*}}{nn.layer = 0 : i64} : tensor<64x256xf32, #dist.sharding<@mesh, [{}, {}], partial = {"tp"}>> -> tensor<64x256xf32, #dist.sharding<@mesh, [{}, {}]>>
  %1 = nn.matmul %0, %down0 "bj,jk->bk" {nn.layer = 0} : (tensor<64x256xf32>, tensor<256x256xf32>) -> tensor<64x256xf32>
  %up1 = nn.read @up1 value {nn.layer = 1} : tensor<256x256xf32>
  %2 = nn.matmul %1, %up1 "bi,ij->bj" {nn.layer = 1} : (tensor<64x256xf32>, tensor<256x256xf32>) -> tensor<64x256xf32>
  %down1 = nn.read @down1 value {nn.layer = 1} : tensor<256x256xf32>
  %3 = nn.matmul %2, %down1 "bj,jk->bk" {nn.layer = 1} : (tensor<64x256xf32>, tensor<256x256xf32>) -> tensor<64x256xf32>
  %up2 = nn.read @up2 value {nn.layer = 2} : tensor<256x256xf32>
  %4 = nn.matmul %3, %up2 "bi,ij->bj" {nn.layer = 2} : (tensor<64x256xf32>, tensor<256x256xf32>) -> tensor<64x256xf32>
  %down2 = nn.read @down2 value {nn.layer = 2} : tensor<256x256xf32>
  // CHECK: dist.reshard {{.*}}{nn.layer = 2 : i64} : tensor<64x256xf32, #dist.sharding<@mesh, [{}, {}], partial = {"tp"}>> -> tensor<64x256xf32, #dist.sharding<@mesh, [{}, {}]>>
  %5 = nn.matmul %4, %down2 "bj,jk->bk" {nn.layer = 2} : (tensor<64x256xf32>, tensor<256x256xf32>) -> tensor<64x256xf32>
  %6 = nn.neg %5 : tensor<64x256xf32>
  return %6 : tensor<64x256xf32>
}

// -----

// A dimension may leave a remainder: 301 rows in two blocks of 151, the last
// with one row of padding.
dist.mesh @mesh ["tp"] = [2]
// CHECK: nn.parameter @head {{.*}} sharding #dist.sharding<@mesh, [{"tp"}, {}]>
nn.parameter @head : tensor<301x256xf32> init<mean = 0.0, std = 0.02>
// CHECK-LABEL: func.func @loss(
func.func @loss(%x: tensor<512x256xf32>) -> tensor<f32> {
  %head = nn.read @head value : tensor<301x256xf32>
  // CHECK: nn.matmul {{.*}} -> tensor<512x301xf32, #dist.sharding<@mesh, [{}, {"tp"}]>>
  %0 = nn.matmul %x, %head "bh,vh->bv" : (tensor<512x256xf32>, tensor<301x256xf32>) -> tensor<512x301xf32>
  %1 = nn.mul %0, %0 : tensor<512x301xf32>
  %2 = nn.reduce sum %1 dims [0, 1] : tensor<512x301xf32> -> tensor<f32>
  return %2 : tensor<f32>
}

// -----

// What costs more to communicate than to repeat stays whole: 4 x 4 weights.
dist.mesh @mesh ["tp"] = [2]
// CHECK: nn.parameter @up {{.*}} sharding #dist.sharding<@mesh, [{}, {}]>
nn.parameter @up : tensor<4x4xf32> init<mean = 0.0, std = 0.02>
// CHECK: nn.parameter @down {{.*}} sharding #dist.sharding<@mesh, [{}, {}]>
nn.parameter @down : tensor<4x4xf32> init<mean = 0.0, std = 0.02>
// CHECK-LABEL: func.func @loss(
// CHECK-NOT: dist.reshard
// CHECK: return
func.func @loss(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %up = nn.read @up value : tensor<4x4xf32>
  %0 = nn.matmul %x, %up "bi,ij->bj" : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %down = nn.read @down value : tensor<4x4xf32>
  %1 = nn.matmul %0, %down "bj,jk->bk" : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %2 = nn.neg %1 : tensor<2x4xf32>
  return %2 : tensor<2x4xf32>
}

// -----

//===----------------------------------------------------------------------===//
// The batch, over dp
//===----------------------------------------------------------------------===//

// The first dimension of the arguments and all that moves with it is split;
// parameters are not. That tokens and targets share the batch needs no op that
// takes both. The loss leaves as a partial sum: it is added up once a
// step, not for every microbatch.
dist.mesh @mesh ["dp"] = [2]
// CHECK: nn.parameter @table {{.*}} sharding #dist.sharding<@mesh, [{}, {}]>
nn.parameter @table : tensor<16x4xf32> init<mean = 0.0, std = 0.02>
// CHECK-LABEL: func.func @loss(
// CHECK-SAME: tensor<2x8xi32, #dist.sharding<@mesh, [{"dp"}, {}]>>
// CHECK-SAME: tensor<2x8xi32, #dist.sharding<@mesh, [{"dp"}, {}]>>
// CHECK-SAME: -> (tensor<f32, #dist.sharding<@mesh, [], partial = {"dp"}>>, tensor<f32, #dist.sharding<@mesh, [], partial = {"dp"}>>)
// CHECK-NOT: dist.reshard
// CHECK: nn.embedding {{.*}} -> tensor<2x8x4xf32, #dist.sharding<@mesh, [{"dp"}, {}, {}]>>
// CHECK-NOT: dist.reshard
// CHECK: return
func.func @loss(%tokens: tensor<2x8xi32>, %targets: tensor<2x8xi32>) -> (tensor<f32>, tensor<f32>) {
  %table = nn.read @table value : tensor<16x4xf32>
  %0 = nn.embedding %table, %tokens : (tensor<16x4xf32>, tensor<2x8xi32>) -> tensor<2x8x4xf32>
  %1 = nn.reduce sum %0 dims [0, 1, 2] : tensor<2x8x4xf32> -> tensor<f32>
  %2 = nn.valid %targets ignore -100 : tensor<2x8xi32> -> tensor<2x8xf32>
  %3 = nn.reduce sum %2 dims [0, 1] : tensor<2x8xf32> -> tensor<f32>
  return %1, %3 : tensor<f32>, tensor<f32>
}

// -----

// With both axes, the batch's dimension is left to dp, and what users find is
// partial over neither.
dist.mesh @mesh ["dp", "tp"] = [2, 2]
nn.parameter @up : tensor<256x512xf32> init<mean = 0.0, std = 0.02>
nn.parameter @down : tensor<512x256xf32> init<mean = 0.0, std = 0.02>
// CHECK-LABEL: func.func @loss(
func.func @loss(%x: tensor<64x256xf32>) -> tensor<64x256xf32> {
  %up = nn.read @up value : tensor<256x512xf32>
  // CHECK: nn.matmul {{.*}} -> tensor<64x512xf32, #dist.sharding<@mesh, [{"dp"}, {"tp"}]>>
  %0 = nn.matmul %x, %up "bi,ij->bj" : (tensor<64x256xf32>, tensor<256x512xf32>) -> tensor<64x512xf32>
  %down = nn.read @down value : tensor<512x256xf32>
  // CHECK: nn.matmul {{.*}} -> tensor<64x256xf32, #dist.sharding<@mesh, [{"dp"}, {}], partial = {"tp"}>>
  // CHECK-NEXT: dist.reshard {{.*}} -> tensor<64x256xf32, #dist.sharding<@mesh, [{"dp"}, {}]>>
  %1 = nn.matmul %0, %down "bj,jk->bk" : (tensor<64x512xf32>, tensor<512x256xf32>) -> tensor<64x256xf32>
  %2 = nn.neg %1 : tensor<64x256xf32>
  return %2 : tensor<64x256xf32>
}

// -----

//===----------------------------------------------------------------------===//
// Untouched
//===----------------------------------------------------------------------===//

// Axes of one rank split nothing, and other functions keep their plain types.
dist.mesh @mesh ["pp", "dp", "tp"] = [4, 1, 1]
// CHECK: nn.parameter @w {{.*}} sharding #dist.sharding<@mesh, [{}, {}]>
nn.parameter @w : tensor<256x256xf32> init<mean = 0.0, std = 0.02>
// CHECK: nn.parameter @unread : tensor<4xf32> init<{{[^>]*}}> sharding #dist.sharding<@mesh, [{}]>
nn.parameter @unread : tensor<4xf32> init<mean = 0.0, std = 0.02>
// CHECK-LABEL: func.func @loss(
// CHECK-NOT: "tp"
// CHECK-NOT: "pp"
// CHECK-NOT: dist.reshard
// CHECK: return
func.func @loss(%x: tensor<64x256xf32>) -> tensor<64x256xf32> {
  %w = nn.read @w value : tensor<256x256xf32>
  %0 = nn.matmul %x, %w "bi,ij->bj" : (tensor<64x256xf32>, tensor<256x256xf32>) -> tensor<64x256xf32>
  return %0 : tensor<64x256xf32>
}
// CHECK-LABEL: func.func @other(
// CHECK-SAME: %[[X:.*]]: tensor<64x256xf32>) -> tensor<64x256xf32> {
func.func @other(%x: tensor<64x256xf32>) -> tensor<64x256xf32> {
  // CHECK-NEXT: nn.neg %[[X]] : tensor<64x256xf32>{{$}}
  %0 = nn.neg %x : tensor<64x256xf32>
  return %0 : tensor<64x256xf32>
}
