// RUN: plaitc %s --mesh dp=2,tp=2 --no-plan --global-batch 2 --seq 9 --sequence-parallel --no-reference --schedule 1f1b -o %t.plan
// RUN: plait-plan show %t.plan | FileCheck %s
// CHECK: proven

// tp divides the equal copies of %t38: what each rank has added up of its own is half
// of the whole, and is added to a partial sum before both go into one over tp.
module attributes {plait.model = {layers = 3 : i64, model_type = "drawn", name = "drawn", vocab = 2 : i64}} {
  nn.parameter @p0 : tensor<2x15xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @p6 : tensor<15xf32> init<mean = 1.0, std = 0.2>
  nn.parameter @p7 : tensor<4x2x3x15xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @p8 : tensor<4x3x15xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @p10 : tensor<15x8xf32> init<mean = 0.0, std = 0.5>
  func.func @loss(%tokens: tensor<2x9xi32>, %targets: tensor<2x9xi32>) -> (tensor<f32>, tensor<f32>) {
    %t2 = nn.read @p0 value : tensor<2x15xf32>
    %t3 = nn.embedding %t2, %tokens : (tensor<2x15xf32>, tensor<2x9xi32>) -> tensor<2x9x15xf32>
    %t22 = nn.read @p6 value {nn.layer = 1 : i64} : tensor<15xf32>
    %t23, %t24 = nn.rms_norm %t3, %t22 epsilon 9.999999776e-03 {nn.layer = 1 : i64} : (tensor<2x9x15xf32>, tensor<15xf32>) -> (tensor<2x9x15xf32>, tensor<2x9xf32>)
    %t25 = nn.read @p7 value {nn.layer = 1 : i64} : tensor<4x2x3x15xf32>
    %t26 = nn.matmul %t23, %t25 "bsh,grdh->bsgrd" {nn.layer = 1 : i64} : (tensor<2x9x15xf32>, tensor<4x2x3x15xf32>) -> tensor<2x9x4x2x3xf32>
    %t28 = nn.read @p8 value {nn.layer = 1 : i64} : tensor<4x3x15xf32>
    %t30 = nn.matmul %t3, %t28 "bsh,gdh->bsgd" {nn.layer = 1 : i64} : (tensor<2x9x15xf32>, tensor<4x3x15xf32>) -> tensor<2x9x4x3xf32>
    %t35, %t36 = nn.attention %t26, %t30, %t30 scale 5.773502588e-01 {nn.layer = 1 : i64} : (tensor<2x9x4x2x3xf32>, tensor<2x9x4x3xf32>, tensor<2x9x4x3xf32>) -> (tensor<2x9x4x2x3xf32>, tensor<2x4x2x9xf32>)
    %t37 = nn.read @p7 value {nn.layer = 1 : i64} : tensor<4x2x3x15xf32>
    %t38 = nn.matmul %t35, %t37 "bsgrd,grdh->bsh" {nn.layer = 1 : i64} : (tensor<2x9x4x2x3xf32>, tensor<4x2x3x15xf32>) -> tensor<2x9x15xf32>
    %t42 = nn.broadcast %t38 dims [1, 2, 4] {nn.layer = 2 : i64} : tensor<2x9x15xf32> -> tensor<2x2x9x7x15xf32>
    %t47 = nn.read @p10 value {nn.layer = 2 : i64} : tensor<15x8xf32>
    %t48 = nn.matmul %t38, %t47 "bsh,hf->bsf" {nn.layer = 2 : i64} : (tensor<2x9x15xf32>, tensor<15x8xf32>) -> tensor<2x9x8xf32>
    %t54 = nn.read @p10 value {nn.layer = 2 : i64} : tensor<15x8xf32>
    %t55 = nn.matmul %t48, %t54 "bsf,hf->bsh" {nn.layer = 2 : i64} : (tensor<2x9x8xf32>, tensor<15x8xf32>) -> tensor<2x9x15xf32>
    %t61 = nn.reduce sum %t42 dims [0, 3] {nn.layer = 2 : i64} : tensor<2x2x9x7x15xf32> -> tensor<2x9x15xf32>
    %t65 = nn.mul %t55, %t61 {nn.layer = 2 : i64} : tensor<2x9x15xf32>
    %t67 = nn.matmul %t65, %t2 "bsh,vh->bsv" : (tensor<2x9x15xf32>, tensor<2x15xf32>) -> tensor<2x9x2xf32>
    %t69, %t70 = nn.softmax_cross_entropy %t67, %targets ignore -100 : (tensor<2x9x2xf32>, tensor<2x9xi32>) -> (tensor<f32>, tensor<f32>)
    return %t69, %t70 : tensor<f32>, tensor<f32>
  }
}
