// RUN: plait-opt %s --nn-remove-dropout -split-input-file | FileCheck %s

// The keys go with their last use.
// CHECK-LABEL: func.func @loss
// CHECK-SAME: (%[[X:.*]]: tensor<2x4xf32>, %[[Y:.*]]: tensor<2x4xf32>) -> tensor<2x4xf32>
// CHECK-NEXT: %[[SUM:.*]] = nn.add %[[X]], %[[Y]]
// CHECK-NEXT: return %[[SUM]]
func.func @loss(%x: tensor<2x4xf32>, %y: tensor<2x4xf32>, %keys: tensor<2xi32> {nn.keys}) -> tensor<2x4xf32> {
  %0 = nn.dropout %x, %keys probability 0.1 site 0 : tensor<2x4xf32>, tensor<2xi32>
  %1 = nn.add %0, %y : tensor<2x4xf32>
  return %1 : tensor<2x4xf32>
}

// -----

// Within attention, too.
// CHECK-LABEL: func.func @loss
// CHECK-NOT: tensor<2xi32>
// CHECK: nn.attention
// CHECK-NOT: dropout
// CHECK: return
func.func @loss(%q: tensor<2x8x2x3x4xf32>, %k: tensor<2x8x2x4xf32>, %keys: tensor<2xi32> {nn.keys}) -> tensor<2x8x2x3x4xf32> {
  %o, %l = nn.attention %q, %k, %k scale 0.5 dropout %keys probability 0.1 site 3 : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2xi32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>)
  return %o : tensor<2x8x2x3x4xf32>
}

// -----

// A model without dropout stays as it is.
// CHECK-LABEL: func.func @loss
// CHECK-SAME: (%[[X:.*]]: tensor<2x4xf32>) -> tensor<2x4xf32>
// CHECK-NEXT: %[[Y:.*]] = nn.exp %[[X]]
// CHECK-NEXT: return %[[Y]]
func.func @loss(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = nn.exp %x : tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
