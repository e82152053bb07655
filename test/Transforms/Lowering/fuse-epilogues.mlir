// RUN: plait-opt %s --plait-configure=epilogues=all --nn-fuse-epilogues | FileCheck %s
// RUN: plait-opt %s --plait-configure=epilogues=bias --nn-fuse-epilogues | FileCheck %s --check-prefix=BIAS
// RUN: plait-opt %s --nn-fuse-epilogues | FileCheck %s --check-prefix=NONE

// NONE-NOT: nn.fused_matmul

dist.mesh @mesh ["pp", "dp", "tp"] = [1, 1, 2]

// A layer of a forward pass. What GELU is taken of is returned for the backward
// pass: it is the second result.
// CHECK-LABEL: func.func @forward(
// CHECK-SAME: %[[X:[^:]*]]: {{[^,]*}}, %[[W:[^:]*]]: {{[^,]*}}, %[[B:[^:]*]]: tensor<16xbf16>)
// CHECK-NEXT: nn.broadcast
// CHECK-NEXT: %[[Y:.*]], %[[PRE:.*]] = nn.fused_matmul %[[X]], %[[W]] "bsh,hf->bsf" bias %[[B]] gelu {nn.layer = 3 : i64} : (tensor<2x8x4xbf16>, tensor<4x16xbf16>, tensor<16xbf16>) -> (tensor<2x8x16xbf16>, tensor<2x8x16xbf16>)
// CHECK-NEXT: return %[[PRE]], %[[Y]]
// BIAS-LABEL: func.func @forward(
// BIAS: %[[SUM:.*]] = nn.fused_matmul %{{.*}} "bsh,hf->bsf" bias %{{[^ ]*}} {nn.layer = 3 : i64} : {{.*}} -> tensor<2x8x16xbf16>
// BIAS-NEXT: %[[Y:.*]] = nn.gelu %[[SUM]]
// BIAS-NEXT: return %[[SUM]], %[[Y]]
func.func @forward(%x: tensor<2x8x4xbf16>, %w: tensor<4x16xbf16>, %b: tensor<16xbf16>) -> (tensor<2x8x16xbf16>, tensor<2x8x16xbf16>) {
  %0 = nn.matmul %x, %w "bsh,hf->bsf" {nn.layer = 3} : (tensor<2x8x4xbf16>, tensor<4x16xbf16>) -> tensor<2x8x16xbf16>
  %1 = nn.broadcast %b dims [2] : tensor<16xbf16> -> tensor<2x8x16xbf16>
  %2 = nn.add %0, %1 : tensor<2x8x16xbf16>
  %3 = nn.gelu %2 tanh : tensor<2x8x16xbf16>
  return %2, %3 : tensor<2x8x16xbf16>, tensor<2x8x16xbf16>
}

// Recomputed: nobody else reads the sum, so it is not stored. The bias comes
// first here.
// CHECK-LABEL: func.func @without_input(
// CHECK: nn.fused_matmul %{{.*}} "ah,hf->af" bias %{{.*}} gelu : {{.*}} -> tensor<8x16xf32>
// CHECK-NEXT: nn.fused_matmul %{{.*}} "ah,hf->af" gelu : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
// CHECK-NEXT: return
func.func @without_input(%x: tensor<8x4xf32>, %w: tensor<4x16xf32>, %b: tensor<16xf32>) -> (tensor<8x16xf32>, tensor<8x16xf32>) {
  %0 = nn.matmul %x, %w "ah,hf->af" : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
  %1 = nn.broadcast %b dims [1] : tensor<16xf32> -> tensor<8x16xf32>
  %2 = nn.add %1, %0 : tensor<8x16xf32>
  %3 = nn.gelu %2 tanh : tensor<8x16xf32>
  %4 = nn.matmul %x, %w "ah,hf->af" : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
  %5 = nn.gelu %4 tanh : tensor<8x16xf32>
  return %3, %5 : tensor<8x16xf32>, tensor<8x16xf32>
}

// Columns of several dimensions: heads. Extents of 1 count as nothing.
// CHECK-LABEL: func.func @heads(
// CHECK: nn.fused_matmul %{{.*}} "bsh,hgrd->bsgrd" bias %{{.*}} : (tensor<2x8x4xf32>, tensor<4x2x1x3xf32>, tensor<2x1x3xf32>) -> tensor<2x8x2x1x3xf32>
// CHECK-NEXT: return
func.func @heads(%x: tensor<2x8x4xf32>, %w: tensor<4x2x1x3xf32>, %b: tensor<2x1x3xf32>) -> tensor<2x8x2x1x3xf32> {
  %0 = nn.matmul %x, %w "bsh,hgrd->bsgrd" : (tensor<2x8x4xf32>, tensor<4x2x1x3xf32>) -> tensor<2x8x2x1x3xf32>
  %1 = nn.broadcast %b dims [2, 3, 4] : tensor<2x1x3xf32> -> tensor<2x8x2x1x3xf32>
  %2 = nn.add %0, %1 : tensor<2x8x2x1x3xf32>
  return %2 : tensor<2x8x2x1x3xf32>
}

