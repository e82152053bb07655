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
module attributes {plait.configuration = #plait.configuration<recompute = full>,
                   plait.phase = #plait.phase<differentiate, read = <>>} {
}

// -----

// So are the mesh and, by `lower`, the target.
// expected-error @+1 {{the mesh is dp=4, but phase shard has read dp=2: it can only be changed in IR of an earlier phase}}
module attributes {plait.phase = #plait.phase<shard, read = <>, mesh = "dp=2">} {
  dist.mesh @mesh ["dp"] = [4]
}

// -----

// expected-error @+1 {{the mesh is none, but phase shard has read dp=2}}
module attributes {plait.phase = #plait.phase<shard, read = <>, mesh = "dp=2">} {
}

// -----

// expected-error @+1 {{plait.target is #plait.target<cuda, name = "sm_80", cubin = "sm_90">, but phase lower has read #plait.target<cuda, name = "sm_90", cubin = "sm_90">: it can only be changed in IR of an earlier phase}}
module attributes {plait.target = #plait.target<cuda, name = "sm_80", cubin = "sm_90">,
                   plait.phase = #plait.phase<lower, read = <>, target = <cuda, name = "sm_90", cubin = "sm_90">>} {
}

// -----

// expected-error @+1 {{plait.target is none, but phase lower has read #plait.target<cuda, name = "sm_90", cubin = "sm_90">}}
module attributes {plait.phase = #plait.phase<steps, read = <>, target = <cuda, name = "sm_90", cubin = "sm_90">>} {
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
  // expected-error @+1 {{@loss is for 2 sequences of 4 tokens, but micro-batch 2 times 1 replica is 2, and seq is 8}}
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}
