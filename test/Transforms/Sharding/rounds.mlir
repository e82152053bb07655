// RUN: plait-opt %s --plait-configure='sequence-parallel=true tp-comm-overlap=4' --nn-decompose=early=true --dist-assign-shardings | FileCheck %s
// RUN: plait-opt %s --plait-configure='sequence-parallel=true tp-comm-overlap=4' --nn-decompose=early=true --dist-assign-shardings --dist-partition | FileCheck %s --check-prefix=LOCAL
// RUN: plait-opt %s --plait-configure='sequence-parallel=true tp-comm-overlap=2' --nn-decompose=early=true --dist-assign-shardings | FileCheck %s --check-prefix=SEQUENCES
// RUN: plait-opt %s --plait-configure='sequence-parallel=true tp-comm-overlap=6' --nn-decompose=early=true --dist-assign-shardings | FileCheck %s --check-prefix=SEQUENCES
// RUN: plait-opt %s --plait-configure='tp-comm-overlap=4' --nn-decompose=early=true --dist-assign-shardings | FileCheck %s --check-prefix=SEQUENCES
// RUN: sed 's/tensor<2x16x/tensor<2x12x/g; s/tensor<2x16xi32>/tensor<2x12xi32>/g' %s > %t.mlir
// RUN: plait-opt %t.mlir --plait-configure='sequence-parallel=true tp-comm-overlap=6' --nn-decompose=early=true --dist-assign-shardings | FileCheck %s --check-prefix=THREE

// What tp exchanges between matmuls in four pieces deals out the 16 positions of each
// of two sequences in two rounds. In two pieces those are the sequences; six are none
// of 16 positions, but of 12 they are; without sequence parallelism nothing is split.
dist.mesh @mesh ["tp"] = [2]
nn.parameter @table : tensor<64x192xf32> init<mean = 0.0, std = 0.02>
nn.parameter @norm : tensor<192xf32> init<mean = 1.0, std = 0.0>
nn.parameter @up : tensor<192x512xf32> init<mean = 0.0, std = 0.02>
nn.parameter @down : tensor<512x192xf32> init<mean = 0.0, std = 0.02>

// CHECK: dist.reshard {{.*}} -> tensor<2x16x64xf32, #dist.sharding<@mesh, [{}, {2, "tp"}, {}]>>
// CHECK: nn.reduce sum {{.*}} -> tensor<f32, #dist.sharding<@mesh, [], partial = {"tp"}>>
// THREE: dist.reshard {{.*}} -> tensor<2x12x64xf32, #dist.sharding<@mesh, [{}, {3, "tp"}, {}]>>
// SEQUENCES-NOT: {{[0-9], "tp"}}
// LOCAL: dist.reduce_scatter {{.*}} dim 1 rounds 2 : tensor<2x16x64xf32> -> tensor<2x8x64xf32>
// LOCAL: dist.slice %arg1 on @mesh["tp"] dim 1 rounds 2 : tensor<2x16xi32> -> tensor<2x8xi32>
func.func @loss(%tokens: tensor<2x16xi32>, %targets: tensor<2x16xi32>) -> (tensor<f32>, tensor<f32>) {
  %table = nn.read @table value : tensor<64x192xf32>
  %x = nn.embedding %table, %tokens : (tensor<64x192xf32>, tensor<2x16xi32>) -> tensor<2x16x192xf32>
  %w = nn.read @norm value {nn.layer = 0} : tensor<192xf32>
  %n:2 = nn.rms_norm %x, %w epsilon 1.0e-05 {nn.layer = 0} : (tensor<2x16x192xf32>, tensor<192xf32>) -> (tensor<2x16x192xf32>, tensor<2x16xf32>)
  %up = nn.read @up value {nn.layer = 0} : tensor<192x512xf32>
  %a = nn.matmul %n#0, %up "bsh,hf->bsf" {nn.layer = 0} : (tensor<2x16x192xf32>, tensor<192x512xf32>) -> tensor<2x16x512xf32>
  %s = nn.silu %a {nn.layer = 0} : tensor<2x16x512xf32>
  %down = nn.read @down value {nn.layer = 0} : tensor<512x192xf32>
  %b = nn.matmul %s, %down "bsf,fh->bsh" {nn.layer = 0} : (tensor<2x16x512xf32>, tensor<512x192xf32>) -> tensor<2x16x192xf32>
  %y = nn.add %x, %b {nn.layer = 0} : tensor<2x16x192xf32>
  %logits = nn.matmul %y, %table "bsh,vh->bsv" : (tensor<2x16x192xf32>, tensor<64x192xf32>) -> tensor<2x16x64xf32>
  %loss, %count = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x16x64xf32>, tensor<2x16xi32>) -> (tensor<f32>, tensor<f32>)
  return %loss, %count : tensor<f32>, tensor<f32>
}
