// A root mean square and a softmax by hand over five columns; some rank has
// nothing but padding.
module attributes {plait.model = {layers = 1 : i64, model_type = "padding", name = "hidden", vocab = 13 : i64}} {
  nn.parameter @embed : tensor<13x6xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @up : tensor<6x5xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @scale : tensor<5xf32> init<mean = 1.0, std = 0.2>
  nn.parameter @down : tensor<5x6xf32> init<mean = 0.0, std = 0.5> decay
  func.func @loss(%tokens: tensor<2x9xi32>, %targets: tensor<2x9xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<13x6xf32>
    %x = nn.embedding %e, %tokens : (tensor<13x6xf32>, tensor<2x9xi32>) -> tensor<2x9x6xf32>
    %up = nn.read @up value {nn.layer = 0} : tensor<6x5xf32>
    %scale = nn.read @scale value {nn.layer = 0} : tensor<5xf32>
    %down = nn.read @down value {nn.layer = 0} : tensor<5x6xf32>
    %a = nn.matmul %x, %up "bsh,hf->bsf" {nn.layer = 0} : (tensor<2x9x6xf32>, tensor<6x5xf32>) -> tensor<2x9x5xf32>
    %sq = nn.mul %a, %a {nn.layer = 0} : tensor<2x9x5xf32>
    %sum = nn.reduce sum %sq dims [2] {nn.layer = 0} : tensor<2x9x5xf32> -> tensor<2x9xf32>
    %mean = nn.scale %sum by 0.2 {nn.layer = 0} : tensor<2x9xf32>
    %eps = nn.shift %mean by 1.0e-05 {nn.layer = 0} : tensor<2x9xf32>
    %rstd = nn.rsqrt %eps {nn.layer = 0} : tensor<2x9xf32>
    %rows = nn.broadcast %rstd dims [0, 1] {nn.layer = 0} : tensor<2x9xf32> -> tensor<2x9x5xf32>
    %norm = nn.mul %a, %rows {nn.layer = 0} : tensor<2x9x5xf32>
    %columns = nn.broadcast %scale dims [2] {nn.layer = 0} : tensor<5xf32> -> tensor<2x9x5xf32>
    %scaled = nn.mul %norm, %columns {nn.layer = 0} : tensor<2x9x5xf32>
    %top = nn.reduce max %scaled dims [2] {nn.layer = 0} : tensor<2x9x5xf32> -> tensor<2x9xf32>
    %tops = nn.broadcast %top dims [0, 1] {nn.layer = 0} : tensor<2x9xf32> -> tensor<2x9x5xf32>
    %c = nn.sub %scaled, %tops {nn.layer = 0} : tensor<2x9x5xf32>
    %p = nn.exp %c {nn.layer = 0} : tensor<2x9x5xf32>
    %n = nn.reduce sum %p dims [2] {nn.layer = 0} : tensor<2x9x5xf32> -> tensor<2x9xf32>
    %ns = nn.broadcast %n dims [0, 1] {nn.layer = 0} : tensor<2x9xf32> -> tensor<2x9x5xf32>
    %q = nn.div %p, %ns {nn.layer = 0} : tensor<2x9x5xf32>
    %cold = nn.shift %q by 0.5 {nn.layer = 0} : tensor<2x9x5xf32>
    %l = nn.log %cold {nn.layer = 0} : tensor<2x9x5xf32>
    %g = nn.mul %l, %scaled {nn.layer = 0} : tensor<2x9x5xf32>
    %d = nn.matmul %g, %down "bsf,fh->bsh" {nn.layer = 0} : (tensor<2x9x5xf32>, tensor<5x6xf32>) -> tensor<2x9x6xf32>
    %z = nn.add %x, %d {nn.layer = 0} : tensor<2x9x6xf32>
    %logits = nn.matmul %z, %e "bsh,vh->bsv" : (tensor<2x9x6xf32>, tensor<13x6xf32>) -> tensor<2x9x13xf32>
    %loss, %count = nn.softmax_cross_entropy %logits, %targets ignore 3 : (tensor<2x9x13xf32>, tensor<2x9xi32>) -> (tensor<f32>, tensor<f32>)
    return %loss, %count : tensor<f32>, tensor<f32>
  }
}
