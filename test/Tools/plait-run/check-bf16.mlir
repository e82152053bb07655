// In bf16 four tokens leave a loss farther off than the fixed bound: it is held
// against what rounding does to this model.

// RUN: plaitc %s --mesh pp=3 --no-plan --micro-batch 2 --global-batch 2 --seq 2 \
// RUN:   --schedule gpipe --recompute full --precision bf16 -o %t.plan
// RUN: plait-run %t.plan --check --seed 105 | FileCheck %s
// RUN: plait-run %t.plan --check --seed 244 | FileCheck %s
// CHECK: gradient norm {{.*}}: passed

module attributes {plait.model = {layers = 3 : i64, model_type = "drawn", name = "drawn", vocab = 16 : i64}} {
  nn.parameter @p0 : tensor<16x24xf32> init<mean = 0.0, std = 0.5> decay
  nn.parameter @p1 : tensor<24x6xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @p2 : tensor<6x24xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @p3 : tensor<24x6xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @p4 : tensor<6x24xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @p5 : tensor<24x6xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @p6 : tensor<6x24xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @p7 : tensor<24xf32> init<mean = 1.0, std = 0.2>
  nn.parameter @p8 : tensor<24xf32> init<mean = 0.0, std = 0.2>
  func.func @loss(%tokens: tensor<2x2xi32>, %targets: tensor<2x2xi32>) -> (tensor<f32>, tensor<f32>) {
    %t1 = nn.read @p0 value : tensor<16x24xf32>
    %t3 = nn.read @p0 value : tensor<16x24xf32>
    %t2 = nn.embedding %t3, %tokens : (tensor<16x24xf32>, tensor<2x2xi32>) -> tensor<2x2x24xf32>
    %t4 = nn.tanh %t2 {nn.layer = 0 : i64} : tensor<2x2x24xf32>
    %t5 = nn.reduce sum %t2 dims [0, 2] {nn.layer = 0 : i64} : tensor<2x2x24xf32> -> tensor<2xf32>
    %t6 = nn.scale %t5 by 2.083333e-02 {nn.layer = 0 : i64} : tensor<2xf32>
    %t7 = nn.reduce sum %t4 dims [1] {nn.layer = 0 : i64} : tensor<2x2x24xf32> -> tensor<2x24xf32>
    %t8 = nn.scale %t7 by 5.000000e-01 {nn.layer = 0 : i64} : tensor<2x24xf32>
    %t9 = nn.tanh %t2 {nn.layer = 0 : i64} : tensor<2x2x24xf32>
    %t10 = nn.read @p1 value {nn.layer = 0 : i64} : tensor<24x6xf32>
    %t11 = nn.matmul %t9, %t10 "bsh,hg->bsg" {nn.layer = 0 : i64} : (tensor<2x2x24xf32>, tensor<24x6xf32>) -> tensor<2x2x6xf32>
    %t12 = nn.scale %t11 by 2.041241e-01 {nn.layer = 0 : i64} : tensor<2x2x6xf32>
    %t13 = nn.silu %t12 {nn.layer = 0 : i64} : tensor<2x2x6xf32>
    %t14 = nn.read @p2 value {nn.layer = 0 : i64} : tensor<6x24xf32>
    %t15 = nn.matmul %t13, %t14 "bsg,gh->bsh" {nn.layer = 0 : i64} : (tensor<2x2x6xf32>, tensor<6x24xf32>) -> tensor<2x2x24xf32>
    %t16 = nn.scale %t15 by 4.082483e-01 {nn.layer = 0 : i64} : tensor<2x2x24xf32>
    %t17 = nn.add %t2, %t16 {nn.layer = 0 : i64} : tensor<2x2x24xf32>
    %t18 = nn.broadcast %t17 dims [0, 1, 3] {nn.layer = 1 : i64} : tensor<2x2x24xf32> -> tensor<2x2x17x24xf32>
    %t19 = nn.tanh %t16 {nn.layer = 1 : i64} : tensor<2x2x24xf32>
    %t20 = nn.read @p3 value {nn.layer = 1 : i64} : tensor<24x6xf32>
    %t21 = nn.matmul %t19, %t20 "bsh,hg->bsg" {nn.layer = 1 : i64} : (tensor<2x2x24xf32>, tensor<24x6xf32>) -> tensor<2x2x6xf32>
    %t22 = nn.scale %t21 by 2.041241e-01 {nn.layer = 1 : i64} : tensor<2x2x6xf32>
    %t23 = nn.silu %t22 {nn.layer = 1 : i64} : tensor<2x2x6xf32>
    %t24 = nn.read @p4 value {nn.layer = 1 : i64} : tensor<6x24xf32>
    %t25 = nn.matmul %t23, %t24 "bsg,gh->bsh" {nn.layer = 1 : i64} : (tensor<2x2x6xf32>, tensor<6x24xf32>) -> tensor<2x2x24xf32>
    %t26 = nn.scale %t25 by 4.082483e-01 {nn.layer = 1 : i64} : tensor<2x2x24xf32>
    %t27 = nn.add %t17, %t26 {nn.layer = 1 : i64} : tensor<2x2x24xf32>
    %t28 = nn.gelu %t27 {nn.layer = 2 : i64} : tensor<2x2x24xf32>
    %t29 = nn.tanh %t27 {nn.layer = 2 : i64} : tensor<2x2x24xf32>
    %t30 = nn.exp %t29 {nn.layer = 2 : i64} : tensor<2x2x24xf32>
    %t31 = nn.tanh %t26 {nn.layer = 2 : i64} : tensor<2x2x24xf32>
    %t32 = nn.read @p5 value {nn.layer = 2 : i64} : tensor<24x6xf32>
    %t33 = nn.matmul %t31, %t32 "bsh,hg->bsg" {nn.layer = 2 : i64} : (tensor<2x2x24xf32>, tensor<24x6xf32>) -> tensor<2x2x6xf32>
    %t34 = nn.scale %t33 by 2.041241e-01 {nn.layer = 2 : i64} : tensor<2x2x6xf32>
    %t35 = nn.silu %t34 {nn.layer = 2 : i64} : tensor<2x2x6xf32>
    %t36 = nn.read @p6 value {nn.layer = 2 : i64} : tensor<6x24xf32>
    %t37 = nn.matmul %t35, %t36 "bsg,gh->bsh" {nn.layer = 2 : i64} : (tensor<2x2x6xf32>, tensor<6x24xf32>) -> tensor<2x2x24xf32>
    %t38 = nn.scale %t37 by 4.082483e-01 {nn.layer = 2 : i64} : tensor<2x2x24xf32>
    %t39 = nn.add %t30, %t38 {nn.layer = 2 : i64} : tensor<2x2x24xf32>
    %t41 = nn.read @p7 value : tensor<24xf32>
    %t42 = nn.read @p8 value : tensor<24xf32>
    %t40, %t43, %t44 = nn.layer_norm %t39, %t41, %t42 epsilon 1.0e-02 : (tensor<2x2x24xf32>, tensor<24xf32>, tensor<24xf32>) -> (tensor<2x2x24xf32>, tensor<2x2xf32>, tensor<2x2xf32>)
    %t45 = nn.read @p0 value : tensor<16x24xf32>
    %t46 = nn.matmul %t40, %t45 "bsh,vh->bsv" : (tensor<2x2x24xf32>, tensor<16x24xf32>) -> tensor<2x2x16xf32>
    %t47 = nn.scale %t46 by 2.041241e-01 : tensor<2x2x16xf32>
    %t48, %t49 = nn.softmax_cross_entropy %t47, %targets ignore 1 : (tensor<2x2x16xf32>, tensor<2x2xi32>) -> (tensor<f32>, tensor<f32>)
    return %t48, %t49 : tensor<f32>, tensor<f32>
  }
}
