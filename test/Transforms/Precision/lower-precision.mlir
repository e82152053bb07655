// RUN: plait-opt %s --plait-configure=precision=bf16 --nn-lower-precision -split-input-file | FileCheck %s

// The parameter stays f32; what is computed with is its compute copy. Statistics
// stay f32, and so does the loss.
nn.parameter @table : tensor<16x4xf32> init <mean = 0.0, std = 0.02>
nn.parameter @scale : tensor<4xf32> init <mean = 1.0, std = 0.0>
// CHECK: nn.parameter @table : tensor<16x4xf32>
// CHECK-LABEL: func.func @loss(
// CHECK-SAME: -> (tensor<f32>, tensor<f32>)
func.func @loss(%tokens: tensor<2x8xi32>, %targets: tensor<2x8xi32>) -> (tensor<f32>, tensor<f32>) {
  // CHECK: %[[TABLE:.*]] = nn.read @table compute : tensor<16x4xbf16>
  %table = nn.read @table value : tensor<16x4xf32>
  %scale = nn.read @scale value : tensor<4xf32>
  // CHECK: nn.embedding %[[TABLE]], %{{.*}} {nn.layer = 0 : i64} : (tensor<16x4xbf16>, tensor<2x8xi32>) -> tensor<2x8x4xbf16>
  %0 = nn.embedding %table, %tokens {nn.layer = 0 : i64} : (tensor<16x4xf32>, tensor<2x8xi32>) -> tensor<2x8x4xf32>
  // CHECK: nn.fill 1.000000e+00 : tensor<2x8x4xbf16>
  %1 = nn.fill 1.0 : tensor<2x8x4xf32>
  // CHECK: nn.add %{{.*}} : tensor<2x8x4xbf16>
  %2 = nn.add %0, %1 : tensor<2x8x4xf32>
  // CHECK: nn.rms_norm {{.*}} : (tensor<2x8x4xbf16>, tensor<4xbf16>) -> (tensor<2x8x4xbf16>, tensor<2x8xf32>)
  %3:2 = nn.rms_norm %2, %scale epsilon 1.0e-05 : (tensor<2x8x4xf32>, tensor<4xf32>) -> (tensor<2x8x4xf32>, tensor<2x8xf32>)
  %4 = nn.matmul %3#0, %table "bsh,vh->bsv" : (tensor<2x8x4xf32>, tensor<16x4xf32>) -> tensor<2x8x16xf32>
  // CHECK: nn.softmax_cross_entropy %{{.*}} : (tensor<2x8x16xbf16>, tensor<2x8xi32>) -> (tensor<f32>, tensor<f32>)
  %5:2 = nn.softmax_cross_entropy %4, %targets ignore -100 : (tensor<2x8x16xf32>, tensor<2x8xi32>) -> (tensor<f32>, tensor<f32>)
  return %5#0, %5#1 : tensor<f32>, tensor<f32>
}

// -----

// A function that computes in bf16 already, its loss decomposed, stays.
nn.parameter @w : tensor<4xf32> init <mean = 1.0, std = 0.0>
// CHECK-LABEL: func.func @loss(
// CHECK: nn.read @w compute
// CHECK-NEXT: nn.cast %{{.*}} : tensor<4xbf16> -> tensor<4xf32>
// CHECK-NEXT: nn.reduce sum %{{.*}} : tensor<4xf32> -> tensor<f32>
func.func @loss(%tokens: tensor<2x8xi32>, %targets: tensor<2x8xi32>) -> (tensor<f32>, tensor<f32>) {
  %w = nn.read @w compute : tensor<4xbf16>
  %0 = nn.cast %w : tensor<4xbf16> -> tensor<4xf32>
  %1 = nn.reduce sum %0 dims [0] : tensor<4xf32> -> tensor<f32>
  return %1, %1 : tensor<f32>, tensor<f32>
}

// -----

