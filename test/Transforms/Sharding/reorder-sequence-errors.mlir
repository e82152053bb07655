// RUN: plait-opt %s --split-input-file --nn-reorder-sequence -verify-diagnostics

module attributes {plait.configuration = #plait.configuration<context_parallel = zigzag>} {
  dist.mesh @mesh ["cp"] = [4]
  // expected-error @+1 {{context-parallel is zigzag, but 2 · cp = 8 does not divide the sequence of 20 positions; nearest are 16 and 24}}
  func.func @loss(%tokens: tensor<2x20xi32>, %targets: tensor<2x20xi32>) -> tensor<2x20xf32> {
    %x = nn.valid %tokens ignore -100 : tensor<2x20xi32> -> tensor<2x20xf32>
    return %x : tensor<2x20xf32>
  }
}

// -----

module attributes {plait.configuration = #plait.configuration<context_parallel = zigzag>} {
  dist.mesh @mesh ["cp"] = [4]
  // expected-error @+1 {{does not divide the sequence of 4 positions; nearest are 8}}
  func.func @loss(%tokens: tensor<2x4xi32>) -> tensor<2x4xf32> {
    %x = nn.valid %tokens ignore -100 : tensor<2x4xi32> -> tensor<2x4xf32>
    return %x : tensor<2x4xf32>
  }
}

// -----

// expected-error @+1 {{has no mesh or no function @loss to reorder}}
module attributes {plait.configuration = #plait.configuration<context_parallel = zigzag>} {
}
