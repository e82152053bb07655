// RUN: plait-opt %s --nn-decompose=early=true --dist-assign-shardings | FileCheck %s
// RUN: plait-opt %s --nn-decompose=early=true --dist-assign-shardings \
// RUN:   --remarks-filter='dist-assign.*' -o %t 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: plait-opt %s --plait-shard --plait-stage --plait-differentiate \
// RUN:   --plait-checkpoint --plait-partition | \
// RUN:   FileCheck %s --check-prefix=LOCAL --implicit-check-not='dist.{{.*}}nn.layer'

// Why: what the best choice with another factor would take. Of a group of heads only
// whole ones can be split, of a residual nothing.
// REMARK: tp splits g (2) of nn.matmul: nothing takes {{[0-9.]+}} us more, h (192) takes {{[0-9.]+}} us more
// REMARK: tp splits key/value heads (2) of nn.attention
// REMARK: tp splits nothing of nn.add
// REMARK: tp splits f (512) of nn.matmul

// As megatron-gpt2.mlir, for a layer of Llama: grouped query heads (two key and
// value heads, each shared by three query heads), rotary positions and a gated
// MLP.
dist.mesh @mesh ["tp"] = [2]

// A rank has one group: its key and value head and the three query heads.
// CHECK-DAG: nn.parameter @norm_a {{.*}} sharding #dist.sharding<@mesh, [{}]>
// CHECK-DAG: nn.parameter @a {{.*}} sharding #dist.sharding<@mesh, [{}, {"tp"}, {}, {}]>
// CHECK-DAG: nn.parameter @b {{.*}} sharding #dist.sharding<@mesh, [{}, {"tp"}, {}]>
// CHECK-DAG: nn.parameter @c {{.*}} sharding #dist.sharding<@mesh, [{}, {"tp"}, {}]>
// CHECK-DAG: nn.parameter @d {{.*}} sharding #dist.sharding<@mesh, [{"tp"}, {}, {}, {}]>
// CHECK-DAG: nn.parameter @norm_e {{.*}} sharding #dist.sharding<@mesh, [{}]>
// CHECK-DAG: nn.parameter @e {{.*}} sharding #dist.sharding<@mesh, [{}, {"tp"}]>
// CHECK-DAG: nn.parameter @f {{.*}} sharding #dist.sharding<@mesh, [{}, {"tp"}]>
// CHECK-DAG: nn.parameter @g {{.*}} sharding #dist.sharding<@mesh, [{"tp"}, {}]>
nn.parameter @table : tensor<256x192xf32> init<mean = 0.0, std = 0.02>
nn.parameter @norm_a : tensor<192xf32> init<mean = 1.0, std = 0.0>
nn.parameter @a : tensor<192x2x3x32xf32> init<mean = 0.0, std = 0.02>
nn.parameter @b : tensor<192x2x32xf32> init<mean = 0.0, std = 0.02>
nn.parameter @c : tensor<192x2x32xf32> init<mean = 0.0, std = 0.02>
nn.parameter @d : tensor<2x3x32x192xf32> init<mean = 0.0, std = 0.02>
nn.parameter @norm_e : tensor<192xf32> init<mean = 1.0, std = 0.0>
nn.parameter @e : tensor<192x512xf32> init<mean = 0.0, std = 0.02>
nn.parameter @f : tensor<192x512xf32> init<mean = 0.0, std = 0.02>
nn.parameter @g : tensor<512x192xf32> init<mean = 0.0, std = 0.02>
nn.parameter @head : tensor<256x192xf32> init<mean = 0.0, std = 0.02>

