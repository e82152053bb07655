// RUN: plait-opt %s -split-input-file --nn-fuse-sums | FileCheck %s

// The gradient of what three linears read: each matmul adds to what the one
// before it has left, at the place that it had.
// CHECK-LABEL: func.func @chain(
// CHECK-SAME: %[[V:[^:]*]]: {{[^,]*}}, %[[K:[^:]*]]: {{[^,]*}}, %[[Q:[^:]*]]: {{[^,]*}}, %[[WV:[^:]*]]: {{[^,]*}}, %[[WK:[^:]*]]: {{[^,]*}}, %[[WQ:[^:]*]]: tensor<4x2x1x3xbf16>)
// CHECK-NEXT: %[[A:.*]] = nn.matmul %[[V]], %[[WV]] "bsgd,hgd->bsh"
// CHECK-NEXT: %[[B:.*]] = nn.fused_matmul %[[K]], %[[WK]] "bsgd,hgd->bsh" add %[[A]] {nn.layer = 3 : i64} : (tensor<2x8x2x3xbf16>, tensor<4x2x3xbf16>, tensor<2x8x4xbf16>) -> tensor<2x8x4xbf16>
// CHECK-NEXT: nn.exp
// CHECK-NEXT: %[[C:.*]] = nn.fused_matmul %[[Q]], %[[WQ]] "bsgrd,hgrd->bsh" add %[[B]]
// CHECK-NEXT: return %{{.*}}, %[[C]]
func.func @chain(%v: tensor<2x8x2x3xbf16>, %k: tensor<2x8x2x3xbf16>, %q: tensor<2x8x2x1x3xbf16>, %wv: tensor<4x2x3xbf16>, %wk: tensor<4x2x3xbf16>, %wq: tensor<4x2x1x3xbf16>) -> (tensor<2x8x2x3xbf16>, tensor<2x8x4xbf16>) {
  %0 = nn.matmul %v, %wv "bsgd,hgd->bsh" : (tensor<2x8x2x3xbf16>, tensor<4x2x3xbf16>) -> tensor<2x8x4xbf16>
  %1 = nn.matmul %k, %wk "bsgd,hgd->bsh" {nn.layer = 3} : (tensor<2x8x2x3xbf16>, tensor<4x2x3xbf16>) -> tensor<2x8x4xbf16>
  %2 = nn.exp %v : tensor<2x8x2x3xbf16>
  %3 = nn.matmul %q, %wq "bsgrd,hgrd->bsh" : (tensor<2x8x2x1x3xbf16>, tensor<4x2x1x3xbf16>) -> tensor<2x8x4xbf16>
  %4 = nn.add %0, %1 : tensor<2x8x4xbf16>
  %5 = nn.add %4, %3 : tensor<2x8x4xbf16>
  return %2, %5 : tensor<2x8x2x3xbf16>, tensor<2x8x4xbf16>
}

// The later one adds to the earlier one, in whichever order they are added up;
// the earlier one may be of any kind.
// CHECK-LABEL: func.func @turned(
// CHECK: %[[A:.*]] = nn.matmul {{.*}} "gah,ghf->af"
// CHECK-NEXT: nn.fused_matmul {{.*}} "ah,hf->af" add %[[A]]
// CHECK-NEXT: return
func.func @turned(%x: tensor<8x4xf32>, %w: tensor<4x16xf32>, %y: tensor<3x8x4xf32>, %v: tensor<3x4x16xf32>) -> tensor<8x16xf32> {
  %0 = nn.matmul %y, %v "gah,ghf->af" : (tensor<3x8x4xf32>, tensor<3x4x16xf32>) -> tensor<8x16xf32>
  %1 = nn.matmul %x, %w "ah,hf->af" : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
  %2 = nn.add %1, %0 : tensor<8x16xf32>
  return %2 : tensor<8x16xf32>
}

// -----

// Parts of a sum over ranks are added up by the matmul as well: no kernel is
// left between it and the collective.
dist.mesh @mesh ["pp", "dp", "tp"] = [1, 1, 2]
// CHECK-LABEL: func.func @partial(
// CHECK: nn.matmul
// CHECK-NEXT: %[[S:.*]] = nn.fused_matmul
// CHECK-NEXT: dist.all_reduce %[[S]]
func.func @partial(%x: tensor<8x4xf32>, %w: tensor<4x16xf32>, %y: tensor<8x4xf32>) -> tensor<8x16xf32> {
  %0 = nn.matmul %x, %w "ah,hf->af" : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
  %1 = nn.matmul %y, %w "ah,hf->af" : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
  %2 = nn.add %0, %1 : tensor<8x16xf32>
  %3 = dist.all_reduce %2 on @mesh["tp"] sum : tensor<8x16xf32> -> tensor<8x16xf32>
  return %3 : tensor<8x16xf32>
}

// -----

