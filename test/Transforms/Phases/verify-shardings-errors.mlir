// RUN: plait-opt %s --plait-verify-phase -split-input-file -verify-diagnostics

// (P2)
module attributes {plait.phase = #plait.phase<shard>} {
  dist.mesh @mesh ["dp"] = [2]
  // expected-error @+1 {{value of type 'tensor<4xf32>' has no sharding after phase shard}}
  func.func @loss(%x: tensor<4xf32>) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
}

// -----

// (P4)
module attributes {plait.phase = #plait.phase<partition>} {
  dist.mesh @mesh ["dp"] = [2]
  func.func @forward_0() attributes {pipe.function = #pipe.function<forward, 0>} {
    // expected-error @+1 {{value of type 'tensor<4xf32, #dist.sharding<@mesh, [{}]>>' has a sharding after phase partition}}
    %x = nn.fill 1.0 : tensor<4xf32, #dist.sharding<@mesh, [{}]>>
    return
  }
  func.func @backward_0() attributes {pipe.function = #pipe.function<backward, 0>} {
    return
  }
  func.func @reduce_0() attributes {pipe.function = #pipe.function<reduce, 0>} {
    return
  }
  func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>} {
    return
  }
}

// -----

// (P2)
module attributes {plait.phase = #plait.phase<lower>} {
  dist.mesh @mesh ["pp", "dp"] = [1, 2]
  // expected-error @+1 {{'nn.parameter' op has no sharding after phase lower}}
  nn.parameter @w : tensor<4xf32> init<mean = 0.0, std = 0.02>
}
