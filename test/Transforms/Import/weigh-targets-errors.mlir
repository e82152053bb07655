// RUN: plait-opt %s --nn-weigh-targets -split-input-file --verify-diagnostics

// expected-error @+1 {{@loss has no nn.softmax_cross_entropy whose targets `target-weights` would weigh}}
func.func @loss(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  return %x : tensor<2x4xf32>
}

// -----

// A number of targets that weights do not change would make no mean.
// expected-error @+1 {{@loss does not return as its number of targets what an nn.softmax_cross_entropy counts}}
func.func @loss(%tokens: tensor<2x8xi32>, %targets: tensor<2x8xi32>, %x: tensor<2x8x16xf32>) -> (tensor<f32>, tensor<f32>) {
  %loss, %count = nn.softmax_cross_entropy %x, %targets ignore -100 : (tensor<2x8x16xf32>, tensor<2x8xi32>) -> (tensor<f32>, tensor<f32>)
  %valid = nn.valid %targets ignore -100 : tensor<2x8xi32> -> tensor<2x8xf32>
  %sum = nn.reduce sum %valid dims [0, 1] : tensor<2x8xf32> -> tensor<f32>
  return %loss, %sum : tensor<f32>, tensor<f32>
}

// -----

// expected-error @+1 {{@loss does not return as its number of targets what an nn.softmax_cross_entropy counts}}
func.func @loss(%tokens: tensor<2x8xi32>, %targets: tensor<2x8xi32>, %x: tensor<2x8x16xf32>) -> tensor<f32> {
  %loss, %count = nn.softmax_cross_entropy %x, %targets ignore -100 : (tensor<2x8x16xf32>, tensor<2x8xi32>) -> (tensor<f32>, tensor<f32>)
  return %loss : tensor<f32>
}

// -----

func.func @loss(%tokens: tensor<2x8xi32>, %targets: tensor<2x8xi32>, %x: tensor<2x4x16xf32>, %own: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>) {
  // expected-error @+1 {{has targets of type 'tensor<2x4xi32>', of which `target-weights` has no weights, but of those of @loss}}
  %loss, %count = nn.softmax_cross_entropy %x, %own ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
  return %loss, %count : tensor<f32>, tensor<f32>
}

// -----

// expected-error @+1 {{@loss has a float input "target_weights" already}}
func.func @loss(%tokens: tensor<2x8xi32>, %targets: tensor<2x8xi32>, %x: tensor<2x8x16xf32>, %w: tensor<2x8xf32> {nn.features = "target_weights"}) -> (tensor<f32>, tensor<f32>) {
  %loss, %count = nn.softmax_cross_entropy %x, %targets ignore -100 : (tensor<2x8x16xf32>, tensor<2x8xi32>) -> (tensor<f32>, tensor<f32>)
  return %loss, %count : tensor<f32>, tensor<f32>
}
