// RUN: plait-opt %s --plan-place-buffers -split-input-file -verify-diagnostics

// expected-error @+1 {{has no pipe.schedule}}
module {
}

// -----

// expected-error @+1 {{has no function @backward_0 for its schedule}}
module {
  pipe.schedule @schedule "1f1b" stages 1 microbatches 1 ["F0 B0 REDUCE OPTIMIZER"]
  func.func @forward_0() {
    return
  }
}

// -----

pipe.schedule @schedule "1f1b" stages 1 microbatches 1 ["F0 B0 REDUCE OPTIMIZER"]
// expected-error @+1 {{argument 0 has no name; expected the attribute pipe.value}}
func.func @forward_0(%x: tensor<4xf32>) {
  return
}

// -----

// No stage has a function for a half of the backward pass.
// expected-error @+1 {{has action I0 on stage 0, which no function computes: stages have functions for F, B, REDUCE and OPTIMIZER}}
pipe.schedule @schedule "zb-h1" stages 1 microbatches 1 ["F0 I0 W0 REDUCE OPTIMIZER"]
