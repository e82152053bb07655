// RUN: plait-opt %s --plait-verify-phase | FileCheck %s
// RUN: plait-opt %s --plait-import | FileCheck %s

// A loss function as it should be. A table may have more rows than there are ids,
// positions fewer than the table has rows, and a parameter may reach the loss
// behind an op without a gradient. The copy to compute with is read as well.
// CHECK: func.func @loss
module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<20x8xf32> init<mean = 0.0, std = 0.5>
  nn.parameter @positions : tensor<9x8xf32> init<mean = 0.0, std = 0.5>
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<20x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<20x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %p = nn.read @positions compute : tensor<9x8xbf16>
    %ids = nn.iota along 1 : tensor<2x4xi32>
    %narrow = nn.embedding %p, %ids : (tensor<9x8xbf16>, tensor<2x4xi32>) -> tensor<2x4x8xbf16>
    %wide = nn.cast %narrow : tensor<2x4x8xbf16> -> tensor<2x4x8xf32>
    %fixed = nn.stop_gradient %wide : tensor<2x4x8xf32>
    %y = nn.add %x, %fixed : tensor<2x4x8xf32>
    %logits = nn.matmul %y, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<20x8xf32>) -> tensor<2x4x20xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x20xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}
