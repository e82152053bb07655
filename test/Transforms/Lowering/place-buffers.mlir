// RUN: plait-opt %s --plait-configure=global-batch=2 --pipe-schedule --plan-place-buffers -split-input-file | FileCheck %s

// One stage. A tensor of 16 x 16 has 1024 bytes.
dist.mesh @mesh ["tp"] = [2]
nn.parameter @w : tensor<16x16xf32> init<mean = 0.0, std = 0.02>

// What the function takes and returns lies in slots, in this order, residuals side
// by side; the last slot is its workspace. In there %a and %b live together, and so do %b and %c, but
// %a is dead when %c is made: %c takes its place, and two tensors' bytes are
// enough for all. An all-reduce whose input nobody reads later works in place. A
// value that is returned is computed where the caller wants it.
// CHECK-LABEL: func.func @forward_0(
// CHECK-SAME: plan.slot_bytes = array<i64: 32, 1024, 2048>
func.func @forward_0(%ids: tensor<8xi32> {pipe.port = #pipe.port<tokens>}) -> (tensor<16x16xf32> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  // CHECK: nn.read @w value {plan.places = [#plan.place<@"w value", 0>]}
  %w = nn.read @w value : tensor<16x16xf32>
  // CHECK-NEXT: %[[A:.*]] = nn.matmul {{.*}} {plan.places = [#plan.place<slot 2, 0>]}
  %a = nn.matmul %w, %w "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  // CHECK-NEXT: %[[B:.*]] = nn.matmul %[[A]], {{.*}} {plan.places = [#plan.place<slot 2, 1024>]}
  %b = nn.matmul %a, %w "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  // CHECK-NEXT: %[[C:.*]] = nn.matmul %[[B]], {{.*}} {plan.places = [#plan.place<slot 2, 0>]}
  %c = nn.matmul %b, %w "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  // CHECK-NEXT: %[[D:.*]] = dist.all_reduce %[[C]] {{.*}} {plan.places = [#plan.place<slot 2, 0>]}
  %d = dist.all_reduce %c on @mesh["tp"] sum : tensor<16x16xf32> -> tensor<16x16xf32>
  // CHECK-NEXT: nn.matmul %[[D]], %[[B]] {{.*}} {plan.places = [#plan.place<slot 1, 0>]}
  %e = nn.matmul %d, %b "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  return %e : tensor<16x16xf32>
}

// The first contribution to a gradient overwrites in the first microbatch and
// adds in the others (2); every other one adds (1). All are computed in the
// gradient's own buffer. The first matmul is not moved behind the next
// collective: the residual that it reads would have to stay. The all-reduce,
// whose input is read later, takes the place of that, and what is smaller lies
// in the bytes that are left, in steps of 64.
// CHECK-LABEL: func.func @backward_0(
// CHECK-SAME: plan.slot_bytes = array<i64: 1024, 1088>
func.func @backward_0(%r: tensor<16x16xf32> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  // CHECK-NEXT: nn.matmul {{.*}} {plan.accumulate = 2 : i32, plan.places = [#plan.place<@"w gradient", 0>]}
  %0 = nn.matmul %r, %r "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  nn.accumulate %0 to @w gradient : tensor<16x16xf32>
  // CHECK: plan.cluster(%{{.*}}) accumulate [0, 0, 1] attributes {plan.places = [#plan.place<slot 1, 0>, #plan.place<slot 1, 1024>, #plan.place<@"w gradient", 0>]}
  %1:3 = plan.cluster(%r) : (tensor<16x16xf32>) -> (tensor<16x16xf32>, tensor<f32>, tensor<16x16xf32>) {
  ^bb0(%x: tensor<16x16xf32>):
    %2 = nn.exp %x : tensor<16x16xf32>
    %3 = nn.reduce sum %x dims [0, 1] : tensor<16x16xf32> -> tensor<f32>
    plan.yield %2, %3, %2 : tensor<16x16xf32>, tensor<f32>, tensor<16x16xf32>
  }
  nn.accumulate %1#2 to @w gradient : tensor<16x16xf32>
  // CHECK: dist.all_reduce {{.*}} {plan.places = [#plan.place<slot 0, 0>]}
  // CHECK-NEXT: nn.matmul {{.*}} {plan.accumulate = 1 : i32, plan.places = [#plan.place<@"w gradient", 0>]}
  %4 = dist.all_reduce %1#0 on @mesh["tp"] sum : tensor<16x16xf32> -> tensor<16x16xf32>
  %5 = nn.matmul %4, %1#0 "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %6 = dist.all_reduce %1#1 on @mesh["tp"] sum : tensor<f32> -> tensor<f32>
  nn.accumulate %5 to @w gradient : tensor<16x16xf32>
  return
}

// CHECK-LABEL: func.func @reduce_0(
func.func @reduce_0() attributes {pipe.function = #pipe.function<reduce, 0>} {
  // CHECK-NEXT: nn.read @w gradient {plan.places = [#plan.place<@"w gradient", 0>]}
  %0 = nn.read @w gradient : tensor<16x16xf32>
  // CHECK-NEXT: dist.all_reduce {{.*}} {plan.places = [#plan.place<@"w gradient", 0>]}
  %1 = dist.all_reduce %0 on @mesh["tp"] sum : tensor<16x16xf32> -> tensor<16x16xf32>
  nn.write %1 to @w gradient : tensor<16x16xf32>
  return
}

// Scalars come from the trainer and metrics go to it, each in its place of four
// bytes in the order of Plan.fbs.
// CHECK-LABEL: func.func @optimizer_0(
func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>} {
  // CHECK-NEXT: nn.step_scalar "Beta1" {plan.places = [#plan.place<@scalars, 4>]}
  %0 = nn.step_scalar "Beta1" : tensor<f32>
  // CHECK-NEXT: plan.cluster({{.*}}) attributes {plan.places = [#plan.place<@metrics, 4>]}
  %1 = plan.cluster(%0) : (tensor<f32>) -> tensor<f32> {
  ^bb0(%x: tensor<f32>):
    %2 = nn.neg %x : tensor<f32>
    plan.yield %2 : tensor<f32>
  }
  nn.metric %1 "GradNorm" : tensor<f32>
  %3 = nn.read @w value : tensor<16x16xf32>
  return
}

