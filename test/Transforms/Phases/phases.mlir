// RUN: plait-opt %s --plait-end-phase=phase=shard | FileCheck %s --check-prefix=END
// RUN: plait-opt %s --plait-end-phase=phase=shard -o %t.mlir && not plait-opt %t.mlir --plait-begin-phase=phase=shard 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: plait-opt %s --plait-begin-phase=phase=shard --mlir-print-debuginfo --mlir-print-local-scope | FileCheck %s --check-prefix=BEGIN
// RUN: not plait-opt %s --plait-begin-phase=phase=stage 2>&1 | FileCheck %s --check-prefix=ORDER
// RUN: not plait-opt %s --plait-begin-phase=phase=shred 2>&1 | FileCheck %s --check-prefix=NAME
// RUN: plait-opt %s --nn-count-model-flops | FileCheck %s --check-prefix=FLOPS

// The name of a location is an attribute in IR that is written, and a location
// again when a phase begins.
// END: plait.phase = #plait.phase<shard, read = <>>
// END: nn.matmul {{.*}}plait.origin = "head"
// BEGIN-NOT: plait.origin
// BEGIN: nn.matmul {{.*}} loc("head"(

// TWICE: error: 'builtin.module' op is IR after phase shard, but phase shard expects that after import
// ORDER: error: 'builtin.module' op is IR after phase import, but phase stage expects that after shard
// NAME: error: phase is "shred", expected a name of a phase

// A forward and two backward matmuls of 2 · 16 · (2 · 4) · 8.
// FLOPS: plait.model_flops = 6.144000e+03 : f64
module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" {plait.origin = "head"} : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}
