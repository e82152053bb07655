// RUN: plait-opt %s --pipe-assign-stages -split-input-file -verify-diagnostics

// expected-error @+1 {{has no mesh or no function @loss to cut}}
module {
  func.func @loss(%x: tensor<4xf32>) {
    return
  }
}

// -----

// expected-error @+1 {{has no mesh or no function @loss to cut}}
module {
  dist.mesh @mesh ["pp"] = [2]
  func.func @lost(%x: tensor<4xf32>) {
    return
  }
}

// -----

// A stage holds whole layers.
dist.mesh @mesh ["pp"] = [3]
// expected-error @+1 {{pp=3 is too much for a model of 2 layers; the largest possible pp is 2}}
func.func @loss(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = nn.neg %x {nn.layer = 0 : i64} : tensor<4xf32>
  %1 = nn.neg %0 {nn.layer = 1 : i64} : tensor<4xf32>
  return %1 : tensor<4xf32>
}

// -----

// A model that names no layers is one.
dist.mesh @mesh ["pp"] = [2]
// expected-error @+1 {{pp=2 is too much for a model of 1 layers; the largest possible pp is 1}}
func.func @loss(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = nn.neg %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

dist.mesh @mesh ["pp"] = [2]
func.func @loss(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = nn.neg %x {nn.layer = 1 : i64} : tensor<4xf32>
  // expected-error @+1 {{belongs to layer 0 but stands after layer 1}}
  %1 = nn.neg %0 {nn.layer = 0 : i64} : tensor<4xf32>
  return %1 : tensor<4xf32>
}

// -----

// Chunks are stages, too.
module attributes {plait.configuration = #plait.configuration<schedule = "interleaved-1f1b", chunks = 2>} {
  dist.mesh @mesh ["pp"] = [2]
  // expected-error @+1 {{pp=2 with 2 chunks a rank is 4 stages, which is too much for a model of 2 layers}}
  func.func @loss(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = nn.neg %x {nn.layer = 0 : i64} : tensor<4xf32>
    %1 = nn.neg %0 {nn.layer = 1 : i64} : tensor<4xf32>
    return %1 : tensor<4xf32>
  }
}
