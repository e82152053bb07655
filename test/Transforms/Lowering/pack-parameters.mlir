// RUN: plait-opt %s --nn-pack-parameters -split-input-file | FileCheck %s
// RUN: plait-opt %s --plait-configure=global-batch=2 --pipe-schedule --nn-pack-parameters --plan-form-clusters --plan-place-buffers -split-input-file | FileCheck %s --check-prefix=PLACE

// @a, @b and @d are reduced, counted and updated alike, and @d lies behind @c in
// the module. Each begins at a multiple of 32 elements, and the pack has a power
// of two of columns: 15, 1 and 40 elements take 128.
// CHECK: nn.pack @pack0.0 rank 0 [@a, @b, @d] at [0, 32, 64] : tensor<1x128xf32>
// @c has another update.
// CHECK: nn.pack @pack0.1 rank 0 [@c] at [0] : tensor<1x32xf32>
dist.mesh @mesh ["pp", "dp"] = [1, 2]
nn.parameter @a : tensor<3x5xf32> init<mean = 0.0, std = 0.02>
nn.parameter @b : tensor<1xf32> init<mean = 0.0, std = 0.02>
nn.parameter @c : tensor<7xf32> init<mean = 0.0, std = 0.02>
nn.parameter @d : tensor<40xf32> init<mean = 0.0, std = 0.02>

