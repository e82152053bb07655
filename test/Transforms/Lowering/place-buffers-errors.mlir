// RUN: plait-opt %s --plan-place-buffers -split-input-file -verify-diagnostics

// expected-error @+1 {{has no pipe.schedule}}
module {
}

// -----

// expected-error @+1 {{has action B0 on rank 0, but no function does #pipe.function<backward, 0>}}
pipe.schedule @schedule "1f1b" on <looped, ranks = 1, chunks = 1> microbatches 1 ["F0 B0 REDUCE OPTIMIZER"]
func.func @forward_0() attributes {pipe.function = #pipe.function<forward, 0>} {
  return
}

// -----

// The backward pass has not been split.
// expected-error @+1 {{has action I0 on rank 0, but no function does #pipe.function<backward_input, 0>}}
pipe.schedule @schedule "zb-h1" on <looped, ranks = 1, chunks = 1> microbatches 1 ["F0 I0 W0 REDUCE OPTIMIZER"]
func.func @forward_0() attributes {pipe.function = #pipe.function<forward, 0>} {
  return
}
func.func @backward_0() attributes {pipe.function = #pipe.function<backward, 0>} {
  return
}

// -----

// Stages that lie in line cannot be run as a V.
dist.mesh @mesh ["pp"] = [2]
// expected-error @+1 {{orders stages on #pipe.placement<v, ranks = 2, chunks = 2>, but they are on #pipe.placement<looped, ranks = 2, chunks = 1>}}
pipe.schedule @schedule "v" on <v, ranks = 2, chunks = 2> microbatches 1 ["F0 1F0 1B0 B0", "F0 1F0 1B0 B0"]

// -----

pipe.schedule @schedule "1f1b" on <looped, ranks = 1, chunks = 1> microbatches 1 ["F0 B0 REDUCE OPTIMIZER"]
// expected-note @+1 {{the other one}}
func.func @forward_0() attributes {pipe.function = #pipe.function<forward, 0>} {
  return
}
// expected-error @+1 {{does #pipe.function<forward, 0>, as another function does}}
func.func @another() attributes {pipe.function = #pipe.function<forward, 0>} {
  return
}

// -----

pipe.schedule @schedule "1f1b" on <looped, ranks = 1, chunks = 1> microbatches 1 ["F0 B0 REDUCE OPTIMIZER"]
nn.parameter @w : tensor<4xf32> init<mean = 0.0, std = 0.02>
func.func @forward_0() -> (tensor<4xf32> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  %w = nn.read @w value : tensor<4xf32>
  %0 = nn.exp %w : tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func @backward_0(%r: tensor<4xf32> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  // expected-error @+1 {{adds an argument, which no op of the function has computed}}
  nn.accumulate %r to @w gradient : tensor<4xf32>
  return
}
func.func @reduce_0() attributes {pipe.function = #pipe.function<reduce, 0>} {
  return
}
func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>} {
  return
}
