// RUN: plait-opt %s --nn-decompose=early=true --dist-assign-shardings | FileCheck %s
// RUN: plait-opt %s --plait-shard --plait-stage --plait-differentiate \
// RUN:   --plait-checkpoint | FileCheck %s --check-prefix=KEPT
// RUN: plait-opt %s --plait-shard --plait-stage --plait-differentiate \
// RUN:   --plait-checkpoint --plait-partition | FileCheck %s --check-prefix=LOCAL

// Context parallelism: "cp" splits the positions of everything. Attention alone
// mixes them: each rank has its own queries and gathers keys and values, before
// the forward pass and again before the backward pass, and the gradients of
// those are reduced and scattered.
dist.mesh @mesh ["dp", "cp"] = [2, 4]

// CHECK-DAG: nn.parameter @table {{.*}} sharding #dist.sharding<@mesh, [{}, {}]>
nn.parameter @table : tensor<256x64xf32> init<mean = 0.0, std = 0.02>
nn.parameter @places : tensor<128x64xf32> init<mean = 0.0, std = 0.02>
nn.parameter @q : tensor<64x2x2x16xf32> init<mean = 0.0, std = 0.02>
nn.parameter @k : tensor<64x2x16xf32> init<mean = 0.0, std = 0.02>
nn.parameter @o : tensor<2x2x16x64xf32> init<mean = 0.0, std = 0.02>

// CHECK-LABEL: func.func @loss
// CHECK-SAME: tensor<4x128xi32, #dist.sharding<@mesh, [{"dp"}, {"cp"}]>>
func.func @loss(%tokens: tensor<4x128xi32>, %targets: tensor<4x128xi32>) -> (tensor<f32>, tensor<f32>) {
  %table = nn.read @table value : tensor<256x64xf32>
  %e = nn.embedding %table, %tokens : (tensor<256x64xf32>, tensor<4x128xi32>) -> tensor<4x128x64xf32>

  // CHECK: nn.iota along 0 : tensor<128xi32, #dist.sharding<@mesh, [{"cp"}]>>
  %place = nn.iota along 0 : tensor<128xi32>
  %places = nn.read @places value : tensor<128x64xf32>
  %p = nn.embedding %places, %place : (tensor<128x64xf32>, tensor<128xi32>) -> tensor<128x64xf32>
  %rows = nn.broadcast %p dims [1, 2] : tensor<128x64xf32> -> tensor<4x128x64xf32>
  %x = nn.add %e, %rows : tensor<4x128x64xf32>

  %wq = nn.read @q value {nn.layer = 0} : tensor<64x2x2x16xf32>
  %wk = nn.read @k value {nn.layer = 0} : tensor<64x2x16xf32>
  %q0 = nn.matmul %x, %wq "bsh,hgrd->bsgrd" {nn.layer = 0} : (tensor<4x128x64xf32>, tensor<64x2x2x16xf32>) -> tensor<4x128x2x2x16xf32>
  %k0 = nn.matmul %x, %wk "bsh,hgd->bsgd" {nn.layer = 0} : (tensor<4x128x64xf32>, tensor<64x2x16xf32>) -> tensor<4x128x2x16xf32>
  // CHECK: nn.rope {{.*}} : tensor<4x128x2x2x16xf32, #dist.sharding<@mesh, [{"dp"}, {"cp"}, {}, {}, {}]>>
  %q = nn.rope %q0 theta 1.0e+04 {nn.layer = 0} : tensor<4x128x2x2x16xf32>
  // CHECK: %[[K:.*]] = nn.rope {{.*}} : tensor<4x128x2x16xf32, #dist.sharding<@mesh, [{"dp"}, {"cp"}, {}, {}]>>
  %k = nn.rope %k0 theta 1.0e+04 {nn.layer = 0} : tensor<4x128x2x16xf32>
  // CHECK: dist.reshard %[[K]] {{.*}} -> tensor<4x128x2x16xf32, #dist.sharding<@mesh, [{"dp"}, {}, {}, {}]>>
  // CHECK: nn.attention {{.*}} -> (tensor<4x128x2x2x16xf32, #dist.sharding<@mesh, [{"dp"}, {"cp"}, {}, {}, {}]>>, tensor<4x2x2x128xf32, #dist.sharding<@mesh, [{"dp"}, {}, {}, {"cp"}]>>)
  %a:2 = nn.attention %q, %k, %k0 scale 0.25 {nn.layer = 0} : (tensor<4x128x2x2x16xf32>, tensor<4x128x2x16xf32>, tensor<4x128x2x16xf32>) -> (tensor<4x128x2x2x16xf32>, tensor<4x2x2x128xf32>)
  %wo = nn.read @o value {nn.layer = 0} : tensor<2x2x16x64xf32>
  %y = nn.matmul %a#0, %wo "bsgrd,grdh->bsh" {nn.layer = 0} : (tensor<4x128x2x2x16xf32>, tensor<2x2x16x64xf32>) -> tensor<4x128x64xf32>
  %z = nn.add %x, %y {nn.layer = 0} : tensor<4x128x64xf32>
  %logits = nn.matmul %z, %table "bsh,vh->bsv" : (tensor<4x128x64xf32>, tensor<256x64xf32>) -> tensor<4x128x256xf32>
  // CHECK: return {{.*}} : tensor<f32, #dist.sharding<@mesh, [], partial = {"dp", "cp"}>>,
  %sum, %count = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<4x128x256xf32>, tensor<4x128xi32>) -> (tensor<f32>, tensor<f32>)
  return %sum, %count : tensor<f32>, tensor<f32>
}

// No whole keys or values are kept for the backward pass.
// KEPT-LABEL: func.func @backward_0
// KEPT-NOT: tensor<4x128x2x16xf32, #dist.sharding<@mesh, [{"dp"}, {}, {}, {}]>>{{.*}}residual
// KEPT: %[[AGAIN:.*]] = dist.reshard {{.*}} -> tensor<4x128x2x16xf32, #dist.sharding<@mesh, [{"dp"}, {}, {}, {}]>>
// KEPT: nn.attention_grad {{.*}}, tensor<4x128x2x16xf32, #dist.sharding<@mesh, [{"dp"}, {}, {}, {}], partial = {"cp"}>>,
// KEPT: nn.accumulate {{.*}} to @q gradient {{.*}} partial = {"dp", "cp"}

// LOCAL-LABEL: func.func @forward_0
// LOCAL: nn.iota along 0 {begin = #nn.begin<"cp" * 32>} : tensor<32xi32>
// LOCAL: nn.rope {{.*}}begin = #nn.begin<"cp" * 32>{{.*}} : tensor<2x32x2x2x16xf32>
// LOCAL-COUNT-2: dist.all_gather {{.*}} on @mesh["cp"] dim 1 {{.*}} : tensor<2x32x2x16xf32> -> tensor<2x128x2x16xf32>
// LOCAL: nn.attention {{.*}}begin = #nn.begin<"cp" * 32>{{.*}} : (tensor<2x32x2x2x16xf32>, tensor<2x128x2x16xf32>,
// LOCAL-LABEL: func.func @backward_0
// LOCAL-COUNT-2: dist.all_gather {{.*}} on @mesh["cp"] dim 1
// LOCAL: nn.attention_grad {{.*}}begin = #nn.begin<"cp" * 32>
// LOCAL-COUNT-2: dist.reduce_scatter {{.*}} on @mesh["cp"] sum dim 1 {{.*}} : tensor<2x128x2x16xf32> -> tensor<2x32x2x16xf32>