// CHECK-LABEL: func.func @loss
func.func @loss(%tokens: tensor<2x128xi32>, %targets: tensor<2x128xi32>) -> (tensor<f32>, tensor<f32>) {
  %table = nn.read @table value : tensor<256x192xf32>
  %x = nn.embedding %table, %tokens : (tensor<256x192xf32>, tensor<2x128xi32>) -> tensor<2x128x192xf32>

  // CHECK: nn.rms_norm {{.*}} -> (tensor<2x128x192xf32, #dist.sharding<@mesh, [{}, {}, {}]>>,
  // CHECK-NOT: dist.reshard
  // CHECK: nn.rope {{.*}} : tensor<2x128x2x3x32xf32, #dist.sharding<@mesh, [{}, {}, {"tp"}, {}, {}]>>
  // CHECK-NOT: dist.reshard
  // CHECK: nn.attention
  // CHECK-NOT: dist.reshard
  // CHECK: nn.matmul {{.*}} "bsgrd,grdh->bsh"
  // CHECK-NEXT: dist.reshard {{.*}} [{}, {}, {}], partial = {"tp"}>> -> tensor<2x128x192xf32, #dist.sharding<@mesh, [{}, {}, {}]>>
  %norm_a = nn.read @norm_a value {nn.layer = 0} : tensor<192xf32>
  %n:2 = nn.rms_norm %x, %norm_a epsilon 1.0e-05 {nn.layer = 0} : (tensor<2x128x192xf32>, tensor<192xf32>) -> (tensor<2x128x192xf32>, tensor<2x128xf32>)
  %a = nn.read @a value {nn.layer = 0} : tensor<192x2x3x32xf32>
  %q0 = nn.matmul %n#0, %a "bsh,hgrd->bsgrd" {nn.layer = 0} : (tensor<2x128x192xf32>, tensor<192x2x3x32xf32>) -> tensor<2x128x2x3x32xf32>
  %q = nn.rope %q0 theta 1.0e+04 {nn.layer = 0} : tensor<2x128x2x3x32xf32>
  %b = nn.read @b value {nn.layer = 0} : tensor<192x2x32xf32>
  %k0 = nn.matmul %n#0, %b "bsh,hgd->bsgd" {nn.layer = 0} : (tensor<2x128x192xf32>, tensor<192x2x32xf32>) -> tensor<2x128x2x32xf32>
  %k = nn.rope %k0 theta 1.0e+04 {nn.layer = 0} : tensor<2x128x2x32xf32>
  %c = nn.read @c value {nn.layer = 0} : tensor<192x2x32xf32>
  %v = nn.matmul %n#0, %c "bsh,hgd->bsgd" {nn.layer = 0} : (tensor<2x128x192xf32>, tensor<192x2x32xf32>) -> tensor<2x128x2x32xf32>
  %o:2 = nn.attention %q, %k, %v scale 0.17 {nn.layer = 0} : (tensor<2x128x2x3x32xf32>, tensor<2x128x2x32xf32>, tensor<2x128x2x32xf32>) -> (tensor<2x128x2x3x32xf32>, tensor<2x2x3x128xf32>)
  %d = nn.read @d value {nn.layer = 0} : tensor<2x3x32x192xf32>
  %p = nn.matmul %o#0, %d "bsgrd,grdh->bsh" {nn.layer = 0} : (tensor<2x128x2x3x32xf32>, tensor<2x3x32x192xf32>) -> tensor<2x128x192xf32>
  %y = nn.add %x, %p {nn.layer = 0} : tensor<2x128x192xf32>

  // CHECK: nn.rms_norm {{.*}} -> (tensor<2x128x192xf32, #dist.sharding<@mesh, [{}, {}, {}]>>,
  // CHECK-NOT: dist.reshard
  // CHECK: nn.silu {{.*}} #dist.sharding<@mesh, [{}, {}, {"tp"}]>>
  // CHECK-NOT: dist.reshard
  // CHECK: nn.matmul {{.*}} "bsf,fh->bsh"
  // CHECK-NEXT: dist.reshard {{.*}} [{}, {}, {}], partial = {"tp"}>> -> tensor<2x128x192xf32, #dist.sharding<@mesh, [{}, {}, {}]>>
  // CHECK-NOT: dist.reshard {{.*}}nn.layer
  // CHECK: return
  %norm_e = nn.read @norm_e value {nn.layer = 0} : tensor<192xf32>
  %m:2 = nn.rms_norm %y, %norm_e epsilon 1.0e-05 {nn.layer = 0} : (tensor<2x128x192xf32>, tensor<192xf32>) -> (tensor<2x128x192xf32>, tensor<2x128xf32>)
  %e = nn.read @e value {nn.layer = 0} : tensor<192x512xf32>
  %t = nn.matmul %m#0, %e "bsh,hf->bsf" {nn.layer = 0} : (tensor<2x128x192xf32>, tensor<192x512xf32>) -> tensor<2x128x512xf32>
  %f = nn.read @f value {nn.layer = 0} : tensor<192x512xf32>
  %u = nn.matmul %m#0, %f "bsh,hf->bsf" {nn.layer = 0} : (tensor<2x128x192xf32>, tensor<192x512xf32>) -> tensor<2x128x512xf32>
  %s = nn.silu %t {nn.layer = 0} : tensor<2x128x512xf32>
  %su = nn.mul %s, %u {nn.layer = 0} : tensor<2x128x512xf32>
  %g = nn.read @g value {nn.layer = 0} : tensor<512x192xf32>
  %w = nn.matmul %su, %g "bsf,fh->bsh" {nn.layer = 0} : (tensor<2x128x512xf32>, tensor<512x192xf32>) -> tensor<2x128x192xf32>
  %z = nn.add %y, %w {nn.layer = 0} : tensor<2x128x192xf32>

  %head = nn.read @head value : tensor<256x192xf32>
  %logits = nn.matmul %z, %head "bsh,vh->bsv" : (tensor<2x128x192xf32>, tensor<256x192xf32>) -> tensor<2x128x256xf32>
  %loss, %count = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x128x256xf32>, tensor<2x128xi32>) -> (tensor<f32>, tensor<f32>)
  return %loss, %count : tensor<f32>, tensor<f32>
}

// LOCAL-LABEL: func.func @forward_0
// LOCAL-COUNT-2: dist.all_reduce {{.*}} on @mesh["tp"] sum {nn.layer = 0 : i64} : tensor<2x128x192xf32>
// LOCAL: return
// LOCAL-LABEL: func.func @backward_0
// LOCAL-COUNT-2: dist.all_reduce {{.*}} on @mesh["tp"] sum {nn.layer = 0 : i64} : tensor<2x128x192xf32>
// LOCAL: return
// LOCAL-LABEL: func.func @reduce_0
