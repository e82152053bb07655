// RUN: plait-opt %s --plait-configure=zero=1 --nn-pack-parameters -split-input-file | FileCheck %s
// RUN: plait-opt %s --nn-pack-parameters -split-input-file | FileCheck %s --check-prefix=WHOLE
// RUN: plait-opt %s --plait-configure=zero=1 --nn-pack-parameters=bucket=64 -split-input-file | FileCheck %s --check-prefix=BUCKETS
// RUN: plait-opt %s --plait-configure="zero=1 global-batch=4" --pipe-schedule --nn-pack-parameters --plan-form-clusters --plan-place-buffers -split-input-file | FileCheck %s --check-prefix=PLACE
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
dist.mesh @mesh ["pp", "dp", "tp"] = [1, 4, 2]
nn.parameter @a : tensor<10x5xf32> init<mean = 0.0, std = 0.02>
nn.parameter @b : tensor<40xf32> init<mean = 0.0, std = 0.02>
nn.parameter @c : tensor<7xf32> init<mean = 0.0, std = 0.02>
nn.parameter @d : tensor<80xf32> init<mean = 0.0, std = 0.02>

func.func @forward_0() attributes {pipe.function = #pipe.function<forward, 0>} {
  return
}
func.func @backward_0() attributes {pipe.function = #pipe.function<backward, 0>} {
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
// In place after the first.
// PLACE-LABEL: func.func @reduce_0()
// PLACE-SAME: plan.slot_bytes = array<i64: 0>
// PLACE: dist.reduce_scatter {{.*}}plan.places = [#plan.place<"pack0.0 reduced", 0>]
// PLACE: dist.all_reduce {{.*}}plan.places = [#plan.place<"pack0.0 reduced", 0>]
func.func @reduce_0() attributes {pipe.function = #pipe.function<reduce, 0>} {
  %a = nn.read @a gradient : tensor<10x5xf32>
  %1 = dist.all_reduce %a on @mesh["dp"] sum : tensor<10x5xf32> -> tensor<10x5xf32>
  %2 = dist.all_reduce %1 on @mesh["tp"] sum : tensor<10x5xf32> -> tensor<10x5xf32>
  nn.write %2 to @a gradient : tensor<10x5xf32>
  %b = nn.read @b gradient : tensor<40xf32>
  %3 = dist.all_reduce %b on @mesh["dp"] sum : tensor<40xf32> -> tensor<40xf32>
  %4 = dist.all_reduce %3 on @mesh["tp"] sum : tensor<40xf32> -> tensor<40xf32>
  nn.write %4 to @b gradient : tensor<40xf32>
  %c = nn.read @c gradient : tensor<7xf32>
  %5 = dist.all_reduce %c on @mesh["tp"] sum : tensor<7xf32> -> tensor<7xf32>
  nn.write %5 to @c gradient : tensor<7xf32>
  %d = nn.read @d gradient : tensor<80xf32>
  %6 = dist.all_reduce %d on @mesh["dp"] sum : tensor<80xf32> -> tensor<80xf32>
  %7 = dist.all_reduce %6 on @mesh["tp"] sum : tensor<80xf32> -> tensor<80xf32>
  nn.write %7 to @d gradient : tensor<80xf32>
  return
}

// A rank counts its own part and updates its own part of what all ranks hold.
// CHECK-LABEL: func.func @optimizer_0()
// CHECK: nn.read @pack0.0 reduced : tensor<1x64xf32>
// CHECK-NEXT: %[[N0:.*]] = nn.read @pack0.0 reduced : tensor<1x64xf32>
// CHECK-NEXT: %[[N1:.*]] = nn.mul %[[N0]], %[[N0]]
// CHECK-NEXT: %[[N2:.*]] = nn.reduce sum %[[N1]] dims [1] : tensor<1x64xf32> -> tensor<1xf32>
// CHECK-NEXT: %[[N3:.*]] = nn.reduce sum %[[N2]] dims [0] : tensor<1xf32> -> tensor<f32>
// CHECK-NEXT: %[[N4:.*]] = dist.all_reduce %[[N3]] on @mesh["dp"] sum : tensor<f32> -> tensor<f32>
// The others' numbers are the same on all ranks.
// CHECK: %[[C:.*]] = nn.reduce {{.*}} dims [0] : tensor<1xf32> -> tensor<f32>
// CHECK: %[[N:.*]] = nn.add %[[N4]], %[[C]] : tensor<f32>
// CHECK: nn.metric %[[N]] "GradNorm"
// CHECK: %[[D:.*]] = nn.mul %{{.*}}, %{{.*}} : tensor<1x64xf32>
// CHECK: %[[M:.*]] = nn.read @pack0.0 moment1 : tensor<1x64xf32>
// CHECK: %[[V:.*]] = nn.add %[[M]], %[[D]] : tensor<1x64xf32>
// CHECK: %[[W:.*]] = nn.read @pack0.0 value : tensor<4x64xf32>
// CHECK: %[[O:.*]] = dist.slice %[[W]] on @mesh["dp"] dim 0 : tensor<4x64xf32> -> tensor<1x64xf32>
// CHECK: %[[U:.*]] = nn.sub %[[O]], %[[V]] : tensor<1x64xf32>
// CHECK: %[[A:.*]] = dist.all_gather %[[U]] on @mesh["dp"] dim 0 : tensor<1x64xf32> -> tensor<4x64xf32>
// CHECK: nn.write %[[A]] to @pack0.0 value : tensor<4x64xf32>
// CHECK: nn.write %[[V]] to @pack0.0 moment1 : tensor<1x64xf32>
// CHECK: nn.write %{{.*}} to @pack0.1 value : tensor<1x32xf32>
// Two packs, one reduction of the sum of their squares.
// BUCKETS-LABEL: func.func @optimizer_0()
// BUCKETS: dist.all_reduce {{.*}}"dp"
// BUCKETS-NOT: dist.all_reduce
// BUCKETS: nn.metric
// Moments and the reduced gradient take what a rank has of them.
// PLACE-DAG: plan.buffer @"pack0.0 moment1" optimizer at {{.*}} bytes 256 live
// PLACE-DAG: plan.buffer @"pack0.0 reduced" gradients at {{.*}} bytes 256 live
// PLACE-DAG: plan.buffer @"pack0.0 gradient" gradients at {{.*}} bytes 1024 live
// PLACE-DAG: plan.buffer @"pack0.0 value" parameters at {{.*}} bytes 1024 live
func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>} {
  %rate = nn.step_scalar "LearningRate" : tensor<f32>
  %a = nn.read @a gradient : tensor<10x5xf32>
  %aa = nn.mul %a, %a : tensor<10x5xf32>
  %as = nn.reduce sum %aa dims [0, 1] : tensor<10x5xf32> -> tensor<f32>
  %b = nn.read @b gradient : tensor<40xf32>
  %bb = nn.mul %b, %b : tensor<40xf32>
  %bs = nn.reduce sum %bb dims [0] : tensor<40xf32> -> tensor<f32>
  %1 = nn.add %as, %bs : tensor<f32>
  %c = nn.read @c gradient : tensor<7xf32>
  %cc = nn.mul %c, %c : tensor<7xf32>
  %cs = nn.reduce sum %cc dims [0] : tensor<7xf32> -> tensor<f32>
  %d = nn.read @d gradient : tensor<80xf32>
  %dd = nn.mul %d, %d : tensor<80xf32>
  %ds = nn.reduce sum %dd dims [0] : tensor<80xf32> -> tensor<f32>
  %2 = nn.add %1, %ds : tensor<f32>
  %3 = nn.add %2, %cs : tensor<f32>
  nn.metric %3 "GradNorm" : tensor<f32>

  %ar = nn.broadcast %rate dims [] : tensor<f32> -> tensor<10x5xf32>
  %ad = nn.mul %a, %ar : tensor<10x5xf32>
  %am = nn.read @a moment1 : tensor<10x5xf32>
  %av = nn.add %am, %ad : tensor<10x5xf32>
  %aw = nn.read @a value : tensor<10x5xf32>
  %an = nn.sub %aw, %av : tensor<10x5xf32>
  nn.write %an to @a value : tensor<10x5xf32>
  nn.write %av to @a moment1 : tensor<10x5xf32>
  %br = nn.broadcast %rate dims [] : tensor<f32> -> tensor<40xf32>
  %bd = nn.mul %b, %br : tensor<40xf32>
  %bm = nn.read @b moment1 : tensor<40xf32>
  %bv = nn.add %bm, %bd : tensor<40xf32>
  %bw = nn.read @b value : tensor<40xf32>
  %bn = nn.sub %bw, %bv : tensor<40xf32>
  nn.write %bn to @b value : tensor<40xf32>
  nn.write %bv to @b moment1 : tensor<40xf32>
  %cr = nn.broadcast %rate dims [] : tensor<f32> -> tensor<7xf32>
  %cd = nn.mul %c, %cr : tensor<7xf32>
  %cm = nn.read @c moment1 : tensor<7xf32>
  %cv = nn.add %cm, %cd : tensor<7xf32>
  %cw = nn.read @c value : tensor<7xf32>
  %cn = nn.sub %cw, %cv : tensor<7xf32>
  nn.write %cn to @c value : tensor<7xf32>
  nn.write %cv to @c moment1 : tensor<7xf32>
  %dr = nn.broadcast %rate dims [] : tensor<f32> -> tensor<80xf32>
  %dg = nn.mul %d, %dr : tensor<80xf32>
  %dm = nn.read @d moment1 : tensor<80xf32>
  %dv = nn.add %dm, %dg : tensor<80xf32>
  %dw = nn.read @d value : tensor<80xf32>
  %dn = nn.sub %dw, %dv : tensor<80xf32>
  nn.write %dn to @d value : tensor<80xf32>
  nn.write %dv to @d moment1 : tensor<80xf32>
  return
}

