// RUN: plait-opt %s '--dist-pin-shardings=shardings=*=[{},{}],up*=[{},{"tp"}]' | FileCheck %s
// Without shardings a model stays as it is.
// RUN: plait-opt %s --dist-pin-shardings | FileCheck %s --check-prefix=SAME
// What is pinned is kept, and the rest follows.
// RUN: plait-opt %s '--dist-pin-shardings=shardings=up=[{"tp"},{}]' --plait-shard | FileCheck %s --check-prefix=KEPT

// CHECK: nn.parameter @embed {{.*}} sharding #dist.sharding<@mesh, [{}, {}]>
// CHECK: nn.parameter @up {{.*}} sharding #dist.sharding<@mesh, [{}, {"tp"}]>
// SAME-NOT: sharding
// KEPT: nn.parameter @up {{.*}} sharding #dist.sharding<@mesh, [{"tp"}, {}]>
module attributes {plait.model = {layers = 1 : i64, vocab = 16 : i64}} {
  dist.mesh @mesh ["tp"] = [2]
  nn.parameter @embed : tensor<16x4xf32> init<mean = 0.0, std = 0.02>
  nn.parameter @up : tensor<4x16xf32> init<mean = 0.0, std = 0.02>
  func.func @loss(%tokens: tensor<2x8xi32>, %targets: tensor<2x8xi32>) -> (tensor<f32>, tensor<f32>) {
    %0 = nn.read @embed value : tensor<16x4xf32>
    %1 = nn.embedding %0, %tokens : (tensor<16x4xf32>, tensor<2x8xi32>) -> tensor<2x8x4xf32>
    %2 = nn.read @up value : tensor<4x16xf32>
    %3 = nn.matmul %1, %2 "bsh,hf->bsf" : (tensor<2x8x4xf32>, tensor<4x16xf32>) -> tensor<2x8x16xf32>
    %loss, %count = nn.softmax_cross_entropy %3, %targets ignore -100 : (tensor<2x8x16xf32>, tensor<2x8xi32>) -> (tensor<f32>, tensor<f32>)
    return %loss, %count : tensor<f32>, tensor<f32>
  }
}
