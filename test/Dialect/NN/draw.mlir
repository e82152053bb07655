// RUN: plait-opt %s --verify-roundtrip | FileCheck %s
// RUN: plait-opt %s --mlir-print-op-generic | plait-opt | FileCheck %s

// CHECK-LABEL: func @rank
func.func @rank(%x: tensor<8x32xf32>, %s: tensor<8x32xf32>) -> tensor<8x32xf32> {
  // CHECK: nn.draw %{{.*}} at %{{.*}} block 32 seed 0 elements [70, 128] keys [17, 4294967295] runs [3, 2] begins [unit, #nn.begin<"tp" * 2 of 4>] replica <"dp" * 1> : tensor<8x32xf32>
  %u = nn.draw %x at %s block 32 seed 0 elements [70, 128] keys [17, 4294967295] runs [3, 2] begins [unit, #nn.begin<"tp" * 2 of 4>] replica <"dp" * 1> : tensor<8x32xf32>
  return %u : tensor<8x32xf32>
}

// CHECK-LABEL: func @whole
func.func @whole(%x: tensor<2x8x4xf32>, %s: tensor<2x8x4xf32>) -> tensor<2x8x4xf32> {
  // CHECK: nn.draw %{{.*}} at %{{.*}} block 24 seed 5 elements [32] keys [0] runs [2] begins [unit] shared : tensor<2x8x4xf32>
  %u = nn.draw %x at %s block 24 seed 5 elements [32] keys [0] runs [2] begins [unit] shared : tensor<2x8x4xf32>
  return %u : tensor<2x8x4xf32>
}