// What is left alone: terms that others read, or that no matmul makes; sums
// that are wider than the operands; a later matmul that is none of two matrices.
// CHECK-LABEL: func.func @others(
// CHECK-NOT: nn.fused_matmul
// CHECK: return
func.func @others(%x: tensor<8x4xf32>, %w: tensor<4x16xf32>, %r: tensor<8x16xf32>, %n: tensor<8x4xbf16>, %m: tensor<4x16xbf16>, %y: tensor<3x8x4xf32>, %v: tensor<3x4x16xf32>) -> (tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>) {
  %0 = nn.matmul %x, %w "ah,hf->af" : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
  %1 = nn.matmul %x, %w "ah,hf->af" {n = 1} : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
  %2 = nn.add %0, %1 : tensor<8x16xf32>
  %3 = nn.matmul %x, %w "ah,hf->af" {n = 2} : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
  %4 = nn.add %3, %r : tensor<8x16xf32>
  %5 = nn.matmul %n, %m "ah,hf->af" : (tensor<8x4xbf16>, tensor<4x16xbf16>) -> tensor<8x16xf32>
  %6 = nn.matmul %n, %m "ah,hf->af" {n = 1} : (tensor<8x4xbf16>, tensor<4x16xbf16>) -> tensor<8x16xf32>
  %7 = nn.add %5, %6 : tensor<8x16xf32>
  %8 = nn.matmul %x, %w "ah,hf->af" {n = 3} : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
  %9 = nn.matmul %y, %v "gah,ghf->af" : (tensor<3x8x4xf32>, tensor<3x4x16xf32>) -> tensor<8x16xf32>
  %10 = nn.add %8, %9 : tensor<8x16xf32>
  return %0, %2, %4, %7, %10 : tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>
}

// -----

// A tied table gets its gradient from the loss and from the rows that tokens
// name, and a matrix that is used twice from both uses: each adds to it.
nn.parameter @table : tensor<16x4xf32> init<mean = 0.0, std = 0.02>
// CHECK-LABEL: func.func @gradients(
// CHECK-NEXT: %[[A:.*]] = nn.matmul {{.*}} "ah,hf->af" :
// CHECK-NEXT: nn.accumulate %[[A]] to @table gradient {nn.layer = 3 : i64}
// CHECK-NEXT: %[[B:.*]] = nn.matmul {{.*}} "ah,hf->af" {n = 1 : i64}
// CHECK-NEXT: nn.accumulate %[[B]] to @table gradient {nn.layer = 3 : i64}
// CHECK-NEXT: %[[C:.*]] = nn.embedding_grad
// CHECK-NEXT: nn.accumulate %[[C]] to @table gradient {nn.layer = 3 : i64}
// CHECK-NEXT: return
func.func @gradients(%x: tensor<16x8xf32>, %y: tensor<8x4xf32>, %g: tensor<2x3x4xf32>, %ids: tensor<2x3xi32>) {
  %0 = nn.matmul %x, %y "ah,hf->af" : (tensor<16x8xf32>, tensor<8x4xf32>) -> tensor<16x4xf32>
  %1 = nn.matmul %x, %y "ah,hf->af" {n = 1} : (tensor<16x8xf32>, tensor<8x4xf32>) -> tensor<16x4xf32>
  %2 = nn.embedding_grad %g, %ids : (tensor<2x3x4xf32>, tensor<2x3xi32>) -> tensor<16x4xf32>
  %3 = nn.add %0, %1 : tensor<16x4xf32>
  %4 = nn.add %3, %2 : tensor<16x4xf32>
  nn.accumulate %4 to @table gradient {nn.layer = 3} : tensor<16x4xf32>
  return
}

// A term that a kernel computes is added up before it is stored; so is one that
// others read.
// CHECK-LABEL: func.func @kernels(
// CHECK: %[[S:.*]] = nn.add
// CHECK-NEXT: nn.accumulate %[[S]]
// CHECK-NEXT: %[[T:.*]] = nn.add
// CHECK-NEXT: nn.accumulate %[[T]]
func.func @kernels(%x: tensor<16x8xf32>, %y: tensor<8x4xf32>, %z: tensor<16x4xf32>, %g: tensor<2x3x4xf32>, %ids: tensor<2x3xi32>) -> tensor<16x4xf32> {
  %0 = nn.matmul %x, %y "ah,hf->af" : (tensor<16x8xf32>, tensor<8x4xf32>) -> tensor<16x4xf32>
  %1 = nn.exp %z : tensor<16x4xf32>
  %2 = nn.matmul %x, %y "ah,hf->af" {n = 1} : (tensor<16x8xf32>, tensor<8x4xf32>) -> tensor<16x4xf32>
  %3 = nn.embedding_grad %g, %ids : (tensor<2x3x4xf32>, tensor<2x3xi32>) -> tensor<16x4xf32>
  %4 = nn.add %0, %1 : tensor<16x4xf32>
  nn.accumulate %4 to @table gradient : tensor<16x4xf32>
  %5 = nn.add %2, %3 : tensor<16x4xf32>
  nn.accumulate %5 to @table gradient : tensor<16x4xf32>
  return %2 : tensor<16x4xf32>
}
