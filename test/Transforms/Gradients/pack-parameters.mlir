// RUN: plait-opt %s --nn-pack-parameters --nn-build-optimizer -split-input-file | FileCheck %s
// RUN: plait-opt %s --plait-configure=global-batch=2 --nn-pack-parameters --nn-build-optimizer --dist-partition --canonicalize --cse --pipe-schedule --plan-form-clusters --plan-place-buffers -split-input-file | FileCheck %s --check-prefix=PLACE

// @a, @b and @d are reduced, counted and updated alike, and @d lies behind @c in
// the module. Each begins at a multiple of 32 elements, and the pack has a power
// of two of columns: 15, 1 and 40 elements take 128.
// CHECK: nn.pack @pack0.0 rank 0 [@a, @b, @d] at [0, 32, 64] : tensor<1x128xf32>
// @c decays.
// CHECK: nn.pack @pack0.1 rank 0 [@c] at [0] : tensor<1x32xf32>
// CHECK-NOT: nn.pack
#v = #dist.sharding<@mesh, [{}]>
#m = #dist.sharding<@mesh, [{}, {}]>
#dv = #dist.sharding<@mesh, [{}], partial = {"dp"}>
#dm = #dist.sharding<@mesh, [{}, {}], partial = {"dp"}>
#rows = #dist.sharding<@mesh, [{"dp"}, {}]>
#s = #dist.sharding<@mesh, []>
dist.mesh @mesh ["pp", "dp"] = [1, 2]
nn.parameter @a : tensor<3x5xf32> init<mean = 0.0, std = 0.02> sharding #m
nn.parameter @b : tensor<1xf32> init<mean = 0.0, std = 0.02> sharding #v
nn.parameter @c : tensor<7xf32> init<mean = 0.0, std = 0.02> decay sharding #v
nn.parameter @d : tensor<40xf32> init<mean = 0.0, std = 0.02> sharding #v
nn.accumulator @loss_sum : tensor<f32>
nn.accumulator @token_count : tensor<f32>

// What else reads or adds to a parameter goes on to do so, at its place in the
// pack: 64 elements are 256 bytes.
// PLACE-LABEL: func.func @forward_0(
// PLACE: nn.read @d value {plan.places = [#plan.place<@"pack0.0 value", 256>]}
func.func @forward_0(%a: tensor<3x5xf32, #dm> {pipe.port = #pipe.port<input 0>}, %b: tensor<1xf32, #dv> {pipe.port = #pipe.port<input 1>}, %c: tensor<7xf32, #dv> {pipe.port = #pipe.port<input 2>}) -> (tensor<2x40xf32, #rows> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  %one = nn.fill 1.0 : tensor<f32, #s>
  nn.accumulate %one to @loss_sum value : tensor<f32, #s>
  nn.accumulate %one to @token_count value : tensor<f32, #s>
  nn.accumulate %a to @a gradient : tensor<3x5xf32, #dm>
  nn.accumulate %b to @b gradient : tensor<1xf32, #dv>
  nn.accumulate %c to @c gradient : tensor<7xf32, #dv>
  %0 = nn.read @d value : tensor<40xf32, #v>
  %1 = nn.broadcast %0 dims [1] : tensor<40xf32, #v> -> tensor<2x40xf32, #rows>
  return %1 : tensor<2x40xf32, #rows>
}
// PLACE-LABEL: func.func @backward_0(
// PLACE: plan.cluster{{.*}} accumulate [2] {{.*}}#plan.place<@"pack0.0 gradient", 256>
func.func @backward_0(%r: tensor<2x40xf32, #rows> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  %0 = nn.reduce sum %r dims [0] : tensor<2x40xf32, #rows> -> tensor<40xf32, #dv>
  nn.accumulate %0 to @d gradient : tensor<40xf32, #dv>
  return
}

// CHECK-LABEL: func.func @reduce_0()
// CHECK-NEXT: %[[G:.*]] = nn.read @pack0.0 gradient : tensor<1x128xf32>
// CHECK-NEXT: %[[S:.*]] = dist.all_reduce %[[G]] on @mesh["dp"] sum : tensor<1x128xf32>
// CHECK-NEXT: nn.write %[[S]] to @pack0.0 gradient
// CHECK-NEXT: nn.read @pack0.1 gradient : tensor<1x32xf32>
// CHECK-NEXT: dist.all_reduce
// CHECK-NEXT: nn.write
// CHECK-NEXT: return
// In place.
// PLACE-LABEL: func.func @reduce_0()
// PLACE-SAME: plan.slot_bytes = array<i64: 0>
// PLACE: dist.all_reduce {{.*}} {plan.places = [#plan.place<@"pack0.0 gradient", 0>]}

