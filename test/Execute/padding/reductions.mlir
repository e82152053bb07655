// Maxima, exponentials, quotients and logarithms along the sequence: none of
// their padding is zero, some of it is not a number.
module attributes {plait.model = {layers = 1 : i64, model_type = "padding", name = "reductions", vocab = 13 : i64}} {
  nn.parameter @embed : tensor<13x6xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @b : tensor<6xf32> init<mean = -1.0, std = 0.3>
  func.func @loss(%tokens: tensor<2x9xi32>, %targets: tensor<2x9xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<13x6xf32>
    %x = nn.embedding %e, %tokens : (tensor<13x6xf32>, tensor<2x9xi32>) -> tensor<2x9x6xf32>
    %b = nn.read @b value {nn.layer = 0} : tensor<6xf32>
    %bias = nn.broadcast %b dims [2] {nn.layer = 0} : tensor<6xf32> -> tensor<2x9x6xf32>
    %a = nn.add %x, %bias {nn.layer = 0} : tensor<2x9x6xf32>
    %top = nn.reduce max %a dims [1] {nn.layer = 0} : tensor<2x9x6xf32> -> tensor<2x6xf32>
    %tops = nn.broadcast %top dims [0, 2] {nn.layer = 0} : tensor<2x6xf32> -> tensor<2x9x6xf32>
    %c = nn.sub %a, %tops {nn.layer = 0} : tensor<2x9x6xf32>
    %p = nn.exp %c {nn.layer = 0} : tensor<2x9x6xf32>
    %n = nn.reduce sum %p dims [1] {nn.layer = 0} : tensor<2x9x6xf32> -> tensor<2x6xf32>
    %ns = nn.broadcast %n dims [0, 2] {nn.layer = 0} : tensor<2x6xf32> -> tensor<2x9x6xf32>
    %q = nn.div %p, %ns {nn.layer = 0} : tensor<2x9x6xf32>
    %sq = nn.mul %x, %x {nn.layer = 0} : tensor<2x9x6xf32>
    %r = nn.div %a, %p {nn.layer = 0} : tensor<2x9x6xf32>
    %t = nn.mul %q, %r {nn.layer = 0} : tensor<2x9x6xf32>
    %l = nn.log %sq {nn.layer = 0} : tensor<2x9x6xf32>
    %m = nn.reduce sum %l dims [1] {nn.layer = 0} : tensor<2x9x6xf32> -> tensor<2x6xf32>
    %ms = nn.broadcast %m dims [0, 2] {nn.layer = 0} : tensor<2x6xf32> -> tensor<2x9x6xf32>
    %msmall = nn.scale %ms by 0.01 {nn.layer = 0} : tensor<2x9x6xf32>
    %k = nn.matmul %t, %a "bsh,bsg->bhg" {nn.layer = 0} : (tensor<2x9x6xf32>, tensor<2x9x6xf32>) -> tensor<2x6x6xf32>
    %ksmall = nn.scale %k by 0.1 {nn.layer = 0} : tensor<2x6x6xf32>
    %v = nn.matmul %a, %ksmall "bsh,bhg->bsg" {nn.layer = 0} : (tensor<2x9x6xf32>, tensor<2x6x6xf32>) -> tensor<2x9x6xf32>
    %z = nn.add %v, %msmall {nn.layer = 0} : tensor<2x9x6xf32>
    %logits = nn.matmul %z, %e "bsh,vh->bsv" : (tensor<2x9x6xf32>, tensor<13x6xf32>) -> tensor<2x9x13xf32>
    %loss, %count = nn.softmax_cross_entropy %logits, %targets ignore 3 : (tensor<2x9x13xf32>, tensor<2x9xi32>) -> (tensor<f32>, tensor<f32>)
    return %loss, %count : tensor<f32>, tensor<f32>
  }
}
