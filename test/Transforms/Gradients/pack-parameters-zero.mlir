// RUN: plait-opt %s --plait-configure=zero=1 --nn-pack-parameters --nn-build-optimizer -split-input-file | FileCheck %s
// RUN: plait-opt %s --nn-pack-parameters --nn-build-optimizer -split-input-file | FileCheck %s --check-prefix=WHOLE
// RUN: plait-opt %s --plait-configure=zero=1 --nn-pack-parameters=bucket=64 --nn-build-optimizer -split-input-file | FileCheck %s --check-prefix=BUCKETS
// RUN: plait-opt %s --plait-configure="zero=1 global-batch=4" --nn-pack-parameters --nn-build-optimizer --dist-partition --canonicalize --cse --pipe-schedule --plan-form-clusters --plan-place-buffers -split-input-file | FileCheck %s --check-prefix=PLACE
// RUN: plait-opt %s --plait-configure="zero=1 offload=optimizer" --nn-pack-parameters --nn-build-optimizer -split-input-file | FileCheck %s --check-prefix=HOST
// RUN: plait-opt %s --plait-configure="zero=1 reduce-precision=bf16" --nn-pack-parameters=bucket=64 --nn-build-optimizer -split-input-file | FileCheck %s --check-prefix=ROUND
// RUN: plait-opt %s --plait-configure=reduce-precision=bf16 --nn-pack-parameters=bucket=64 --nn-build-optimizer -split-input-file | FileCheck %s --check-prefix=CUT
// Any number that the option has is a size, also one that cannot be doubled.
// RUN: plait-opt %s --plait-configure=zero=1 --nn-pack-parameters=bucket=9223372036854775807 --nn-build-optimizer -split-input-file | FileCheck %s
// RUN: not plait-opt %s --plait-configure=zero=1 --nn-pack-parameters=bucket=-1 -split-input-file 2>&1 | FileCheck %s --check-prefix=SIZE
// SIZE: error: bucket is -1, expected 0 or more elements
// RUN: not plait-opt %s --plait-configure=zero=4 --nn-pack-parameters -split-input-file 2>&1 | FileCheck %s --check-prefix=STAGE
// STAGE: error: zero is "4", expected 0 to 3

// 50, 40 and 80 elements, each from a multiple of 32 on: four ranks have 64 each.
// CHECK: nn.pack @pack0.0 rank 0 [@a, @b, @d] at [0, 64, 128] divided on @mesh["dp"] : tensor<4x64xf32>
// @c is not reduced over dp: it stays whole.
// CHECK: nn.pack @pack0.1 rank 0 [@c] at [0] : tensor<1x32xf32>
// WHOLE-NOT: divided
// WHOLE-NOT: reduce_scatter
// Of at least 64 elements; what would be left over goes to the last.
// BUCKETS: nn.pack @pack0.0 rank 0 [@a, @b] at [0, 64] divided on @mesh["dp"] : tensor<4x32xf32>
// BUCKETS: nn.pack @pack0.1 rank 0 [@c] at [0] : tensor<1x32xf32>
// BUCKETS: nn.pack @pack0.2 rank 0 [@d] at [0] divided on @mesh["dp"] : tensor<4x32xf32>
// What is rounded before it is summed is cut as well, divided or not.
// CUT: nn.pack @pack0.0 rank 0 [@a, @b] at [0, 64] : tensor<1x128xf32>
// CUT: nn.pack @pack0.1 rank 0 [@c] at [0] : tensor<1x32xf32>
// CUT: nn.pack @pack0.2 rank 0 [@d] at [0] : tensor<1x128xf32>
#v = #dist.sharding<@mesh, [{}]>
#m = #dist.sharding<@mesh, [{}, {}]>
#dv = #dist.sharding<@mesh, [{}], partial = {"dp", "tp"}>
#dm = #dist.sharding<@mesh, [{}, {}], partial = {"dp", "tp"}>
#tv = #dist.sharding<@mesh, [{}], partial = {"tp"}>
#s = #dist.sharding<@mesh, []>
dist.mesh @mesh ["pp", "dp", "tp"] = [1, 4, 2]
nn.parameter @a : tensor<10x5xf32> init<mean = 0.0, std = 0.02> sharding #m
nn.parameter @b : tensor<40xf32> init<mean = 0.0, std = 0.02> sharding #v
nn.parameter @c : tensor<7xf32> init<mean = 0.0, std = 0.02> sharding #v
nn.parameter @d : tensor<80xf32> init<mean = 0.0, std = 0.02> sharding #v
nn.accumulator @loss_sum : tensor<f32>
nn.accumulator @token_count : tensor<f32>

