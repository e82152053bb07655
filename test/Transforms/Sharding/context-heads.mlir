// RUN: plait-opt %s --plait-configure=context-parallel=heads \
// RUN:   --nn-decompose=early=true --dist-assign-shardings | FileCheck %s
// RUN: plait-opt %s --plait-configure="context-parallel=heads micro-batch=2" \
// RUN:   --plait-shard --plait-stage --plait-differentiate --plait-checkpoint \
// RUN:   --plait-partition | FileCheck %s --check-prefix=LOCAL
// RUN: sed -e 's/= \[2, 2, 1\]/= [1, 2, 2]/' \
// RUN:   -e '/@q :/s/$/ sharding #dist.sharding<@mesh, [{}, {"tp"}, {}, {}]>/' \
// RUN:   -e '/@k :/s/$/ sharding #dist.sharding<@mesh, [{}, {"tp"}, {}]>/' \
// RUN:   -e '/@o :/s/$/ sharding #dist.sharding<@mesh, [{"tp"}, {}, {}, {}]>/' \
// RUN:   %s | plait-opt \
// RUN:   --plait-configure="context-parallel=heads micro-batch=4" --plait-shard \
// RUN:   --plait-stage --plait-differentiate --plait-checkpoint \
// RUN:   --plait-partition | FileCheck %s --check-prefix=FEW
// RUN: sed 's/= \[2, 2, 1\]/= [2, 4, 1]/' %s | not plait-opt \
// RUN:   --plait-configure="context-parallel=heads micro-batch=2" --plait-shard 2>&1 \
// RUN:   | FileCheck %s --check-prefix=ERROR
// RUN: sed 's/= \[2, 2, 1\]/= [2, 1, 2]/' %s > %t.mlir
// RUN: plait-opt %t.mlir --plait-configure="context-parallel=gather micro-batch=2" \
// RUN:   --plait-shard > %t.gather
// RUN: plait-opt %t.mlir --plait-configure="context-parallel=heads micro-batch=2" \
// RUN:   --plait-shard | sed 's/, context_parallel = heads//g' | diff %t.gather -

// context.mlir with heads in place of gathered keys and values: "cp" splits the
// positions of everything but attention, and of that the heads, by all-to-alls
// before it and after it. Keys and values are nowhere gathered, and the backward
// pass takes what the forward pass has exchanged. Without "cp" nothing changes.
dist.mesh @mesh ["dp", "cp", "tp"] = [2, 2, 1]

nn.parameter @table : tensor<256x64xf32> init<mean = 0.0, std = 0.02>
nn.parameter @places : tensor<128x64xf32> init<mean = 0.0, std = 0.02>
nn.parameter @q : tensor<64x2x2x16xf32> init<mean = 0.0, std = 0.02>
nn.parameter @k : tensor<64x2x16xf32> init<mean = 0.0, std = 0.02>
nn.parameter @o : tensor<2x2x16x64xf32> init<mean = 0.0, std = 0.02>

func.func @loss(%tokens: tensor<4x128xi32>, %targets: tensor<4x128xi32>) -> (tensor<f32>, tensor<f32>) {
  %table = nn.read @table value : tensor<256x64xf32>
  %e = nn.embedding %table, %tokens : (tensor<256x64xf32>, tensor<4x128xi32>) -> tensor<4x128x64xf32>

  %place = nn.iota along 0 : tensor<128xi32>
  %places = nn.read @places value : tensor<128x64xf32>
  %p = nn.embedding %places, %place : (tensor<128x64xf32>, tensor<128xi32>) -> tensor<128x64xf32>
  %rows = nn.broadcast %p dims [1, 2] : tensor<128x64xf32> -> tensor<4x128x64xf32>
  %x = nn.add %e, %rows : tensor<4x128x64xf32>

  %wq = nn.read @q value {nn.layer = 0} : tensor<64x2x2x16xf32>
  %wk = nn.read @k value {nn.layer = 0} : tensor<64x2x16xf32>
  %q0 = nn.matmul %x, %wq "bsh,hgrd->bsgrd" {nn.layer = 0} : (tensor<4x128x64xf32>, tensor<64x2x2x16xf32>) -> tensor<4x128x2x2x16xf32>
  %k0 = nn.matmul %x, %wk "bsh,hgd->bsgd" {nn.layer = 0} : (tensor<4x128x64xf32>, tensor<64x2x16xf32>) -> tensor<4x128x2x16xf32>
  %q = nn.rope %q0 theta 1.0e+04 {nn.layer = 0} : tensor<4x128x2x2x16xf32>
  %k = nn.rope %k0 theta 1.0e+04 {nn.layer = 0} : tensor<4x128x2x16xf32>
  %a:2 = nn.attention %q, %k, %k0 scale 0.25 {nn.layer = 0} : (tensor<4x128x2x2x16xf32>, tensor<4x128x2x16xf32>, tensor<4x128x2x16xf32>) -> (tensor<4x128x2x2x16xf32>, tensor<4x2x2x128xf32>)
  %wo = nn.read @o value {nn.layer = 0} : tensor<2x2x16x64xf32>
  %y = nn.matmul %a#0, %wo "bsgrd,grdh->bsh" {nn.layer = 0} : (tensor<4x128x2x2x16xf32>, tensor<2x2x16x64xf32>) -> tensor<4x128x64xf32>
  %z = nn.add %x, %y {nn.layer = 0} : tensor<4x128x64xf32>
  %logits = nn.matmul %z, %table "bsh,vh->bsv" : (tensor<4x128x64xf32>, tensor<256x64xf32>) -> tensor<4x128x256xf32>
  %sum, %count = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<4x128x256xf32>, tensor<4x128xi32>) -> (tensor<f32>, tensor<f32>)
  return %sum, %count : tensor<f32>, tensor<f32>
}

