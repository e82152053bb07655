// RUN: plait-opt %s --plait-verify-phase -split-input-file -verify-diagnostics

// What has been read may not be edited; test/Tools/plaitc/edit.py does it with
// every field.
// expected-error @+1 {{recompute is full, but phase checkpoint has read none: it can only be changed in IR of an earlier phase}}
module attributes {plait.configuration = #plait.configuration<recompute = full>,
                   plait.phase = #plait.phase<checkpoint, read = <>>} {
}

// -----

// Nor may it be left out.
// expected-error @+1 {{layers is none, but phase stage has read 2,1}}
module attributes {plait.phase = #plait.phase<stage, read = <layers = [2, 1]>>} {
}

// -----

// What is read later may be.
// expected-error @+1 {{has no mesh after phase differentiate}}
module attributes {plait.configuration = #plait.configuration<recompute = full, optimizer = "lion">,
                   plait.phase = #plait.phase<differentiate, read = <>>} {
}

// -----

// Where nothing is recorded, nobody knows.
// expected-error @+1 {{has no mesh after phase checkpoint}}
module attributes {plait.configuration = #plait.configuration<recompute = full>,
                   plait.phase = #plait.phase<checkpoint>} {
}

// -----

// The model is for a microbatch of the configuration, if it has one.
module attributes {plait.configuration = #plait.configuration<micro_batch = 2, seq = 8>} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  // expected-error @+1 {{@loss is for 2 sequences of 4 tokens, but micro-batch 2 times dp 1 is 2, and seq is 8}}
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}