func.func @forward_0() attributes {pipe.function = #pipe.function<forward, 0>} {
  %one = nn.fill 1.0 : tensor<f32, #s>
  nn.accumulate %one to @loss_sum value : tensor<f32, #s>
  nn.accumulate %one to @token_count value : tensor<f32, #s>
  return
}
func.func @backward_0(%a: tensor<10x5xf32, #dm> {pipe.port = #pipe.port<residual 0>}, %b: tensor<40xf32, #dv> {pipe.port = #pipe.port<residual 1>}, %c: tensor<7xf32, #tv> {pipe.port = #pipe.port<residual 2>}, %d: tensor<80xf32, #dv> {pipe.port = #pipe.port<residual 3>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  nn.accumulate %a to @a gradient : tensor<10x5xf32, #dm>
  nn.accumulate %b to @b gradient : tensor<40xf32, #dv>
  nn.accumulate %c to @c gradient : tensor<7xf32, #tv>
  nn.accumulate %d to @d gradient : tensor<80xf32, #dv>
  return
}

// What comes after the reduction over dp is done to the rank's part alone.
// CHECK-LABEL: func.func @reduce_0()
// CHECK-NEXT: %[[G:.*]] = nn.read @pack0.0 gradient : tensor<4x64xf32>
// CHECK-NEXT: %[[P:.*]] = dist.reduce_scatter %[[G]] on @mesh["dp"] sum dim 0 : tensor<4x64xf32> -> tensor<1x64xf32>
// CHECK-NEXT: nn.write %[[P]] to @pack0.0 reduced : tensor<1x64xf32>
// CHECK-NEXT: %[[Q:.*]] = nn.read @pack0.0 reduced : tensor<1x64xf32>
// CHECK-NEXT: %[[R:.*]] = dist.all_reduce %[[Q]] on @mesh["tp"] sum : tensor<1x64xf32> -> tensor<1x64xf32>
// CHECK-NEXT: nn.write %[[R]] to @pack0.0 reduced : tensor<1x64xf32>
// CHECK-NEXT: nn.read @pack0.1 gradient : tensor<1x32xf32>
// CHECK-NEXT: dist.all_reduce {{.*}}"tp"
// CHECK-NEXT: nn.write {{.*}} to @pack0.1 gradient
// CHECK-NEXT: return
// Last layers first.
// BUCKETS-LABEL: func.func @reduce_0()
// BUCKETS: nn.read @pack0.2 gradient
// BUCKETS: nn.read @pack0.0 gradient
// CUT-LABEL: func.func @reduce_0()
// CUT: nn.read @pack0.2 gradient
// CUT: nn.read @pack0.1 gradient
// CUT: nn.read @pack0.0 gradient
// ROUND-LABEL: func.func @reduce_0()
// ROUND-NEXT: %[[G:.*]] = nn.read @pack0.2 gradient : tensor<4x32xf32>
// ROUND-NEXT: %[[C:.*]] = nn.cast %[[G]] : tensor<4x32xf32> -> tensor<4x32xbf16>
// ROUND-NEXT: %[[P:.*]] = dist.reduce_scatter %[[C]] on @mesh["dp"] sum dim 0 : tensor<4x32xbf16> -> tensor<1x32xbf16>
// ROUND-NEXT: %[[R:.*]] = dist.all_reduce %[[P]] on @mesh["tp"] sum : tensor<1x32xbf16> -> tensor<1x32xbf16>
// ROUND-NEXT: %[[W:.*]] = nn.cast %[[R]] : tensor<1x32xbf16> -> tensor<1x32xf32>
// ROUND-NEXT: nn.write %[[W]] to @pack0.2 reduced : tensor<1x32xf32>
// ROUND-NEXT: nn.read @pack0.1 gradient
// In place after the first.
// PLACE-LABEL: func.func @reduce_0()
// PLACE-SAME: plan.slot_bytes = array<i64: 0>
// PLACE: dist.reduce_scatter {{.*}}plan.places = [#plan.place<@"pack0.0 reduced", 0>]
// PLACE: dist.all_reduce {{.*}}plan.places = [#plan.place<@"pack0.0 reduced", 0>]

