// Two layers of attention with learned sinks, one a query head: of queries that see
// three keys, with a soft cap, and of queries that see all before them. Eight heads,
// of which four share keys and values.
module attributes {plait.model = {model_type = "test", name = "sinks", vocab = 16, layers = 2}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @q.0 : tensor<8x2x4x4xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @k.0 : tensor<8x2x4xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @v.0 : tensor<8x2x4xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @o.0 : tensor<2x4x4x8xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @sinks.0 : tensor<2x4xf32> init<mean = 0.0, std = 1.0>
  nn.parameter @q.1 : tensor<8x2x4x4xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @k.1 : tensor<8x2x4xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @v.1 : tensor<8x2x4xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @o.1 : tensor<2x4x4x8xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @sinks.1 : tensor<2x4xf32> init<mean = 0.0, std = 1.0>
  func.func @loss(%tokens: tensor<4x6xi32>, %targets: tensor<4x6xi32>) -> (tensor<f32>, tensor<f32>) {
    %table = nn.read @embed value : tensor<16x8xf32>
    %x0 = nn.embedding %table, %tokens : (tensor<16x8xf32>, tensor<4x6xi32>) -> tensor<4x6x8xf32>
    %qw0 = nn.read @q.0 value {nn.layer = 0 : i64} : tensor<8x2x4x4xf32>
    %kw0 = nn.read @k.0 value {nn.layer = 0 : i64} : tensor<8x2x4xf32>
    %vw0 = nn.read @v.0 value {nn.layer = 0 : i64} : tensor<8x2x4xf32>
    %ow0 = nn.read @o.0 value {nn.layer = 0 : i64} : tensor<2x4x4x8xf32>
    %s0 = nn.read @sinks.0 value {nn.layer = 0 : i64} : tensor<2x4xf32>
    %q0 = nn.matmul %x0, %qw0 "bsh,hgrd->bsgrd" {nn.layer = 0 : i64} : (tensor<4x6x8xf32>, tensor<8x2x4x4xf32>) -> tensor<4x6x2x4x4xf32>
    %k0 = nn.matmul %x0, %kw0 "bsh,hgd->bsgd" {nn.layer = 0 : i64} : (tensor<4x6x8xf32>, tensor<8x2x4xf32>) -> tensor<4x6x2x4xf32>
    %v0 = nn.matmul %x0, %vw0 "bsh,hgd->bsgd" {nn.layer = 0 : i64} : (tensor<4x6x8xf32>, tensor<8x2x4xf32>) -> tensor<4x6x2x4xf32>
    %a0, %l0 = nn.attention %q0, %k0, %v0 scale 0.5 window 3 soft_cap 1.5 sinks %s0 {nn.layer = 0 : i64} : (tensor<4x6x2x4x4xf32>, tensor<4x6x2x4xf32>, tensor<4x6x2x4xf32>, tensor<2x4xf32>) -> (tensor<4x6x2x4x4xf32>, tensor<4x2x4x6xf32>)
    %y0 = nn.matmul %a0, %ow0 "bsgrd,grdh->bsh" {nn.layer = 0 : i64} : (tensor<4x6x2x4x4xf32>, tensor<2x4x4x8xf32>) -> tensor<4x6x8xf32>
    %x1 = nn.add %x0, %y0 {nn.layer = 0 : i64} : tensor<4x6x8xf32>
    %qw1 = nn.read @q.1 value {nn.layer = 1 : i64} : tensor<8x2x4x4xf32>
    %kw1 = nn.read @k.1 value {nn.layer = 1 : i64} : tensor<8x2x4xf32>
    %vw1 = nn.read @v.1 value {nn.layer = 1 : i64} : tensor<8x2x4xf32>
    %ow1 = nn.read @o.1 value {nn.layer = 1 : i64} : tensor<2x4x4x8xf32>
    %s1 = nn.read @sinks.1 value {nn.layer = 1 : i64} : tensor<2x4xf32>
    %q1 = nn.matmul %x1, %qw1 "bsh,hgrd->bsgrd" {nn.layer = 1 : i64} : (tensor<4x6x8xf32>, tensor<8x2x4x4xf32>) -> tensor<4x6x2x4x4xf32>
    %k1 = nn.matmul %x1, %kw1 "bsh,hgd->bsgd" {nn.layer = 1 : i64} : (tensor<4x6x8xf32>, tensor<8x2x4xf32>) -> tensor<4x6x2x4xf32>
    %v1 = nn.matmul %x1, %vw1 "bsh,hgd->bsgd" {nn.layer = 1 : i64} : (tensor<4x6x8xf32>, tensor<8x2x4xf32>) -> tensor<4x6x2x4xf32>
    %a1, %l1 = nn.attention %q1, %k1, %v1 scale 0.5 sinks %s1 {nn.layer = 1 : i64} : (tensor<4x6x2x4x4xf32>, tensor<4x6x2x4xf32>, tensor<4x6x2x4xf32>, tensor<2x4xf32>) -> (tensor<4x6x2x4x4xf32>, tensor<4x2x4x6xf32>)
    %y1 = nn.matmul %a1, %ow1 "bsgrd,grdh->bsh" {nn.layer = 1 : i64} : (tensor<4x6x2x4x4xf32>, tensor<2x4x4x8xf32>) -> tensor<4x6x8xf32>
    %x2 = nn.add %x1, %y1 {nn.layer = 1 : i64} : tensor<4x6x8xf32>
    %logits = nn.matmul %x2, %table "bsh,vh->bsv" : (tensor<4x6x8xf32>, tensor<16x8xf32>) -> tensor<4x6x16xf32>
    %sum, %count = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<4x6x16xf32>, tensor<4x6xi32>) -> (tensor<f32>, tensor<f32>)
    return %sum, %count : tensor<f32>, tensor<f32>
  }
}