// The squares are summed up by rows, then over rows; sums over parameters have
// one term a pack.
// CHECK-LABEL: func.func @optimizer_0()
// CHECK: %[[G0:.*]] = nn.read @pack0.0 gradient
// CHECK: %[[Q0:.*]] = nn.mul %[[G0]], %[[G0]] : tensor<1x128xf32>
// CHECK: %[[R0:.*]] = nn.reduce sum %[[Q0]] dims [1] : tensor<1x128xf32> -> tensor<1xf32>
// CHECK: %[[S0:.*]] = nn.reduce sum %[[R0]] dims [0] : tensor<1xf32> -> tensor<f32>
// CHECK: %[[S1:.*]] = nn.reduce sum {{.*}} dims [0] : tensor<1xf32> -> tensor<f32>
// CHECK: %[[S:.*]] = nn.add %[[S0]], %[[S1]] : tensor<f32>
// CHECK: nn.sqrt %[[S]]
// CHECK: nn.metric {{.*}} "GradNorm"
// CHECK-NOT: tensor<{{3x5|1|7|40}}xf32>
// CHECK: nn.read @pack0.0 gradient : tensor<1x128xf32>
// CHECK: %[[W:.*]] = nn.read @pack0.0 value
// CHECK: %[[N:.*]] = nn.sub %[[W]], %{{.*}} : tensor<1x128xf32>
// CHECK-NEXT: nn.write %[[N]] to @pack0.0 value : tensor<1x128xf32>
// CHECK-NEXT: nn.write {{.*}} to @pack0.0 moment1 : tensor<1x128xf32>
// CHECK-NEXT: nn.write {{.*}} to @pack0.0 moment2 : tensor<1x128xf32>
// CHECK: %[[V:.*]] = nn.read @pack0.1 value
// CHECK: nn.mul %[[V]]
// CHECK: nn.write %{{.*}} to @pack0.1 value : tensor<1x32xf32>
// CHECK-NEXT: nn.write {{.*}} to @pack0.1 moment1
// CHECK-NEXT: nn.write {{.*}} to @pack0.1 moment2
// CHECK-NEXT: return
// PLACE-DAG: plan.buffer @"pack0.0 value" parameters at {{.*}} bytes 512
// PLACE-DAG: plan.buffer @"pack0.0 gradient" gradients at {{.*}} bytes 512
// PLACE-DAG: plan.buffer @"pack0.1 value" parameters at {{.*}} bytes 128

// -----

// A model that computes in bf16: the copies lie as the values do, at half the
// bytes. A parameter without a copy is not in one pack with those that have one,
// and one that is frozen not with those that are trained.
#v = #dist.sharding<@mesh, [{}]>
#s = #dist.sharding<@mesh, []>
dist.mesh @mesh ["pp"] = [1]
nn.parameter @x : tensor<48xf32> init<mean = 0.0, std = 0.02> sharding #v
nn.parameter @y : tensor<48xf32> init<mean = 0.0, std = 0.02> sharding #v
nn.parameter @plain : tensor<48xf32> init<mean = 0.0, std = 0.02> sharding #v
nn.parameter @frozen : tensor<48xf32> init<mean = 0.0, std = 0.02> decay sharding #v
nn.parameter @unused : tensor<48xf32> init<mean = 0.0, std = 0.02> sharding #v
nn.accumulator @loss_sum : tensor<f32>
nn.accumulator @token_count : tensor<f32>
// CHECK: nn.pack @pack0.0 rank 0 [@x, @y] at [0, 64]
// CHECK: nn.pack @pack0.1 rank 0 [@plain] at [0]
// CHECK: nn.pack @pack0.2 rank 0 [@frozen] at [0]
// CHECK-NOT: nn.pack
// PLACE: nn.read @y compute {plan.places = [#plan.place<@"pack0.0 compute", 128>]}
func.func @forward_0() -> (tensor<48xbf16, #v> {pipe.port = #pipe.port<residual 0>}, tensor<48xbf16, #v> {pipe.port = #pipe.port<residual 1>}, tensor<48xf32, #v> {pipe.port = #pipe.port<residual 2>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  %one = nn.fill 1.0 : tensor<f32, #s>
  nn.accumulate %one to @loss_sum value : tensor<f32, #s>
  nn.accumulate %one to @token_count value : tensor<f32, #s>
  %y = nn.read @y compute : tensor<48xbf16, #v>
  %1 = nn.neg %y : tensor<48xbf16, #v>
  %x = nn.read @x compute : tensor<48xbf16, #v>
  %2 = nn.neg %x : tensor<48xbf16, #v>
  %f = nn.read @frozen value : tensor<48xf32, #v>
  %3 = nn.neg %f : tensor<48xf32, #v>
  return %1, %2, %3 : tensor<48xbf16, #v>, tensor<48xbf16, #v>, tensor<48xf32, #v>
}
func.func @backward_0(%g: tensor<48xf32, #v> {pipe.port = #pipe.port<residual 2>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  nn.accumulate %g to @x gradient : tensor<48xf32, #v>
  nn.accumulate %g to @y gradient : tensor<48xf32, #v>
  nn.accumulate %g to @plain gradient : tensor<48xf32, #v>
  return
}
// Nothing is left to reduce.
// CHECK-LABEL: func.func @reduce_0()
// CHECK-NEXT: return
// CHECK-LABEL: func.func @optimizer_0()
// CHECK: nn.write {{.*}} to @pack0.0 value : tensor<1x128xf32>
// CHECK-NEXT: nn.write {{.*}} to @pack0.0 compute : tensor<1x128xbf16>
// CHECK: nn.write {{.*}} to @pack0.1 value : tensor<1x64xf32>
// CHECK-NOT: @pack0.2