// -----

// What computes in bf16 has a copy that all ranks hold; the f32 values are
// divided with the moments, unless something else reads them too.
// CHECK: nn.pack @pack0.0 rank 0 [@a] at [0] divided on @mesh["dp"] master : tensor<2x32xf32>
// CHECK: nn.pack @pack0.1 rank 0 [@b] at [0] : tensor<1x32xf32>
dist.mesh @mesh ["pp", "dp"] = [1, 2]
nn.parameter @a : tensor<33xf32> init<mean = 0.0, std = 0.02>
nn.parameter @b : tensor<32xf32> init<mean = 0.0, std = 0.02>
func.func @forward_0() attributes {pipe.function = #pipe.function<forward, 0>} {
  %a = nn.read @a compute : tensor<33xbf16>
  %b = nn.read @b value : tensor<32xf32>
  %c = nn.read @b compute : tensor<32xbf16>
  return
}
func.func @backward_0() attributes {pipe.function = #pipe.function<backward, 0>} {
  return
}
func.func @reduce_0() attributes {pipe.function = #pipe.function<reduce, 0>} {
  %a = nn.read @a gradient : tensor<33xf32>
  %1 = dist.all_reduce %a on @mesh["dp"] sum : tensor<33xf32> -> tensor<33xf32>
  nn.write %1 to @a gradient : tensor<33xf32>
  %b = nn.read @b gradient : tensor<32xf32>
  %2 = dist.all_reduce %b on @mesh["dp"] sum : tensor<32xf32> -> tensor<32xf32>
  nn.write %2 to @b gradient : tensor<32xf32>
  return
}
// CHECK-LABEL: func.func @optimizer_0()
// CHECK: %[[G:.*]] = nn.read @pack0.0 reduced : tensor<1x32xf32>
// CHECK: %[[W:.*]] = nn.read @pack0.0 value : tensor<1x32xf32>
// CHECK: %[[N:.*]] = nn.sub %[[W]], %[[G]] : tensor<1x32xf32>
// CHECK: %[[C:.*]] = nn.cast %[[N]] : tensor<1x32xf32> -> tensor<1x32xbf16>
// CHECK: nn.write %[[N]] to @pack0.0 value : tensor<1x32xf32>
// CHECK: %[[A:.*]] = dist.all_gather %[[C]] on @mesh["dp"] dim 0 : tensor<1x32xbf16> -> tensor<2x32xbf16>
// CHECK: nn.write %[[A]] to @pack0.0 compute : tensor<2x32xbf16>
func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>} {
  %a = nn.read @a gradient : tensor<33xf32>
  %aw = nn.read @a value : tensor<33xf32>
  %an = nn.sub %aw, %a : tensor<33xf32>
  %ac = nn.cast %an : tensor<33xf32> -> tensor<33xbf16>
  nn.write %an to @a value : tensor<33xf32>
  nn.write %ac to @a compute : tensor<33xbf16>
  %b = nn.read @b gradient : tensor<32xf32>
  %bw = nn.read @b value : tensor<32xf32>
  %bn = nn.sub %bw, %b : tensor<32xf32>
  %bc = nn.cast %bn : tensor<32xf32> -> tensor<32xbf16>
  nn.write %bn to @b value : tensor<32xf32>
  nn.write %bc to @b compute : tensor<32xbf16>
  return
}
