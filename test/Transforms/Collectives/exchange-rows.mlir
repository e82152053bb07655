// RUN: plait-opt %s --split-input-file --dist-exchange-rows | FileCheck %s
// RUN: plait-opt %s --split-input-file --dist-exchange-rows --remarks-filter='dist-exchange.*' -o %t.out 2>&1 | FileCheck %s --check-prefix=REMARK

// Tokens are dispatched behind the ids, also where they are repeated for choices
// before. Weights of choices stay gathered, and so does what others read. Each sum
// over choices is made at home.
// REMARK: tokens go to ranks of "ep" that have experts of theirs
// REMARK: rows come back from ranks of "ep"
// CHECK-LABEL: func.func @backward(
// CHECK-SAME: %[[D:[^:]*]]: tensor<1x6x2xf32>, %[[I:[^:]*]]: tensor<1x6x3xi32>
// CHECK: %[[S:.*]] = dist.all_gather %{{.*}} dim 0 : tensor<1x6x3xf32>
// CHECK: %[[IDS:.*]] = dist.all_gather %[[I]]
// CHECK-NEXT: %[[X:.*]] = dist.dispatch %[[D]] by %[[IDS]] on @mesh["ep"] experts 3 {nn.layer = 4 : i64} : (tensor<1x6x2xf32>, tensor<2x6x3xi32>) -> tensor<2x6x2xf32>
// CHECK-NEXT: %[[B:.*]] = nn.broadcast %[[X]] dims [0, 1, 3]
// CHECK: %[[R:.*]] = nn.grouped_matmul %[[B]]
// CHECK: %[[R2:.*]] = nn.grouped_matmul %[[X]]
// CHECK-NEXT: %[[A:.*]] = dist.combine %[[R]] by %[[IDS]] on @mesh["ep"] experts 3 : (tensor<2x6x3x2xf32>, tensor<2x6x3xi32>) -> tensor<1x6x3x2xf32>
// CHECK-NEXT: %[[A1:.*]] = nn.reduce sum %[[A]] dims [2] : tensor<1x6x3x2xf32> -> tensor<1x6x2xf32>
// CHECK-NEXT: %[[C:.*]] = dist.combine %[[R2]]
// CHECK-NEXT: %[[C1:.*]] = nn.reduce sum %[[C]] dims [2]
// CHECK-NEXT: %[[SUM:.*]] = nn.add %[[A1]], %[[C1]] : tensor<1x6x2xf32>
// CHECK-NEXT: nn.grouped_matmul %[[X]], %[[R]], %[[IDS]] "bth,btcf->ehf"
// CHECK-NEXT: return %[[SUM]], %[[S]]
module attributes {plait.configuration = #plait.configuration<expert_exchange = rows>} {
  dist.mesh @mesh ["pp", "dp", "ep", "tp"] = [1, 1, 2, 1]
  func.func @backward(%d: tensor<1x6x2xf32>, %i: tensor<1x6x3xi32>, %s: tensor<1x6x3xf32>, %w: tensor<3x2x2xf32>) -> (tensor<1x6x2xf32>, tensor<2x6x3xf32>, tensor<3x2x2xf32>) {
    %0 = dist.all_gather %s on @mesh["ep"] dim 0 : tensor<1x6x3xf32> -> tensor<2x6x3xf32>
    %1 = dist.all_gather %d on @mesh["ep"] dim 0 {nn.layer = 4 : i64} : tensor<1x6x2xf32> -> tensor<2x6x2xf32>
    %2 = nn.broadcast %1 dims [0, 1, 3] : tensor<2x6x2xf32> -> tensor<2x6x3x2xf32>
    %3 = dist.all_gather %i on @mesh["ep"] dim 0 : tensor<1x6x3xi32> -> tensor<2x6x3xi32>
    %4 = nn.grouped_matmul %2, %w, %3 "btch,ehf->btcf" {begin = #nn.begin<"ep" * 3>} : (tensor<2x6x3x2xf32>, tensor<3x2x2xf32>, tensor<2x6x3xi32>) -> tensor<2x6x3x2xf32>
    %5 = nn.grouped_matmul %1, %w, %3 "bth,ehf->btcf" {begin = #nn.begin<"ep" * 3>} : (tensor<2x6x2xf32>, tensor<3x2x2xf32>, tensor<2x6x3xi32>) -> tensor<2x6x3x2xf32>
    %6 = nn.reduce sum %4 dims [2] : tensor<2x6x3x2xf32> -> tensor<2x6x2xf32>
    %7 = nn.reduce sum %5 dims [2] : tensor<2x6x3x2xf32> -> tensor<2x6x2xf32>
    %8 = nn.add %6, %7 : tensor<2x6x2xf32>
    %9 = dist.reduce_scatter %8 on @mesh["ep"] sum dim 0 : tensor<2x6x2xf32> -> tensor<1x6x2xf32>
    %10 = nn.grouped_matmul %1, %4, %3 "bth,btcf->ehf" {begin = #nn.begin<"ep" * 3>} : (tensor<2x6x2xf32>, tensor<2x6x3x2xf32>, tensor<2x6x3xi32>) -> tensor<3x2x2xf32>
    return %9, %0, %10 : tensor<1x6x2xf32>, tensor<2x6x3xf32>, tensor<3x2x2xf32>
  }
}

// -----

// Not what another op reads, what is taken by two routers, what is no sum over
// choices, or what goes over another axis.
// REMARK: ranks of "ep" add up what is no sum over choices
// CHECK-LABEL: func.func @others(
// CHECK-NOT: dist.dispatch
// CHECK-NOT: dist.combine
// CHECK: return
module attributes {plait.configuration = #plait.configuration<expert_exchange = rows>} {
  dist.mesh @mesh ["pp", "dp", "ep", "tp"] = [1, 2, 2, 1]
  func.func @others(%d: tensor<1x6x2xf32>, %i: tensor<2x6x3xi32>, %j: tensor<2x6x3xi32>, %w: tensor<3x2x2xf32>) -> (tensor<2x6x3x2xf32>, tensor<1x6x3xf32>, tensor<2x6x2xf32>, tensor<1x6x2xf32>) {
    %0 = dist.all_gather %d on @mesh["ep"] dim 0 : tensor<1x6x2xf32> -> tensor<2x6x2xf32>
    %1 = nn.grouped_matmul %0, %w, %i "bth,ehf->btcf" {begin = #nn.begin<"ep" * 3>} : (tensor<2x6x2xf32>, tensor<3x2x2xf32>, tensor<2x6x3xi32>) -> tensor<2x6x3x2xf32>
    %2 = nn.silu %0 : tensor<2x6x2xf32>
    %3 = dist.all_gather %d on @mesh["ep"] dim 0 {nn.layer = 1 : i64} : tensor<1x6x2xf32> -> tensor<2x6x2xf32>
    %4 = nn.grouped_matmul %3, %w, %i "bth,ehf->btcf" {begin = #nn.begin<"ep" * 3>} : (tensor<2x6x2xf32>, tensor<3x2x2xf32>, tensor<2x6x3xi32>) -> tensor<2x6x3x2xf32>
    %5 = nn.grouped_matmul %3, %w, %j "bth,ehf->btcf" {begin = #nn.begin<"ep" * 3>} : (tensor<2x6x2xf32>, tensor<3x2x2xf32>, tensor<2x6x3xi32>) -> tensor<2x6x3x2xf32>
    %6 = nn.mul %4, %5 : tensor<2x6x3x2xf32>
    %7 = nn.reduce sum %1 dims [3] : tensor<2x6x3x2xf32> -> tensor<2x6x3xf32>
    %8 = dist.reduce_scatter %7 on @mesh["ep"] sum dim 0 : tensor<2x6x3xf32> -> tensor<1x6x3xf32>
    %9 = dist.all_gather %d on @mesh["dp"] dim 0 : tensor<1x6x2xf32> -> tensor<2x6x2xf32>
    %10 = nn.grouped_matmul %9, %w, %i "bth,ehf->btcf" {begin = #nn.begin<"ep" * 3>} : (tensor<2x6x2xf32>, tensor<3x2x2xf32>, tensor<2x6x3xi32>) -> tensor<2x6x3x2xf32>
    %11 = nn.reduce sum %10 dims [2] : tensor<2x6x3x2xf32> -> tensor<2x6x2xf32>
    %12 = dist.reduce_scatter %11 on @mesh["dp"] sum dim 0 : tensor<2x6x2xf32> -> tensor<1x6x2xf32>
    return %6, %8, %2, %12 : tensor<2x6x3x2xf32>, tensor<1x6x3xf32>, tensor<2x6x2xf32>, tensor<1x6x2xf32>
  }
}

// -----

// Without the attribute tokens are gathered.
// CHECK-LABEL: func.func @tokens(
// CHECK: dist.all_gather
dist.mesh @mesh ["ep"] = [2]
func.func @tokens(%d: tensor<1x6x2xf32>, %i: tensor<2x6x3xi32>, %w: tensor<3x2x2xf32>) -> tensor<2x6x3x2xf32> {
  %0 = dist.all_gather %d on @mesh["ep"] dim 0 : tensor<1x6x2xf32> -> tensor<2x6x2xf32>
  %1 = nn.grouped_matmul %0, %w, %i "bth,ehf->btcf" {begin = #nn.begin<"ep" * 3>} : (tensor<2x6x2xf32>, tensor<3x2x2xf32>, tensor<2x6x3xi32>) -> tensor<2x6x3x2xf32>
  return %1 : tensor<2x6x3x2xf32>
}
