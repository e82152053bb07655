// RUN: split-file %s %t
// RUN: not plait-opt %t/vector.mlir --nn-assign-matrices 2>&1 | FileCheck %s --check-prefix=VECTOR
// RUN: not plait-opt %t/lion.mlir --plait-configure=compress=onebit-adam:64 --nn-assign-matrices 2>&1 | FileCheck %s --check-prefix=MOMENTUM
// RUN: plait-opt %t/lion.mlir --nn-assign-matrices

// VECTOR: vector.mlir:1:1: error: optimizer muon updates matrices, and "bias" is none
// MOMENTUM: lion.mlir:1:1: error: the optimizer of "bias": compress is {{.*}}, which is defined for optimizer adamw, not lion

//--- vector.mlir
nn.parameter @bias : tensor<8xf32> init<mean = 0.0, std = 0.02> optimizer "muon"
func.func @loss(%x: tensor<8xf32>) -> tensor<8xf32> {
  %b = nn.read @bias value : tensor<8xf32>
  %y = nn.add %x, %b : tensor<8xf32>
  return %y : tensor<8xf32>
}

//--- lion.mlir
nn.parameter @bias : tensor<8xf32> init<mean = 0.0, std = 0.02> optimizer "lion"
func.func @loss(%x: tensor<8xf32>) -> tensor<8xf32> {
  %b = nn.read @bias value : tensor<8xf32>
  %y = nn.add %x, %b : tensor<8xf32>
  return %y : tensor<8xf32>
}
