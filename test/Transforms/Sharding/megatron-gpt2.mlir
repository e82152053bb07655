// RUN: plait-opt %s --dist-assign-shardings | FileCheck %s
// RUN: plait-opt %s --plait-shard --plait-stage --plait-differentiate \
// RUN:   --plait-checkpoint --plait-partition | \
// RUN:   FileCheck %s --check-prefix=LOCAL --implicit-check-not='dist.{{.*}}nn.layer'

// Tensor parallelism as Megatron-LM has it (Shoeybi et al. 2019, figure 3), for
// one layer of GPT-2. Nothing names a layer's role here: parameters are letters
// and the solver sees extents and factors only.
dist.mesh @mesh ["tp"] = [2]

// The matmuls that open a block are split along what they make (column
// parallel: heads, or inner features), with their biases; those that close it
// along what they sum over (row parallel). Norms and closing biases are whole.
// CHECK-DAG: nn.parameter @norm_a {{.*}} sharding #dist.sharding<@mesh, [{}]>
// CHECK-DAG: nn.parameter @a {{.*}} sharding #dist.sharding<@mesh, [{}, {"tp"}, {}, {}]>
// CHECK-DAG: nn.parameter @bias_a {{.*}} sharding #dist.sharding<@mesh, [{"tp"}, {}, {}]>
// CHECK-DAG: nn.parameter @b {{.*}} sharding #dist.sharding<@mesh, [{}, {"tp"}, {}]>
// CHECK-DAG: nn.parameter @c {{.*}} sharding #dist.sharding<@mesh, [{}, {"tp"}, {}]>
// CHECK-DAG: nn.parameter @d {{.*}} sharding #dist.sharding<@mesh, [{"tp"}, {}, {}, {}]>
// CHECK-DAG: nn.parameter @bias_d {{.*}} sharding #dist.sharding<@mesh, [{}]>
// CHECK-DAG: nn.parameter @norm_e {{.*}} sharding #dist.sharding<@mesh, [{}]>
// CHECK-DAG: nn.parameter @e {{.*}} sharding #dist.sharding<@mesh, [{}, {"tp"}]>
// CHECK-DAG: nn.parameter @bias_e {{.*}} sharding #dist.sharding<@mesh, [{"tp"}]>
// CHECK-DAG: nn.parameter @f {{.*}} sharding #dist.sharding<@mesh, [{"tp"}, {}]>
// CHECK-DAG: nn.parameter @bias_f {{.*}} sharding #dist.sharding<@mesh, [{}]>
nn.parameter @table : tensor<256x128xf32> init<mean = 0.0, std = 0.02>
nn.parameter @norm_a : tensor<128xf32> init<mean = 1.0, std = 0.0>
nn.parameter @shift_a : tensor<128xf32> init<mean = 0.0, std = 0.0>
nn.parameter @a : tensor<128x4x1x32xf32> init<mean = 0.0, std = 0.02>
nn.parameter @bias_a : tensor<4x1x32xf32> init<mean = 0.0, std = 0.0>
nn.parameter @b : tensor<128x4x32xf32> init<mean = 0.0, std = 0.02>
nn.parameter @c : tensor<128x4x32xf32> init<mean = 0.0, std = 0.02>
nn.parameter @d : tensor<4x1x32x128xf32> init<mean = 0.0, std = 0.02>
nn.parameter @bias_d : tensor<128xf32> init<mean = 0.0, std = 0.0>
nn.parameter @norm_e : tensor<128xf32> init<mean = 1.0, std = 0.0>
nn.parameter @shift_e : tensor<128xf32> init<mean = 0.0, std = 0.0>
nn.parameter @e : tensor<128x512xf32> init<mean = 0.0, std = 0.02>
nn.parameter @bias_e : tensor<512xf32> init<mean = 0.0, std = 0.0>
nn.parameter @f : tensor<512x128xf32> init<mean = 0.0, std = 0.02>
nn.parameter @bias_f : tensor<128xf32> init<mean = 0.0, std = 0.0>

