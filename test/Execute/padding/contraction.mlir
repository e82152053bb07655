// A sum over positions of what an embedding fetched: ids of padding are 0,
// and name a row.
module attributes {plait.model = {layers = 1 : i64, model_type = "padding", name = "contraction", vocab = 13 : i64}} {
  nn.parameter @embed : tensor<13x6xf32> init<mean = 0.0, std = 0.5> decay
  func.func @loss(%tokens: tensor<2x9xi32>, %targets: tensor<2x9xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<13x6xf32>
    %x = nn.embedding %e, %tokens : (tensor<13x6xf32>, tensor<2x9xi32>) -> tensor<2x9x6xf32>
    %y = nn.tanh %x {nn.layer = 0} : tensor<2x9x6xf32>
    %g = nn.matmul %x, %y "bsh,bsg->bhg" {nn.layer = 0} : (tensor<2x9x6xf32>, tensor<2x9x6xf32>) -> tensor<2x6x6xf32>
    %z = nn.matmul %x, %g "bsh,bhg->bsg" {nn.layer = 0} : (tensor<2x9x6xf32>, tensor<2x6x6xf32>) -> tensor<2x9x6xf32>
    %logits = nn.matmul %z, %e "bsh,vh->bsv" : (tensor<2x9x6xf32>, tensor<13x6xf32>) -> tensor<2x9x13xf32>
    %loss, %count = nn.softmax_cross_entropy %logits, %targets ignore 3 : (tensor<2x9x13xf32>, tensor<2x9xi32>) -> (tensor<f32>, tensor<f32>)
    return %loss, %count : tensor<f32>, tensor<f32>
  }
}
