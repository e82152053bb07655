// RUN: plaitc %s --mesh tp=2 --no-plan --seq 15 --sequence-parallel --schedule 1f1b -o %t.plan
// RUN: plait-plan show %t.plan | FileCheck %s
// CHECK: proven

// 15 positions on two ranks: how long the table of angles is follows from what is
// rotated.
module attributes {plait.model = {layers = 1 : i64, model_type = "drawn", name = "drawn", vocab = 7 : i64}} {
  nn.parameter @p0 : tensor<7x2xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @p3 : tensor<2x7xf32> init<mean = 0.0, std = 0.5>
  func.func @loss(%tokens: tensor<1x15xi32>, %targets: tensor<1x15xi32>) -> (tensor<f32>, tensor<f32>) {
    %t2 = nn.read @p0 value : tensor<7x2xf32>
    %t3 = nn.embedding %t2, %tokens : (tensor<7x2xf32>, tensor<1x15xi32>) -> tensor<1x15x2xf32>
    %t10 = nn.rope %t3 theta 1.000000000e+02 {nn.layer = 0 : i64} : tensor<1x15x2xf32>
    %t21 = nn.read @p3 value : tensor<2x7xf32>
    %t22 = nn.matmul %t10, %t21 "bsh,hv->bsv" : (tensor<1x15x2xf32>, tensor<2x7xf32>) -> tensor<1x15x7xf32>
    %t24, %t25 = nn.softmax_cross_entropy %t22, %targets ignore 0 : (tensor<1x15x7xf32>, tensor<1x15xi32>) -> (tensor<f32>, tensor<f32>)
    return %t24, %t25 : tensor<f32>, tensor<f32>
  }
}
