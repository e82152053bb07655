// Each phase verifies what the one before has left: what is to be warned of is
// found again, and said once.

// RUN: plaitc %s --seq 5 --global-batch 2 --micro-batch 2 -o %t.plan 2>&1 | FileCheck %s
//     CHECK: plaitc: warning: {{.*}}untrained.mlir:[[# @LINE + 6]]:3: @other is not trained: the loss that @loss returns does not depend on it
// CHECK-NOT: warning
//     CHECK: wrote

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @other : tensor<8xf32> init<mean = 0.0, std = 0.5>
  func.func @loss(%tokens: tensor<2x5xi32>, %targets: tensor<2x5xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x5xi32>) -> tensor<2x5x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" {nn.layer = 0 : i64} : (tensor<2x5x8xf32>, tensor<16x8xf32>) -> tensor<2x5x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x5x16xf32>, tensor<2x5xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}
