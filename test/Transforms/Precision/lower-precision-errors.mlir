// RUN: plait-opt %s --plait-configure=precision=bf16 --nn-lower-precision -split-input-file -verify-diagnostics

// expected-error @below {{has no function @loss to compute in bf16}}
module {
}

// -----

nn.parameter @w : tensor<4xf32> init <mean = 1.0, std = 0.0>
// expected-error @below {{returns result 0 in bf16, expected one that nn.softmax_cross_entropy makes}}
func.func @loss(%tokens: tensor<2x8xi32>, %targets: tensor<2x8xi32>) -> (tensor<f32>, tensor<f32>) {
  %w = nn.read @w value : tensor<4xf32>
  %0 = nn.reduce sum %w dims [0] : tensor<4xf32> -> tensor<f32>
  return %0, %0 : tensor<f32>, tensor<f32>
}
