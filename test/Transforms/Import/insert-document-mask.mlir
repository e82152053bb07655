// RUN: plait-opt %s --nn-insert-document-mask -split-input-file | FileCheck %s
// Twice is once.
// RUN: plait-opt %s --nn-insert-document-mask --nn-insert-document-mask -split-input-file | FileCheck %s

// Each attention gets the same starts, an argument of the tokens' type.
// CHECK-LABEL: func.func @loss
// CHECK-SAME: (%{{.*}}: tensor<2x8xi32>, %{{.*}}: tensor<2x8xi32>, %[[Q:.*]]: tensor<2x8x2x3x4xf32>, %[[K:.*]]: tensor<2x8x2x4xf32>, %[[STARTS:[a-z0-9]*]]: tensor<2x8xi32> {nn.starts}) ->
// CHECK: nn.attention %[[Q]], %[[K]], %[[K]] scale 5.000000e-01 starts %[[STARTS]] :
// CHECK: nn.attention %[[Q]], %[[K]], %[[K]] scale 5.000000e-01 window 4 starts %[[STARTS]] :
func.func @loss(%tokens: tensor<2x8xi32>, %targets: tensor<2x8xi32>, %q: tensor<2x8x2x3x4xf32>, %k: tensor<2x8x2x4xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x8x2x3x4xf32>) {
  %o, %l = nn.attention %q, %k, %k scale 0.5 : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>)
  %p, %m = nn.attention %q, %k, %k scale 0.5 window 4 : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>)
  return %o, %p : tensor<2x8x2x3x4xf32>, tensor<2x8x2x3x4xf32>
}

// -----

// A model that has the argument uses it.
// CHECK-LABEL: func.func @loss
// CHECK-SAME: (%{{.*}}: tensor<2x8xi32>, %{{.*}}: tensor<2x8xi32>, %[[STARTS:.*]]: tensor<2x8xi32> {nn.starts}, %{{.*}}: tensor<2x8x2x3x4xf32>, %{{[a-z0-9]*}}: tensor<2x8x2x4xf32>) ->
// CHECK: nn.attention {{.*}} starts %[[STARTS]] :
func.func @loss(%tokens: tensor<2x8xi32>, %targets: tensor<2x8xi32>, %starts: tensor<2x8xi32> {nn.starts}, %q: tensor<2x8x2x3x4xf32>, %k: tensor<2x8x2x4xf32>) -> tensor<2x8x2x3x4xf32> {
  %o, %l = nn.attention %q, %k, %k scale 0.5 starts %starts : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8xi32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>)
  return %o : tensor<2x8x2x3x4xf32>
}