// A rank counts its own part and updates its own part of what all ranks hold.
// CHECK-LABEL: func.func @optimizer_0()
// CHECK: %[[N0:.*]] = nn.read @pack0.0 reduced : tensor<1x64xf32>
// CHECK-NEXT: %[[N1:.*]] = nn.mul %[[N0]], %[[N0]]
// CHECK-NEXT: %[[N2:.*]] = nn.reduce sum %[[N1]] dims [1] : tensor<1x64xf32> -> tensor<1xf32>
// CHECK-NEXT: %[[N3:.*]] = nn.reduce sum %[[N2]] dims [0] : tensor<1xf32> -> tensor<f32>
// The others' numbers are the same on all ranks.
// CHECK: %[[C:.*]] = nn.reduce {{.*}} dims [0] : tensor<1xf32> -> tensor<f32>
// CHECK-NEXT: %[[N4:.*]] = dist.all_reduce %[[N3]] on @mesh["dp"] sum : tensor<f32> -> tensor<f32>
// CHECK-NEXT: %[[N:.*]] = nn.add %[[N4]], %[[C]] : tensor<f32>
// CHECK-NEXT: nn.sqrt %[[N]]
// CHECK: nn.read @pack0.0 reduced : tensor<1x64xf32>
// CHECK: %[[M:.*]] = nn.read @pack0.0 moment1 : tensor<1x64xf32>
// CHECK: %[[V:.*]] = nn.add %{{.*}}, %{{.*}} : tensor<1x64xf32>
// CHECK: %[[W:.*]] = nn.read @pack0.0 value : tensor<4x64xf32>
// CHECK: %[[O:.*]] = dist.slice %[[W]] on @mesh["dp"] dim 0 : tensor<4x64xf32> -> tensor<1x64xf32>
// CHECK: %[[U:.*]] = nn.sub %[[O]], %{{.*}} : tensor<1x64xf32>
// CHECK: %[[A:.*]] = dist.all_gather %[[U]] on @mesh["dp"] dim 0 : tensor<1x64xf32> -> tensor<4x64xf32>
// CHECK: nn.write %[[A]] to @pack0.0 value : tensor<4x64xf32>
// CHECK: nn.write %[[V]] to @pack0.0 moment1 : tensor<1x64xf32>
// CHECK: nn.write %{{.*}} to @pack0.1 value : tensor<1x32xf32>
// Two packs, one reduction of the sum of their squares, though one that all ranks
// have counted stands between them.
// BUCKETS-LABEL: func.func @optimizer_0()
// BUCKETS: dist.all_reduce {{.*}}"dp"
// BUCKETS-NOT: dist.all_reduce
// BUCKETS: nn.metric
// Moments and the reduced gradient take what a rank has of them.
// PLACE-DAG: plan.buffer @"pack0.0 moment1" optimizer at {{.*}} bytes 256 live
// PLACE-DAG: plan.buffer @"pack0.0 reduced" gradients at {{.*}} bytes 256 live
// PLACE-DAG: plan.buffer @"pack0.0 gradient" gradients at {{.*}} bytes 1024 live
// PLACE-DAG: plan.buffer @"pack0.0 value" parameters at {{.*}} bytes 1024 live

// -----