// The backward pass, with the weight turned. The gradient of the bias is the sum
// of what is stored.
// CHECK-LABEL: func.func @backward(
// CHECK-SAME: %[[DY:[^:]*]]: {{[^,]*}}, %[[W:[^:]*]]: {{[^,]*}}, %[[PRE:[^:]*]]: tensor<2x8x16xf32>)
// CHECK-NEXT: %[[DX:.*]] = nn.fused_matmul %[[DY]], %[[W]] "bsh,fh->bsf" gelu_grad %[[PRE]] : (tensor<2x8x4xf32>, tensor<16x4xf32>, tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
// CHECK-NEXT: nn.reduce sum %[[DX]]
// BIAS-LABEL: func.func @backward(
// BIAS: nn.gelu_grad
func.func @backward(%dy: tensor<2x8x4xf32>, %w: tensor<16x4xf32>, %pre: tensor<2x8x16xf32>) -> (tensor<2x8x16xf32>, tensor<16xf32>) {
  %0 = nn.matmul %dy, %w "bsh,fh->bsf" : (tensor<2x8x4xf32>, tensor<16x4xf32>) -> tensor<2x8x16xf32>
  %1 = nn.gelu_grad %0, %pre tanh : tensor<2x8x16xf32>
  %2 = nn.reduce sum %1 dims [0, 1] : tensor<2x8x16xf32> -> tensor<16xf32>
  return %1, %2 : tensor<2x8x16xf32>, tensor<16xf32>
}

// A partial sum is complete behind the collective only: the bias stays there.
// CHECK-LABEL: func.func @partial(
// CHECK-NOT: nn.fused_matmul
// CHECK: return
func.func @partial(%x: tensor<8x4xf32>, %w: tensor<4x16xf32>, %b: tensor<16xf32>) -> tensor<8x16xf32> {
  %0 = nn.matmul %x, %w "ah,hf->af" : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
  %1 = dist.all_reduce %0 on @mesh["tp"] sum : tensor<8x16xf32> -> tensor<8x16xf32>
  %2 = nn.broadcast %b dims [1] : tensor<16xf32> -> tensor<8x16xf32>
  %3 = nn.add %1, %2 : tensor<8x16xf32>
  %4 = nn.gelu %3 tanh : tensor<8x16xf32>
  return %4 : tensor<8x16xf32>
}

// The sum without the bias, and the gradient before GELU, are read by others.
// CHECK-LABEL: func.func @read_twice(
// CHECK-NOT: nn.fused_matmul
// CHECK: return
func.func @read_twice(%x: tensor<8x4xf32>, %w: tensor<4x16xf32>, %b: tensor<16xf32>) -> (tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>) {
  %0 = nn.matmul %x, %w "ah,hf->af" : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
  %1 = nn.broadcast %b dims [1] : tensor<16xf32> -> tensor<8x16xf32>
  %2 = nn.add %0, %1 : tensor<8x16xf32>
  %3 = nn.gelu_grad %0, %1 tanh : tensor<8x16xf32>
  return %0, %2, %3 : tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>
}

// What no library call computes: GELU in its exact form; along rows a number
// for each row, or one for all; a matmul of matrices that do not lie as
// matrices; sums that are wider than their terms.
// CHECK-LABEL: func.func @others(
// CHECK-NOT: nn.fused_matmul
// CHECK: return
func.func @others(%x: tensor<8x4xf32>, %w: tensor<4x16xf32>, %rows: tensor<8xf32>, %one: tensor<f32>, %h: tensor<4x8x2xf32>, %v: tensor<2x4x16xf32>, %b: tensor<16xf32>, %n: tensor<8x4xbf16>, %m: tensor<4x16xbf16>) -> (tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>) {
  %0 = nn.matmul %x, %w "ah,hf->af" : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
  %1 = nn.gelu %0 : tensor<8x16xf32>
  %2 = nn.matmul %x, %w "ah,hf->af" {n = 1} : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
  %3 = nn.broadcast %rows dims [0] : tensor<8xf32> -> tensor<8x16xf32>
  %4 = nn.add %2, %3 : tensor<8x16xf32>
  %5 = nn.matmul %x, %w "ah,hf->af" {n = 2} : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
  %6 = nn.broadcast %one dims [] : tensor<f32> -> tensor<8x16xf32>
  %7 = nn.add %5, %6 : tensor<8x16xf32>
  %8 = nn.matmul %h, %v "gar,rgf->af" : (tensor<4x8x2xf32>, tensor<2x4x16xf32>) -> tensor<8x16xf32>
  %9 = nn.broadcast %b dims [1] : tensor<16xf32> -> tensor<8x16xf32>
  %10 = nn.add %8, %9 : tensor<8x16xf32>
  %11 = nn.matmul %n, %m "ah,hf->af" : (tensor<8x4xbf16>, tensor<4x16xbf16>) -> tensor<8x16xf32>
  %12 = nn.add %11, %9 : tensor<8x16xf32>
  return %1, %4, %7, %10, %12 : tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>
}

// Rows of 12 elements: the bias goes in, GELU does not.
// CHECK-LABEL: func.func @short_rows(
// CHECK: %[[SUM:.*]] = nn.fused_matmul %{{.*}} bias %{{[^ ]*}} : {{.*}} -> tensor<8x12xf32>
// CHECK-NEXT: nn.gelu %[[SUM]]
// CHECK: nn.matmul
// CHECK: nn.gelu_grad
func.func @short_rows(%x: tensor<8x4xf32>, %w: tensor<4x12xf32>, %b: tensor<12xf32>) -> (tensor<8x12xf32>, tensor<8x12xf32>) {
  %0 = nn.matmul %x, %w "ah,hf->af" : (tensor<8x4xf32>, tensor<4x12xf32>) -> tensor<8x12xf32>
  %1 = nn.broadcast %b dims [1] : tensor<12xf32> -> tensor<8x12xf32>
  %2 = nn.add %0, %1 : tensor<8x12xf32>
  %3 = nn.gelu %2 tanh : tensor<8x12xf32>
  %4 = nn.matmul %x, %w "ah,hf->af" {n = 1} : (tensor<8x4xf32>, tensor<4x12xf32>) -> tensor<8x12xf32>
  %5 = nn.gelu_grad %4, %3 tanh : tensor<8x12xf32>
  return %3, %5 : tensor<8x12xf32>, tensor<8x12xf32>
}
