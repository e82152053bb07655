// A model may mix the rows of a microbatch. The reference computes on the rows that
// the plan's replicas have at the same time.

// RUN: plaitc %s --mesh dp=2 --no-plan --micro-batch 2 --seq 5 --global-batch 8 -o %t.plan
// RUN: plait-run %t.plan --check | FileCheck %s
// CHECK: gradient norm {{.*}}: passed

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5> decay
  func.func @loss(%tokens: tensor<4x5xi32>, %targets: tensor<4x5xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<4x5xi32>) -> tensor<4x5x8xf32>
    %g = nn.matmul %x, %x "bsh,bsg->hg" {nn.layer = 0 : i64} : (tensor<4x5x8xf32>, tensor<4x5x8xf32>) -> tensor<8x8xf32>
    %z = nn.matmul %x, %g "bsh,hg->bsg" {nn.layer = 0 : i64} : (tensor<4x5x8xf32>, tensor<8x8xf32>) -> tensor<4x5x8xf32>
    %logits = nn.matmul %z, %e "bsh,vh->bsv" : (tensor<4x5x8xf32>, tensor<16x8xf32>) -> tensor<4x5x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<4x5x16xf32>, tensor<4x5xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}
