// RUN: plait-opt %s --pipe-assign-stages -split-input-file | FileCheck %s

// Four layers that cost the same, two on each of two stages. What comes before
// the first layer joins the first stage and what comes after the last the last;
// reads of parameters follow their users and get no stage.
dist.mesh @mesh ["pp", "tp"] = [2, 2]
nn.parameter @w : tensor<4x4xf32> init<mean = 0.0, std = 0.02>
// CHECK-LABEL: func.func @loss(
func.func @loss(%x: tensor<2x4xf32>) -> tensor<f32> {
  // CHECK: nn.read @w value : tensor
  // CHECK: nn.neg {{.*}} {pipe.stage = 0 : i64}
  // CHECK: nn.matmul {{.*}} {nn.layer = 0 : i64, pipe.stage = 0 : i64}
  // CHECK: nn.matmul {{.*}} {nn.layer = 1 : i64, pipe.stage = 0 : i64}
  // CHECK: nn.matmul {{.*}} {nn.layer = 2 : i64, pipe.stage = 1 : i64}
  // CHECK: nn.matmul {{.*}} {nn.layer = 3 : i64, pipe.stage = 1 : i64}
  // CHECK: nn.reduce {{.*}} {pipe.stage = 1 : i64}
  // CHECK: return %{{[0-9]+}} : tensor<f32>
  %w = nn.read @w value : tensor<4x4xf32>
  %0 = nn.neg %x : tensor<2x4xf32>
  %1 = nn.matmul %0, %w "bi,ij->bj" {nn.layer = 0 : i64} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %2 = nn.matmul %1, %w "bi,ij->bj" {nn.layer = 1 : i64} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %3 = nn.matmul %2, %w "bi,ij->bj" {nn.layer = 2 : i64} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %4 = nn.matmul %3, %w "bi,ij->bj" {nn.layer = 3 : i64} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %5 = nn.reduce sum %4 dims [0, 1] : tensor<2x4xf32> -> tensor<f32>
  return %5 : tensor<f32>
}

// -----

// What follows the last layer counts: the head takes 2 · 4 · 16 · 64 = 8192
// operations, a layer 2 · 4 · 16 · 16 = 2048. With three layers on the first
// stage the more expensive stage takes 10240, with two 12288.
dist.mesh @mesh ["pp"] = [2]
nn.parameter @w : tensor<16x16xf32> init<mean = 0.0, std = 0.02>
nn.parameter @head : tensor<16x64xf32> init<mean = 0.0, std = 0.02>
// CHECK-LABEL: func.func @loss(
func.func @loss(%x: tensor<4x16xf32>) -> tensor<4x64xf32> {
  // CHECK: nn.matmul {{.*}} {nn.layer = 2 : i64, pipe.stage = 0 : i64}
  // CHECK: nn.matmul {{.*}} {nn.layer = 3 : i64, pipe.stage = 1 : i64}
  // CHECK: nn.matmul {{.*}} "bi,iv->bv" {pipe.stage = 1 : i64}
  %w = nn.read @w value : tensor<16x16xf32>
  %1 = nn.matmul %x, %w "bi,ij->bj" {nn.layer = 0 : i64} : (tensor<4x16xf32>, tensor<16x16xf32>) -> tensor<4x16xf32>
  %2 = nn.matmul %1, %w "bi,ij->bj" {nn.layer = 1 : i64} : (tensor<4x16xf32>, tensor<16x16xf32>) -> tensor<4x16xf32>
  %3 = nn.matmul %2, %w "bi,ij->bj" {nn.layer = 2 : i64} : (tensor<4x16xf32>, tensor<16x16xf32>) -> tensor<4x16xf32>
  %4 = nn.matmul %3, %w "bi,ij->bj" {nn.layer = 3 : i64} : (tensor<4x16xf32>, tensor<16x16xf32>) -> tensor<4x16xf32>
  %head = nn.read @head value : tensor<16x64xf32>
  %5 = nn.matmul %4, %head "bi,iv->bv" : (tensor<4x16xf32>, tensor<16x64xf32>) -> tensor<4x64xf32>
  return %5 : tensor<4x64xf32>
}

// -----

