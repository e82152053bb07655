// Two equal ops of two modules are one, in the plan and in the claim: what names
// them is no part of what they compute. Here two norms of one value have a gradient
// each, which is not linear in sums.
// RUN: plaitc %s --mesh pp=1 --no-plan --global-batch 2 --micro-batch 2 -o %t.plan

module attributes {plait.model = {layers = 1 : i64, model_type = "two", name = "two", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.1> decay
  nn.parameter @up : tensor<8x8xf32> init<mean = 0.0, std = 0.1> decay
  nn.parameter @down : tensor<8x8xf32> init<mean = 0.0, std = 0.1> decay
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>) {
    %table = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %table, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %one = nn.fill 1.0 : tensor<8xf32>
    %zero = nn.fill 0.0 : tensor<8xf32>
    %first, %mean, %rstd = nn.layer_norm %x, %one, %zero epsilon 1.0e-05 : (tensor<2x4x8xf32>, tensor<8xf32>, tensor<8xf32>) -> (tensor<2x4x8xf32>, tensor<2x4xf32>, tensor<2x4xf32>) loc("block.first"("model.py":1:1))
    %second, %mean2, %rstd2 = nn.layer_norm %x, %one, %zero epsilon 1.0e-05 : (tensor<2x4x8xf32>, tensor<8xf32>, tensor<8xf32>) -> (tensor<2x4x8xf32>, tensor<2x4xf32>, tensor<2x4xf32>) loc("block.second"("model.py":2:1))
    %up = nn.read @up value : tensor<8x8xf32>
    %down = nn.read @down value : tensor<8x8xf32>
    %a = nn.matmul %first, %up "bsh,hf->bsf" : (tensor<2x4x8xf32>, tensor<8x8xf32>) -> tensor<2x4x8xf32>
    %b = nn.matmul %second, %down "bsh,hf->bsf" : (tensor<2x4x8xf32>, tensor<8x8xf32>) -> tensor<2x4x8xf32>
    %c = nn.scale %b by -0.1 : tensor<2x4x8xf32>
    %y = nn.add %a, %c : tensor<2x4x8xf32>
    %logits = nn.matmul %y, %table "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %sum, %count = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %sum, %count : tensor<f32>, tensor<f32>
  }
}
