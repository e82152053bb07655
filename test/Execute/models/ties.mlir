// A maximum over the sequence and a minimum of two values, between numbers many
// of which are equal; what is compared is computed in a layer.
module attributes {plait.model = {layers = 2 : i64, model_type = "test", name = "ties", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @bias : tensor<8xf32> init<mean = 0.0, std = 0.5>
  nn.parameter @w : tensor<8x8xf32> init<mean = 0.0, std = 0.5> decay
  func.func @loss(%tokens: tensor<4x6xi32>, %targets: tensor<4x6xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<4x6xi32>) -> tensor<4x6x8xf32>
    %b = nn.read @bias value {nn.layer = 0 : i64} : tensor<8xf32>
    %spread = nn.broadcast %b dims [2] {nn.layer = 0 : i64} : tensor<8xf32> -> tensor<4x6x8xf32>
    %y = nn.add %x, %spread {nn.layer = 0 : i64} : tensor<4x6x8xf32>
    %g = nn.gelu %y {nn.layer = 0 : i64} : tensor<4x6x8xf32>
    %top = nn.reduce max %g dims [1] {nn.layer = 0 : i64} : tensor<4x6x8xf32> -> tensor<4x8xf32>
    %w = nn.read @w value {nn.layer = 0 : i64} : tensor<8x8xf32>
    %p = nn.matmul %top, %w "bh,hg->bg" {nn.layer = 0 : i64} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %rows = nn.broadcast %p dims [0, 2] {nn.layer = 0 : i64} : tensor<4x8xf32> -> tensor<4x6x8xf32>
    %z = nn.add %x, %rows {nn.layer = 0 : i64} : tensor<4x6x8xf32>
    %t = nn.tanh %z {nn.layer = 1 : i64} : tensor<4x6x8xf32>
    %quarter = nn.fill 0.25 {nn.layer = 1 : i64} : tensor<4x6x8xf32>
    %clipped = nn.min %x, %quarter {nn.layer = 1 : i64} : tensor<4x6x8xf32>
    %m = nn.add %t, %clipped {nn.layer = 1 : i64} : tensor<4x6x8xf32>
    %highest = nn.reduce max %m dims [2] {nn.layer = 1 : i64} : tensor<4x6x8xf32> -> tensor<4x6xf32>
    %columns = nn.broadcast %highest dims [0, 1] {nn.layer = 1 : i64} : tensor<4x6xf32> -> tensor<4x6x8xf32>
    %out = nn.mul %m, %columns {nn.layer = 1 : i64} : tensor<4x6x8xf32>
    %logits = nn.matmul %out, %e "bsh,vh->bsv" : (tensor<4x6x8xf32>, tensor<16x8xf32>) -> tensor<4x6x16xf32>
    %sum, %count = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<4x6x16xf32>, tensor<4x6xi32>) -> (tensor<f32>, tensor<f32>)
    return %sum, %count : tensor<f32>, tensor<f32>
  }
}
