// RUN: plait-opt %s -split-input-file -verify-diagnostics --nn-insert-balance=terms=bias=0.001

func.func @loss(%tokens: tensor<2x8xi32>, %targets: tensor<2x8xi32>, %logits: tensor<2x8x4xf32>, %sum: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  // expected-error @+1 {{has no bias that is a parameter, by which `balance` bias= would balance it; sequence= needs none}}
  %w, %ids = nn.route %logits choices 2 scores softmax : (tensor<2x8x4xf32>) -> (tensor<2x8x2xf32>, tensor<2x8x2xi32>)
  return %sum, %sum : tensor<f32>, tensor<f32>
}

// -----

func.func @loss(%tokens: tensor<2x8xi32>, %targets: tensor<2x8xi32>, %logits: tensor<2x8x4xf32>, %sum: tensor<f32>, %bias: tensor<4xf32>) -> (tensor<f32>, tensor<f32>) {
  // expected-error @+1 {{has no bias that is a parameter}}
  %w, %ids = nn.route %logits bias %bias choices 2 scores sigmoid : (tensor<2x8x4xf32>, tensor<4xf32>) -> (tensor<2x8x2xf32>, tensor<2x8x2xi32>)
  return %sum, %sum : tensor<f32>, tensor<f32>
}

// -----

func.func @loss(%tokens: tensor<2x8xi32>, %targets: tensor<2x8xi32>, %logits: tensor<16x4xf32>, %sum: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  // expected-error @+1 {{routes 'tensor<16x4xf32>', and `balance` is for tokens of the shape of targets}}
  %w, %ids = nn.route %logits choices 2 scores softmax : (tensor<16x4xf32>) -> (tensor<16x2xf32>, tensor<16x2xi32>)
  return %sum, %sum : tensor<f32>, tensor<f32>
}