// What else reads or adds to a parameter goes on to do so, at its place in the
// pack: 64 elements are 256 bytes.
// PLACE-LABEL: func.func @forward_0(
// PLACE: nn.read @d value {plan.places = [#plan.place<"pack0.0 value", 256>]}
func.func @forward_0() -> (tensor<40xf32> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  %0 = nn.read @d value : tensor<40xf32>
  %1 = nn.neg %0 : tensor<40xf32>
  return %1 : tensor<40xf32>
}
// PLACE-LABEL: func.func @backward_0(
// PLACE: plan.cluster{{.*}} accumulate [2] {{.*}}#plan.place<"pack0.0 gradient", 256>
func.func @backward_0(%r: tensor<40xf32> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  %0 = nn.neg %r : tensor<40xf32>
  nn.accumulate %0 to @d gradient : tensor<40xf32>
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
// PLACE: dist.all_reduce {{.*}} {plan.places = [#plan.place<"pack0.0 gradient", 0>]}
func.func @reduce_0() attributes {pipe.function = #pipe.function<reduce, 0>} {
  %a = nn.read @a gradient : tensor<3x5xf32>
  %1 = dist.all_reduce %a on @mesh["dp"] sum : tensor<3x5xf32> -> tensor<3x5xf32>
  nn.write %1 to @a gradient : tensor<3x5xf32>
  %b = nn.read @b gradient : tensor<1xf32>
  %2 = dist.all_reduce %b on @mesh["dp"] sum : tensor<1xf32> -> tensor<1xf32>
  nn.write %2 to @b gradient : tensor<1xf32>
  %c = nn.read @c gradient : tensor<7xf32>
  %3 = dist.all_reduce %c on @mesh["dp"] sum : tensor<7xf32> -> tensor<7xf32>
  nn.write %3 to @c gradient : tensor<7xf32>
  %d = nn.read @d gradient : tensor<40xf32>
  %4 = dist.all_reduce %d on @mesh["dp"] sum : tensor<40xf32> -> tensor<40xf32>
  nn.write %4 to @d gradient : tensor<40xf32>
  return
}

// The squares are summed up by rows, then over rows; sums over parameters have
// one term a pack.
// CHECK-LABEL: func.func @optimizer_0()
// CHECK: %[[Q0:.*]] = nn.mul %[[G0:.*]], %[[G0]] : tensor<1x128xf32>
// CHECK: %[[R0:.*]] = nn.reduce sum %[[Q0]] dims [1] : tensor<1x128xf32> -> tensor<1xf32>
// CHECK: %[[S0:.*]] = nn.reduce sum %[[R0]] dims [0] : tensor<1xf32> -> tensor<f32>
// CHECK: %[[S1:.*]] = nn.reduce sum {{.*}} dims [0] : tensor<1xf32> -> tensor<f32>
// CHECK: %[[S:.*]] = nn.add %[[S0]], %[[S1]] : tensor<f32>
// CHECK-NOT: nn.add
// CHECK: nn.metric %[[S]] "GradNorm"
// CHECK-NOT: tensor<{{3x5|1|7|40}}xf32>
// CHECK: %[[LR:.*]] = nn.broadcast %{{.*}} dims [] : tensor<f32> -> tensor<1x128xf32>
// CHECK: %[[D:.*]] = nn.mul %{{.*}}, %[[LR]] : tensor<1x128xf32>
// CHECK: %[[W:.*]] = nn.read @pack0.0 value
// CHECK: %[[N:.*]] = nn.sub %[[W]], %[[D]]
// CHECK-NEXT: nn.write %[[N]] to @pack0.0 value : tensor<1x128xf32>
// CHECK: nn.scale
// CHECK: nn.write %{{.*}} to @pack0.1 value : tensor<1x32xf32>
// CHECK-NEXT: return
// One kernel for each row sum, sum over rows and update, and one for the sum.
// PLACE-LABEL: func.func @optimizer_0()
// PLACE-COUNT-7: plan.cluster
// PLACE-NOT: plan.cluster
// PLACE: plan.program
// PLACE-DAG: plan.buffer @"pack0.0 value" parameters at {{.*}} bytes 512
// PLACE-DAG: plan.buffer @"pack0.0 gradient" gradients at {{.*}} bytes 512
// PLACE-DAG: plan.buffer @"pack0.1 value" parameters at {{.*}} bytes 128
func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>} {
  %lr = nn.step_scalar "LearningRate" : tensor<f32>
  %ga = nn.read @a gradient : tensor<3x5xf32>
  %qa = nn.mul %ga, %ga : tensor<3x5xf32>
  %na = nn.reduce sum %qa dims [0, 1] : tensor<3x5xf32> -> tensor<f32>
  %gb = nn.read @b gradient : tensor<1xf32>
  %qb = nn.mul %gb, %gb : tensor<1xf32>
  %nb = nn.reduce sum %qb dims [0] : tensor<1xf32> -> tensor<f32>
  %sb = nn.add %na, %nb : tensor<f32>
  %gc = nn.read @c gradient : tensor<7xf32>
  %qc = nn.mul %gc, %gc : tensor<7xf32>
  %nc = nn.reduce sum %qc dims [0] : tensor<7xf32> -> tensor<f32>
  %sc = nn.add %sb, %nc : tensor<f32>
  %gd = nn.read @d gradient : tensor<40xf32>
  %qd = nn.mul %gd, %gd : tensor<40xf32>
  %nd = nn.reduce sum %qd dims [0] : tensor<40xf32> -> tensor<f32>
  %sd = nn.add %sc, %nd : tensor<f32>
  nn.metric %sd "GradNorm" : tensor<f32>
  %la = nn.broadcast %lr dims [] : tensor<f32> -> tensor<3x5xf32>
  %ma = nn.mul %ga, %la : tensor<3x5xf32>
  %wa = nn.read @a value : tensor<3x5xf32>
  %ua = nn.sub %wa, %ma : tensor<3x5xf32>
  nn.write %ua to @a value : tensor<3x5xf32>
  %lb = nn.broadcast %lr dims [] : tensor<f32> -> tensor<1xf32>
  %mb = nn.mul %gb, %lb : tensor<1xf32>
  %wb = nn.read @b value : tensor<1xf32>
  %ub = nn.sub %wb, %mb : tensor<1xf32>
  nn.write %ub to @b value : tensor<1xf32>
  %wc = nn.read @c value : tensor<7xf32>
  %uc = nn.scale %wc by 0.5 : tensor<7xf32>
  nn.write %uc to @c value : tensor<7xf32>
  %ld = nn.broadcast %lr dims [] : tensor<f32> -> tensor<40xf32>
  %md = nn.mul %gd, %ld : tensor<40xf32>
  %wd = nn.read @d value : tensor<40xf32>
  %ud = nn.sub %wd, %md : tensor<40xf32>
  nn.write %ud to @d value : tensor<40xf32>
  return
}

// -----