// The arena. Parameters, gradients and what the trainer fills stand for the whole
// step; tokens for both microbatches. A residual lives from its forward to its
// backward pass, so that of the second microbatch takes the place of the first's;
// workspaces live for one action, and lie where the residual of that action does
// not. So 1024 bytes each for parameter, gradient and residual, 2112 for the
// largest workspace and 64 each for tokens, scalars and metrics are enough.
// CHECK: plan.program @rank0 rank 0 bytes 5312 {
// CHECK-DAG: plan.buffer @"residuals 0 of stage 0, microbatch 0" activations at [[RES:[0-9]+]] bytes 1024 live [0, 1]
// CHECK-DAG: plan.buffer @"residuals 0 of stage 0, microbatch 1" activations at [[RES]] bytes 1024 live [2, 3]
// CHECK-DAG: plan.buffer @"workspace of action 0" workspace at [[WORK:[0-9]+]] bytes 2048 live [0, 0]
// CHECK-DAG: plan.buffer @"workspace of action 1" workspace at [[WORK]] bytes 1088 live [1, 1]
// CHECK-DAG: plan.buffer @"workspace of action 3" workspace at [[WORK]] bytes 1088 live [3, 3]
// CHECK-DAG: plan.buffer @"w value" parameters at {{[0-9]+}} bytes 1024 live [0, 5]
// CHECK-DAG: plan.buffer @"w gradient" gradients at {{[0-9]+}} bytes 1024 live [0, 5]
// CHECK-DAG: plan.buffer @tokens inputs at {{[0-9]+}} bytes 64 live [0, 5]
// CHECK: plan.action forward stage 0 microbatch 0 call @forward_0 [@tokens, @"residuals 0 of stage 0, microbatch 0", @"workspace of action 0"]
// CHECK-NEXT: plan.action backward stage 0 microbatch 0 call @backward_0 [@"residuals 0 of stage 0, microbatch 0", @"workspace of action 1"]
// CHECK-NEXT: plan.action forward stage 0 microbatch 1 call @forward_0 [@tokens, @"residuals 0 of stage 0, microbatch 1", @"workspace of action 2"]
// CHECK-NEXT: plan.action backward stage 0 microbatch 1 call @backward_0 [@"residuals 0 of stage 0, microbatch 1", @"workspace of action 3"]
// CHECK-NEXT: plan.action reduce call @reduce_0
// CHECK-NEXT: plan.action optimizer call @optimizer_0