// A loss of one's own is f32 behind the last matmul: of the logits, which are bf16
// for the cross-entropy as well, and of a sum in a layer. What the matmul reads is
// not.
nn.parameter @table : tensor<16x4xf32> init <mean = 0.0, std = 0.02>
// CHECK-LABEL: func.func @loss(
func.func @loss(%tokens: tensor<2x8xi32>, %targets: tensor<2x8xi32>) -> (tensor<f32>, tensor<f32>) {
  %table = nn.read @table value : tensor<16x4xf32>
  // CHECK: %[[X:.*]] = nn.embedding {{.*}} -> tensor<2x8x4xbf16>
  %x = nn.embedding %table, %tokens : (tensor<16x4xf32>, tensor<2x8xi32>) -> tensor<2x8x4xf32>
  // CHECK: %[[WIDE:.*]] = nn.cast %[[X]] {nn.layer = 0 : i64} : tensor<2x8x4xbf16> -> tensor<2x8x4xf32>
  // CHECK: %[[SQUARES:.*]] = nn.mul %[[WIDE]], %[[WIDE]] {nn.layer = 0 : i64} : tensor<2x8x4xf32>
  // CHECK: %[[NORM:.*]] = nn.reduce sum %[[SQUARES]] {{.*}} : tensor<2x8x4xf32> -> tensor<f32>
  %squares = nn.mul %x, %x {nn.layer = 0 : i64} : tensor<2x8x4xf32>
  %norm = nn.reduce sum %squares dims [0, 1, 2] {nn.layer = 0 : i64} : tensor<2x8x4xf32> -> tensor<f32>
  // CHECK: %[[BENT:.*]] = nn.tanh %[[X]] {nn.layer = 0 : i64} : tensor<2x8x4xbf16>
  %bent = nn.tanh %x {nn.layer = 0 : i64} : tensor<2x8x4xf32>
  // CHECK: %[[LOGITS:.*]] = nn.matmul %[[BENT]], {{.*}} -> tensor<2x8x16xbf16>
  %logits = nn.matmul %bent, %table "bsh,vh->bsv" : (tensor<2x8x4xf32>, tensor<16x4xf32>) -> tensor<2x8x16xf32>
  // CHECK: %[[LOSS:.*]], %[[COUNT:.*]] = nn.softmax_cross_entropy %[[LOGITS]], {{.*}} -> (tensor<f32>, tensor<f32>)
  %loss, %count = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x8x16xf32>, tensor<2x8xi32>) -> (tensor<f32>, tensor<f32>)
  // CHECK: %[[SCALED:.*]] = nn.scale %[[LOSS]] by 5.000000e-01 : tensor<f32>
  %half = nn.scale %loss by 0.5 : tensor<f32>
  // CHECK: %[[WIDELOGITS:.*]] = nn.cast %[[LOGITS]] : tensor<2x8x16xbf16> -> tensor<2x8x16xf32>
  // CHECK: %[[ALL:.*]] = nn.reduce sum %[[WIDELOGITS]]
  %all = nn.reduce sum %logits dims [0, 1, 2] : tensor<2x8x16xf32> -> tensor<f32>
  // CHECK: nn.add %[[SCALED]], %[[ALL]] : tensor<f32>
  %1 = nn.add %half, %all : tensor<f32>
  // CHECK: nn.add %{{.*}}, %[[NORM]] : tensor<f32>
  %2 = nn.add %1, %norm : tensor<f32>
  // CHECK: return %{{.*}}, %[[COUNT]] : tensor<f32>, tensor<f32>
  return %2, %count : tensor<f32>, tensor<f32>
}

// -----

// Parameters alone, and a contraction that is a loss itself.
nn.parameter @w : tensor<4xf32> init <mean = 1.0, std = 0.0>
// CHECK-LABEL: func.func @loss(
// CHECK: %[[W:.*]] = nn.read @w compute : tensor<4xbf16>
// CHECK-NEXT: %[[DOT:.*]] = nn.matmul %[[W]], %[[W]] {{.*}} : (tensor<4xbf16>, tensor<4xbf16>) -> tensor<f32>
// CHECK-NEXT: %[[CAST:.*]] = nn.cast %[[W]] : tensor<4xbf16> -> tensor<4xf32>
// CHECK-NEXT: %[[SUM:.*]] = nn.reduce sum %[[CAST]] dims [0] : tensor<4xf32> -> tensor<f32>
// CHECK-NEXT: return %[[DOT]], %[[SUM]]
func.func @loss(%tokens: tensor<2x8xi32>, %targets: tensor<2x8xi32>) -> (tensor<f32>, tensor<f32>) {
  %w = nn.read @w value : tensor<4xf32>
  %0 = nn.matmul %w, %w "h,h->" : (tensor<4xf32>, tensor<4xf32>) -> tensor<f32>
  %1 = nn.reduce sum %w dims [0] : tensor<4xf32> -> tensor<f32>
  return %0, %1 : tensor<f32>, tensor<f32>
}
