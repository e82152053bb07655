// Named norms and activations with biases over an uneven sequence.
module attributes {plait.model = {layers = 1 : i64, model_type = "padding", name = "named", vocab = 13 : i64}} {
  nn.parameter @embed : tensor<13x6xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @w : tensor<6xf32> init<mean = 1.0, std = 0.2>
  nn.parameter @c : tensor<6xf32> init<mean = 0.5, std = 0.2>
  nn.parameter @up : tensor<6x7xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @ub : tensor<7xf32> init<mean = 0.5, std = 0.2>
  nn.parameter @down : tensor<7x6xf32> init<mean = 0.0, std = 0.5> decay
  func.func @loss(%tokens: tensor<2x9xi32>, %targets: tensor<2x9xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<13x6xf32>
    %x = nn.embedding %e, %tokens : (tensor<13x6xf32>, tensor<2x9xi32>) -> tensor<2x9x6xf32>
    %w = nn.read @w value {nn.layer = 0} : tensor<6xf32>
    %c = nn.read @c value {nn.layer = 0} : tensor<6xf32>
    %up = nn.read @up value {nn.layer = 0} : tensor<6x7xf32>
    %ub = nn.read @ub value {nn.layer = 0} : tensor<7xf32>
    %down = nn.read @down value {nn.layer = 0} : tensor<7x6xf32>
    %n, %mean, %rstd = nn.layer_norm %x, %w, %c epsilon 1.0e-05 {nn.layer = 0} : (tensor<2x9x6xf32>, tensor<6xf32>, tensor<6xf32>) -> (tensor<2x9x6xf32>, tensor<2x9xf32>, tensor<2x9xf32>)
    %a = nn.matmul %n, %up "bsh,hf->bsf" {nn.layer = 0} : (tensor<2x9x6xf32>, tensor<6x7xf32>) -> tensor<2x9x7xf32>
    %bias = nn.broadcast %ub dims [2] {nn.layer = 0} : tensor<7xf32> -> tensor<2x9x7xf32>
    %b = nn.add %a, %bias {nn.layer = 0} : tensor<2x9x7xf32>
    %g = nn.gelu %b tanh {nn.layer = 0} : tensor<2x9x7xf32>
    %s = nn.silu %b {nn.layer = 0} : tensor<2x9x7xf32>
    %m = nn.mul %g, %s {nn.layer = 0} : tensor<2x9x7xf32>
    %d = nn.matmul %m, %down "bsf,fh->bsh" {nn.layer = 0} : (tensor<2x9x7xf32>, tensor<7x6xf32>) -> tensor<2x9x6xf32>
    %r = nn.add %x, %d {nn.layer = 0} : tensor<2x9x6xf32>
    %z, %rs = nn.rms_norm %r, %w epsilon 1.0e-05 {nn.layer = 0} : (tensor<2x9x6xf32>, tensor<6xf32>) -> (tensor<2x9x6xf32>, tensor<2x9xf32>)
    %logits = nn.matmul %z, %e "bsh,vh->bsv" : (tensor<2x9x6xf32>, tensor<13x6xf32>) -> tensor<2x9x13xf32>
    %loss, %count = nn.softmax_cross_entropy %logits, %targets ignore 3 : (tensor<2x9x13xf32>, tensor<2x9xi32>) -> (tensor<f32>, tensor<f32>)
    return %loss, %count : tensor<f32>, tensor<f32>
  }
}
