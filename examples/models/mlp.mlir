// Two residual MLP layers over bytes, written by hand, with all that can be said
// of a model. The shapes are those of 4 sequences of 32 bytes; plaitc makes it a
// model for any batch and sequence.
module attributes {plait.model = {layers = 2 : i64, model_type = "mlp", name = "mlp", vocab = 256 : i64}} {
  nn.parameter @embed : tensor<256x64xf32> init<mean = 0.0, std = 0.02> decay
  nn.parameter @up.0 : tensor<64x128xf32> init<mean = 0.0, std = 0.1> decay
  nn.parameter @down.0 : tensor<128x64xf32> init<mean = 0.0, std = 0.1> decay
  nn.parameter @up.1 : tensor<64x128xf32> init<mean = 0.0, std = 0.1> decay
  nn.parameter @down.1 : tensor<128x64xf32> init<mean = 0.0, std = 0.1> decay

  func.func @loss(%tokens: tensor<4x32xi32>, %targets: tensor<4x32xi32>)
      -> (tensor<f32>, tensor<f32>) {
    %table = nn.read @embed value : tensor<256x64xf32>
    %x0 = nn.embedding %table, %tokens : (tensor<256x64xf32>, tensor<4x32xi32>) -> tensor<4x32x64xf32>

    %up0 = nn.read @up.0 value {nn.layer = 0} : tensor<64x128xf32>
    %down0 = nn.read @down.0 value {nn.layer = 0} : tensor<128x64xf32>
    %a0 = nn.matmul %x0, %up0 "bsh,hf->bsf" {nn.layer = 0} : (tensor<4x32x64xf32>, tensor<64x128xf32>) -> tensor<4x32x128xf32>
    %g0 = nn.silu %a0 {nn.layer = 0} : tensor<4x32x128xf32>
    %m0 = nn.matmul %g0, %down0 "bsf,fh->bsh" {nn.layer = 0} : (tensor<4x32x128xf32>, tensor<128x64xf32>) -> tensor<4x32x64xf32>
    %x1 = nn.add %x0, %m0 {nn.layer = 0} : tensor<4x32x64xf32>

    %up1 = nn.read @up.1 value {nn.layer = 1} : tensor<64x128xf32>
    %down1 = nn.read @down.1 value {nn.layer = 1} : tensor<128x64xf32>
    %a1 = nn.matmul %x1, %up1 "bsh,hf->bsf" {nn.layer = 1} : (tensor<4x32x64xf32>, tensor<64x128xf32>) -> tensor<4x32x128xf32>
    %g1 = nn.silu %a1 {nn.layer = 1} : tensor<4x32x128xf32>
    %m1 = nn.matmul %g1, %down1 "bsf,fh->bsh" {nn.layer = 1} : (tensor<4x32x128xf32>, tensor<128x64xf32>) -> tensor<4x32x64xf32>
    %x2 = nn.add %x1, %m1 {nn.layer = 1} : tensor<4x32x64xf32>

    %logits = nn.matmul %x2, %table "bsh,vh->bsv" : (tensor<4x32x64xf32>, tensor<256x64xf32>) -> tensor<4x32x256xf32>
    %sum, %count = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<4x32x256xf32>, tensor<4x32xi32>) -> (tensor<f32>, tensor<f32>)
    return %sum, %count : tensor<f32>, tensor<f32>
  }
}
