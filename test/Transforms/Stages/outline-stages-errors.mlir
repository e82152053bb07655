// RUN: plait-opt %s --pipe-outline-stages -split-input-file -verify-diagnostics

// expected-error @+1 {{has no mesh or no function @loss to outline}}
module {
  func.func @loss(%x: tensor<4xf32>) {
    return
  }
}

// -----

// expected-error @+1 {{has no mesh or no function @loss to outline}}
module {
  dist.mesh @mesh ["pp"] = [2]
  func.func @lost(%x: tensor<4xf32>) {
    return
  }
}

// -----

dist.mesh @mesh ["pp"] = [2]
func.func @loss(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = nn.neg %x {pipe.stage = 0 : i64} : tensor<4xf32>
  // expected-error @+1 {{is on stage 2, expected 0 to 1}}
  %1 = nn.neg %0 {pipe.stage = 2 : i64} : tensor<4xf32>
  return %1, %1 : tensor<4xf32>, tensor<4xf32>
}

// -----

dist.mesh @mesh ["pp"] = [2]
func.func @loss(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = nn.neg %x {pipe.stage = 1 : i64} : tensor<4xf32>
  // expected-error @+1 {{is on stage 0 but reads from stage 1}}
  %1 = nn.neg %0 {pipe.stage = 0 : i64} : tensor<4xf32>
  return %1, %1 : tensor<4xf32>, tensor<4xf32>
}

// -----

dist.mesh @mesh ["pp"] = [2]
func.func @loss(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  // expected-error @+1 {{is on no stage, expected the attribute pipe.stage}}
  %0 = nn.neg %x : tensor<4xf32>
  return %0, %0 : tensor<4xf32>, tensor<4xf32>
}