// ERROR: cp=4 does not divide the 2 key/value heads or 2 query heads of each of nn.attention; possible are 1, 2, or `context-parallel` gather

// CHECK-LABEL: func.func @loss
// CHECK: %[[Q:.*]] = nn.rope {{.*}} : tensor<4x128x2x2x16xf32, #dist.sharding<@mesh, [{"dp"}, {"cp"}, {}, {}, {}]>>
// CHECK: dist.reshard %[[Q]] {{.*}} -> tensor<4x128x2x2x16xf32, #dist.sharding<@mesh, [{"dp"}, {}, {"cp"}, {}, {}]>>
// CHECK: %[[A:[^,]*]], %{{.*}} = nn.attention {{.*}} -> (tensor<4x128x2x2x16xf32, #dist.sharding<@mesh, [{"dp"}, {}, {"cp"}, {}, {}]>>, tensor<4x2x2x128xf32, #dist.sharding<@mesh, [{"dp"}, {"cp"}, {}, {}]>>)
// CHECK: dist.reshard %[[A]] {nn.layer = 0 : i64} {{.*}} -> tensor<4x128x2x2x16xf32, #dist.sharding<@mesh, [{"dp"}, {"cp"}, {}, {}, {}]>>

// LOCAL-LABEL: func.func @forward_0
// LOCAL-COUNT-3: dist.all_to_all {{.*}} on @mesh["cp"] split 2 concat 1 {{.*}} : tensor<2x64x
// LOCAL-NOT: begin
// LOCAL: nn.attention {{.*}} : (tensor<2x128x1x2x16xf32>, tensor<2x128x1x16xf32>,
// LOCAL: dist.all_to_all {{.*}} on @mesh["cp"] split 1 concat 2 {{.*}} : tensor<2x128x1x2x16xf32> -> tensor<2x64x2x2x16xf32>
// LOCAL-NOT: dist.all_gather
// LOCAL-LABEL: func.func @backward_0
// LOCAL: dist.all_to_all {{.*}} split 2 concat 1 {{.*}} : tensor<2x64x2x2x16xf32> -> tensor<2x128x1x2x16xf32>
// LOCAL-NOT: dist.all_to_all
// LOCAL: nn.attention_grad
// LOCAL-COUNT-3: dist.all_to_all {{.*}} split 1 concat 2
// LOCAL-NOT: dist.all_gather

// "tp" has left a rank one key/value head with two query heads: it takes one of
// these, and the keys and values of that head whole.
// FEW-LABEL: func.func @forward_0
// FEW: dist.all_to_all {{.*}} on @mesh["cp"] split 3 concat 1 {{.*}} : tensor<4x64x1x2x16xf32> -> tensor<4x128x1x1x16xf32>
// FEW-COUNT-2: dist.all_gather {{.*}} on @mesh["cp"] dim 1 {{.*}} : tensor<4x64x1x16xf32> -> tensor<4x128x1x16xf32>
// FEW: nn.attention
// FEW-LABEL: func.func @backward_0
// FEW: nn.attention_grad
// FEW-COUNT-2: dist.reduce_scatter {{.*}} on @mesh["cp"] sum dim 1
