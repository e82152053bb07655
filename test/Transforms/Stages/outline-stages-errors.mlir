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
