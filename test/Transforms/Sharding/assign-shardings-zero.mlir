// RUN: plait-opt %s --plait-configure=zero=3 --dist-assign-shardings -split-input-file | FileCheck %s --check-prefixes=CHECK,THREE
// RUN: plait-opt %s --plait-configure=zero=2 --dist-assign-shardings -split-input-file | FileCheck %s --check-prefixes=CHECK,TWO
// RUN: plait-opt %s --plait-configure=zero=1 --dist-assign-shardings -split-input-file | FileCheck %s --check-prefixes=CHECK,ONE

// Parameters are divided over dp, inside of what tp has already split, along the
// first dimension that has equal blocks then. One that has none stays.
dist.mesh @mesh ["dp", "tp"] = [4, 2]
// THREE: nn.parameter @up {{.*}} sharding #dist.sharding<@mesh, [{"dp"}, {"tp"}]>{{$}}
// TWO: nn.parameter @up {{.*}} sharding #dist.sharding<@mesh, [{}, {"tp"}]> state #dist.sharding<@mesh, [{"dp"}, {"tp"}]>
// ONE: nn.parameter @up {{.*}} sharding #dist.sharding<@mesh, [{}, {"tp"}]>{{$}}
nn.parameter @up : tensor<256x256xf32> init<mean = 0.0, std = 0.02>
// THREE: nn.parameter @down {{.*}} sharding #dist.sharding<@mesh, [{"tp", "dp"}, {}]>{{$}}
// TWO: nn.parameter @down {{.*}} sharding #dist.sharding<@mesh, [{"tp"}, {}]> state #dist.sharding<@mesh, [{"tp", "dp"}, {}]>
nn.parameter @down : tensor<256x256xf32> init<mean = 0.0, std = 0.02>
// Of 258 rows blocks would be uneven, of its columns not.
// THREE: nn.parameter @rows {{.*}} sharding #dist.sharding<@mesh, [{"tp"}, {"dp"}]>{{$}}
// TWO: nn.parameter @rows {{.*}} sharding #dist.sharding<@mesh, [{"tp"}, {}]> state #dist.sharding<@mesh, [{"tp"}, {"dp"}]>
nn.parameter @rows : tensor<258x256xf32> init<mean = 0.0, std = 0.02>
// CHECK: nn.parameter @small {{.*}} sharding #dist.sharding<@mesh, [{"tp"}]>{{$}}
nn.parameter @small : tensor<258xf32> init<mean = 0.0, std = 0.02>
// CHECK-LABEL: func.func @loss(
// A gather stands before the first user of the layer.
// THREE: %[[UP:.*]] = nn.read @up value
// THREE-NEXT: %[[WHOLE:.*]] = dist.reshard %[[UP]] {nn.layer = 3 : i64} : tensor<256x256xf32, #dist.sharding<@mesh, [{"dp"}, {"tp"}]>> -> tensor<256x256xf32, #dist.sharding<@mesh, [{}, {"tp"}]>>
// THREE-NEXT: nn.matmul {{.*}}, %[[WHOLE]] "bi,ij->bj"
// THREE: %[[DOWN:.*]] = nn.read @down value
// THREE-NEXT: dist.reshard %[[DOWN]] {{.*}} [{"tp", "dp"}, {}]>> -> {{.*}} [{"tp"}, {}]>>
// TWO: %[[UP:.*]] = nn.read @up value
// TWO-NEXT: nn.matmul {{.*}}, %[[UP]] "bi,ij->bj"
func.func @loss(%x: tensor<64x256xf32>) -> tensor<64x258xf32> {
  %up = nn.read @up value : tensor<256x256xf32>
  %1 = nn.matmul %x, %up "bi,ij->bj" {nn.layer = 3 : i64} : (tensor<64x256xf32>, tensor<256x256xf32>) -> tensor<64x256xf32>
  %down = nn.read @down value : tensor<256x256xf32>
  %2 = nn.matmul %1, %down "bj,jk->bk" {nn.layer = 3 : i64} : (tensor<64x256xf32>, tensor<256x256xf32>) -> tensor<64x256xf32>
  %rows = nn.read @rows value : tensor<258x256xf32>
  %3 = nn.matmul %2, %rows "bk,lk->bl" : (tensor<64x256xf32>, tensor<258x256xf32>) -> tensor<64x258xf32>
  %small = nn.read @small value : tensor<258xf32>
  %4 = nn.broadcast %small dims [1] : tensor<258xf32> -> tensor<64x258xf32>
  %5 = nn.add %3, %4 : tensor<64x258xf32>
  return %5 : tensor<64x258xf32>
}

// -----

// Two layers that read one parameter gather it each; one layer's users share.
dist.mesh @mesh ["dp"] = [2]
nn.parameter @w : tensor<64x64xf32> init<mean = 0.0, std = 0.02>
// CHECK-LABEL: func.func @loss(
// THREE: %[[W:.*]] = nn.read @w value
// THREE-NEXT: %[[FIRST:.*]] = dist.reshard %[[W]] {nn.layer = 0 : i64}
// THREE-NEXT: nn.matmul {{.*}}, %[[FIRST]]
// THREE-NEXT: nn.matmul {{.*}}, %[[FIRST]]
// THREE-NEXT: %[[SECOND:.*]] = dist.reshard %[[W]] {nn.layer = 1 : i64}
// THREE-NEXT: nn.matmul {{.*}}, %[[SECOND]]
// TWO-NOT: dist.reshard
func.func @loss(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %w = nn.read @w value : tensor<64x64xf32>
  %1 = nn.matmul %x, %w "bi,ij->bj" {nn.layer = 0 : i64} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %2 = nn.matmul %1, %w "bi,ij->bj" {nn.layer = 0 : i64} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %3 = nn.matmul %2, %w "bi,ij->bj" {nn.layer = 1 : i64} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %3 : tensor<64x64xf32>
}

// -----

// What is pinned over dp stays as it is.
dist.mesh @mesh ["dp"] = [2]
// CHECK: nn.parameter @pinned {{.*}} sharding #dist.sharding<@mesh, [{}, {"dp"}]>{{$}}
nn.parameter @pinned : tensor<64x64xf32> init<mean = 0.0, std = 0.02> sharding #dist.sharding<@mesh, [{}, {"dp"}]>
// CHECK-LABEL: func.func @loss(
// CHECK: nn.read @pinned value
// CHECK-NEXT: dist.reshard {{.*}} [{}, {"dp"}]>> -> {{.*}} [{}, {}]>>
func.func @loss(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %w = nn.read @pinned value : tensor<64x64xf32>
  %1 = nn.matmul %x, %w "bi,ij->bj" : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %1 : tensor<64x64xf32>
}
