// RUN: plait-opt %s --split-input-file --dist-exchange-rows -verify-diagnostics

// Who sends rows reads ids.
// expected-error @+1 {{rows of experts are exchanged between processors only (`expert-exchange` rows), since who sends them has to read ids; expected tokens for a GPU}}
module attributes {plait.configuration = #plait.configuration<expert_exchange = rows>, plait.target = #plait.target<cuda, name = "sm_90", cubin = "sm_90">} {
}

// -----

// What is asked for is not left out silently.
// expected-error @+1 {{rows of experts are to be exchanged (`expert-exchange` rows), but the model has none}}
module attributes {plait.configuration = #plait.configuration<expert_exchange = rows>} {
  func.func @forward(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
    return %x : tensor<2x4xf32>
  }
}
