// The gradient of a parameter along the sequence: padding is not in the norm.
module attributes {plait.model = {layers = 1 : i64, model_type = "padding", name = "parameter", vocab = 13 : i64}} {
  nn.parameter @embed : tensor<13x6xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @p : tensor<9xf32> init<mean = 0.0, std = 0.5>
  func.func @loss(%tokens: tensor<2x9xi32>, %targets: tensor<2x9xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<13x6xf32>
    %x = nn.embedding %e, %tokens : (tensor<13x6xf32>, tensor<2x9xi32>) -> tensor<2x9x6xf32>
    %p = nn.read @p value {nn.layer = 0} : tensor<9xf32>
    %y = nn.tanh %x {nn.layer = 0} : tensor<2x9x6xf32>
    %w = nn.matmul %p, %x "s,bsh->bh" {nn.layer = 0} : (tensor<9xf32>, tensor<2x9x6xf32>) -> tensor<2x6xf32>
    %u = nn.broadcast %w dims [0, 2] {nn.layer = 0} : tensor<2x6xf32> -> tensor<2x9x6xf32>
    %z = nn.add %y, %u {nn.layer = 0} : tensor<2x9x6xf32>
    %logits = nn.matmul %z, %e "bsh,vh->bsv" : (tensor<2x9x6xf32>, tensor<13x6xf32>) -> tensor<2x9x13xf32>
    %loss, %count = nn.softmax_cross_entropy %logits, %targets ignore 3 : (tensor<2x9x13xf32>, tensor<2x9xi32>) -> (tensor<f32>, tensor<f32>)
    return %loss, %count : tensor<f32>, tensor<f32>
  }
}
