// Two mixtures of experts of other kinds than Hugging Face's families have here:
// sigmoids with a bias that is no weight's, and the softmax of the chosen logits. The
// first is balanced within each sequence and has a z-loss, both reported apart.
module attributes {plait.model = {layers = 2 : i64, model_type = "test", name = "experts", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @router.0 : tensor<8x5xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @bias.0 : tensor<5xf32> init<mean = 0.0, std = 0.5>
  nn.parameter @up.0 : tensor<5x8x12xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @down.0 : tensor<5x8x12xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @router.1 : tensor<4x8xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @up.1 : tensor<4x6x8xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @down.1 : tensor<4x6x8xf32> init<mean = 0.0, std = 0.5> decay
  func.func @loss(%tokens: tensor<4x6xi32>, %targets: tensor<4x6xi32>) -> (tensor<f32>, tensor<f32>, tensor<f32> {nn.loss = "balance"}, tensor<f32> {nn.loss = "z_loss"}) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<4x6xi32>) -> tensor<4x6x8xf32>
    %router0 = nn.read @router.0 value {nn.layer = 0 : i64} : tensor<8x5xf32>
    %readBias = nn.read @bias.0 value {nn.layer = 0 : i64} : tensor<5xf32>
    %bias = nn.stop_gradient %readBias {nn.layer = 0 : i64} : tensor<5xf32>
    %up0 = nn.read @up.0 value {nn.layer = 0 : i64} : tensor<5x8x12xf32>
    %down0 = nn.read @down.0 value {nn.layer = 0 : i64} : tensor<5x8x12xf32>
    %logits0 = nn.matmul %x, %router0 "bsh,he->bse" {nn.layer = 0 : i64} : (tensor<4x6x8xf32>, tensor<8x5xf32>) -> tensor<4x6x5xf32>
    %w0, %ids0 = nn.route %logits0 bias %bias choices 2 scores sigmoid normalized scaled 1.5 {nn.layer = 0 : i64} : (tensor<4x6x5xf32>, tensor<5xf32>) -> (tensor<4x6x2xf32>, tensor<4x6x2xi32>)
    %h0 = nn.grouped_matmul %x, %up0, %ids0 "bsh,ehf->bscf" {nn.layer = 0 : i64} : (tensor<4x6x8xf32>, tensor<5x8x12xf32>, tensor<4x6x2xi32>) -> tensor<4x6x2x12xf32>
    %t0 = nn.tanh %h0 {nn.layer = 0 : i64} : tensor<4x6x2x12xf32>
    %y0 = nn.grouped_matmul %t0, %down0, %ids0 "bscf,ehf->bsch" {nn.layer = 0 : i64} : (tensor<4x6x2x12xf32>, tensor<5x8x12xf32>, tensor<4x6x2xi32>) -> tensor<4x6x2x8xf32>
    %ws0 = nn.broadcast %w0 dims [0, 1, 2] {nn.layer = 0 : i64} : tensor<4x6x2xf32> -> tensor<4x6x2x8xf32>
    %yw0 = nn.mul %y0, %ws0 {nn.layer = 0 : i64} : tensor<4x6x2x8xf32>
    %o0 = nn.reduce sum %yw0 dims [2] {nn.layer = 0 : i64} : tensor<4x6x2x8xf32> -> tensor<4x6x8xf32>
    %x1 = nn.add %x, %o0 {nn.layer = 0 : i64} : tensor<4x6x8xf32>
    // How often a sequence chooses each expert, times the sum of its scores.
    %one = nn.fill 1.0 {nn.layer = 0 : i64} : tensor<4x6x2x5xf32>
    %chosen = nn.pick %one, %ids0 {nn.layer = 0 : i64} : tensor<4x6x2x5xf32>, tensor<4x6x2xi32> -> tensor<4x6x2x5xf32>
    %often = nn.reduce sum %chosen dims [1, 2] {nn.layer = 0 : i64} : tensor<4x6x2x5xf32> -> tensor<4x5xf32>
    %scores = nn.sigmoid %logits0 {nn.layer = 0 : i64} : tensor<4x6x5xf32>
    %much = nn.reduce sum %scores dims [1] {nn.layer = 0 : i64} : tensor<4x6x5xf32> -> tensor<4x5xf32>
    %both = nn.mul %often, %much {nn.layer = 0 : i64} : tensor<4x5xf32>
    %balance = nn.reduce sum %both dims [0, 1] {nn.layer = 0 : i64} : tensor<4x5xf32> -> tensor<f32>
    %powers = nn.exp %logits0 {nn.layer = 0 : i64} : tensor<4x6x5xf32>
    %total = nn.reduce sum %powers dims [2] {nn.layer = 0 : i64} : tensor<4x6x5xf32> -> tensor<4x6xf32>
    %z = nn.log %total {nn.layer = 0 : i64} : tensor<4x6xf32>
    %zz = nn.mul %z, %z {nn.layer = 0 : i64} : tensor<4x6xf32>
    %zloss = nn.reduce sum %zz dims [0, 1] {nn.layer = 0 : i64} : tensor<4x6xf32> -> tensor<f32>
    %router1 = nn.read @router.1 value {nn.layer = 1 : i64} : tensor<4x8xf32>
    %up1 = nn.read @up.1 value {nn.layer = 1 : i64} : tensor<4x6x8xf32>
    %down1 = nn.read @down.1 value {nn.layer = 1 : i64} : tensor<4x6x8xf32>
    %logits1 = nn.matmul %x1, %router1 "bsh,eh->bse" {nn.layer = 1 : i64} : (tensor<4x6x8xf32>, tensor<4x8xf32>) -> tensor<4x6x4xf32>
    %w1, %ids1 = nn.route %logits1 choices 3 scores chosen_softmax {nn.layer = 1 : i64} : (tensor<4x6x4xf32>) -> (tensor<4x6x3xf32>, tensor<4x6x3xi32>)
    %h1 = nn.grouped_matmul %x1, %up1, %ids1 "bsh,efh->bscf" {nn.layer = 1 : i64} : (tensor<4x6x8xf32>, tensor<4x6x8xf32>, tensor<4x6x3xi32>) -> tensor<4x6x3x6xf32>
    %t1 = nn.silu %h1 {nn.layer = 1 : i64} : tensor<4x6x3x6xf32>
    %ws1 = nn.broadcast %w1 dims [0, 1, 2] {nn.layer = 1 : i64} : tensor<4x6x3xf32> -> tensor<4x6x3x6xf32>
    %tw1 = nn.mul %t1, %ws1 {nn.layer = 1 : i64} : tensor<4x6x3x6xf32>
    %y1 = nn.grouped_matmul %tw1, %down1, %ids1 "bscf,efh->bsch" {nn.layer = 1 : i64} : (tensor<4x6x3x6xf32>, tensor<4x6x8xf32>, tensor<4x6x3xi32>) -> tensor<4x6x3x8xf32>
    %o1 = nn.reduce sum %y1 dims [2] {nn.layer = 1 : i64} : tensor<4x6x3x8xf32> -> tensor<4x6x8xf32>
    %x2 = nn.add %x1, %o1 {nn.layer = 1 : i64} : tensor<4x6x8xf32>
    %logits = nn.matmul %x2, %e "bsh,vh->bsv" : (tensor<4x6x8xf32>, tensor<16x8xf32>) -> tensor<4x6x16xf32>
    %sum, %count = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<4x6x16xf32>, tensor<4x6xi32>) -> (tensor<f32>, tensor<f32>)
    %b8 = nn.scale %balance by 0.015625 : tensor<f32>
    %z8 = nn.scale %zloss by 0.0078125 : tensor<f32>
    %with = nn.add %sum, %b8 : tensor<f32>
    %all = nn.add %with, %z8 : tensor<f32>
    return %all, %count, %balance, %zloss : tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>
  }
}