// So does what comes before the first layer: the mirror image.
dist.mesh @mesh ["pp"] = [2]
nn.parameter @w : tensor<16x16xf32> init<mean = 0.0, std = 0.02>
nn.parameter @foot : tensor<64x16xf32> init<mean = 0.0, std = 0.02>
// CHECK-LABEL: func.func @loss(
func.func @loss(%x: tensor<4x64xf32>) -> tensor<4x16xf32> {
  // CHECK: nn.matmul {{.*}} "bv,vi->bi" {pipe.stage = 0 : i64}
  // CHECK: nn.matmul {{.*}} {nn.layer = 0 : i64, pipe.stage = 0 : i64}
  // CHECK: nn.matmul {{.*}} {nn.layer = 1 : i64, pipe.stage = 1 : i64}
  // CHECK: nn.matmul {{.*}} {nn.layer = 3 : i64, pipe.stage = 1 : i64}
  %foot = nn.read @foot value : tensor<64x16xf32>
  %0 = nn.matmul %x, %foot "bv,vi->bi" : (tensor<4x64xf32>, tensor<64x16xf32>) -> tensor<4x16xf32>
  %w = nn.read @w value : tensor<16x16xf32>
  %1 = nn.matmul %0, %w "bi,ij->bj" {nn.layer = 0 : i64} : (tensor<4x16xf32>, tensor<16x16xf32>) -> tensor<4x16xf32>
  %2 = nn.matmul %1, %w "bi,ij->bj" {nn.layer = 1 : i64} : (tensor<4x16xf32>, tensor<16x16xf32>) -> tensor<4x16xf32>
  %3 = nn.matmul %2, %w "bi,ij->bj" {nn.layer = 2 : i64} : (tensor<4x16xf32>, tensor<16x16xf32>) -> tensor<4x16xf32>
  %4 = nn.matmul %3, %w "bi,ij->bj" {nn.layer = 3 : i64} : (tensor<4x16xf32>, tensor<16x16xf32>) -> tensor<4x16xf32>
  return %4 : tensor<4x16xf32>
}

// -----

// Layers may differ in cost: one of four times the work stands alone. An op
// between two layers belongs to the one before it. Indices need not start at 0.
dist.mesh @mesh ["pp"] = [3]
nn.parameter @w : tensor<16x16xf32> init<mean = 0.0, std = 0.02>
nn.parameter @wide : tensor<16x64xf32> init<mean = 0.0, std = 0.02>
nn.parameter @back : tensor<64x16xf32> init<mean = 0.0, std = 0.02>
// CHECK-LABEL: func.func @loss(
func.func @loss(%x: tensor<4x16xf32>) -> tensor<4x16xf32> {
  // CHECK: nn.matmul {{.*}} {nn.layer = 3 : i64, pipe.stage = 0 : i64}
  // CHECK: nn.neg {{.*}} {pipe.stage = 0 : i64}
  // CHECK: nn.matmul {{.*}} {nn.layer = 5 : i64, pipe.stage = 1 : i64}
  // CHECK: nn.matmul {{.*}} {nn.layer = 5 : i64, pipe.stage = 1 : i64}
  // CHECK: nn.matmul {{.*}} {nn.layer = 6 : i64, pipe.stage = 2 : i64}
  // CHECK: nn.matmul {{.*}} {nn.layer = 9 : i64, pipe.stage = 2 : i64}
  %w = nn.read @w value : tensor<16x16xf32>
  %0 = nn.matmul %x, %w "bi,ij->bj" {nn.layer = 3 : i64} : (tensor<4x16xf32>, tensor<16x16xf32>) -> tensor<4x16xf32>
  %1 = nn.neg %0 : tensor<4x16xf32>
  %wide = nn.read @wide value : tensor<16x64xf32>
  %2 = nn.matmul %1, %wide "bi,ij->bj" {nn.layer = 5 : i64} : (tensor<4x16xf32>, tensor<16x64xf32>) -> tensor<4x64xf32>
  %back = nn.read @back value : tensor<64x16xf32>
  %3 = nn.matmul %2, %back "bi,ij->bj" {nn.layer = 5 : i64} : (tensor<4x64xf32>, tensor<64x16xf32>) -> tensor<4x16xf32>
  %4 = nn.matmul %3, %w "bi,ij->bj" {nn.layer = 6 : i64} : (tensor<4x16xf32>, tensor<16x16xf32>) -> tensor<4x16xf32>
  %5 = nn.matmul %4, %w "bi,ij->bj" {nn.layer = 9 : i64} : (tensor<4x16xf32>, tensor<16x16xf32>) -> tensor<4x16xf32>
  return %5 : tensor<4x16xf32>
}

// -----

// Without an axis "pp" there is one stage, layers or none.
dist.mesh @mesh ["dp"] = [2]
// CHECK-LABEL: func.func @loss(
func.func @loss(%x: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK: nn.neg {{.*}} {pipe.stage = 0 : i64}
  %0 = nn.neg %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
// Functions other than @loss are left alone.
// CHECK-LABEL: func.func @other(
func.func @other(%x: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK: nn.neg %{{.*}} : tensor
  %0 = nn.neg %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
