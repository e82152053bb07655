// A norm over one element, and weights whose dimensions are interleaved: of a
// position of their own, and in other orders than the products that read them.
module attributes {plait.model = {layers = 2 : i64, model_type = "test", name = "shapes", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @scale : tensor<1xf32> init<mean = 1.0, std = 0.2> decay
  nn.parameter @shift : tensor<1xf32> init<mean = 0.0, std = 0.2> decay
  nn.parameter @in : tensor<3x4x6x2x8xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @out : tensor<8x4x2x3xf32> init<mean = 0.0, std = 0.5> decay
  func.func @loss(%tokens: tensor<4x6xi32>, %targets: tensor<4x6xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<4x6xi32>) -> tensor<4x6x8xf32>
    %i = nn.read @in value {nn.layer = 0 : i64} : tensor<3x4x6x2x8xf32>
    %h = nn.matmul %x, %i "bsh,dgsrh->bsgrd" {nn.layer = 0 : i64} : (tensor<4x6x8xf32>, tensor<3x4x6x2x8xf32>) -> tensor<4x6x4x2x3xf32>
    %o = nn.read @out value {nn.layer = 0 : i64} : tensor<8x4x2x3xf32>
    %y = nn.matmul %h, %o "bsgrd,hgrd->bsh" {nn.layer = 0 : i64} : (tensor<4x6x4x2x3xf32>, tensor<8x4x2x3xf32>) -> tensor<4x6x8xf32>
    %mean = nn.reduce sum %y dims [2] {nn.layer = 1 : i64} : tensor<4x6x8xf32> -> tensor<4x6xf32>
    %thin = nn.broadcast %mean dims [0, 1] {nn.layer = 1 : i64} : tensor<4x6xf32> -> tensor<4x6x1xf32>
    %w = nn.read @scale value {nn.layer = 1 : i64} : tensor<1xf32>
    %b = nn.read @shift value {nn.layer = 1 : i64} : tensor<1xf32>
    %n, %m, %r = nn.layer_norm %thin, %w, %b epsilon 0.01 {nn.layer = 1 : i64} : (tensor<4x6x1xf32>, tensor<1xf32>, tensor<1xf32>) -> (tensor<4x6x1xf32>, tensor<4x6xf32>, tensor<4x6xf32>)
    %s = nn.reduce sum %n dims [1, 2] {nn.layer = 1 : i64} : tensor<4x6x1xf32> -> tensor<4xf32>
    %rows = nn.broadcast %s dims [0] {nn.layer = 1 : i64} : tensor<4xf32> -> tensor<4x6x8xf32>
    %z = nn.mul %y, %rows {nn.layer = 1 : i64} : tensor<4x6x8xf32>
    %k = nn.add %x, %z {nn.layer = 1 : i64} : tensor<4x6x8xf32>
    %logits = nn.matmul %k, %e "bsh,vh->bsv" : (tensor<4x6x8xf32>, tensor<16x8xf32>) -> tensor<4x6x16xf32>
    %sum, %count = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<4x6x16xf32>, tensor<4x6xi32>) -> (tensor<f32>, tensor<f32>)
    return %sum, %count : tensor<f32>, tensor<f32>
  }
}
