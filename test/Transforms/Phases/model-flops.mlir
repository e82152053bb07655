// RUN: plait-opt %s --nn-count-model-flops --split-input-file | FileCheck %s

// Four matmuls of 2^61 operations, and two gradients of each: more than 64 bits
// count. A microbatch of a large model on many ranks has as many.
// CHECK: module attributes {plait.model_flops = 2.767{{[0-9]*}}E+19 : f64}
nn.parameter @w : tensor<1048576x1048576xf32> init<mean = 0.0, std = 1.0>
func.func @loss(%tokens: tensor<1x1xi32>) -> tensor<1048576x1048576xf32> {
  %x = nn.read @w value : tensor<1048576x1048576xf32>
  %0 = nn.matmul %x, %x "ij,jk->ik" : (tensor<1048576x1048576xf32>, tensor<1048576x1048576xf32>) -> tensor<1048576x1048576xf32>
  %1 = nn.matmul %0, %x "ij,jk->ik" : (tensor<1048576x1048576xf32>, tensor<1048576x1048576xf32>) -> tensor<1048576x1048576xf32>
  %2 = nn.matmul %1, %x "ij,jk->ik" : (tensor<1048576x1048576xf32>, tensor<1048576x1048576xf32>) -> tensor<1048576x1048576xf32>
  %3 = nn.matmul %2, %x "ij,jk->ik" : (tensor<1048576x1048576xf32>, tensor<1048576x1048576xf32>) -> tensor<1048576x1048576xf32>
  return %3 : tensor<1048576x1048576xf32>
}

// -----

// Of 2 x 4 by 4 x 4 numbers, 64 operations each: one with no gradient, one of
// the weight alone, one of both operands, and one of the other operand alone,
// as that weight is frozen. 64 x (1 + 2 + 3 + 2).
// CHECK: module attributes {plait.model_flops = 5.120000e+02 : f64}
nn.parameter @a : tensor<4x4xf32> init<mean = 0.0, std = 1.0>
nn.parameter @b : tensor<4x4xf32> init<mean = 0.0, std = 1.0>
func.func @loss(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %a = nn.read @a value : tensor<4x4xf32>
  %frozen = nn.stop_gradient %a : tensor<4x4xf32>
  %b = nn.read @b value : tensor<4x4xf32>
  %0 = nn.matmul %x, %frozen "ij,jk->ik" : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %1 = nn.matmul %0, %b "ij,jk->ik" : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %2 = nn.matmul %1, %b "ij,jk->ik" : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %3 = nn.matmul %2, %frozen "ij,jk->ik" : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  return %3 : tensor<2x4xf32>
}