// CHECK-LABEL: func.func @loss
func.func @loss(%tokens: tensor<2x128xi32>, %targets: tensor<2x128xi32>) -> (tensor<f32>, tensor<f32>) {
  %table = nn.read @table value : tensor<256x128xf32>
  %x = nn.embedding %table, %tokens : (tensor<256x128xf32>, tensor<2x128xi32>) -> tensor<2x128x128xf32>

  // Attention: each rank has half of the heads, and nothing moves until the
  // partial sums of the closing matmul are added up, once.
  // CHECK: nn.layer_norm {{.*}} -> (tensor<2x128x128xf32, #dist.sharding<@mesh, [{}, {}, {}]>>,
  // CHECK-NOT: dist.reshard
  // CHECK: nn.attention {{.*}} -> (tensor<2x128x4x1x32xf32, #dist.sharding<@mesh, [{}, {}, {"tp"}, {}, {}]>>,
  // CHECK-NOT: dist.reshard
  // CHECK: nn.matmul {{.*}} "bsgrd,grdh->bsh"
  // CHECK-NEXT: dist.reshard {{.*}} [{}, {}, {}], partial = {"tp"}>> -> tensor<2x128x128xf32, #dist.sharding<@mesh, [{}, {}, {}]>>
  %norm_a = nn.read @norm_a value {nn.layer = 0} : tensor<128xf32>
  %shift_a = nn.read @shift_a value {nn.layer = 0} : tensor<128xf32>
  %n:3 = nn.layer_norm %x, %norm_a, %shift_a epsilon 1.0e-05 {nn.layer = 0} : (tensor<2x128x128xf32>, tensor<128xf32>, tensor<128xf32>) -> (tensor<2x128x128xf32>, tensor<2x128xf32>, tensor<2x128xf32>)
  %a = nn.read @a value {nn.layer = 0} : tensor<128x4x1x32xf32>
  %q0 = nn.matmul %n#0, %a "bsh,hgrd->bsgrd" {nn.layer = 0} : (tensor<2x128x128xf32>, tensor<128x4x1x32xf32>) -> tensor<2x128x4x1x32xf32>
  %bias_a = nn.read @bias_a value {nn.layer = 0} : tensor<4x1x32xf32>
  %bq = nn.broadcast %bias_a dims [2, 3, 4] {nn.layer = 0} : tensor<4x1x32xf32> -> tensor<2x128x4x1x32xf32>
  %q = nn.add %q0, %bq {nn.layer = 0} : tensor<2x128x4x1x32xf32>
  %b = nn.read @b value {nn.layer = 0} : tensor<128x4x32xf32>
  %k = nn.matmul %n#0, %b "bsh,hgd->bsgd" {nn.layer = 0} : (tensor<2x128x128xf32>, tensor<128x4x32xf32>) -> tensor<2x128x4x32xf32>
  %c = nn.read @c value {nn.layer = 0} : tensor<128x4x32xf32>
  %v = nn.matmul %n#0, %c "bsh,hgd->bsgd" {nn.layer = 0} : (tensor<2x128x128xf32>, tensor<128x4x32xf32>) -> tensor<2x128x4x32xf32>
  %o:2 = nn.attention %q, %k, %v scale 0.17 {nn.layer = 0} : (tensor<2x128x4x1x32xf32>, tensor<2x128x4x32xf32>, tensor<2x128x4x32xf32>) -> (tensor<2x128x4x1x32xf32>, tensor<2x4x1x128xf32>)
  %d = nn.read @d value {nn.layer = 0} : tensor<4x1x32x128xf32>
  %p0 = nn.matmul %o#0, %d "bsgrd,grdh->bsh" {nn.layer = 0} : (tensor<2x128x4x1x32xf32>, tensor<4x1x32x128xf32>) -> tensor<2x128x128xf32>
  %bias_d = nn.read @bias_d value {nn.layer = 0} : tensor<128xf32>
  %bp = nn.broadcast %bias_d dims [2] {nn.layer = 0} : tensor<128xf32> -> tensor<2x128x128xf32>
  %p = nn.add %p0, %bp {nn.layer = 0} : tensor<2x128x128xf32>
  %y = nn.add %x, %p {nn.layer = 0} : tensor<2x128x128xf32>

  // The MLP: the same form.
  // CHECK: nn.layer_norm {{.*}} -> (tensor<2x128x128xf32, #dist.sharding<@mesh, [{}, {}, {}]>>,
  // CHECK-NOT: dist.reshard
  // CHECK: nn.gelu {{.*}} #dist.sharding<@mesh, [{}, {}, {"tp"}]>>
  // CHECK-NOT: dist.reshard
  // CHECK: nn.matmul {{.*}} "bsf,fh->bsh"
  // CHECK-NEXT: dist.reshard {{.*}} [{}, {}, {}], partial = {"tp"}>> -> tensor<2x128x128xf32, #dist.sharding<@mesh, [{}, {}, {}]>>
  // CHECK-NOT: dist.reshard {{.*}}nn.layer
  // CHECK: return
  %norm_e = nn.read @norm_e value {nn.layer = 0} : tensor<128xf32>
  %shift_e = nn.read @shift_e value {nn.layer = 0} : tensor<128xf32>
  %m:3 = nn.layer_norm %y, %norm_e, %shift_e epsilon 1.0e-05 {nn.layer = 0} : (tensor<2x128x128xf32>, tensor<128xf32>, tensor<128xf32>) -> (tensor<2x128x128xf32>, tensor<2x128xf32>, tensor<2x128xf32>)
  %e = nn.read @e value {nn.layer = 0} : tensor<128x512xf32>
  %u0 = nn.matmul %m#0, %e "bsh,hf->bsf" {nn.layer = 0} : (tensor<2x128x128xf32>, tensor<128x512xf32>) -> tensor<2x128x512xf32>
  %bias_e = nn.read @bias_e value {nn.layer = 0} : tensor<512xf32>
  %bu = nn.broadcast %bias_e dims [2] {nn.layer = 0} : tensor<512xf32> -> tensor<2x128x512xf32>
  %u = nn.add %u0, %bu {nn.layer = 0} : tensor<2x128x512xf32>
  %g = nn.gelu %u tanh {nn.layer = 0} : tensor<2x128x512xf32>
  %f = nn.read @f value {nn.layer = 0} : tensor<512x128xf32>
  %w0 = nn.matmul %g, %f "bsf,fh->bsh" {nn.layer = 0} : (tensor<2x128x512xf32>, tensor<512x128xf32>) -> tensor<2x128x128xf32>
  %bias_f = nn.read @bias_f value {nn.layer = 0} : tensor<128xf32>
  %bw = nn.broadcast %bias_f dims [2] {nn.layer = 0} : tensor<128xf32> -> tensor<2x128x128xf32>
  %w = nn.add %w0, %bw {nn.layer = 0} : tensor<2x128x128xf32>
  %z = nn.add %y, %w {nn.layer = 0} : tensor<2x128x128xf32>

  %logits = nn.matmul %z, %table "bsh,vh->bsv" : (tensor<2x128x128xf32>, tensor<256x128xf32>) -> tensor<2x128x256xf32>
  %square = nn.mul %logits, %logits : tensor<2x128x256xf32>
  %loss = nn.reduce sum %square dims [0, 1, 2] : tensor<2x128x256xf32> -> tensor<f32>
  %valid = nn.valid %targets ignore -100 : tensor<2x128xi32> -> tensor<2x128xf32>
  %count = nn.reduce sum %valid dims [0, 1] : tensor<2x128xf32> -> tensor<f32>
  return %loss, %count : tensor<f32>, tensor<f32>
}

// One rank's layer: two all-reduces forward and two backward, each of one
// hidden activation, and no other communication.
// LOCAL-LABEL: func.func @forward_0
// LOCAL-COUNT-2: dist.all_reduce {{.*}} on @mesh["tp"] sum {nn.layer = 0 : i64} : tensor<2x128x128xf32>
// LOCAL: return
// LOCAL-LABEL: func.func @backward_0
// LOCAL-COUNT-2: dist.all_reduce {{.*}} on @mesh["tp"] sum {nn.layer = 0 : i64} : tensor<2x128x128xf32>
// LOCAL: return
// LOCAL-LABEL: func.func @reduce_0
