// Values that skip a layer behind ops without gradients, a parameter that two
// layers share, and one that is read for its value alone in a third.
module attributes {plait.model = {layers = 3 : i64, model_type = "test", name = "stopped", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @shared : tensor<8x8xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @scale : tensor<8xf32> init<mean = 0.0, std = 0.5>
  nn.parameter @head : tensor<16x8xf32> init<mean = 0.0, std = 0.5> decay
  func.func @loss(%tokens: tensor<4x6xi32>, %targets: tensor<4x6xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<4x6xi32>) -> tensor<4x6x8xf32>
    %w0 = nn.read @shared value {nn.layer = 0 : i64} : tensor<8x8xf32>
    %a = nn.matmul %x, %w0 "bsh,hg->bsg" {nn.layer = 0 : i64} : (tensor<4x6x8xf32>, tensor<8x8xf32>) -> tensor<4x6x8xf32>
    %b = nn.tanh %a {nn.layer = 0 : i64} : tensor<4x6x8xf32>
    %fixed = nn.stop_gradient %x {nn.layer = 0 : i64} : tensor<4x6x8xf32>
    %zeros = nn.is_zero %x {nn.layer = 0 : i64} : tensor<4x6x8xf32>
    %s = nn.read @scale value {nn.layer = 1 : i64} : tensor<8xf32>
    %columns = nn.broadcast %s dims [2] {nn.layer = 1 : i64} : tensor<8xf32> -> tensor<4x6x8xf32>
    %c = nn.mul %b, %columns {nn.layer = 1 : i64} : tensor<4x6x8xf32>
    %w2 = nn.read @shared value {nn.layer = 2 : i64} : tensor<8x8xf32>
    %d = nn.matmul %fixed, %w2 "bsh,hg->bsg" {nn.layer = 2 : i64} : (tensor<4x6x8xf32>, tensor<8x8xf32>) -> tensor<4x6x8xf32>
    %f = nn.mul %c, %d {nn.layer = 2 : i64} : tensor<4x6x8xf32>
    %g = nn.add %f, %zeros {nn.layer = 2 : i64} : tensor<4x6x8xf32>
    %s2 = nn.read @scale value {nn.layer = 2 : i64} : tensor<8xf32>
    %s3 = nn.stop_gradient %s2 {nn.layer = 2 : i64} : tensor<8xf32>
    %again = nn.broadcast %s3 dims [2] {nn.layer = 2 : i64} : tensor<8xf32> -> tensor<4x6x8xf32>
    %h = nn.add %g, %again {nn.layer = 2 : i64} : tensor<4x6x8xf32>
    %head = nn.read @head value : tensor<16x8xf32>
    %logits = nn.matmul %h, %head "bsh,vh->bsv" : (tensor<4x6x8xf32>, tensor<16x8xf32>) -> tensor<4x6x16xf32>
    %sum, %count = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<4x6x16xf32>, tensor<4x6xi32>) -> (tensor<f32>, tensor<f32>)
    return %sum, %count : tensor<f32>, tensor<f32>
  }
}
