// RUN: plaitc %s --mesh tp=2 --no-plan --seq 8 --shard 'p2=[{},{"tp"}]' --schedule 1f1b -o %t.plan
// RUN: plait-plan show %t.plan | FileCheck %s
// CHECK: proven

// %t14 is zero, hence the tangent of what it is multiplied with, hence the gradient of
// @p2, which has padding.
module attributes {plait.model = {layers = 2 : i64, model_type = "drawn", name = "drawn", vocab = 17 : i64}} {
  nn.parameter @p0 : tensor<17x15xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @p2 : tensor<15x7xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @p3 : tensor<7x15xf32> init<mean = 0.0, std = 0.5> decay
  func.func @loss(%tokens: tensor<1x8xi32>, %targets: tensor<1x8xi32>) -> (tensor<f32>, tensor<f32>) {
    %t2 = nn.read @p0 value : tensor<17x15xf32>
    %t3 = nn.embedding %t2, %tokens : (tensor<17x15xf32>, tensor<1x8xi32>) -> tensor<1x8x15xf32>
    %t6 = nn.read @p2 value {nn.layer = 0 : i64} : tensor<15x7xf32>
    %t7 = nn.matmul %t3, %t6 "bsh,hf->bsf" {nn.layer = 0 : i64} : (tensor<1x8x15xf32>, tensor<15x7xf32>) -> tensor<1x8x7xf32>
    %t8 = nn.scale %t7 by 2.581988871e-01 {nn.layer = 0 : i64} : tensor<1x8x7xf32>
    %t9 = nn.silu %t8 {nn.layer = 0 : i64} : tensor<1x8x7xf32>
    %t10 = nn.read @p3 value {nn.layer = 0 : i64} : tensor<7x15xf32>
    %t11 = nn.matmul %t9, %t10 "bsf,fh->bsh" {nn.layer = 0 : i64} : (tensor<1x8x7xf32>, tensor<7x15xf32>) -> tensor<1x8x15xf32>
    %t12 = nn.scale %t11 by 3.779644668e-01 {nn.layer = 0 : i64} : tensor<1x8x15xf32>
    %t13 = nn.add %t3, %t12 {nn.layer = 0 : i64} : tensor<1x8x15xf32>
    %t14 = nn.sub %t13, %t13 {nn.layer = 0 : i64} : tensor<1x8x15xf32>
    %t22 = nn.read @p2 value {nn.layer = 1 : i64} : tensor<15x7xf32>
    %t23 = nn.matmul %t14, %t22 "bsh,hf->bsf" {nn.layer = 1 : i64} : (tensor<1x8x15xf32>, tensor<15x7xf32>) -> tensor<1x8x7xf32>
    %t25 = nn.tanh %t23 {nn.layer = 1 : i64} : tensor<1x8x7xf32>
    %t26 = nn.read @p2 value {nn.layer = 1 : i64} : tensor<15x7xf32>
    %t27 = nn.matmul %t25, %t26 "bsf,hf->bsh" {nn.layer = 1 : i64} : (tensor<1x8x7xf32>, tensor<15x7xf32>) -> tensor<1x8x15xf32>
    %t42 = nn.matmul %t27, %t2 "bsh,vh->bsv" : (tensor<1x8x15xf32>, tensor<17x15xf32>) -> tensor<1x8x17xf32>
    %t44, %t45 = nn.softmax_cross_entropy %t42, %targets ignore -100 : (tensor<1x8x17xf32>, tensor<1x8xi32>) -> (tensor<f32>, tensor<f32>)
    return %t44, %t45 : tensor<f32>, tensor<f32>
  }
}