// -----

// Two parameters that two stages share. Both stages have to reduce the same
// bytes, whatever else they hold: each is alone in its pack. The first rank counts
// them.
#v = #dist.sharding<@mesh, [{}]>
#s = #dist.sharding<@mesh, []>
dist.mesh @mesh ["pp"] = [2]
nn.parameter @tied : tensor<8xf32> init<mean = 0.0, std = 0.02> sharding #v
nn.parameter @tied2 : tensor<8xf32> init<mean = 0.0, std = 0.02> sharding #v
nn.accumulator @loss_sum : tensor<f32>
nn.accumulator @token_count : tensor<f32>
// CHECK-DAG: nn.pack @pack0.0 rank 0 [@tied] at [0] : tensor<1x32xf32>
// CHECK-DAG: nn.pack @pack0.1 rank 0 [@tied2] at [0] : tensor<1x32xf32>
// CHECK-DAG: nn.pack @pack1.0 rank 1 [@tied] at [0] : tensor<1x32xf32>
// CHECK-DAG: nn.pack @pack1.1 rank 1 [@tied2] at [0] : tensor<1x32xf32>
func.func @forward_0() attributes {pipe.function = #pipe.function<forward, 0>} {
  return
}
func.func @forward_1() attributes {pipe.function = #pipe.function<forward, 1>} {
  %one = nn.fill 1.0 : tensor<f32, #s>
  nn.accumulate %one to @loss_sum value : tensor<f32, #s>
  nn.accumulate %one to @token_count value : tensor<f32, #s>
  return
}
func.func @backward_0() attributes {pipe.function = #pipe.function<backward, 0>} {
  %g = nn.fill 1.0 : tensor<8xf32, #v>
  nn.accumulate %g to @tied gradient : tensor<8xf32, #v>
  nn.accumulate %g to @tied2 gradient : tensor<8xf32, #v>
  return
}
func.func @backward_1() attributes {pipe.function = #pipe.function<backward, 1>} {
  %g = nn.fill 1.0 : tensor<8xf32, #v>
  nn.accumulate %g to @tied gradient : tensor<8xf32, #v>
  nn.accumulate %g to @tied2 gradient : tensor<8xf32, #v>
  return
}
// CHECK-LABEL: func.func @reduce_0()
// CHECK: dist.all_reduce {{.*}} members [0, 1] ordered : tensor<1x32xf32>
// CHECK: dist.all_reduce {{.*}} members [0, 1] ordered : tensor<1x32xf32>
// CHECK-LABEL: func.func @optimizer_0()
// CHECK-COUNT-2: nn.reduce {{.*}} -> tensor<f32>
// CHECK-LABEL: func.func @optimizer_1()
// CHECK-NOT: nn.reduce

// -----

