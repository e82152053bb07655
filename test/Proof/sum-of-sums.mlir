// RUN: plaitc %s --seq 9 --schedule 1f1b -o %t.plan
// RUN: plait-plan show %t.plan | FileCheck %s
// CHECK: proven

// The gradient of %t3 is a sum of two over dimensions that one of them does not have:
// the plan adds after it has reduced, the claim before.
module attributes {plait.model = {layers = 3 : i64, model_type = "drawn", name = "drawn", vocab = 7 : i64}} {
  nn.parameter @p0 : tensor<7x3xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @p1 : tensor<5xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @p4 : tensor<3x7xf32> init<mean = 0.0, std = 0.5>
  func.func @loss(%tokens: tensor<1x9xi32>, %targets: tensor<1x9xi32>) -> (tensor<f32>, tensor<f32>) {
    %t2 = nn.read @p0 value : tensor<7x3xf32>
    %t3 = nn.embedding %t2, %tokens : (tensor<7x3xf32>, tensor<1x9xi32>) -> tensor<1x9x3xf32>
    %t6 = nn.broadcast %t3 dims [0, 2, 3] {nn.layer = 0 : i64} : tensor<1x9x3xf32> -> tensor<1x5x9x3x2xf32>
    %t7 = nn.read @p1 value {nn.layer = 0 : i64} : tensor<5xf32>
    %t15 = nn.matmul %t6, %t7 "bfshk,f->bshfk" {nn.layer = 1 : i64} : (tensor<1x5x9x3x2xf32>, tensor<5xf32>) -> tensor<1x9x3x5x2xf32>
    %t23 = nn.reduce sum %t15 dims [3, 4] {nn.layer = 1 : i64} : tensor<1x9x3x5x2xf32> -> tensor<1x9x3xf32>
    %t35 = nn.reduce sum %t6 dims [1, 4] {nn.layer = 2 : i64} : tensor<1x5x9x3x2xf32> -> tensor<1x9x3xf32>
    %t39 = nn.mul %t23, %t35 {nn.layer = 2 : i64} : tensor<1x9x3xf32>
    %t43 = nn.read @p4 value : tensor<3x7xf32>
    %t45 = nn.matmul %t39, %t43 "bsh,hv->bsv" : (tensor<1x9x3xf32>, tensor<3x7xf32>) -> tensor<1x9x7xf32>
    %t46, %t47 = nn.softmax_cross_entropy %t45, %targets ignore -100 : (tensor<1x9x7xf32>, tensor<1x9xi32>) -> (tensor<f32>, tensor<f32>)
    return %t46, %t47 : tensor<f32>, tensor<f32>
  }
}
