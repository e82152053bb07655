// RUN: plaitc %s --mesh 1 --schedule 1f1b --micro-batch 1 --global-batch 1 --seq 5 -o %t.plan
// RUN: plait-plan show %t.plan | FileCheck %s
// CHECK: proven

// Keys and values are the same matmuls of the same parameter, once scaled. The
// compiler computes them once, and their gradients meet before the matmul of the
// parameter's gradient; so they do in what the plan is held against.
module attributes {plait.model = {layers = 1 : i64, model_type = "drawn", name = "drawn", vocab = 7 : i64}} {
  nn.parameter @p0 : tensor<7x16xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @p3 : tensor<1x1x2x16xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @p4 : tensor<1x2x16xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @p5 : tensor<5x1x1x2x16xf32> init<mean = 0.0, std = 0.5> decay
  func.func @loss(%tokens: tensor<1x5xi32>, %targets: tensor<1x5xi32>) -> (tensor<f32>, tensor<f32>) {
    %t2 = nn.read @p0 value : tensor<7x16xf32>
    %t3 = nn.embedding %t2, %tokens : (tensor<7x16xf32>, tensor<1x5xi32>) -> tensor<1x5x16xf32>
    %t9 = nn.read @p3 value {nn.layer = 0 : i64} : tensor<1x1x2x16xf32>
    %t10 = nn.matmul %t3, %t9 "bsh,grdh->bsgrd" {nn.layer = 0 : i64} : (tensor<1x5x16xf32>, tensor<1x1x2x16xf32>) -> tensor<1x5x1x1x2xf32>
    %t11 = nn.scale %t10 by 2.500000000e-01 {nn.layer = 0 : i64} : tensor<1x5x1x1x2xf32>
    %t12 = nn.read @p4 value {nn.layer = 0 : i64} : tensor<1x2x16xf32>
    %t13 = nn.matmul %t3, %t12 "bsh,gdh->bsgd" {nn.layer = 0 : i64} : (tensor<1x5x16xf32>, tensor<1x2x16xf32>) -> tensor<1x5x1x2xf32>
    %t15 = nn.read @p4 value {nn.layer = 0 : i64} : tensor<1x2x16xf32>
    %t16 = nn.matmul %t3, %t15 "bsh,gdh->bsgd" {nn.layer = 0 : i64} : (tensor<1x5x16xf32>, tensor<1x2x16xf32>) -> tensor<1x5x1x2xf32>
    %t17 = nn.scale %t16 by 2.500000000e-01 {nn.layer = 0 : i64} : tensor<1x5x1x2xf32>
    %t18, %t19 = nn.attention %t11, %t13, %t17 scale 7.071067691e-01 {nn.layer = 0 : i64} : (tensor<1x5x1x1x2xf32>, tensor<1x5x1x2xf32>, tensor<1x5x1x2xf32>) -> (tensor<1x5x1x1x2xf32>, tensor<1x1x1x5xf32>)
    %t20 = nn.read @p5 value {nn.layer = 0 : i64} : tensor<5x1x1x2x16xf32>
    %t21 = nn.matmul %t18, %t20 "bsgrd,sgrdh->bsh" {nn.layer = 0 : i64} : (tensor<1x5x1x1x2xf32>, tensor<5x1x1x2x16xf32>) -> tensor<1x5x16xf32>
    %t35 = nn.matmul %t21, %t2 "bsh,vh->bsv" : (tensor<1x5x16xf32>, tensor<7x16xf32>) -> tensor<1x5x7xf32>
    %t37, %t38 = nn.softmax_cross_entropy %t35, %targets ignore -100 : (tensor<1x5x7xf32>, tensor<1x5xi32>) -> (tensor<f32>, tensor<f32>)
    return %t37, %t38 : tensor<f32>, tensor<f32>
  }
}