// A block of @padded, 7 of 15 elements on the second rank of tp, ends in padding,
// in which updates make zeros of zeros: it is reduced and updated as @split is.
// Both are counted in a sum of their own, which is one over tp in the end.
// @scattered has its state elsewhere than its value: it has no pack.
#v = #dist.sharding<@mesh, [{}]>
#tp = #dist.sharding<@mesh, [{"tp"}]>
#dp = #dist.sharding<@mesh, [{"dp"}]>
#dv = #dist.sharding<@mesh, [{}], partial = {"dp"}>
#dtp = #dist.sharding<@mesh, [{"tp"}], partial = {"dp"}>
#s = #dist.sharding<@mesh, []>
dist.mesh @mesh ["pp", "dp", "tp"] = [1, 2, 2]
nn.parameter @padded : tensor<15xf32> init<mean = 0.0, std = 0.02> sharding #tp
nn.parameter @split : tensor<16xf32> init<mean = 0.0, std = 0.02> sharding #tp
nn.parameter @whole : tensor<8xf32> init<mean = 0.0, std = 0.02> sharding #v
nn.parameter @scattered : tensor<8xf32> init<mean = 0.0, std = 0.02> sharding #v state #dp
nn.accumulator @loss_sum : tensor<f32>
nn.accumulator @token_count : tensor<f32>
// CHECK: nn.pack @pack0.0 rank 0 [@padded, @split] at [0, 32]
// CHECK: nn.pack @pack0.1 rank 0 [@whole] at [0]
// CHECK-NOT: nn.pack
func.func @forward_0() attributes {pipe.function = #pipe.function<forward, 0>} {
  %one = nn.fill 1.0 : tensor<f32, #s>
  nn.accumulate %one to @loss_sum value : tensor<f32, #s>
  nn.accumulate %one to @token_count value : tensor<f32, #s>
  return
}
func.func @backward_0(%p: tensor<15xf32, #dtp> {pipe.port = #pipe.port<input 0>}, %x: tensor<16xf32, #dtp> {pipe.port = #pipe.port<input 1>}, %v: tensor<8xf32, #dv> {pipe.port = #pipe.port<input 2>}, %d: tensor<8xf32, #dp> {pipe.port = #pipe.port<input 3>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  nn.accumulate %p to @padded gradient : tensor<15xf32, #dtp>
  nn.accumulate %x to @split gradient : tensor<16xf32, #dtp>
  nn.accumulate %v to @whole gradient : tensor<8xf32, #dv>
  nn.accumulate %d to @scattered gradient : tensor<8xf32, #dp>
  return
}
// CHECK-LABEL: func.func @reduce_0()
// CHECK: dist.all_reduce {{.*}}"dp"
// CHECK: nn.write {{.*}} to @pack0.0 gradient
// CHECK-NOT: nn.write {{.*}} to @scattered
// CHECK-LABEL: func.func @optimizer_0()
// CHECK: nn.read @pack0.0 gradient
// CHECK: nn.reduce
// CHECK: %[[T:.*]] = nn.reduce {{.*}} -> tensor<f32>
// CHECK: nn.read @pack0.1 gradient
// CHECK: nn.read @scattered gradient : tensor<4xf32>
// CHECK: dist.all_reduce %[[T]] on @mesh["tp"]
// CHECK: nn.add
// CHECK: dist.all_reduce {{.*}}"dp"
// CHECK: nn.add
// CHECK-NEXT: nn.sqrt
// CHECK-NOT: nn.mask_padding
// CHECK: nn.write {{.*}} to @pack0.0 value
// CHECK: nn.write {{.*}} to @pack0.1 value
// CHECK: nn.read @scattered value : tensor<8xf32>
// CHECK-NEXT: dist.slice
// CHECK: dist.all_gather {{.*}} : tensor<4xf32> -> tensor<8xf32>
// CHECK-NEXT: nn.write {{.*}} to @scattered value : tensor<8xf32>

// -----

// A gradient that is whole on every rank is not summed up, nor stored again.
#v = #dist.sharding<@mesh, [{}]>
#s = #dist.sharding<@mesh, []>
dist.mesh @mesh ["dp"] = [2]
nn.parameter @a : tensor<8xf32> init<mean = 0.0, std = 0.02> sharding #v
nn.accumulator @loss_sum : tensor<f32>
nn.accumulator @token_count : tensor<f32>
func.func @forward_0() attributes {pipe.function = #pipe.function<forward, 0>} {
  %one = nn.fill 1.0 : tensor<f32, #s>
  nn.accumulate %one to @loss_sum value : tensor<f32, #s>
  nn.accumulate %one to @token_count value : tensor<f32, #s>
  return
}
func.func @backward_0() attributes {pipe.function = #pipe.function<backward, 0>} {
  %g = nn.fill 1.0 : tensor<8xf32, #v>
  nn.accumulate %g to @a gradient : tensor<8xf32, #v>
  return
}
// CHECK: func.func @reduce_0()
// CHECK-NEXT: return
