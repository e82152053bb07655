// RUN: plait-opt %s --nn-weigh-targets -split-input-file | FileCheck %s

// The loss of each target and the 1 that it counts as are multiplied by what comes
// in a new argument, whose first dimensions are the tokens'.
// CHECK-LABEL: func.func @loss
// CHECK-SAME: (%{{.*}}: tensor<2x8xi32>, %[[TARGETS:.*]]: tensor<2x8xi32>, %[[LOGITS:.*]]: tensor<2x8x16xf32>, %[[WEIGHTS:[a-z0-9]*]]: tensor<2x8xf32> {nn.features = "target_weights"}) ->
// CHECK: nn.reduce max %[[LOGITS]]
// CHECK: nn.pick %{{.*}}, %[[TARGETS]]
// CHECK: %[[LOSSES:.*]] = nn.sub
// CHECK: %[[VALID:.*]] = nn.valid %[[TARGETS]] ignore -100 : tensor<2x8xi32> -> tensor<2x8xf32>
// CHECK: %[[COUNTED:.*]] = nn.mul %[[VALID]], %[[WEIGHTS]]
// CHECK: %[[WEIGHED:.*]] = nn.mul %[[LOSSES]], %[[COUNTED]]
// CHECK: %[[LOSS:.*]] = nn.reduce sum %[[WEIGHED]] dims [0, 1]
// CHECK: %[[COUNT:.*]] = nn.reduce sum %[[COUNTED]] dims [0, 1]
// CHECK: return %[[LOSS]], %[[COUNT]]
func.func @loss(%tokens: tensor<2x8xi32>, %targets: tensor<2x8xi32>, %x: tensor<2x8x16xf32>) -> (tensor<f32>, tensor<f32>) {
  %loss, %count = nn.softmax_cross_entropy %x, %targets ignore -100 : (tensor<2x8x16xf32>, tensor<2x8xi32>) -> (tensor<f32>, tensor<f32>)
  return %loss, %count : tensor<f32>, tensor<f32>
}

// -----

// Two heads have the same weights. What else a model takes stays where it is.
// CHECK-LABEL: func.func @loss
// CHECK-SAME: %{{.*}}: tensor<2x8x3xf32> {nn.features = "patches"}, %[[WEIGHTS:[a-z0-9]*]]: tensor<2x8xf32> {nn.features = "target_weights"})
// CHECK: nn.mul %{{.*}}, %[[WEIGHTS]]
// CHECK: %[[SECOND:.*]] = nn.mul %{{.*}}, %[[WEIGHTS]]
// CHECK: nn.reduce sum %[[SECOND]]
// CHECK-NOT: nn.softmax_cross_entropy
func.func @loss(%tokens: tensor<2x8xi32>, %targets: tensor<2x8xi32>, %x: tensor<2x8x16xf32>, %patches: tensor<2x8x3xf32> {nn.features = "patches"}) -> (tensor<f32>, tensor<f32>) {
  %loss, %count = nn.softmax_cross_entropy %x, %targets ignore -100 : (tensor<2x8x16xf32>, tensor<2x8xi32>) -> (tensor<f32>, tensor<f32>)
  %other, %same = nn.softmax_cross_entropy %x, %targets ignore 0 : (tensor<2x8x16xf32>, tensor<2x8xi32>) -> (tensor<f32>, tensor<f32>)
  %both = nn.add %loss, %other : tensor<f32>
  return %both, %count : tensor<f32>, tensor<f32>
}
