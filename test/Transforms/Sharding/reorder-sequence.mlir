// RUN: plait-opt %s --plait-configure=context-parallel=zigzag \
// RUN:   --nn-decompose=early=true --nn-reorder-sequence | FileCheck %s
// RUN: plait-opt %s --plait-configure="context-parallel=zigzag micro-batch=2" --plait-shard \
// RUN:   | FileCheck %s --check-prefix=SPLIT
// RUN: plait-opt %s --plait-configure="context-parallel=zigzag micro-batch=2" --plait-shard \
// RUN:   --plait-stage --plait-differentiate --plait-checkpoint \
// RUN:   | FileCheck %s --check-prefix=KEPT
// RUN: plait-opt %s --plait-configure="context-parallel=zigzag micro-batch=2" --plait-shard \
// RUN:   --plait-stage --plait-differentiate --plait-checkpoint --plait-partition \
// RUN:   | FileCheck %s --check-prefix=LOCAL
// RUN: plait-opt %s --nn-decompose=early=true > %t.before
// RUN: plait-opt %s --nn-decompose=early=true --nn-reorder-sequence \
// RUN:   | diff %t.before -
// RUN: sed 's/= \[2, 4\]/= [8, 1]/' %s > %t.mlir
// RUN: plait-opt %t.mlir --plait-configure=context-parallel=zigzag > %t.before
// RUN: plait-opt %t.mlir --plait-configure=context-parallel=zigzag \
// RUN:   --nn-reorder-sequence | diff %t.before -

// The sequence is stored in zig-zag order before it is split: what enters is
// brought into that order, keys and values out of it, once they are gathered.
// What counts positions is told. Without "cp", and for any other kind, nothing
// changes.
dist.mesh @mesh ["dp", "cp"] = [2, 4]

nn.parameter @table : tensor<256x64xf32> init<mean = 0.0, std = 0.02>
nn.parameter @places : tensor<128x64xf32> init<mean = 0.0, std = 0.02>
nn.parameter @shift : tensor<128x64xf32> init<mean = 0.0, std = 0.02>
nn.parameter @q : tensor<64x2x2x16xf32> init<mean = 0.0, std = 0.02>
nn.parameter @k : tensor<64x2x16xf32> init<mean = 0.0, std = 0.02>
nn.parameter @o : tensor<2x2x16x64xf32> init<mean = 0.0, std = 0.02>