// -----

// Two stages. A value that crosses is one buffer to the pass that makes it, to
// the transfer and to the backward pass that needs it again; one program a stage.
// On the first stage at most three of the four tensors live at once: when the
// second gradient comes, the first output is done with.
dist.mesh @mesh ["pp"] = [2]
func.func @forward_0() -> (tensor<16x16xf32> {pipe.port = #pipe.port<output 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  %0 = plan.cluster() : () -> tensor<16x16xf32> {
    %1 = nn.fill 1.0 : tensor<16x16xf32>
    plan.yield %1 : tensor<16x16xf32>
  }
  return %0 : tensor<16x16xf32>
}
func.func @backward_0(%dout: tensor<16x16xf32> {pipe.port = #pipe.port<output_gradient 0>}, %out: tensor<16x16xf32> {pipe.port = #pipe.port<output 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  return
}
func.func @forward_1(%x: tensor<16x16xf32> {pipe.port = #pipe.port<input 0>}) attributes {pipe.function = #pipe.function<forward, 1>} {
  return
}
func.func @backward_1(%x: tensor<16x16xf32> {pipe.port = #pipe.port<input 0>}) -> (tensor<16x16xf32> {pipe.port = #pipe.port<input_gradient 0>}) attributes {pipe.function = #pipe.function<backward, 1>} {
  %0 = nn.matmul %x, %x "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  return %0 : tensor<16x16xf32>
}
func.func @reduce_0() attributes {pipe.function = #pipe.function<reduce, 0>} {
  return
}
func.func @reduce_1() attributes {pipe.function = #pipe.function<reduce, 1>} {
  return
}
func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>} {
  return
}
func.func @optimizer_1() attributes {pipe.function = #pipe.function<optimizer, 1>} {
  return
}
// CHECK: plan.program @rank0 rank 0 bytes 3200
// CHECK: plan.buffer @"activation 0 after stage 0, microbatch 0" transfers at [[FIRST:[0-9]+]] bytes 1024 live [0, 6]
// CHECK: plan.buffer @"gradient 0 after stage 0, microbatch 1" transfers at [[FIRST]] bytes 1024 live [7, 8]
// CHECK: plan.action forward stage 0 microbatch 0 call @forward_0 [@"activation 0 after stage 0, microbatch 0",
// CHECK: plan.action send stage 0 microbatch 0 peer 1 tensor 0 [@"activation 0 after stage 0, microbatch 0"]
// CHECK: plan.action recv stage 1 microbatch 0 peer 1 backward tensor 0 [@"gradient 0 after stage 0, microbatch 0"]
// CHECK: plan.action backward stage 0 microbatch 0 call @backward_0 [@"gradient 0 after stage 0, microbatch 0", @"activation 0 after stage 0, microbatch 0",
// CHECK: plan.program @rank1 rank 1 bytes {{[0-9]+}}
// CHECK: plan.action recv stage 0 microbatch 0 peer 0 tensor 0 [@"activation 0 after stage 0, microbatch 0"]
// CHECK-NEXT: plan.action forward stage 1 microbatch 0 call @forward_1 [@"activation 0 after stage 0, microbatch 0",
// CHECK-NEXT: plan.action backward stage 1 microbatch 0 call @backward_1 [@"activation 0 after stage 0, microbatch 0", @"gradient 0 after stage 0, microbatch 0",
// CHECK-NEXT: plan.action send stage 1 microbatch 0 peer 0 backward tensor 0 [@"gradient 0 after stage 0, microbatch 0"]

// -----

// bf16: two bytes an element. The compute copy of a parameter stands beside its
// master copy, and counts as a parameter.
dist.mesh @mesh ["tp"] = [2]
nn.parameter @half : tensor<16x16xf32> init<mean = 0.0, std = 0.02>
// CHECK: nn.parameter @half
// CHECK: func.func @forward_0(
// CHECK-SAME: plan.slot_bytes = array<i64: 512, 0>
func.func @forward_0() -> (tensor<16x16xbf16> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  // CHECK: nn.read @half compute {plan.places = [#plan.place<@"half compute", 0>]}
  %w = nn.read @half compute : tensor<16x16xbf16>
  %a = nn.matmul %w, %w "ab,bc->ac" : (tensor<16x16xbf16>, tensor<16x16xbf16>) -> tensor<16x16xbf16>
  return %a : tensor<16x16xbf16>
}
// CHECK: func.func @backward_0(
func.func @backward_0(%r: tensor<16x16xbf16> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  // CHECK: nn.matmul {{.*}} {plan.accumulate = 2 : i32, plan.places = [#plan.place<@"half gradient", 0>]} : (tensor<16x16xbf16>, tensor<16x16xbf16>) -> tensor<16x16xf32>
  %0 = nn.matmul %r, %r "ab,bc->ac" : (tensor<16x16xbf16>, tensor<16x16xbf16>) -> tensor<16x16xf32>
  nn.accumulate %0 to @half gradient : tensor<16x16xf32>
  return
}
func.func @reduce_0() attributes {pipe.function = #pipe.function<reduce, 0>} {
  return
}
func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>} {
  // CHECK: plan.cluster(%{{.*}}) attributes {plan.places = [#plan.place<@"half value", 0>, #plan.place<@"half compute", 0>]}
  %w = nn.read @half value : tensor<16x16xf32>
  %0:2 = plan.cluster(%w) : (tensor<16x16xf32>) -> (tensor<16x16xf32>, tensor<16x16xbf16>) {
  ^bb0(%x: tensor<16x16xf32>):
    %1 = nn.scale %x by 0.5 : tensor<16x16xf32>
    %2 = nn.cast %1 : tensor<16x16xf32> -> tensor<16x16xbf16>
    plan.yield %1, %2 : tensor<16x16xf32>, tensor<16x16xbf16>
  }
  nn.write %0#0 to @half value : tensor<16x16xf32>
  nn.write %0#1 to @half compute : tensor<16x16xbf16>
  return
}
// CHECK: plan.buffer @"residuals 0 of stage 0, microbatch 0" activations at {{[0-9]+}} bytes 512
// CHECK: plan.buffer @"half compute" parameters at {{[0-9]+}} bytes 512 live [0, 5]
// CHECK: plan.buffer @"half value" parameters at {{[0-9]+}} bytes 1024 live [0, 5]
// CHECK: plan.buffer @"half gradient" gradients at {{[0-9]+}} bytes 1024 live [0, 5]

// -----

// What nothing reads is saved as it was, by the first rank: a pack of it stands
// there whole, not as long as the first of its members.
dist.mesh @mesh ["tp"] = [1]
nn.parameter @w : tensor<16x16xf32> init<mean = 0.0, std = 0.02>
nn.parameter @a : tensor<3xf32> init<mean = 0.0, std = 0.02> sharding #dist.sharding<@mesh, [{}]>
nn.parameter @b : tensor<3xf32> init<mean = 0.0, std = 0.02> sharding #dist.sharding<@mesh, [{}]>
nn.pack @pack rank 0 [@a, @b] at [0, 32] : tensor<1x64xf32>
func.func @forward_0(%ids: tensor<8xi32> {pipe.port = #pipe.port<tokens>}) -> (tensor<16x16xf32> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  %w = nn.read @w value : tensor<16x16xf32>
  %a = nn.matmul %w, %w "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  return %a : tensor<16x16xf32>
}
func.func @backward_0(%r: tensor<16x16xf32> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  %0 = nn.matmul %r, %r "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  nn.accumulate %0 to @w gradient : tensor<16x16xf32>
  return
}
func.func @reduce_0() attributes {pipe.function = #pipe.function<reduce, 0>} {
  return
}
func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>} {
  return
}
// CHECK: plan.buffer @"pack value"  parameters at {{[0-9]+}} bytes 256
