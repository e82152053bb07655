// RUN: plait-opt %s --pipe-split-phases -split-input-file -verify-diagnostics

// expected-error @+1 {{argument 1 has no name; expected the attribute pipe.value}}
func.func @joint_0(%x: tensor<4xf32> {pipe.value = "in0"}, %y: tensor<4xf32>) attributes {pipe.phase = "joint", pipe.stage = 0 : i64} {
  return
}

// -----

// expected-error @+1 {{result 0 has no name; expected the attribute pipe.value}}
func.func @joint_0(%x: tensor<4xf32> {pipe.value = "in0"}) -> tensor<4xf32> attributes {pipe.phase = "joint", pipe.stage = 0 : i64} {
  return %x : tensor<4xf32>
}