// A model that computes in bf16: the copies lie as the values do, at half the
// bytes. A parameter without a copy is not in one pack with those that have one.
dist.mesh @mesh ["pp"] = [1]
nn.parameter @x : tensor<48xf32> init<mean = 0.0, std = 0.02>
nn.parameter @y : tensor<48xf32> init<mean = 0.0, std = 0.02>
nn.parameter @plain : tensor<48xf32> init<mean = 0.0, std = 0.02>
// CHECK: nn.pack @pack0.0 rank 0 [@x, @y] at [0, 64]
// CHECK: nn.pack @pack0.1 rank 0 [@plain] at [0]
// PLACE: nn.read @y compute {plan.places = [#plan.place<"pack0.0 compute", 128>]}
func.func @forward_0() -> (tensor<48xbf16> {pipe.port = #pipe.port<residual 0>}, tensor<48xbf16> {pipe.port = #pipe.port<residual 1>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  %y = nn.read @y compute : tensor<48xbf16>
  %1 = nn.neg %y : tensor<48xbf16>
  %x = nn.read @x compute : tensor<48xbf16>
  %2 = nn.neg %x : tensor<48xbf16>
  return %1, %2 : tensor<48xbf16>, tensor<48xbf16>
}
func.func @backward_0() attributes {pipe.function = #pipe.function<backward, 0>} {
  return
}
func.func @reduce_0() attributes {pipe.function = #pipe.function<reduce, 0>} {
  return
}
// CHECK-LABEL: func.func @optimizer_0()
// CHECK: nn.write {{.*}} to @pack0.0 value : tensor<1x128xf32>
// CHECK-NEXT: nn.write {{.*}} to @pack0.0 compute : tensor<1x128xbf16>
// CHECK: nn.write {{.*}} to @pack0.1 value : tensor<1x64xf32>
func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>} {
  %x = nn.read @x value : tensor<48xf32>
  %x2 = nn.scale %x by 0.5 : tensor<48xf32>
  %xc = nn.cast %x2 : tensor<48xf32> -> tensor<48xbf16>
  nn.write %x2 to @x value : tensor<48xf32>
  nn.write %xc to @x compute : tensor<48xbf16>
  %y = nn.read @y value : tensor<48xf32>
  %y2 = nn.scale %y by 0.5 : tensor<48xf32>
  %yc = nn.cast %y2 : tensor<48xf32> -> tensor<48xbf16>
  nn.write %y2 to @y value : tensor<48xf32>
  nn.write %yc to @y compute : tensor<48xbf16>
  %p = nn.read @plain value : tensor<48xf32>
  %p2 = nn.scale %p by 0.5 : tensor<48xf32>
  nn.write %p2 to @plain value : tensor<48xf32>
  return
}

// -----

// Two parameters that two stages share. Both stages have to reduce the same
// bytes, whatever else they hold: each is alone in its pack.
dist.mesh @mesh ["pp"] = [2]
nn.parameter @tied : tensor<8xf32> init<mean = 0.0, std = 0.02>
nn.parameter @tied2 : tensor<8xf32> init<mean = 0.0, std = 0.02>
// CHECK: nn.pack @pack0.0 rank 0 [@tied] at [0] : tensor<1x32xf32>
// CHECK: nn.pack @pack0.1 rank 0 [@tied2] at [0] : tensor<1x32xf32>
// CHECK: nn.pack @pack1.0 rank 1 [@tied] at [0] : tensor<1x32xf32>
// CHECK: nn.pack @pack1.1 rank 1 [@tied2] at [0] : tensor<1x32xf32>
// CHECK-LABEL: func.func @reduce_0()
// CHECK: dist.all_reduce {{.*}} members [0, 1] ordered : tensor<1x32xf32>
// CHECK: dist.all_reduce {{.*}} members [0, 1] ordered : tensor<1x32xf32>
func.func @reduce_0() attributes {pipe.function = #pipe.function<reduce, 0>} {
  %0 = nn.read @tied gradient : tensor<8xf32>
  %1 = dist.all_reduce %0 on @mesh["pp"] sum members [0, 1] ordered : tensor<8xf32> -> tensor<8xf32>
  nn.write %1 to @tied gradient : tensor<8xf32>
  %2 = nn.read @tied2 gradient : tensor<8xf32>
  %3 = dist.all_reduce %2 on @mesh["pp"] sum members [0, 1] ordered : tensor<8xf32> -> tensor<8xf32>
  nn.write %3 to @tied2 gradient : tensor<8xf32>
  return
}
func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>} {
  return
}
func.func @reduce_1() attributes {pipe.function = #pipe.function<reduce, 1>} {
  %0 = nn.read @tied gradient : tensor<8xf32>
  %1 = dist.all_reduce %0 on @mesh["pp"] sum members [0, 1] ordered : tensor<8xf32> -> tensor<8xf32>
  nn.write %1 to @tied gradient : tensor<8xf32>
  %2 = nn.read @tied2 gradient : tensor<8xf32>
  %3 = dist.all_reduce %2 on @mesh["pp"] sum members [0, 1] ordered : tensor<8xf32> -> tensor<8xf32>
  nn.write %3 to @tied2 gradient : tensor<8xf32>
  return
}
func.func @optimizer_1() attributes {pipe.function = #pipe.function<optimizer, 1>} {
  return
}
func.func @forward_0() attributes {pipe.function = #pipe.function<forward, 0>} {
  return
}
func.func @backward_0() attributes {pipe.function = #pipe.function<backward, 0>} {
  return
}
func.func @forward_1() attributes {pipe.function = #pipe.function<forward, 1>} {
  return
}
func.func @backward_1() attributes {pipe.function = #pipe.function<backward, 1>} {
  return
}

