// Three heads of attention by hand, with a mask that is a logarithm of 0 and 1.
module attributes {plait.model = {layers = 1 : i64, model_type = "padding", name = "heads", vocab = 13 : i64}} {
  nn.parameter @embed : tensor<13x6xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @q : tensor<6x3x2xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @k : tensor<6x3x2xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @v : tensor<6x3x2xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @qb : tensor<3x2xf32> init<mean = 0.5, std = 0.2>
  nn.parameter @o : tensor<3x2x6xf32> init<mean = 0.0, std = 0.5> decay
  func.func @loss(%tokens: tensor<2x9xi32>, %targets: tensor<2x9xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<13x6xf32>
    %x = nn.embedding %e, %tokens : (tensor<13x6xf32>, tensor<2x9xi32>) -> tensor<2x9x6xf32>
    %q = nn.read @q value {nn.layer = 0} : tensor<6x3x2xf32>
    %k = nn.read @k value {nn.layer = 0} : tensor<6x3x2xf32>
    %v = nn.read @v value {nn.layer = 0} : tensor<6x3x2xf32>
    %qb = nn.read @qb value {nn.layer = 0} : tensor<3x2xf32>
    %o = nn.read @o value {nn.layer = 0} : tensor<3x2x6xf32>
    %q0 = nn.matmul %x, %q "bsh,hnd->bsnd" {nn.layer = 0} : (tensor<2x9x6xf32>, tensor<6x3x2xf32>) -> tensor<2x9x3x2xf32>
    %qbs = nn.broadcast %qb dims [2, 3] {nn.layer = 0} : tensor<3x2xf32> -> tensor<2x9x3x2xf32>
    %queries = nn.add %q0, %qbs {nn.layer = 0} : tensor<2x9x3x2xf32>
    %keys = nn.matmul %x, %k "bsh,hnd->bsnd" {nn.layer = 0} : (tensor<2x9x6xf32>, tensor<6x3x2xf32>) -> tensor<2x9x3x2xf32>
    %values = nn.matmul %x, %v "bsh,hnd->bsnd" {nn.layer = 0} : (tensor<2x9x6xf32>, tensor<6x3x2xf32>) -> tensor<2x9x3x2xf32>
    %scores = nn.matmul %queries, %keys "bsnd,btnd->bnst" {nn.layer = 0} : (tensor<2x9x3x2xf32>, tensor<2x9x3x2xf32>) -> tensor<2x3x9x9xf32>
    %seen = nn.valid %tokens ignore 2 {nn.layer = 0} : tensor<2x9xi32> -> tensor<2x9xf32>
    %log = nn.log %seen {nn.layer = 0} : tensor<2x9xf32>
    %hidden = nn.stop_gradient %log {nn.layer = 0} : tensor<2x9xf32>
    %mask = nn.broadcast %hidden dims [0, 3] {nn.layer = 0} : tensor<2x9xf32> -> tensor<2x3x9x9xf32>
    %masked = nn.add %scores, %mask {nn.layer = 0} : tensor<2x3x9x9xf32>
    %top = nn.reduce max %masked dims [3] {nn.layer = 0} : tensor<2x3x9x9xf32> -> tensor<2x3x9xf32>
    %fixed = nn.stop_gradient %top {nn.layer = 0} : tensor<2x3x9xf32>
    %tops = nn.broadcast %fixed dims [0, 1, 2] {nn.layer = 0} : tensor<2x3x9xf32> -> tensor<2x3x9x9xf32>
    %c = nn.sub %masked, %tops {nn.layer = 0} : tensor<2x3x9x9xf32>
    %p = nn.exp %c {nn.layer = 0} : tensor<2x3x9x9xf32>
    %n = nn.reduce sum %p dims [3] {nn.layer = 0} : tensor<2x3x9x9xf32> -> tensor<2x3x9xf32>
    %ns = nn.broadcast %n dims [0, 1, 2] {nn.layer = 0} : tensor<2x3x9xf32> -> tensor<2x3x9x9xf32>
    %w = nn.div %p, %ns {nn.layer = 0} : tensor<2x3x9x9xf32>
    %mixed = nn.matmul %w, %values "bnst,btnd->bsnd" {nn.layer = 0} : (tensor<2x3x9x9xf32>, tensor<2x9x3x2xf32>) -> tensor<2x9x3x2xf32>
    %d = nn.matmul %mixed, %o "bsnd,ndh->bsh" {nn.layer = 0} : (tensor<2x9x3x2xf32>, tensor<3x2x6xf32>) -> tensor<2x9x6xf32>
    %z = nn.add %x, %d {nn.layer = 0} : tensor<2x9x6xf32>
    %logits = nn.matmul %z, %e "bsh,vh->bsv" : (tensor<2x9x6xf32>, tensor<13x6xf32>) -> tensor<2x9x13xf32>
    %loss, %count = nn.softmax_cross_entropy %logits, %targets ignore 3 : (tensor<2x9x13xf32>, tensor<2x9xi32>) -> (tensor<f32>, tensor<f32>)
    return %loss, %count : tensor<f32>, tensor<f32>
  }
}
