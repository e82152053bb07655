// RUN: plait-opt %s --split-input-file --nn-chunk-loss | FileCheck %s
// RUN: plait-opt %s --split-input-file --nn-chunk-loss --remarks-filter='nn-chunk.*' -o %t.out 2>&1 | FileCheck %s --check-prefix=REMARK

// Of a token all choices are in one chunk. What is made for experts alone, as the
// weights of all elements, is made for each chunk; matrices are read by all.
// REMARK: 6 ops of experts are computed in 2 chunks of tokens
// CHECK-LABEL: func.func @forward_0(
// CHECK-SAME: %[[X:[^:]*]]: tensor<1x4x2xf32>, %[[I:[^:]*]]: tensor<1x4x3xi32>, %[[S:[^:]*]]: tensor<1x4x3xf32>, %[[W:[^:]*]]: tensor<5x2x6xf32>
// CHECK-NOT: tensor<1x4x3x
// CHECK: %[[X0:.*]] = nn.chunk %[[X]] dim 1 part 0 of 2 : tensor<1x4x2xf32> -> tensor<1x2x2xf32>
// CHECK: %[[I0:.*]] = nn.chunk %[[I]] dim 1 part 0 of 2 : tensor<1x4x3xi32> -> tensor<1x2x3xi32>
// CHECK: nn.grouped_matmul %[[X0]], %[[W]], %[[I0]] "bth,ehf->btcf" : (tensor<1x2x2xf32>, tensor<5x2x6xf32>, tensor<1x2x3xi32>) -> tensor<1x2x3x6xf32>
// CHECK: nn.chunk %[[S]] dim 1 part 0 of 2
// CHECK: %[[Y0:.*]] = nn.reduce sum %{{.*}} dims [2] : tensor<1x2x3x2xf32> -> tensor<1x2x2xf32>
// CHECK: nn.chunk %[[X]] dim 1 part 1 of 2
// CHECK: %[[Y1:.*]] = nn.reduce sum
// CHECK: %[[Y:.*]] = nn.concat %[[Y0]], %[[Y1]] dim 1
// CHECK: return %[[Y]]
module attributes {plait.expert_chunks = 2 : i64} {
  func.func @forward_0(%x: tensor<1x4x2xf32>, %i: tensor<1x4x3xi32>, %s: tensor<1x4x3xf32>, %w: tensor<5x2x6xf32>, %v: tensor<5x6x2xf32>) -> tensor<1x4x2xf32> {
    %0 = nn.grouped_matmul %x, %w, %i "bth,ehf->btcf" : (tensor<1x4x2xf32>, tensor<5x2x6xf32>, tensor<1x4x3xi32>) -> tensor<1x4x3x6xf32>
    %1 = nn.silu %0 : tensor<1x4x3x6xf32>
    %2 = nn.broadcast %s dims [0, 1, 2] : tensor<1x4x3xf32> -> tensor<1x4x3x6xf32>
    %3 = nn.mul %1, %2 : tensor<1x4x3x6xf32>
    %4 = nn.grouped_matmul %3, %v, %i "btcf,efh->btch" : (tensor<1x4x3x6xf32>, tensor<5x6x2xf32>, tensor<1x4x3xi32>) -> tensor<1x4x3x2xf32>
    %5 = nn.reduce sum %4 dims [2] : tensor<1x4x3x2xf32> -> tensor<1x4x2xf32>
    return %5 : tensor<1x4x2xf32>
  }
}

// -----

// Gathers and the scatter are of one chunk. Gradients of matrices are added to
// slots chunk by chunk, also where what adds them stands right behind. Seven chunks
// do not divide six tokens.
// REMARK: 6 ops of experts are computed in 6 chunks of tokens
// CHECK-LABEL: func.func @backward_0(
// CHECK-NOT: -> tensor<2x6x
// CHECK: %[[D0:.*]] = nn.chunk %{{.*}} dim 1 part 0 of 6 : tensor<1x6x2xf32> -> tensor<1x1x2xf32>
// CHECK: dist.all_gather %[[D0]] on @mesh["ep"] dim 0 : tensor<1x1x2xf32> -> tensor<2x1x2xf32>
// CHECK: dist.reduce_scatter %{{.*}} on @mesh["ep"]{{ +}}sum dim 0 : tensor<2x1x2xf32> -> tensor<1x1x2xf32>
// CHECK: %[[G:.*]] = nn.grouped_matmul %{{.*}} "bth,btcf->ehf"
// CHECK: nn.accumulate %[[G]] to @w{{ +}}gradient
// CHECK: part 5 of 6
// CHECK: nn.concat
module attributes {plait.expert_chunks = 7 : i64} {
  dist.mesh @mesh ["pp", "dp", "ep", "tp"] = [1, 1, 2, 1]
  nn.parameter @w : tensor<6x2x2xf32> init<mean = 0.0, std = 0.02>
  func.func @backward_0(%d: tensor<1x6x2xf32>, %i: tensor<1x6x3xi32>) -> tensor<1x6x2xf32> {
    %w = nn.read @w value : tensor<6x2x2xf32>
    %0 = dist.all_gather %d on @mesh["ep"] dim 0 : tensor<1x6x2xf32> -> tensor<2x6x2xf32>
    %1 = dist.all_gather %i on @mesh["ep"] dim 0 : tensor<1x6x3xi32> -> tensor<2x6x3xi32>
    %2 = nn.grouped_matmul %0, %w, %1 "bth,ehf->btcf" : (tensor<2x6x2xf32>, tensor<6x2x2xf32>, tensor<2x6x3xi32>) -> tensor<2x6x3x2xf32>
    %3 = nn.reduce sum %2 dims [2] : tensor<2x6x3x2xf32> -> tensor<2x6x2xf32>
    %4 = dist.reduce_scatter %3 on @mesh["ep"] sum dim 0 : tensor<2x6x2xf32> -> tensor<1x6x2xf32>
    %5 = nn.grouped_matmul %0, %2, %1 "bth,btcf->ehf" : (tensor<2x6x2xf32>, tensor<2x6x3x2xf32>, tensor<2x6x3xi32>) -> tensor<6x2x2xf32>
    nn.accumulate %5 to @w gradient : tensor<6x2x2xf32>
    return %4 : tensor<1x6x2xf32>
  }
}

// -----

// As a whole, a single token stays what it is, whatever is asked for.
// CHECK-LABEL: func.func @forward_1(
// CHECK-NOT: nn.chunk
module attributes {plait.expert_chunks = 2 : i64} {
  func.func @forward_1(%x: tensor<1x1x2xf32>, %i: tensor<1x1x3xi32>, %w: tensor<5x2x6xf32>) -> tensor<1x1x6xf32> {
    %0 = nn.grouped_matmul %x, %w, %i "bth,ehf->btcf" : (tensor<1x1x2xf32>, tensor<5x2x6xf32>, tensor<1x1x3xi32>) -> tensor<1x1x3x6xf32>
    %1 = nn.reduce sum %0 dims [2] : tensor<1x1x3x6xf32> -> tensor<1x1x6xf32>
    return %1 : tensor<1x1x6xf32>
  }
}
