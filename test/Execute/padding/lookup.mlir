// A table of positions whose rows are split unevenly: no id names its padding.
module attributes {plait.model = {layers = 1 : i64, model_type = "padding", name = "lookup", vocab = 13 : i64}} {
  nn.parameter @embed : tensor<13x6xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @positions : tensor<9x6xf32> init<mean = 0.0, std = 0.5>
  func.func @loss(%tokens: tensor<2x9xi32>, %targets: tensor<2x9xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<13x6xf32>
    %x = nn.embedding %e, %tokens : (tensor<13x6xf32>, tensor<2x9xi32>) -> tensor<2x9x6xf32>
    %t = nn.read @positions value : tensor<9x6xf32>
    %i = nn.iota along 1 : tensor<2x9xi32>
    %r = nn.embedding %t, %i : (tensor<9x6xf32>, tensor<2x9xi32>) -> tensor<2x9x6xf32>
    %a = nn.add %x, %r : tensor<2x9x6xf32>
    %y = nn.silu %a {nn.layer = 0} : tensor<2x9x6xf32>
    %z = nn.add %x, %y {nn.layer = 0} : tensor<2x9x6xf32>
    %logits = nn.matmul %z, %e "bsh,vh->bsv" : (tensor<2x9x6xf32>, tensor<13x6xf32>) -> tensor<2x9x13xf32>
    %loss, %count = nn.softmax_cross_entropy %logits, %targets ignore 3 : (tensor<2x9x13xf32>, tensor<2x9xi32>) -> (tensor<f32>, tensor<f32>)
    return %loss, %count : tensor<f32>, tensor<f32>
  }
}
