// Contractions whose innermost dimension is a batch dimension: no matrix has a
// dimension of stride 1. (Numbers are compared with PyTorch by
// test/Execute/random_models.py.)

// RUN: rm -rf %t && mkdir -p %t
// RUN: plaitc %s --micro-batch 2 --global-batch 2 --seq 3 -o %t/whole.plan
// RUN: plaitc %s --micro-batch 2 --global-batch 2 --seq 3 --mesh tp=2 --no-plan -o %t/split.plan
// RUN: head -c 64 /dev/zero > %t/tokens
// RUN: plait-run %t/split.plan --tokens %t/tokens --check | FileCheck %s
// CHECK: 0 of 3 gradients differ by more than {{.*}}: passed

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 5 : i64}} {
  nn.parameter @embed : tensor<5x4xf32> init<mean = 0.0, std = 0.5>
  nn.parameter @gate : tensor<4xf32> init<mean = 1.0, std = 0.5>
  nn.parameter @rows : tensor<3x4xf32> init<mean = 1.0, std = 0.5>
  func.func @loss(%tokens: tensor<2x3xi32>, %targets: tensor<2x3xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<5x4xf32>
    %g = nn.read @gate value : tensor<4xf32>
    %r = nn.read @rows value : tensor<3x4xf32>
    %x = nn.embedding %e, %tokens : (tensor<5x4xf32>, tensor<2x3xi32>) -> tensor<2x3x4xf32>
    %0 = nn.matmul %x, %g "bsh,h->bsh" : (tensor<2x3x4xf32>, tensor<4xf32>) -> tensor<2x3x4xf32>
    %1 = nn.matmul %r, %0 "sh,bsh->bsh" : (tensor<3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
    %2 = nn.matmul %1, %0 "bsh,bsh->sh" : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<3x4xf32>
    %3 = nn.broadcast %2 dims [1, 2] : tensor<3x4xf32> -> tensor<2x3x4xf32>
    %4 = nn.add %1, %3 : tensor<2x3x4xf32>
    %logits = nn.matmul %4, %e "bsh,vh->bsv" : (tensor<2x3x4xf32>, tensor<5x4xf32>) -> tensor<2x3x5xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x3x5xf32>, tensor<2x3xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}
