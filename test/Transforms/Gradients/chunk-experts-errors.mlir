// RUN: plait-opt %s --split-input-file --nn-chunk-loss -verify-diagnostics

// Of the sequences that ranks gather one alone is cut.
module attributes {plait.expert_chunks = 2 : i64} {
  dist.mesh @mesh ["pp", "dp", "ep", "tp"] = [1, 1, 2, 1]
  func.func @forward_0(%x: tensor<4x4x2xf32>, %own: tensor<2x4x3xi32>, %w: tensor<5x2x6xf32>) -> tensor<4x4x6xf32> {
    %i = dist.all_gather %own on @mesh["ep"] dim 0 : tensor<2x4x3xi32> -> tensor<4x4x3xi32>
    // expected-error @+1 {{experts are asked for in 2 chunks (`expert-chunks`), but ranks of "ep" gather 2 sequences each, and tokens of one alone can be cut; expected `micro-batch` 1}}
    %0 = nn.grouped_matmul %x, %w, %i "bth,ehf->btcf" : (tensor<4x4x2xf32>, tensor<5x2x6xf32>, tensor<4x4x3xi32>) -> tensor<4x4x3x6xf32>
    %1 = nn.reduce sum %0 dims [2] : tensor<4x4x3x6xf32> -> tensor<4x4x6xf32>
    return %1 : tensor<4x4x6xf32>
  }
}

// -----

// Ranks that have parts of each sequence would have parts of each chunk.
module attributes {plait.expert_chunks = 2 : i64} {
  dist.mesh @mesh ["pp", "dp", "ep", "tp"] = [1, 1, 2, 2]
  func.func @forward_0(%x: tensor<1x2x2xf32>, %own: tensor<1x4x3xi32>, %w: tensor<5x2x6xf32>) -> tensor<2x4x6xf32> {
    %s = dist.all_gather %x on @mesh["ep"] dim 0 : tensor<1x2x2xf32> -> tensor<2x2x2xf32>
    %t = dist.all_gather %s on @mesh["tp"] dim 1 : tensor<2x2x2xf32> -> tensor<2x4x2xf32>
    %i = dist.all_gather %own on @mesh["ep"] dim 0 : tensor<1x4x3xi32> -> tensor<2x4x3xi32>
    // expected-error @+1 {{but ranks of "tp" have parts of each sequence around them, as with `sequence-parallel`}}
    %0 = nn.grouped_matmul %t, %w, %i "bth,ehf->btcf" : (tensor<2x4x2xf32>, tensor<5x2x6xf32>, tensor<2x4x3xi32>) -> tensor<2x4x3x6xf32>
    %1 = nn.reduce sum %0 dims [2] : tensor<2x4x3x6xf32> -> tensor<2x4x6xf32>
    return %1 : tensor<2x4x6xf32>
  }
}

// -----

// Rows are not to be kept.
module attributes {plait.expert_chunks = 2 : i64} {
  func.func @forward_0(%x: tensor<1x4x2xf32>, %i: tensor<1x4x3xi32>, %w: tensor<5x2x6xf32>) -> tensor<1x4x3x6xf32> {
    // expected-error @+1 {{but rows of all tokens are kept for later, as where a `schedule` splits the backward pass}}
    %0 = nn.grouped_matmul %x, %w, %i "bth,ehf->btcf" : (tensor<1x4x2xf32>, tensor<5x2x6xf32>, tensor<1x4x3xi32>) -> tensor<1x4x3x6xf32>
    return %0 : tensor<1x4x3x6xf32>
  }
}

// -----

// expected-error @+1 {{experts are asked for in 2 chunks (`expert-chunks`), but the model has none}}
module attributes {plait.expert_chunks = 2 : i64} {
}

// -----

// expected-error @+1 {{has plait.expert_chunks = 1 : i64, expected an i64 of 2 to 64}}
module attributes {plait.expert_chunks = 1 : i64} {
}

// -----

// expected-error @+1 {{has plait.expert_chunks = 65 : i64, expected an i64 of 2 to 64}}
module attributes {plait.expert_chunks = 65 : i64} {
}

// -----

// expected-error @+1 {{has plait.profile = 1 : i64, expected a unit}}
module attributes {plait.profile = 1 : i64} {
}
