// RUN: plait-opt %s --split-input-file --plan-form-clusters | FileCheck %s

// Gradients of the table want the order of the tokens, and all functions that take
// them take the same buffer.
module attributes {plait.target = #plait.target<cuda, name = "sm_90", cubin = "sm_90">} {
  dist.mesh @mesh ["pp", "tp"] = [1, 2]
  // CHECK-LABEL: func.func @forward(
  // CHECK-SAME: pipe.port = #pipe.port<tokens>, plan.sorted = 11 : i64
  func.func @forward(%ids: tensor<2x3xi32> {pipe.port = #pipe.port<tokens>}, %other: tensor<2x3x4xf32> {pipe.port = #pipe.port<input 0>}) -> (tensor<2x3x4xf32> {pipe.port = #pipe.port<output 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
    %0 = nn.exp %other : tensor<2x3x4xf32>
    return %0 : tensor<2x3x4xf32>
  }
  // CHECK-LABEL: func.func @backward(
  // CHECK-SAME: plan.sorted = 11 : i64
  func.func @backward(%dy: tensor<2x3x4xf32> {pipe.port = #pipe.port<output_gradient 0>}, %ids: tensor<2x3xi32> {pipe.port = #pipe.port<tokens>}) -> (tensor<6x4xf32> {pipe.port = #pipe.port<residual 1>}) attributes {pipe.function = #pipe.function<backward_input, 0>} {
    %0 = nn.embedding_grad %dy, %ids {begin = #nn.begin<"tp" * 6>, limit = 11} : (tensor<2x3x4xf32>, tensor<2x3xi32>) -> tensor<6x4xf32>
    return %0 : tensor<6x4xf32>
  }
}

// -----

// Without padding the rows are those of all ranks.
module attributes {plait.target = #plait.target<cuda, name = "sm_90", cubin = "sm_90">} {
  dist.mesh @mesh ["pp", "tp"] = [1, 2]
  // CHECK-LABEL: func.func @whole(
  // CHECK-SAME: plan.sorted = 12 : i64
  func.func @whole(%dy: tensor<2x3x4xf32> {pipe.port = #pipe.port<output_gradient 0>}, %ids: tensor<2x3xi32> {pipe.port = #pipe.port<tokens>}) -> (tensor<6x4xf32> {pipe.port = #pipe.port<residual 1>}) attributes {pipe.function = #pipe.function<backward_input, 0>} {
    %0 = nn.embedding_grad %dy, %ids {begin = #nn.begin<"tp" * 6>} : (tensor<2x3x4xf32>, tensor<2x3xi32>) -> tensor<6x4xf32>
    return %0 : tensor<6x4xf32>
  }
}

// -----

// Other ids than tokens are not sorted.
module attributes {plait.target = #plait.target<cuda, name = "sm_90", cubin = "sm_90">} {
  dist.mesh @mesh ["pp", "tp"] = [1, 1]
  // CHECK-LABEL: func.func @others(
  // CHECK-NOT: plan.sorted
  // CHECK: return
  func.func @others(%dy: tensor<2x3x4xf32> {pipe.port = #pipe.port<output_gradient 0>}, %ids: tensor<2x3xi32> {pipe.port = #pipe.port<targets>}, %tokens: tensor<2x3xi32> {pipe.port = #pipe.port<tokens>}) -> (tensor<6x4xf32> {pipe.port = #pipe.port<residual 1>}) attributes {pipe.function = #pipe.function<backward_input, 0>} {
    %0 = nn.embedding_grad %dy, %ids : (tensor<2x3x4xf32>, tensor<2x3xi32>) -> tensor<6x4xf32>
    return %0 : tensor<6x4xf32>
  }
}

// -----

// Nor are they for processors.
dist.mesh @mesh ["pp", "tp"] = [1, 1]
// CHECK-LABEL: func.func @processor(
// CHECK-NOT: plan.sorted
// CHECK: return
func.func @processor(%dy: tensor<2x3x4xf32> {pipe.port = #pipe.port<output_gradient 0>}, %ids: tensor<2x3xi32> {pipe.port = #pipe.port<tokens>}) -> (tensor<6x4xf32> {pipe.port = #pipe.port<residual 1>}) attributes {pipe.function = #pipe.function<backward_input, 0>} {
  %0 = nn.embedding_grad %dy, %ids : (tensor<2x3x4xf32>, tensor<2x3xi32>) -> tensor<6x4xf32>
  return %0 : tensor<6x4xf32>
}
