// RUN: plait-opt %s --plan-form-clusters | FileCheck %s

// A path may lead back in the program: a kernel that has ops on both sides of
// another is made after it as a whole, and what needs the kernel comes later still.
// %35 would else be made in a kernel before %20, which it reads.
// CHECK-LABEL: func.func @backward_0(
// CHECK: nn.accumulate %{{.*}} to @p1
// CHECK: nn.accumulate %{{.*}} to @p0

nn.parameter @p0 : tensor<2x12xf32> init<mean = 0.000000e+00 : f64, std = 5.000000e-01 : f64> decay
nn.parameter @p1 : tensor<7xf32> init<mean = 0.000000e+00 : f64, std = 5.000000e-01 : f64>
func.func @backward_0(%arg0: tensor<37xf32> {pipe.port = #pipe.port<residual 0>}, %arg1: tensor<1x37xf32> {pipe.port = #pipe.port<residual 1>}, %arg2: tensor<1x37xf32> {pipe.port = #pipe.port<residual 2>}, %arg3: tensor<1x37xi32> {pipe.port = #pipe.port<targets>}, %arg4: tensor<1x37x2xf32> {pipe.port = #pipe.port<residual 3>}, %arg5: tensor<1x37x12xf32> {pipe.port = #pipe.port<residual 4>}, %arg6: tensor<1x37xi32> {pipe.port = #pipe.port<tokens>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  %0 = nn.read @p0  value : tensor<2x12xf32>
  %1 = nn.broadcast %arg0 dims [1] {nn.layer = 0 : i64} : tensor<37xf32> -> tensor<1x37x12xf32>
  %2 = nn.fill 1.000000e+00 : tensor<f32>
  %3 = nn.broadcast %2 dims [] : tensor<f32> -> tensor<1x37xf32>
  %4 = nn.mul %3, %arg1 : tensor<1x37xf32>
  %5 = nn.neg %4 : tensor<1x37xf32>
  %6 = nn.div %4, %arg2 : tensor<1x37xf32>
  %7 = nn.broadcast %5 dims [0, 1] : tensor<1x37xf32> -> tensor<1x37x2xf32>
  %8 = nn.pick %7, %arg3 : tensor<1x37x2xf32>, tensor<1x37xi32> -> tensor<1x37x2xf32>
  %9 = nn.broadcast %6 dims [0, 1] : tensor<1x37xf32> -> tensor<1x37x2xf32>
  %10 = nn.mul %9, %arg4 : tensor<1x37x2xf32>
  %11 = nn.add %8, %10 : tensor<1x37x2xf32>
  %12 = nn.matmul %11, %0 "bsv,vh->bsh" : (tensor<1x37x2xf32>, tensor<2x12xf32>) -> tensor<1x37x12xf32>
  %13 = nn.matmul %1, %11 "bsh,bsv->vh" : (tensor<1x37x12xf32>, tensor<1x37x2xf32>) -> tensor<2x12xf32>
  %14 = nn.reduce  sum %12 dims [0, 2] {nn.layer = 0 : i64} : tensor<1x37x12xf32> -> tensor<37xf32>
  %15 = nn.read @p1  value {nn.layer = 0 : i64} : tensor<7xf32>
  %16 = nn.fill 5.000000e-01 {nn.layer = 0 : i64} : tensor<1x37xf32>
  %17 = nn.matmul %16, %15 "bs,k->bsk" {nn.layer = 0 : i64} : (tensor<1x37xf32>, tensor<7xf32>) -> tensor<1x37x7xf32>
  %18 = nn.matmul %17, %17 "bsk,bsk->bs" {nn.layer = 0 : i64} : (tensor<1x37x7xf32>, tensor<1x37x7xf32>) -> tensor<1x37xf32>
  %19 = nn.tanh %18 {nn.layer = 0 : i64} : tensor<1x37xf32>
  %20 = nn.matmul %14, %19 "s,bs->b" {nn.layer = 0 : i64} : (tensor<37xf32>, tensor<1x37xf32>) -> tensor<1xf32>
  %21 = nn.matmul %arg5, %arg5 "bsh,bsh->b" {nn.layer = 0 : i64} : (tensor<1x37x12xf32>, tensor<1x37x12xf32>) -> tensor<1xf32>
  %22 = nn.tanh %21 {nn.layer = 0 : i64} : tensor<1xf32>
  %23 = nn.matmul %22, %14 "b,s->bs" {nn.layer = 0 : i64} : (tensor<1xf32>, tensor<37xf32>) -> tensor<1x37xf32>
  %24 = nn.mul %19, %19 {nn.layer = 0 : i64} : tensor<1x37xf32>
  %25 = nn.neg %24 {nn.layer = 0 : i64} : tensor<1x37xf32>
  %26 = nn.shift %25 by 1.000000e+00 {nn.layer = 0 : i64} : tensor<1x37xf32>
  %27 = nn.mul %23, %26 {nn.layer = 0 : i64} : tensor<1x37xf32>
  %28 = nn.matmul %27, %17 "bs,bsk->bsk" {nn.layer = 0 : i64} : (tensor<1x37xf32>, tensor<1x37x7xf32>) -> tensor<1x37x7xf32>
  %29 = nn.matmul %17, %27 "bsk,bs->bsk" {nn.layer = 0 : i64} : (tensor<1x37x7xf32>, tensor<1x37xf32>) -> tensor<1x37x7xf32>
  %30 = nn.add %28, %29 {nn.layer = 0 : i64} : tensor<1x37x7xf32>
  %31 = nn.matmul %16, %30 "bs,bsk->k" {nn.layer = 0 : i64} : (tensor<1x37xf32>, tensor<1x37x7xf32>) -> tensor<7xf32>
  nn.accumulate %31 to @p1  gradient {nn.layer = 0 : i64} : tensor<7xf32>
  %32 = nn.mul %22, %22 {nn.layer = 0 : i64} : tensor<1xf32>
  %33 = nn.neg %32 {nn.layer = 0 : i64} : tensor<1xf32>
  %34 = nn.shift %33 by 1.000000e+00 {nn.layer = 0 : i64} : tensor<1xf32>
  %35 = nn.mul %20, %34 {nn.layer = 0 : i64} : tensor<1xf32>
  %36 = nn.matmul %35, %arg5 "b,bsh->bsh" {nn.layer = 0 : i64} : (tensor<1xf32>, tensor<1x37x12xf32>) -> tensor<1x37x12xf32>
  %37 = nn.matmul %arg5, %35 "bsh,b->bsh" {nn.layer = 0 : i64} : (tensor<1x37x12xf32>, tensor<1xf32>) -> tensor<1x37x12xf32>
  %38 = nn.add %36, %37 : tensor<1x37x12xf32>
  %39 = nn.embedding_grad %38, %arg6 : (tensor<1x37x12xf32>, tensor<1x37xi32>) -> tensor<2x12xf32>
  %40 = nn.add %13, %39 : tensor<2x12xf32>
  nn.accumulate %40 to @p0  gradient : tensor<2x12xf32>
  return
}
