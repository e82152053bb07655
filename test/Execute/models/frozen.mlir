// Four parameters have no gradient: a table, a matrix in the middle of what is
// trained, a single number, and one that nobody reads.
module attributes {plait.model = {layers = 2 : i64, model_type = "test", name = "frozen", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @up : tensor<8x8xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @fixed : tensor<8x8xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @number : tensor<f32> init<mean = 0.5, std = 0.0>
  nn.parameter @unread : tensor<3x8xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @head : tensor<16x8xf32> init<mean = 0.0, std = 0.5> decay
  func.func @loss(%tokens: tensor<4x6xi32>, %targets: tensor<4x6xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %rows = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<4x6xi32>) -> tensor<4x6x8xf32>
    %x = nn.stop_gradient %rows : tensor<4x6x8xf32>
    %up = nn.read @up value {nn.layer = 0 : i64} : tensor<8x8xf32>
    %a = nn.matmul %x, %up "bsh,hf->bsf" {nn.layer = 0 : i64} : (tensor<4x6x8xf32>, tensor<8x8xf32>) -> tensor<4x6x8xf32>
    %b = nn.silu %a {nn.layer = 0 : i64} : tensor<4x6x8xf32>
    %read = nn.read @fixed value {nn.layer = 1 : i64} : tensor<8x8xf32>
    %fixed = nn.stop_gradient %read {nn.layer = 1 : i64} : tensor<8x8xf32>
    %c = nn.matmul %b, %fixed "bsf,fh->bsh" {nn.layer = 1 : i64} : (tensor<4x6x8xf32>, tensor<8x8xf32>) -> tensor<4x6x8xf32>
    %n = nn.read @number value {nn.layer = 1 : i64} : tensor<f32>
    %number = nn.stop_gradient %n {nn.layer = 1 : i64} : tensor<f32>
    %all = nn.broadcast %number dims [] {nn.layer = 1 : i64} : tensor<f32> -> tensor<4x6x8xf32>
    %d = nn.mul %c, %all {nn.layer = 1 : i64} : tensor<4x6x8xf32>
    %y = nn.add %x, %d {nn.layer = 1 : i64} : tensor<4x6x8xf32>
    %head = nn.read @head value : tensor<16x8xf32>
    %logits = nn.matmul %y, %head "bsh,vh->bsv" : (tensor<4x6x8xf32>, tensor<16x8xf32>) -> tensor<4x6x16xf32>
    %sum, %count = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<4x6x16xf32>, tensor<4x6xi32>) -> (tensor<f32>, tensor<f32>)
    return %sum, %count : tensor<f32>, tensor<f32>
  }
}