// -----

// The update of @masked depends on where its elements are: it stays, and only
// the reduction is done for the pack. That of @partial is not counted in the same
// sum as the others: it still has to be summed over tp. @scattered is not reduced
// by all-reduces; it has no pack.
dist.mesh @mesh ["pp", "dp", "tp"] = [1, 2, 2]
nn.parameter @masked : tensor<8xf32> init<mean = 0.0, std = 0.02>
nn.parameter @partial : tensor<8xf32> init<mean = 0.0, std = 0.02>
nn.parameter @whole : tensor<8xf32> init<mean = 0.0, std = 0.02>
nn.parameter @scattered : tensor<8xf32> init<mean = 0.0, std = 0.02>
// CHECK: nn.pack @pack0.0 rank 0 [@masked] at [0]
// CHECK: nn.pack @pack0.1 rank 0 [@partial] at [0]
// CHECK: nn.pack @pack0.2 rank 0 [@whole] at [0]
// CHECK-NOT: nn.pack
// CHECK-LABEL: func.func @reduce_0()
// CHECK: nn.write {{.*}} to @pack0.0 gradient
// CHECK: nn.read @scattered gradient : tensor<8xf32>
// CHECK: dist.reduce_scatter
// CHECK: nn.write {{.*}} to @scattered gradient : tensor<8xf32>
// CHECK-LABEL: func.func @optimizer_0()
// CHECK: nn.read @masked value : tensor<8xf32>
// CHECK: nn.mask_padding
// CHECK: nn.write {{.*}} to @masked value : tensor<8xf32>
// CHECK: %[[P:.*]] = nn.reduce {{.*}} -> tensor<f32>
// CHECK: %[[A:.*]] = dist.all_reduce %[[P]] on @mesh["tp"]
// CHECK: %[[W:.*]] = nn.reduce {{.*}} -> tensor<f32>
// CHECK: nn.add %[[W]], %[[A]]
func.func @reduce_0() attributes {pipe.function = #pipe.function<reduce, 0>} {
  %0 = nn.read @masked gradient : tensor<8xf32>
  %1 = dist.all_reduce %0 on @mesh["dp"] sum : tensor<8xf32> -> tensor<8xf32>
  nn.write %1 to @masked gradient : tensor<8xf32>
  %2 = nn.read @scattered gradient : tensor<8xf32>
  %3 = dist.reduce_scatter %2 on @mesh["dp"] sum dim 0 : tensor<8xf32> -> tensor<4xf32>
  %4 = dist.all_gather %3 on @mesh["dp"] dim 0 : tensor<4xf32> -> tensor<8xf32>
  nn.write %4 to @scattered gradient : tensor<8xf32>
  return
}
func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>} {
  %m = nn.read @masked value : tensor<8xf32>
  %m2 = nn.mask_padding %m dim 0 begin <"tp" * 8> limit 15 by 0.0 : tensor<8xf32>
  nn.write %m2 to @masked value : tensor<8xf32>
  %gp = nn.read @partial gradient : tensor<8xf32>
  %qp = nn.mul %gp, %gp : tensor<8xf32>
  %np = nn.reduce sum %qp dims [0] : tensor<8xf32> -> tensor<f32>
  %ap = dist.all_reduce %np on @mesh["tp"] sum : tensor<f32> -> tensor<f32>
  %gw = nn.read @whole gradient : tensor<8xf32>
  %qw = nn.mul %gw, %gw : tensor<8xf32>
  %nw = nn.reduce sum %qw dims [0] : tensor<8xf32> -> tensor<f32>
  %n = nn.add %nw, %ap : tensor<f32>
  nn.metric %n "GradNorm" : tensor<f32>
  return
}
func.func @forward_0() attributes {pipe.function = #pipe.function<forward, 0>} {
  return
}
func.func @backward_0() attributes {pipe.function = #pipe.function<backward, 0>} {
  return
}
