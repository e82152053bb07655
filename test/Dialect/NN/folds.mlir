// RUN: plait-opt %s --canonicalize | FileCheck %s

// CHECK-LABEL: func @identities(
// CHECK-SAME: %[[X:.*]]: tensor<2x4xf32>)
func.func @identities(%x: tensor<2x4xf32>)
    -> (tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>) {
  %zero = nn.fill 0.0 : tensor<2x4xf32>
  %0 = nn.scale %x by 1.0 : tensor<2x4xf32>
  %1 = nn.shift %x by 0.0 : tensor<2x4xf32>
  %2 = nn.add %x, %zero : tensor<2x4xf32>
  %3 = nn.add %zero, %x : tensor<2x4xf32>
  // CHECK-NEXT: return %[[X]], %[[X]], %[[X]], %[[X]]
  return %0, %1, %2, %3 : tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>
}

// CHECK-LABEL: func @no_identities(
func.func @no_identities(%x: tensor<2x4xf32>)
    -> (tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>) {
  %one = nn.fill 1.0 : tensor<2x4xf32>
  // CHECK: nn.scale
  %0 = nn.scale %x by 0.0 : tensor<2x4xf32>
  // CHECK: nn.shift
  %1 = nn.shift %x by 1.0 : tensor<2x4xf32>
  // CHECK: nn.add
  %2 = nn.add %x, %one : tensor<2x4xf32>
  return %0, %1, %2 : tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>
}

// Widening and back is nothing; narrowing and back rounds.
// CHECK-LABEL: func @casts(
// CHECK-SAME: %[[X:.*]]: tensor<2x4xbf16>, %[[Y:.*]]: tensor<2x4xf32>)
func.func @casts(%x: tensor<2x4xbf16>, %y: tensor<2x4xf32>)
    -> (tensor<2x4xbf16>, tensor<2x4xf32>, tensor<2x4xf32>) {
  // CHECK-NEXT: %[[NARROW:.*]] = nn.cast %[[Y]] : tensor<2x4xf32> -> tensor<2x4xbf16>
  // CHECK-NEXT: %[[ROUNDED:.*]] = nn.cast %[[NARROW]] : tensor<2x4xbf16> -> tensor<2x4xf32>
  %0 = nn.cast %x : tensor<2x4xbf16> -> tensor<2x4xf32>
  %1 = nn.cast %0 : tensor<2x4xf32> -> tensor<2x4xbf16>
  %2 = nn.cast %y : tensor<2x4xf32> -> tensor<2x4xbf16>
  %3 = nn.cast %2 : tensor<2x4xbf16> -> tensor<2x4xf32>
  %4 = nn.cast %y : tensor<2x4xf32> -> tensor<2x4xf32>
  // CHECK-NEXT: return %[[X]], %[[ROUNDED]], %[[Y]]
  return %1, %3, %4 : tensor<2x4xbf16>, tensor<2x4xf32>, tensor<2x4xf32>
}

// What nobody reads is dropped, what the trainer sees is not.
nn.parameter @w : tensor<4xf32> init <mean = 0.0, std = 0.0>
// CHECK-LABEL: func @effects(
func.func @effects(%g: tensor<4xf32>) {
  // CHECK-NEXT: nn.accumulate
  // CHECK-NEXT: return
  %w = nn.read @w value : tensor<4xf32>
  %dead = nn.exp %w : tensor<4xf32>
  nn.accumulate %g to @w gradient : tensor<4xf32>
  return
}

// What drops nothing, or less than an element of 2^32, is nothing.
// CHECK-LABEL: func @dropouts(
// CHECK-SAME: %[[X:.*]]: tensor<2x4xf32>, %[[KEYS:.*]]: tensor<2xi32>)
func.func @dropouts(%x: tensor<2x4xf32>, %keys: tensor<2xi32>)
    -> (tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>) {
  // CHECK-NEXT: %[[Y:.*]] = nn.dropout %[[X]], %[[KEYS]] probability 1.000000e-09 site 0
  // CHECK-NEXT: return %[[X]], %[[X]], %[[Y]]
  %0 = nn.dropout %x, %keys probability 0.0 site 0 : tensor<2x4xf32>, tensor<2xi32>
  %1 = nn.dropout %x, %keys probability 1.0e-12 site 0 : tensor<2x4xf32>, tensor<2xi32>
  %2 = nn.dropout %x, %keys probability 1.0e-09 site 0 : tensor<2x4xf32>, tensor<2xi32>
  return %0, %1, %2 : tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>
}

// Two chunks lie in order, and what is brought back was never away.
// CHECK-LABEL: func @reorders(
// CHECK-SAME: %[[X:.*]]: tensor<2x8xf32>)
func.func @reorders(%x: tensor<2x8xf32>)
    -> (tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>) {
  // CHECK-NEXT: %[[FOUR:.*]] = nn.reorder %[[X]] dim 1 zigzag 4 : tensor<2x8xf32>
  // CHECK-NEXT: %[[OTHER:.*]] = nn.reorder %[[FOUR]] dim 1 zigzag 8 inverse : tensor<2x8xf32>
  // CHECK-NEXT: %[[TWICE:.*]] = nn.reorder %[[FOUR]] dim 1 zigzag 4 : tensor<2x8xf32>
  // CHECK-NEXT: return %[[X]], %[[X]], %[[OTHER]], %[[TWICE]]
  %0 = nn.reorder %x dim 1 zigzag 2 : tensor<2x8xf32>
  %four = nn.reorder %x dim 1 zigzag 4 : tensor<2x8xf32>
  %1 = nn.reorder %four dim 1 zigzag 4 inverse : tensor<2x8xf32>
  %2 = nn.reorder %four dim 1 zigzag 8 inverse : tensor<2x8xf32>
  %3 = nn.reorder %four dim 1 zigzag 4 : tensor<2x8xf32>
  return %0, %1, %2, %3 : tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>
}
