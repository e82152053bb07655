// RUN: plait-opt %s --split-input-file --dist-exchange-rows -verify-diagnostics

// What is asked for is not left out silently.
// expected-error @+1 {{rows of experts are to be exchanged (`expert-exchange` rows), but the model has none}}
module attributes {plait.configuration = #plait.configuration<expert_exchange = rows>} {
  func.func @forward(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
    return %x : tensor<2x4xf32>
  }
}
