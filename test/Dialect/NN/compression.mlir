// RUN: plait-opt %s --verify-roundtrip | FileCheck %s
// RUN: plait-opt %s --mlir-print-op-generic | plait-opt | FileCheck %s

// CHECK-LABEL: func @whole
func.func @whole(%g: tensor<8x4xf32>) -> tensor<8x4xf32> {
  // CHECK: %[[P:.*]] = nn.parts %{{.*}} over "dp" : tensor<8x4xf32> -> tensor<2x8x4xf32>
  %p = nn.parts %g over "dp" : tensor<8x4xf32> -> tensor<2x8x4xf32>
  // CHECK: nn.parts %{{.*}} over "dp" alone : tensor<8x4xf32> -> tensor<1x8x4xf32>
  %one = nn.parts %g over "dp" alone : tensor<8x4xf32> -> tensor<1x8x4xf32>
  // CHECK: nn.chunk_reduce max %[[P]] block 24 : tensor<2x8x4xf32> -> tensor<2x2xf32>
  %m = nn.chunk_reduce max %p block 24 : tensor<2x8x4xf32> -> tensor<2x2xf32>
  // CHECK: nn.chunk_reduce sum %[[P]] block 32
  %s = nn.chunk_reduce sum %p block 32 : tensor<2x8x4xf32> -> tensor<2x1xf32>
  // CHECK: nn.chunk_spread %{{.*}} block 24 : tensor<2x2xf32> -> tensor<2x8x4xf32>
  %e = nn.chunk_spread %m block 24 : tensor<2x2xf32> -> tensor<2x8x4xf32>
  // CHECK: nn.round %{{.*}} : tensor<2x8x4xf32>
  %r = nn.round %e : tensor<2x8x4xf32>
  // CHECK: nn.unite %{{.*}} over "dp" : tensor<2x8x4xf32> -> tensor<8x4xf32>
  %u = nn.unite %r over "dp" : tensor<2x8x4xf32> -> tensor<8x4xf32>
  return %u : tensor<8x4xf32>
}

// A rank has one of the parts.
// CHECK-LABEL: func @rank
func.func @rank(%g: tensor<3x8xf32>) -> tensor<3x8xf32> {
  // CHECK: nn.parts %{{.*}} over "dp" : tensor<3x8xf32> -> tensor<3x8xf32>
  %p = nn.parts %g over "dp" : tensor<3x8xf32> -> tensor<3x8xf32>
  // CHECK: nn.slice %{{.*}} part 1 of 2 : tensor<3x8xf32> -> tensor<3x4xf32>
  %a = nn.slice %p part 0 of 2 : tensor<3x8xf32> -> tensor<3x4xf32>
  %b = nn.slice %p part 1 of 2 : tensor<3x8xf32> -> tensor<3x4xf32>
  // CHECK: nn.pack_bits %{{.*}}, %{{.*}} bits 16 : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4xi32>
  %w = nn.pack_bits %a, %b bits 16 : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4xi32>
  // CHECK: nn.unpack_bits %{{.*}} bits 16 : tensor<3x4xi32> -> tensor<3x8xf32>
  %q = nn.unpack_bits %w bits 16 : tensor<3x4xi32> -> tensor<3x8xf32>
  // CHECK: nn.unite %{{.*}} over "dp" : tensor<3x8xf32> -> tensor<3x8xf32>
  %u = nn.unite %q over "dp" : tensor<3x8xf32> -> tensor<3x8xf32>
  return %u : tensor<3x8xf32>
}

// Some elements of each chunk.
// CHECK-LABEL: func @kept
func.func @kept(%g: tensor<3x32xf32>) -> tensor<3x32xf32> {
  // CHECK: %[[O:.*]] = nn.occupied %{{.*}} elements [40, 7] : tensor<3x32xf32>
  %o = nn.occupied %g elements [40, 7] : tensor<3x32xf32>
  // CHECK: %[[M:.*]] = nn.keep_top %[[O]] keep 2 block 32 : tensor<3x32xf32>
  %m = nn.keep_top %o keep 2 block 32 : tensor<3x32xf32>
  // CHECK: %[[V:.*]] = nn.compact %{{.*}} where %[[M]] : tensor<3x32xf32> -> tensor<3x2xf32>
  %v = nn.compact %g where %m : tensor<3x32xf32> -> tensor<3x2xf32>
  // CHECK: %[[I:.*]] = nn.find %[[M]] : tensor<3x32xf32> -> tensor<3x2xf32>
  %i = nn.find %m : tensor<3x32xf32> -> tensor<3x2xf32>
  // CHECK: %[[N:.*]] = nn.mark %[[I]] : tensor<3x2xf32> -> tensor<3x32xf32>
  %n = nn.mark %i : tensor<3x2xf32> -> tensor<3x32xf32>
  // CHECK: nn.expand %[[V]] where %[[N]] : tensor<3x2xf32> -> tensor<3x32xf32>
  %x = nn.expand %v where %n : tensor<3x2xf32> -> tensor<3x32xf32>
  return %x : tensor<3x32xf32>
}

// Of whole parameters, each of two replicas.
// CHECK-LABEL: func @kept_of_whole
func.func @kept_of_whole(%g: tensor<2x8x4xf32>) -> tensor<2x8x4xf32> {
  // CHECK: nn.occupied %{{.*}} elements [32] : tensor<2x8x4xf32>
  %o = nn.occupied %g elements [32] : tensor<2x8x4xf32>
  // CHECK: nn.keep_top %{{.*}} keep 24 block 24 : tensor<2x8x4xf32>
  %m = nn.keep_top %o keep 24 block 24 : tensor<2x8x4xf32>
  return %m : tensor<2x8x4xf32>
}
