// RUN: plait-opt %s --pipe-merge-residuals | FileCheck %s

// Residual 1 is residual 0, and residual 2 is the output: each is kept once. The
// backward pass takes residual 0 once, and the output in place of residual 2.
// CHECK-LABEL: func.func @forward_0(
// CHECK-SAME: -> (tensor<4xf32> {pipe.port = #pipe.port<output 0>}, tensor<4xf32> {pipe.port = #pipe.port<residual 0>}, tensor<4xf32> {pipe.port = #pipe.port<residual 3>})
// CHECK: return %[[Y:.*]], %[[A:.*]], %[[B:.*]] :
func.func @forward_0(%x: tensor<4xf32> {pipe.port = #pipe.port<input 0>}) -> (tensor<4xf32> {pipe.port = #pipe.port<output 0>}, tensor<4xf32> {pipe.port = #pipe.port<residual 0>}, tensor<4xf32> {pipe.port = #pipe.port<residual 1>}, tensor<4xf32> {pipe.port = #pipe.port<residual 2>}, tensor<4xf32> {pipe.port = #pipe.port<residual 3>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  %y = nn.exp %x : tensor<4xf32>
  %a = nn.tanh %x : tensor<4xf32>
  %b = nn.neg %x : tensor<4xf32>
  return %y, %a, %a, %y, %b : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
// CHECK-LABEL: func.func @backward_0(
// CHECK-SAME: %[[A:[^:]*]]: tensor<4xf32> {pipe.port = #pipe.port<residual 0>}, %[[Y:[^:]*]]: tensor<4xf32> {pipe.port = #pipe.port<output 0>}, %[[B:[^:]*]]: tensor<4xf32> {pipe.port = #pipe.port<residual 3>})
// CHECK: %[[S:.*]] = nn.add %[[A]], %[[A]]
// CHECK: %[[T:.*]] = nn.add %[[S]], %[[Y]]
// CHECK: nn.add %[[T]], %[[B]]
func.func @backward_0(%a: tensor<4xf32> {pipe.port = #pipe.port<residual 0>}, %a2: tensor<4xf32> {pipe.port = #pipe.port<residual 1>}, %y: tensor<4xf32> {pipe.port = #pipe.port<residual 2>}, %b: tensor<4xf32> {pipe.port = #pipe.port<residual 3>}) -> (tensor<4xf32> {pipe.port = #pipe.port<input_gradient 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  %s = nn.add %a, %a2 : tensor<4xf32>
  %t = nn.add %s, %y : tensor<4xf32>
  %d = nn.add %t, %b : tensor<4xf32>
  return %d : tensor<4xf32>
}

// Another stage's residual 1 is its own, and plain functions stay.
// CHECK-LABEL: func.func @backward_1(
// CHECK-SAME: {pipe.port = #pipe.port<residual 1>})
func.func @backward_1(%a: tensor<4xf32> {pipe.port = #pipe.port<residual 1>}) attributes {pipe.function = #pipe.function<backward, 1>} {
  return
}
// CHECK-LABEL: func.func @plain(
// CHECK: return %[[X:.*]], %[[X]]
func.func @plain(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  return %x, %x : tensor<4xf32>, tensor<4xf32>
}
