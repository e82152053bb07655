// An error is its line and the place: not the operation, which here is a function.

// RUN: not plait-opt %s --verify-each -o /dev/null 2> %t
// RUN: FileCheck %s < %t
// RUN: not grep "see current operation" %t
// RUN: not plait-opt %s --mlir-print-op-on-diagnostic -o /dev/null 2>&1 \
// RUN:   | grep "see current operation"

// CHECK: errors.mlir:[[@LINE+2]]:8: error: {{.*}}gives the first operand 2 dimensions
func.func @f(%x: tensor<2x8x4xf32>, %w: tensor<4x6xf32>) {
  %0 = nn.matmul %x, %w "bh,hf->bf" : (tensor<2x8x4xf32>, tensor<4x6xf32>) -> tensor<2x6xf32>
  return
}
