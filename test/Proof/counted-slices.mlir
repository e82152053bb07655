// RUN: plaitc %s --mesh tp=2 --no-plan --seq 8 --shard 'p0=[{"tp"},{}]' --shard 'p1=[{},{"tp"}]' --shard 'p2=[{"tp"},{}]' --schedule 1f1b -o %t.plan
// RUN: plait-plan show %t.plan | FileCheck %s
// CHECK: proven

// Slices of 14 words and of 13 channels, of which the last one is padding, begin alike.
// The gradient of the loss picks one-hot targets out of equal numbers: they are of 14.
module attributes {plait.model = {layers = 1 : i64, model_type = "drawn", name = "drawn", vocab = 14 : i64}} {
  nn.parameter @p0 : tensor<14x5xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @p1 : tensor<5x13xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @p2 : tensor<13x5xf32> init<mean = 0.0, std = 0.5> decay
  func.func @loss(%tokens: tensor<1x8xi32>, %targets: tensor<1x8xi32>) -> (tensor<f32>, tensor<f32>) {
    %t2 = nn.read @p0 value : tensor<14x5xf32>
    %t3 = nn.embedding %t2, %tokens : (tensor<14x5xf32>, tensor<1x8xi32>) -> tensor<1x8x5xf32>
    %t4 = nn.read @p1 value {nn.layer = 0 : i64} : tensor<5x13xf32>
    %t5 = nn.matmul %t3, %t4 "bsh,hf->bsf" {nn.layer = 0 : i64} : (tensor<1x8x5xf32>, tensor<5x13xf32>) -> tensor<1x8x13xf32>
    %t6 = nn.read @p2 value {nn.layer = 0 : i64} : tensor<13x5xf32>
    %t7 = nn.matmul %t5, %t6 "bsf,fh->bsh" {nn.layer = 0 : i64} : (tensor<1x8x13xf32>, tensor<13x5xf32>) -> tensor<1x8x5xf32>
    %t8 = nn.matmul %t7, %t2 "bsh,vh->bsv" : (tensor<1x8x5xf32>, tensor<14x5xf32>) -> tensor<1x8x14xf32>
    %t9, %t10 = nn.softmax_cross_entropy %t8, %targets ignore -100 : (tensor<1x8x14xf32>, tensor<1x8xi32>) -> (tensor<f32>, tensor<f32>)
    return %t9, %t10 : tensor<f32>, tensor<f32>
  }
}
