// What positions matter for, and what mixes them: grouped attention in a sliding
// window with rotary embedding, a softmax over all positions, and their mean.
module attributes {plait.model = {layers = 2 : i64, model_type = "test", name = "positions", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @q : tensor<8x2x4x4xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @k : tensor<8x2x4xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @v : tensor<8x2x4xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @o : tensor<2x4x4x8xf32> init<mean = 0.0, std = 0.5> decay
  func.func @loss(%tokens: tensor<4x6xi32>, %targets: tensor<4x6xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<4x6xi32>) -> tensor<4x6x8xf32>
    %wq = nn.read @q value {nn.layer = 0 : i64} : tensor<8x2x4x4xf32>
    %wk = nn.read @k value {nn.layer = 0 : i64} : tensor<8x2x4xf32>
    %wv = nn.read @v value {nn.layer = 0 : i64} : tensor<8x2x4xf32>
    %wo = nn.read @o value {nn.layer = 0 : i64} : tensor<2x4x4x8xf32>
    %q0 = nn.matmul %x, %wq "bsh,hgrd->bsgrd" {nn.layer = 0 : i64} : (tensor<4x6x8xf32>, tensor<8x2x4x4xf32>) -> tensor<4x6x2x4x4xf32>
    %k0 = nn.matmul %x, %wk "bsh,hgd->bsgd" {nn.layer = 0 : i64} : (tensor<4x6x8xf32>, tensor<8x2x4xf32>) -> tensor<4x6x2x4xf32>
    %v = nn.matmul %x, %wv "bsh,hgd->bsgd" {nn.layer = 0 : i64} : (tensor<4x6x8xf32>, tensor<8x2x4xf32>) -> tensor<4x6x2x4xf32>
    %q = nn.rope %q0 theta 100.0 {nn.layer = 0 : i64} : tensor<4x6x2x4x4xf32>
    %k = nn.rope %k0 theta 100.0 {nn.layer = 0 : i64} : tensor<4x6x2x4xf32>
    %a, %lse = nn.attention %q, %k, %v scale 0.5 window 3 {nn.layer = 0 : i64} : (tensor<4x6x2x4x4xf32>, tensor<4x6x2x4xf32>, tensor<4x6x2x4xf32>) -> (tensor<4x6x2x4x4xf32>, tensor<4x2x4x6xf32>)
    %p = nn.matmul %a, %wo "bsgrd,grdh->bsh" {nn.layer = 0 : i64} : (tensor<4x6x2x4x4xf32>, tensor<2x4x4x8xf32>) -> tensor<4x6x8xf32>
    %y = nn.add %x, %p {nn.layer = 0 : i64} : tensor<4x6x8xf32>
    %products = nn.matmul %y, %y "bsh,bth->bst" {nn.layer = 1 : i64} : (tensor<4x6x8xf32>, tensor<4x6x8xf32>) -> tensor<4x6x6xf32>
    %scores = nn.scale %products by 0.25 {nn.layer = 1 : i64} : tensor<4x6x6xf32>
    %top = nn.reduce max %scores dims [2] {nn.layer = 1 : i64} : tensor<4x6x6xf32> -> tensor<4x6xf32>
    %shift = nn.stop_gradient %top {nn.layer = 1 : i64} : tensor<4x6xf32>
    %tops = nn.broadcast %shift dims [0, 1] {nn.layer = 1 : i64} : tensor<4x6xf32> -> tensor<4x6x6xf32>
    %centred = nn.sub %scores, %tops {nn.layer = 1 : i64} : tensor<4x6x6xf32>
    %powers = nn.exp %centred {nn.layer = 1 : i64} : tensor<4x6x6xf32>
    %total = nn.reduce sum %powers dims [2] {nn.layer = 1 : i64} : tensor<4x6x6xf32> -> tensor<4x6xf32>
    %totals = nn.broadcast %total dims [0, 1] {nn.layer = 1 : i64} : tensor<4x6xf32> -> tensor<4x6x6xf32>
    %softmax = nn.div %powers, %totals {nn.layer = 1 : i64} : tensor<4x6x6xf32>
    %mixed = nn.matmul %softmax, %y "bst,bth->bsh" {nn.layer = 1 : i64} : (tensor<4x6x6xf32>, tensor<4x6x8xf32>) -> tensor<4x6x8xf32>
    %sum = nn.reduce sum %y dims [1] {nn.layer = 1 : i64} : tensor<4x6x8xf32> -> tensor<4x8xf32>
    %mean = nn.scale %sum by 0.16666666666666666 {nn.layer = 1 : i64} : tensor<4x8xf32>
    %bent = nn.tanh %mean {nn.layer = 1 : i64} : tensor<4x8xf32>
    %rows = nn.broadcast %bent dims [0, 2] {nn.layer = 1 : i64} : tensor<4x8xf32> -> tensor<4x6x8xf32>
    %z = nn.add %y, %mixed {nn.layer = 1 : i64} : tensor<4x6x8xf32>
    %out = nn.add %z, %rows {nn.layer = 1 : i64} : tensor<4x6x8xf32>
    %logits = nn.matmul %out, %e "bsh,vh->bsv" : (tensor<4x6x8xf32>, tensor<16x8xf32>) -> tensor<4x6x16xf32>
    %loss, %count = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<4x6x16xf32>, tensor<4x6xi32>) -> (tensor<f32>, tensor<f32>)
    return %loss, %count : tensor<f32>, tensor<f32>
  }
}
