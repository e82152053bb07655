// RUN: plait-opt %s --verify-roundtrip | FileCheck %s
// RUN: plait-opt %s --mlir-print-op-generic | plait-opt | FileCheck %s

// CHECK-LABEL: func @chunks
func.func @chunks(%x: tensor<1x8x2xbf16>, %ids: tensor<4xi32>) -> tensor<1x8x2xbf16> {
  // CHECK: nn.chunk %{{.*}} dim 1 part 0 of 2 : tensor<1x8x2xbf16> -> tensor<1x4x2xbf16>
  %a = nn.chunk %x dim 1 part 0 of 2 : tensor<1x8x2xbf16> -> tensor<1x4x2xbf16>
  %b = nn.chunk %x dim 1 part 1 of 2 : tensor<1x8x2xbf16> -> tensor<1x4x2xbf16>
  // CHECK: nn.chunk %{{.*}} dim 0 part 3 of 4 : tensor<4xi32> -> tensor<1xi32>
  %c = nn.chunk %ids dim 0 part 3 of 4 : tensor<4xi32> -> tensor<1xi32>
  // CHECK: nn.concat %{{.*}}, %{{.*}} dim 1 : (tensor<1x4x2xbf16>, tensor<1x4x2xbf16>) -> tensor<1x8x2xbf16>
  %y = nn.concat %a, %b dim 1 : (tensor<1x4x2xbf16>, tensor<1x4x2xbf16>) -> tensor<1x8x2xbf16>
  return %y : tensor<1x8x2xbf16>
}