// CHECK-LABEL: func.func @loss
// SPLIT-LABEL: func.func @loss
// SPLIT-SAME: tensor<4x128xi32, #dist.sharding<@mesh, [{"dp"}, {}]>>
func.func @loss(%tokens: tensor<4x128xi32>, %targets: tensor<4x128xi32>, %keys: tensor<4xi32> {nn.keys}) -> (tensor<f32>, tensor<f32>) {
  // CHECK: %[[TOKENS:.*]] = nn.reorder %arg0 dim 1 zigzag 8 : tensor<4x128xi32>
  // CHECK: nn.embedding %{{.*}}, %[[TOKENS]]
  // SPLIT: %[[TOKENS:.*]] = nn.reorder %arg0 dim 1 zigzag 8 : tensor<4x128xi32, #dist.sharding<@mesh, [{"dp"}, {}]>>
  // SPLIT: dist.reshard %[[TOKENS]] {{.*}} -> tensor<4x128xi32, #dist.sharding<@mesh, [{"dp"}, {"cp"}]>>
  %table = nn.read @table value : tensor<256x64xf32>
  %e = nn.embedding %table, %tokens : (tensor<256x64xf32>, tensor<4x128xi32>) -> tensor<4x128x64xf32>

  // The table is indexed by positions, which are counted in that order.
  // CHECK: nn.iota along 0 {begin = #nn.begin<of 128 zigzag 8>} : tensor<128xi32>
  // CHECK-NEXT: nn.read @places
  // CHECK-NEXT: nn.embedding
  %place = nn.iota along 0 : tensor<128xi32>
  %places = nn.read @places value : tensor<128x64xf32>
  %p = nn.embedding %places, %place : (tensor<128x64xf32>, tensor<128xi32>) -> tensor<128x64xf32>
  // One that has the sequence itself is reordered.
  // CHECK: %[[SHIFT:.*]] = nn.read @shift
  // CHECK-NEXT: %[[MOVED:.*]] = nn.reorder %[[SHIFT]] dim 0 zigzag 8 : tensor<128x64xf32>
  // CHECK-NEXT: nn.add %{{.*}}, %[[MOVED]]
  %shift = nn.read @shift value : tensor<128x64xf32>
  %ps = nn.add %p, %shift : tensor<128x64xf32>
  %rows = nn.broadcast %ps dims [1, 2] : tensor<128x64xf32> -> tensor<4x128x64xf32>
  // CHECK: nn.dropout {{.*}} {begins = [unit, #nn.begin<of 128 zigzag 8>, unit]}
  %x0 = nn.add %e, %rows : tensor<4x128x64xf32>
  %x = nn.dropout %x0, %keys probability 0.1 site 0 : tensor<4x128x64xf32>, tensor<4xi32>

  %wq = nn.read @q value {nn.layer = 0} : tensor<64x2x2x16xf32>
  %wk = nn.read @k value {nn.layer = 0} : tensor<64x2x16xf32>
  %q0 = nn.matmul %x, %wq "bsh,hgrd->bsgrd" {nn.layer = 0} : (tensor<4x128x64xf32>, tensor<64x2x2x16xf32>) -> tensor<4x128x2x2x16xf32>
  %k0 = nn.matmul %x, %wk "bsh,hgd->bsgd" {nn.layer = 0} : (tensor<4x128x64xf32>, tensor<64x2x16xf32>) -> tensor<4x128x2x16xf32>
  // CHECK: %[[Q:.*]] = nn.rope %{{.*}} {begin = #nn.begin<of 128 zigzag 8>, nn.layer = 0 : i64}
  // CHECK: %[[K:.*]] = nn.rope %{{.*}} {begin = #nn.begin<of 128 zigzag 8>, nn.layer = 0 : i64}
  // CHECK: %[[KEY:.*]] = nn.reorder %[[K]] dim 1 zigzag 8 inverse {nn.layer = 0 : i64} : tensor<4x128x2x16xf32>
  // CHECK: %[[VALUE:.*]] = nn.reorder %{{.*}} dim 1 zigzag 8 inverse
  // CHECK: nn.attention %[[Q]], %[[KEY]], %[[VALUE]] scale {{.*}} {begin = #nn.begin<of 128 zigzag 8>
  // SPLIT: %[[K:.*]] = dist.reshard {{.*}} -> tensor<4x128x2x16xf32, #dist.sharding<@mesh, [{"dp"}, {}, {}, {}]>>
  // SPLIT: nn.reorder %[[K]] dim 1 zigzag 8 inverse
  %q = nn.rope %q0 theta 1.0e+04 {nn.layer = 0} : tensor<4x128x2x2x16xf32>
  %k = nn.rope %k0 theta 1.0e+04 {nn.layer = 0} : tensor<4x128x2x16xf32>
  %a:2 = nn.attention %q, %k, %k0 scale 0.25 {nn.layer = 0} : (tensor<4x128x2x2x16xf32>, tensor<4x128x2x16xf32>, tensor<4x128x2x16xf32>) -> (tensor<4x128x2x2x16xf32>, tensor<4x2x2x128xf32>)
  %wo = nn.read @o value {nn.layer = 0} : tensor<2x2x16x64xf32>
  %y = nn.matmul %a#0, %wo "bsgrd,grdh->bsh" {nn.layer = 0} : (tensor<4x128x2x2x16xf32>, tensor<2x2x16x64xf32>) -> tensor<4x128x64xf32>
  %z = nn.add %x, %y {nn.layer = 0} : tensor<4x128x64xf32>
  %logits = nn.matmul %z, %table "bsh,vh->bsv" : (tensor<4x128x64xf32>, tensor<256x64xf32>) -> tensor<4x128x256xf32>
  // Where they are read, not where they enter: that may be another stage.
  // CHECK: nn.reorder %arg1 dim 1 zigzag 8 : tensor<4x128xi32>
  // CHECK-NOT: nn.reorder
  %sum, %count = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<4x128x256xf32>, tensor<4x128xi32>) -> (tensor<f32>, tensor<f32>)
  return %sum, %count : tensor<f32>, tensor<f32>
}

// No whole keys or values are kept for the backward pass, in either order; their
// gradients are brought into the order of storage before they are combined.
// KEPT-LABEL: func.func @backward_0
// KEPT-NOT: tensor<4x128x2x16xf32, #dist.sharding<@mesh, [{"dp"}, {}, {}, {}]>>{{.*}}residual
// KEPT: nn.reorder {{.*}} inverse
// KEPT: , %[[GRAD:[^ ,]*]] = nn.attention_grad
// KEPT-NEXT: %[[MOVED:.*]] = nn.reorder %[[GRAD]] dim 1 zigzag 8 {{.*}} partial = {"cp"}>>
// KEPT-NEXT: dist.reshard %[[MOVED]] {{.*}} -> tensor<4x128x2x16xf32, #dist.sharding<@mesh, [{"dp"}, {"cp"}, {}, {}]>>

// LOCAL-LABEL: func.func @forward_0
// LOCAL: nn.iota along 0 {begin = #nn.begin<"cp" * 32 of 128 zigzag 8>} : tensor<32xi32>
// LOCAL: nn.dropout {{.*}} {begins = [unit, #nn.begin<"cp" * 32 of 128 zigzag 8>, unit]}
// LOCAL: nn.rope {{.*}}begin = #nn.begin<"cp" * 32 of 128 zigzag 8>{{.*}} : tensor<2x32x2x2x16xf32>
// LOCAL: dist.all_gather
// LOCAL: nn.reorder {{.*}} dim 1 zigzag 8 inverse {{.*}} : tensor<2x128x2x16xf32>
// LOCAL: nn.attention {{.*}}begin = #nn.begin<"cp" * 32 of 128 zigzag 8>
// LOCAL-LABEL: func.func @backward_0
// LOCAL: nn.attention_grad {{.*}}begin = #nn.begin<"cp" * 32 of 128 zigzag 8>
// LOCAL: nn.reorder {{.*}} dim 1 zigzag 8 {
// LOCAL: dist.reduce_scatter