// What computes in bf16 has a copy that all ranks hold; the f32 values are
// divided with the moments, unless something else reads them too. What two divided
// packs count is summed over dp once.
// CHECK: nn.pack @pack0.0 rank 0 [@a] at [0] divided on @mesh["dp"] master : tensor<2x32xf32>
// CHECK: nn.pack @pack0.1 rank 0 [@e] at [0] divided on @mesh["dp"] master : tensor<2x32xf32>
// CHECK: nn.pack @pack0.2 rank 0 [@b] at [0] : tensor<1x32xf32>
#v = #dist.sharding<@mesh, [{}]>
#dv = #dist.sharding<@mesh, [{}], partial = {"dp"}>
#s = #dist.sharding<@mesh, []>
dist.mesh @mesh ["pp", "dp"] = [1, 2]
nn.parameter @a : tensor<33xf32> init<mean = 0.0, std = 0.02> sharding #v
nn.parameter @e : tensor<33xf32> init<mean = 0.0, std = 0.02> decay sharding #v
nn.parameter @b : tensor<32xf32> init<mean = 0.0, std = 0.02> sharding #v
nn.accumulator @loss_sum : tensor<f32>
nn.accumulator @token_count : tensor<f32>
func.func @forward_0() attributes {pipe.function = #pipe.function<forward, 0>} {
  %one = nn.fill 1.0 : tensor<f32, #s>
  nn.accumulate %one to @loss_sum value : tensor<f32, #s>
  nn.accumulate %one to @token_count value : tensor<f32, #s>
  %a = nn.read @a compute : tensor<33xbf16, #v>
  %e = nn.read @e compute : tensor<33xbf16, #v>
  %b = nn.read @b value : tensor<32xf32, #v>
  %c = nn.read @b compute : tensor<32xbf16, #v>
  return
}
func.func @backward_0(%a: tensor<33xf32, #dv> {pipe.port = #pipe.port<residual 0>}, %b: tensor<32xf32, #dv> {pipe.port = #pipe.port<residual 1>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  nn.accumulate %a to @a gradient : tensor<33xf32, #dv>
  nn.accumulate %a to @e gradient : tensor<33xf32, #dv>
  nn.accumulate %b to @b gradient : tensor<32xf32, #dv>
  return
}
// CHECK-LABEL: func.func @optimizer_0()
// CHECK: %[[T:.*]] = nn.add
// CHECK: %[[S:.*]] = dist.all_reduce %[[T]] on @mesh["dp"] sum : tensor<f32>
// CHECK-NEXT: nn.add %[[S]]
// CHECK: nn.read @pack0.0 reduced : tensor<1x32xf32>
// CHECK: %[[W:.*]] = nn.read @pack0.0 value : tensor<1x32xf32>
// CHECK: %[[N:.*]] = nn.sub %[[W]], %{{.*}} : tensor<1x32xf32>
// CHECK: nn.write %[[N]] to @pack0.0 value : tensor<1x32xf32>
// CHECK-NOT: all_gather
// What no rank divides is copied where it is updated.
// CHECK: nn.write %{{.*}} to @pack0.2 compute : tensor<1x32xbf16>
// Copies of parts are gathered when the next step begins, each beside what is
// computed with those before.
// CHECK-LABEL: func.func @gather_0() attributes {pipe.function = #pipe.function<gather, 0>}
// CHECK-NEXT: %[[V:.*]] = nn.read @pack0.0 value : tensor<1x32xf32>
// CHECK-NEXT: %[[C:.*]] = nn.cast %[[V]] : tensor<1x32xf32> -> tensor<1x32xbf16>
// CHECK-NEXT: %[[E:.*]] = nn.read @pack0.1 value : tensor<1x32xf32>
// CHECK-NEXT: %[[D:.*]] = nn.cast %[[E]] : tensor<1x32xf32> -> tensor<1x32xbf16>
// CHECK-NEXT: %[[A:.*]] = dist.all_gather %[[C]] on @mesh["dp"] dim 0 : tensor<1x32xbf16> -> tensor<2x32xbf16>
// CHECK-NEXT: nn.write %[[A]] to @pack0.0 compute : tensor<2x32xbf16>
// CHECK-NEXT: %[[B:.*]] = dist.all_gather %[[D]] on @mesh["dp"] dim 0 : tensor<1x32xbf16> -> tensor<2x32xbf16>
// CHECK-NEXT: nn.write %[[B]] to @pack0.1 compute : tensor<2x32xbf16>
// CHECK-NEXT: return
// The first forward pass has other bytes than the parts that are sent beside it.
// PLACE: plan.program @rank0
// PLACE: plan.buffer @"workspace of action 0" workspace at {{.*}} bytes 128 live [0, 1]
// PLACE: plan.action gather call @gather_0 [@"workspace of action 0"]
// PLACE-NEXT: plan.action forward stage 0 microbatch 0
// What lies on the host is not fetched a second time.
// HOST-NOT: @gather_0
// HOST: dist.all_gather {{.*}}xbf16>
// HOST: nn.write {{.*}} to @pack0.0 compute : tensor<2x32xbf16>
// HOST-NOT: @gather_0
