// RUN: plait-opt %s --nn-differentiate -split-input-file -verify-diagnostics

// expected-error @+1 {{has no mesh}}
module {
  func.func @forward_0(%x: tensor<4xf32> {pipe.port = #pipe.port<input 0>}) -> (tensor<4xf32> {pipe.port = #pipe.port<output 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
    return %x : tensor<4xf32>
  }
}

// -----

// The model has not been sharded.
dist.mesh @mesh ["tp"] = [2]
// expected-error @+1 {{has type 'tensor<4xf32>' without a sharding}}
func.func @forward_0(%x: tensor<4xf32> {pipe.port = #pipe.port<input 0>}) -> (tensor<4xf32> {pipe.port = #pipe.port<output 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  return %x : tensor<4xf32>
}

// -----

dist.mesh @mesh ["tp"] = [2]
func.func @forward_0() -> (tensor<4xf32> {pipe.port = #pipe.port<output 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  // expected-error @+1 {{has type 'tensor<4xf32>' without a sharding}}
  %0 = nn.fill 1.0 : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

#m = #dist.sharding<@mesh, [{}, {}]>
dist.mesh @mesh ["tp"] = [2]
func.func @forward_0(%x: tensor<4x4xf32, #m> {pipe.port = #pipe.port<input 0>}) -> (tensor<4x4xf32, #m> {pipe.port = #pipe.port<output 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  // expected-error @+1 {{'nn.causal_mask' has no derivative}}
  %0 = nn.causal_mask %x : tensor<4x4xf32, #m>
  return %0 : tensor<4x4xf32, #m>
}

// -----

// Statistics of a norm are results for the backward pass's sake only.
#m = #dist.sharding<@mesh, [{}, {}]>
#v = #dist.sharding<@mesh, [{}]>
dist.mesh @mesh ["tp"] = [2]
func.func @forward_0(%x: tensor<4x4xf32, #m> {pipe.port = #pipe.port<input 0>}, %w: tensor<4xf32, #v> {pipe.port = #pipe.port<input 1>}) -> (tensor<4x4xf32, #m> {pipe.port = #pipe.port<output 0>}, tensor<4xf32, #v> {pipe.port = #pipe.port<output 1>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  // expected-error @+1 {{'nn.rms_norm' has no derivative of result 1}}
  %0:2 = nn.rms_norm %x, %w epsilon 1.0e-05 : (tensor<4x4xf32, #m>, tensor<4xf32, #v>) -> (tensor<4x4xf32, #m>, tensor<4xf32, #v>)
  return %0#0, %0#1 : tensor<4x4xf32, #m>, tensor<4xf32, #v>
}

// -----

// Nothing would be trained.
#v = #dist.sharding<@mesh, [{}]>
#s = #dist.sharding<@mesh, []>
dist.mesh @mesh ["tp"] = [2]
nn.parameter @w : tensor<4xf32> init<mean = 0.0, std = 0.02> sharding #v
nn.accumulator @loss_sum : tensor<f32>
func.func @forward_0() attributes {pipe.function = #pipe.function<forward, 0>} {
  %w = nn.read @w value : tensor<4xf32, #v>
  %0 = nn.is_zero %w : tensor<4xf32, #v>
  %1 = nn.reduce sum %0 dims [0] : tensor<4xf32, #v> -> tensor<f32, #s>
  // expected-error @+1 {{no parameter would be trained: the loss depends on none, or only through ops that pass no gradient}}
  nn.accumulate %1 to @loss_sum value : tensor<f32, #s>
  return
}
