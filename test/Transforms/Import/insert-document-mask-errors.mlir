// RUN: plait-opt %s --nn-insert-document-mask --verify-diagnostics

// Documents begin at a position, but where they end no query is told.
func.func @loss(%tokens: tensor<2x8xi32>, %targets: tensor<2x8xi32>, %q: tensor<2x8x2x3x4xf32>, %k: tensor<2x8x2x4xf32>) -> tensor<2x8x2x3x4xf32> {
  // expected-error @+1 {{is bidirectional, and a document mask is for causal attention}}
  %o, %l = nn.attention %q, %k, %k scale 0.5 bidirectional : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>)
  return %o : tensor<2x8x2x3x4xf32>
}
