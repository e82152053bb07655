// RUN: plaitc %s --mesh dp=2,tp=2 --no-plan --schedule 1f1b --micro-batch 2 --global-batch 4 --seq 4 --sequence-parallel -o %t.plan
// RUN: plait-plan show %t.plan | FileCheck %s
// CHECK: proven

// All rows of the gradient of @p3 are equal, and tp divides them: the sum of squares
// of a rank is half of the whole on each, and goes into a sum over tp.
module attributes {plait.model = {layers = 2 : i64, model_type = "drawn", name = "drawn", vocab = 16 : i64}} {
  nn.parameter @p0 : tensor<16x5xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @p1 : tensor<4x2xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @p2 : tensor<5x2xf32> init<mean = 0.0, std = 0.5>
  nn.parameter @p3 : tensor<12x4xf32> init<mean = 0.0, std = 0.5> decay
  func.func @loss(%tokens: tensor<4x4xi32>, %targets: tensor<4x4xi32>) -> (tensor<f32>, tensor<f32>) {
    %t2 = nn.read @p0 value : tensor<16x5xf32>
    %t3 = nn.embedding %t2, %tokens : (tensor<16x5xf32>, tensor<4x4xi32>) -> tensor<4x4x5xf32>
    %t4 = nn.reduce max %t3 dims [0, 2] : tensor<4x4x5xf32> -> tensor<4xf32>
    %t5 = nn.reduce max %t3 dims [1, 2] {nn.layer = 0 : i64} : tensor<4x4x5xf32> -> tensor<4xf32>
    %t6 = nn.broadcast %t4 dims [2] {nn.layer = 0 : i64} : tensor<4xf32> -> tensor<5x12x4x4xf32>
    %t7 = nn.read @p1 value {nn.layer = 0 : i64} : tensor<4x2xf32>
    %t8 = nn.matmul %t5, %t7 "b,sk->bsk" {nn.layer = 0 : i64} : (tensor<4xf32>, tensor<4x2xf32>) -> tensor<4x4x2xf32>
    %t9 = nn.read @p2 value {nn.layer = 0 : i64} : tensor<5x2xf32>
    %t10 = nn.matmul %t8, %t9 "bsk,hk->bsh" {nn.layer = 0 : i64} : (tensor<4x4x2xf32>, tensor<5x2xf32>) -> tensor<4x4x5xf32>
    %t11 = nn.tanh %t10 {nn.layer = 0 : i64} : tensor<4x4x5xf32>
    %t12 = nn.shift %t11 by 1.000000000e+00 {nn.layer = 0 : i64} : tensor<4x4x5xf32>
    %t13 = nn.mul %t3, %t12 {nn.layer = 0 : i64} : tensor<4x4x5xf32>
    %t14 = nn.read @p3 value {nn.layer = 0 : i64} : tensor<12x4xf32>
    %t15 = nn.matmul %t6, %t14 "hfse,fe->sh" {nn.layer = 0 : i64} : (tensor<5x12x4x4xf32>, tensor<12x4xf32>) -> tensor<4x5xf32>
    %t16 = nn.scale %t15 by 1.443375647e-01 {nn.layer = 0 : i64} : tensor<4x5xf32>
    %t17 = nn.broadcast %t16 dims [1, 2] {nn.layer = 0 : i64} : tensor<4x5xf32> -> tensor<4x4x5xf32>
    %t18 = nn.add %t13, %t17 {nn.layer = 0 : i64} : tensor<4x4x5xf32>
    %t19 = nn.add %t18, %t18 {nn.layer = 1 : i64} : tensor<4x4x5xf32>
    %t23 = nn.sub %t18, %t19 {nn.layer = 1 : i64} : tensor<4x4x5xf32>
    %t24 = nn.matmul %t23, %t2 "bsh,vh->bsv" : (tensor<4x4x5xf32>, tensor<16x5xf32>) -> tensor<4x4x16xf32>
    %t25 = nn.scale %t24 by 4.472135901e-01 : tensor<4x4x16xf32>
    %t26, %t27 = nn.softmax_cross_entropy %t25, %targets ignore -100 : (tensor<4x4x16xf32>, tensor<4x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %t26, %t27 : tensor<f32>, tensor<f32>
  }
}
