// RUN: plait-opt %s --nn-differentiate -split-input-file | FileCheck %s

// Numbers are compared with PyTorch in test/Unit/Compiler/Gradient; here it is
// where gradients lie, and what is communicated for them.

//===----------------------------------------------------------------------===//
// A gradient lies where its primal does
//===----------------------------------------------------------------------===//

// A column-parallel matmul on the first stage. The weight's gradient is split
// like the weight and stays a partial sum over dp, to be combined once a step.
// Tokens have no gradient, so nothing is returned.
#x = #dist.sharding<@mesh, [{"dp"}, {}]>
#col = #dist.sharding<@mesh, [{}, {"tp"}]>
#y = #dist.sharding<@mesh, [{"dp"}, {"tp"}]>
dist.mesh @mesh ["dp", "tp"] = [2, 2]
nn.parameter @w : tensor<4x6xf32> init<mean = 0.0, std = 0.02> sharding #col
// CHECK-NOT: @forward_0
// CHECK-LABEL: func.func @joint_0(
// CHECK-SAME: %[[DY:[^:]*]]: tensor<8x6xf32, #dist.sharding<@mesh, [{"dp"}, {"tp"}]>> {pipe.port = #pipe.port<output_gradient 0>})
// CHECK-SAME: -> (tensor<8x6xf32, {{[^%]*}} {pipe.port = #pipe.port<output 0>})
// CHECK-SAME: attributes {pipe.function = #pipe.function<joint, 0>}
func.func @forward_0(%ids: tensor<8xi32, #dist.sharding<@mesh, [{"dp"}]>> {pipe.port = #pipe.port<tokens>}) -> (tensor<8x6xf32, #y> {pipe.port = #pipe.port<output 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  // CHECK: %[[X:.*]] = nn.broadcast
  %valid = nn.valid %ids ignore 0 : tensor<8xi32, #dist.sharding<@mesh, [{"dp"}]>> -> tensor<8xf32, #dist.sharding<@mesh, [{"dp"}]>>
  %x = nn.broadcast %valid dims [0] : tensor<8xf32, #dist.sharding<@mesh, [{"dp"}]>> -> tensor<8x4xf32, #x>
  %w = nn.read @w value {nn.layer = 7 : i64} : tensor<4x6xf32, #col>
  // CHECK: %[[Y:.*]] = nn.matmul %[[X]], %{{.*}} "bi,ij->bj" {nn.layer = 7 : i64} :
  %y = nn.matmul %x, %w "bi,ij->bj" {nn.layer = 7 : i64} : (tensor<8x4xf32, #x>, tensor<4x6xf32, #col>) -> tensor<8x6xf32, #y>
  // Ops of the backward pass are marked, and belong to the layer of the op that
  // they differentiate.
  // CHECK: %[[DW:.*]] = nn.matmul %[[X]], %[[DY]] "bi,bj->ij" {nn.backward, nn.layer = 7 : i64} : {{.*}} -> tensor<4x6xf32, #dist.sharding<@mesh, [{}, {"tp"}], partial = {"dp"}>>
  // CHECK-NEXT: nn.accumulate %[[DW]] to @w gradient {nn.backward, nn.layer = 7 : i64}
  // CHECK-NEXT: return %[[Y]]
  return %y : tensor<8x6xf32, #y>
}

// -----

// A stage in the middle, with two users of its input. Both leave partial sums
// over tp (their weights are split along what they make), which are added first
// and combined once, where the input lies: Megatron's "f".
#x = #dist.sharding<@mesh, [{}, {}]>
#col = #dist.sharding<@mesh, [{}, {"tp"}]>
dist.mesh @mesh ["tp"] = [2]
nn.parameter @a : tensor<4x6xf32> init<mean = 0.0, std = 0.02> sharding #col
nn.parameter @b : tensor<4x6xf32> init<mean = 0.0, std = 0.02> sharding #col
// CHECK-LABEL: func.func @joint_1(
// CHECK-SAME: %[[X:[^:]*]]: tensor<8x4xf32, #dist.sharding<@mesh, [{}, {}]>> {pipe.port = #pipe.port<input 0>},
// CHECK-SAME: {pipe.port = #pipe.port<output_gradient 0>},
// CHECK-SAME: {pipe.port = #pipe.port<output_gradient 1>})
// CHECK-SAME: {pipe.port = #pipe.port<output 0>}
// CHECK-SAME: {pipe.port = #pipe.port<output 1>}
// CHECK-SAME: {pipe.port = #pipe.port<input_gradient 0>})
func.func @forward_1(%x: tensor<8x4xf32, #x> {pipe.port = #pipe.port<input 0>}) -> (tensor<8x6xf32, #col> {pipe.port = #pipe.port<output 0>}, tensor<8x6xf32, #col> {pipe.port = #pipe.port<output 1>}) attributes {pipe.function = #pipe.function<forward, 1>} {
  %a = nn.read @a value : tensor<4x6xf32, #col>
  %0 = nn.matmul %x, %a "bi,ij->bj" : (tensor<8x4xf32, #x>, tensor<4x6xf32, #col>) -> tensor<8x6xf32, #col>
  %b = nn.read @b value : tensor<4x6xf32, #col>
  %1 = nn.matmul %x, %b "bi,ij->bj" : (tensor<8x4xf32, #x>, tensor<4x6xf32, #col>) -> tensor<8x6xf32, #col>
  // CHECK: nn.backward
  // CHECK-NOT: dist.reshard
  // CHECK: %[[SUM:.*]] = nn.add %{{.*}}, %{{.*}} {nn.backward} : tensor<8x4xf32, #dist.sharding<@mesh, [{}, {}], partial = {"tp"}>>
  // CHECK-NEXT: %[[DX:.*]] = dist.reshard %[[SUM]] {nn.backward} : {{.*}} -> tensor<8x4xf32, #dist.sharding<@mesh, [{}, {}]>>
  // CHECK-NOT: dist.reshard
  // CHECK: return %{{.*}}, %{{.*}}, %[[DX]] :
  return %0, %1 : tensor<8x6xf32, #col>, tensor<8x6xf32, #col>
}

// -----

// A row-parallel matmul: the forward pass adds its partial sums up, and the
// backward pass has nothing to do ("g" of Megatron).
#row = #dist.sharding<@mesh, [{"tp"}, {}]>
#x = #dist.sharding<@mesh, [{}, {"tp"}]>
#partial = #dist.sharding<@mesh, [{}, {}], partial = {"tp"}>
#whole = #dist.sharding<@mesh, [{}, {}]>
dist.mesh @mesh ["tp"] = [2]
nn.parameter @w : tensor<4x6xf32> init<mean = 0.0, std = 0.02> sharding #row
// CHECK-LABEL: func.func @joint_0(
// CHECK: dist.reshard
// CHECK-NOT: dist.reshard
// CHECK: return
func.func @forward_0(%x: tensor<8x4xf32, #x> {pipe.port = #pipe.port<input 0>}) -> (tensor<8x6xf32, #whole> {pipe.port = #pipe.port<output 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  %w = nn.read @w value : tensor<4x6xf32, #row>
  %0 = nn.matmul %x, %w "bi,ij->bj" : (tensor<8x4xf32, #x>, tensor<4x6xf32, #row>) -> tensor<8x6xf32, #partial>
  %1 = dist.reshard %0 : tensor<8x6xf32, #partial> -> tensor<8x6xf32, #whole>
  return %1 : tensor<8x6xf32, #whole>
}

// -----

// The gradient of an all-gather is a reduce-scatter: what two users leave
// partial goes straight to the blocks, not by way of the whole.
#block = #dist.sharding<@mesh, [{}, {"tp"}]>
#whole = #dist.sharding<@mesh, [{}, {}]>
#col = #dist.sharding<@mesh, [{}, {"tp"}]>
dist.mesh @mesh ["tp"] = [2]
nn.parameter @w : tensor<4x6xf32> init<mean = 0.0, std = 0.02> sharding #col
// CHECK-LABEL: func.func @joint_0(
func.func @forward_0(%x: tensor<8x4xf32, #block> {pipe.port = #pipe.port<input 0>}) -> (tensor<8x6xf32, #col> {pipe.port = #pipe.port<output 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  // CHECK: dist.reshard
  %0 = dist.reshard %x : tensor<8x4xf32, #block> -> tensor<8x4xf32, #whole>
  %w = nn.read @w value : tensor<4x6xf32, #col>
  %1 = nn.matmul %0, %w "bi,ij->bj" : (tensor<8x4xf32, #whole>, tensor<4x6xf32, #col>) -> tensor<8x6xf32, #col>
  // CHECK: dist.reshard {{.*}} : tensor<8x4xf32, #dist.sharding<@mesh, [{}, {}], partial = {"tp"}>> -> tensor<8x4xf32, #dist.sharding<@mesh, [{}, {"tp"}]>>
  // CHECK-NOT: dist.reshard
  // CHECK: return
  return %1 : tensor<8x6xf32, #col>
}

// -----

//===----------------------------------------------------------------------===//
// What contributes, and what does not
//===----------------------------------------------------------------------===//

// The last stage starts from the loss, with one; the number of targets is not
// differentiated. A parameter whose value does not reach the loss gets nothing.
#s = #dist.sharding<@mesh, []>
#v = #dist.sharding<@mesh, [{}]>
dist.mesh @mesh ["tp"] = [2]
nn.parameter @used : tensor<4xf32> init<mean = 0.0, std = 0.02> sharding #v
nn.parameter @dead : tensor<4xf32> init<mean = 0.0, std = 0.02> sharding #v
nn.parameter @stopped : tensor<4xf32> init<mean = 0.0, std = 0.02> sharding #v
nn.accumulator @loss_sum : tensor<f32>
nn.accumulator @token_count : tensor<f32>
// CHECK-LABEL: func.func @joint_0(
// CHECK-SAME: ) attributes
func.func @forward_0() attributes {pipe.function = #pipe.function<forward, 0>} {
  %used = nn.read @used value : tensor<4xf32, #v>
  %dead = nn.read @dead value : tensor<4xf32, #v>
  %0 = nn.exp %dead : tensor<4xf32, #v>
  %read = nn.read @stopped value : tensor<4xf32, #v>
  %stopped = nn.stop_gradient %read : tensor<4xf32, #v>
  // CHECK: %[[PRODUCT:.*]] = nn.mul
  %1 = nn.mul %used, %stopped : tensor<4xf32, #v>
  // CHECK: %[[LOSS:.*]] = nn.reduce sum %[[PRODUCT]]
  %2 = nn.reduce sum %1 dims [0] : tensor<4xf32, #v> -> tensor<f32, #s>
  %3 = nn.reduce sum %0 dims [0] : tensor<4xf32, #v> -> tensor<f32, #s>
  nn.accumulate %2 to @loss_sum value : tensor<f32, #s>
  nn.accumulate %3 to @token_count value : tensor<f32, #s>
  // CHECK: nn.accumulate {{.*}} to @token_count
  // CHECK: %[[ONE:.*]] = nn.fill 1.0{{.*}} {nn.backward} : tensor<f32,
  // CHECK: nn.broadcast %[[ONE]] dims []
  // CHECK-NOT: nn.accumulate {{.*}}@dead
  // CHECK-NOT: nn.accumulate {{.*}}@stopped
  // CHECK: nn.accumulate {{.*}} to @used gradient {nn.backward}
  // CHECK-NOT: nn.accumulate
  // CHECK: return
  return
}

// -----

// An output that the stage uses itself has two contributions: the gradient that
// comes from the next stage and its own.
#v = #dist.sharding<@mesh, [{}]>
dist.mesh @mesh ["tp"] = [2]
// CHECK-LABEL: func.func @joint_0(
// CHECK-SAME: %[[X:[^:]*]]: {{[^%]*}}<input 0>}, %[[D0:[^:]*]]: {{[^%]*}}<output_gradient 0>}, %[[D1:[^:]*]]: {{[^%]*}}<output_gradient 1>})
func.func @forward_0(%x: tensor<4xf32, #v> {pipe.port = #pipe.port<input 0>}) -> (tensor<4xf32, #v> {pipe.port = #pipe.port<output 0>}, tensor<4xf32, #v> {pipe.port = #pipe.port<output 1>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  // CHECK: %[[Y:.*]] = nn.exp %[[X]]
  %0 = nn.exp %x : tensor<4xf32, #v>
  // CHECK: nn.neg %[[Y]]
  %1 = nn.neg %0 : tensor<4xf32, #v>
  // CHECK: %[[OWN:.*]] = nn.neg %[[D1]] {nn.backward}
  // CHECK: %[[SUM:.*]] = nn.add %[[D0]], %[[OWN]] {nn.backward}
  // CHECK: %[[DX:.*]] = nn.mul %[[SUM]], %[[Y]] {nn.backward}
  // CHECK: return %{{.*}}, %{{.*}}, %[[DX]]
  return %0, %1 : tensor<4xf32, #v>, tensor<4xf32, #v>
}

// -----

// An input that nothing depends on has no gradient.
#v = #dist.sharding<@mesh, [{}]>
dist.mesh @mesh ["tp"] = [2]
// CHECK-LABEL: func.func @joint_0(
// CHECK-SAME: -> ({{.*}} {pipe.port = #pipe.port<output 0>}, {{.*}} {pipe.port = #pipe.port<input_gradient 0>}) attributes
func.func @forward_0(%x: tensor<4xf32, #v> {pipe.port = #pipe.port<input 0>}, %y: tensor<4xf32, #v> {pipe.port = #pipe.port<input 1>}) -> (tensor<4xf32, #v> {pipe.port = #pipe.port<output 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  // CHECK: %[[DX:.*]] = nn.mul {{.*}} {nn.backward}
  // CHECK: return %{{.*}}, %[[DX]] :
  %0 = nn.exp %x : tensor<4xf32, #v>
  return %0 : tensor<4xf32, #v>
}

// -----

//===----------------------------------------------------------------------===//
// Stages
//===----------------------------------------------------------------------===//

// Of what stage 0 passes on, %b goes through both stages to a parameter: it has a
// gradient. No parameter is behind %c, and the loss gets %d without a gradient:
// stage 1 sends none of either, nor does it compute what nobody needs. What stage
// 1 reads of @tied has no gradient, and it adds zero, so that it takes part in
// the sum of stage 0's.
#v = #dist.sharding<@mesh, [{}]>
#s = #dist.sharding<@mesh, []>
dist.mesh @mesh ["pp", "dp"] = [2, 2]
nn.parameter @w : tensor<4xf32> init<mean = 0.0, std = 0.02> sharding #v
nn.parameter @tied : tensor<4xf32> init<mean = 0.0, std = 0.02> sharding #v
nn.accumulator @loss_sum : tensor<f32>
// CHECK-LABEL: func.func @joint_0(
// CHECK-SAME: %[[DB:[^:]*]]: tensor<8x4xf32, {{[^%]*}} {pipe.port = #pipe.port<output_gradient 0>}) -> (
// CHECK-SAME: <output 2>}) attributes
#r = #dist.sharding<@mesh, [{"dp"}, {}]>
func.func @forward_0(%x: tensor<8x4xf32, #r> {pipe.port = #pipe.port<tokens>}) -> (tensor<8x4xf32, #r> {pipe.port = #pipe.port<output 0>}, tensor<8x4xf32, #r> {pipe.port = #pipe.port<output 1>}, tensor<8x4xf32, #r> {pipe.port = #pipe.port<output 2>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  %w = nn.read @w value : tensor<4xf32, #v>
  %tied = nn.read @tied value : tensor<4xf32, #v>
  %sum = nn.add %w, %tied : tensor<4xf32, #v>
  %a = nn.broadcast %sum dims [1] : tensor<4xf32, #v> -> tensor<8x4xf32, #r>
  %b = nn.mul %x, %a : tensor<8x4xf32, #r>
  %c = nn.stop_gradient %b : tensor<8x4xf32, #r>
  %d = nn.exp %b : tensor<8x4xf32, #r>
  // CHECK: nn.accumulate {{.*}} to @tied gradient {nn.backward}
  // CHECK: nn.accumulate {{.*}} to @w gradient {nn.backward}
  // CHECK-NEXT: return
  return %b, %c, %d : tensor<8x4xf32, #r>, tensor<8x4xf32, #r>, tensor<8x4xf32, #r>
}
// CHECK-LABEL: func.func @joint_1(
// CHECK-SAME: -> (tensor<8x4xf32, {{.*}} {pipe.port = #pipe.port<input_gradient 0>}) attributes
func.func @forward_1(%b: tensor<8x4xf32, #r> {pipe.port = #pipe.port<input 0>}, %c: tensor<8x4xf32, #r> {pipe.port = #pipe.port<input 1>}, %d: tensor<8x4xf32, #r> {pipe.port = #pipe.port<input 2>}) attributes {pipe.function = #pipe.function<forward, 1>} {
  // CHECK: %[[PRODUCT:.*]] = nn.mul %[[B:.*]], %[[C:.*]] :
  %0 = nn.mul %b, %c : tensor<8x4xf32, #r>
  %fixed = nn.stop_gradient %d : tensor<8x4xf32, #r>
  %1 = nn.mul %0, %fixed : tensor<8x4xf32, #r>
  %tied = nn.read @tied value : tensor<4xf32, #v>
  %value = nn.stop_gradient %tied : tensor<4xf32, #v>
  %spread = nn.broadcast %value dims [1] : tensor<4xf32, #v> -> tensor<8x4xf32, #r>
  %2 = nn.mul %1, %spread : tensor<8x4xf32, #r>
  %3 = nn.reduce sum %2 dims [0, 1] : tensor<8x4xf32, #r> -> tensor<f32, #dist.sharding<@mesh, [], partial = {"dp"}>>
  nn.accumulate %3 to @loss_sum value : tensor<f32, #dist.sharding<@mesh, [], partial = {"dp"}>>
  // CHECK: nn.accumulate {{.*}} to @loss_sum
  // CHECK-NOT: %[[PRODUCT]]
  // CHECK: %[[DX:.*]] = nn.mul %{{.*}}, %[[C]] {nn.backward}
  // CHECK-NEXT: %[[ZERO:.*]] = nn.fill 0.0{{.*}} {nn.backward} : tensor<4xf32, #dist.sharding<@mesh, [{}]>>
  // CHECK-NEXT: nn.accumulate %[[ZERO]] to @tied gradient {nn.backward}
  // CHECK-NEXT: return %[[DX]] :
  return
}

// -----

//===----------------------------------------------------------------------===//
// Comparisons
//===----------------------------------------------------------------------===//

// What a gradient selects by is compared in the forward pass, behind the op, of
// the maximum over all ranks; the rest is the backward pass's.
#x = #dist.sharding<@mesh, [{}, {"tp"}]>
#partial = #dist.sharding<@mesh, [{}], partial = {"tp"} max>
#whole = #dist.sharding<@mesh, [{}]>
dist.mesh @mesh ["tp"] = [2]
// CHECK-LABEL: func.func @joint_0(
// CHECK-SAME: %[[X:[^:]*]]: {{[^%]*}}<input 0>}, %[[DY:[^:]*]]: {{[^%]*}}<output_gradient 0>})
func.func @forward_0(%x: tensor<8x4xf32, #x> {pipe.port = #pipe.port<input 0>}) -> (tensor<8xf32, #whole> {pipe.port = #pipe.port<output 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  // CHECK: %[[TOP:.*]] = nn.reduce max %[[X]] dims [1] {nn.layer = 3 : i64}
  // CHECK-NEXT: %[[ALL:.*]] = dist.reshard %[[TOP]] {nn.layer = 3 : i64}
  // CHECK-NEXT: %[[SPREAD:.*]] = nn.broadcast %[[ALL]] dims [0] {nn.layer = 3 : i64}
  // CHECK-NEXT: %[[MASK:.*]] = nn.equal %[[X]], %[[SPREAD]] {nn.layer = 3 : i64} : {{.*}} -> tensor<8x4xbf16,
  // CHECK: %[[WIDE:.*]] = nn.cast %[[MASK]]
  // CHECK: %[[PART:.*]] = nn.reduce sum %[[WIDE]] dims [1] {nn.backward, nn.layer = 3 : i64}
  // CHECK: %[[COUNT:.*]] = dist.reshard %[[PART]] {nn.backward, nn.layer = 3 : i64}
  // CHECK: %[[SHARE:.*]] = nn.div %[[DY]], %[[COUNT]] {nn.backward, nn.layer = 3 : i64}
  %0 = nn.reduce max %x dims [1] {nn.layer = 3 : i64} : tensor<8x4xf32, #x> -> tensor<8xf32, #partial>
  %1 = dist.reshard %0 {nn.layer = 3 : i64} : tensor<8xf32, #partial> -> tensor<8xf32, #whole>
  return %1 : tensor<8xf32, #whole>
}

// -----

//===----------------------------------------------------------------------===//
// Untouched
//===----------------------------------------------------------------------===//

dist.mesh @mesh ["tp"] = [2]
// CHECK-LABEL: func.func @backward_0
// CHECK-NEXT: return
func.func @backward_0() attributes {pipe.function = #pipe.function<backward, 0>} {
  return
}
// CHECK-LABEL: func.func @other
// CHECK-NEXT: return
func.func @other() {
  return
}

// -----

//===----------------------------------------------------------------------===//
// bf16: gradients have their primals' types, but those of parameters are f32
//===----------------------------------------------------------------------===//

// The matmul and the lookup give the gradient of the table in f32 themselves,
// and it is added up in f32. What is reduced was widened before.
#x = #dist.sharding<@mesh, [{}, {}]>
dist.mesh @mesh ["tp"] = [2]
nn.parameter @table : tensor<6x4xf32> init<mean = 0.0, std = 0.02> sharding #x
nn.parameter @bias : tensor<4xf32> init<mean = 0.0, std = 0.02> sharding #dist.sharding<@mesh, [{}]>
// CHECK-LABEL: func.func @joint_0(
// CHECK-SAME: %[[DY:[^:]*]]: tensor<8x6xbf16, #dist.sharding<@mesh, [{}, {}]>> {pipe.port = #pipe.port<output_gradient 0>})
func.func @forward_0(%ids: tensor<8xi32, #dist.sharding<@mesh, [{}]>> {pipe.port = #pipe.port<tokens>}) -> (tensor<8x6xbf16, #x> {pipe.port = #pipe.port<output 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  %table = nn.read @table compute : tensor<6x4xbf16, #x>
  %bias = nn.read @bias compute : tensor<4xbf16, #dist.sharding<@mesh, [{}]>>
  %rows = nn.embedding %table, %ids : (tensor<6x4xbf16, #x>, tensor<8xi32, #dist.sharding<@mesh, [{}]>>) -> tensor<8x4xbf16, #x>
  %spread = nn.broadcast %bias dims [1] : tensor<4xbf16, #dist.sharding<@mesh, [{}]>> -> tensor<8x4xbf16, #x>
  %sum = nn.add %rows, %spread : tensor<8x4xbf16, #x>
  %y = nn.matmul %sum, %table "bh,vh->bv" : (tensor<8x4xbf16, #x>, tensor<6x4xbf16, #x>) -> tensor<8x6xbf16, #x>
  // CHECK: %[[DX:.*]] = nn.matmul %[[DY]], {{.*}} -> tensor<8x4xbf16,
  // CHECK: %[[HEAD:.*]] = nn.matmul {{.*}} -> tensor<6x4xf32,
  // CHECK: %[[WIDE:.*]] = nn.cast %[[DX]] {nn.backward} : {{.*}} -> tensor<8x4xf32,
  // CHECK: %[[DB:.*]] = nn.reduce sum %[[WIDE]] {{.*}} -> tensor<4xf32,
  // CHECK: %[[ROWS:.*]] = nn.embedding_grad %[[DX]], {{.*}} -> tensor<6x4xf32,
  // CHECK: nn.accumulate %[[DB]] to @bias gradient
  // CHECK: %[[DT:.*]] = nn.add %[[HEAD]], %[[ROWS]] {nn.backward} : tensor<6x4xf32,
  // CHECK: nn.accumulate %[[DT]] to @table gradient
  return %y : tensor<8x6xbf16, #x>
}

// -----

// A loss in f32 of logits in bf16: the gradient is rounded where the logits are
// widened.
#x = #dist.sharding<@mesh, [{}]>
#s = #dist.sharding<@mesh, []>
dist.mesh @mesh ["tp"] = [2]
nn.accumulator @loss_sum : tensor<f32>
// CHECK-LABEL: func.func @joint_1(
// CHECK: %[[DX:.*]] = nn.mul {{.*}} {nn.backward} : tensor<8xf32,
// CHECK: %[[ROUNDED:.*]] = nn.cast %[[DX]] {nn.backward} : {{.*}} -> tensor<8xbf16,
// CHECK: return %[[ROUNDED]] :
func.func @forward_1(%x: tensor<8xbf16, #x> {pipe.port = #pipe.port<input 0>}) attributes {pipe.function = #pipe.function<forward, 1>} {
  %0 = nn.cast %x : tensor<8xbf16, #x> -> tensor<8xf32, #x>
  %1 = nn.exp %0 : tensor<8xf32, #x>
  %2 = nn.reduce sum %1 dims [0] : tensor<8xf32, #x> -> tensor<f32, #s>
  nn.accumulate %2 to @loss_sum value : tensor<f32, #s>
  return
}

// -----

//===----------------------------------------------------------------------===//
// Values of parameters alone
//===----------------------------------------------------------------------===//

// A penalty on a weight is the same on all ranks; summed over dp it would count
// as often as there are ranks. Its gradient is not a partial sum.
#v = #dist.sharding<@mesh, [{}]>
dist.mesh @mesh ["dp"] = [2]
nn.parameter @w : tensor<4xf32> init<mean = 0.0, std = 0.02>
nn.accumulator @loss_sum : tensor<f32>
// CHECK-LABEL: func.func @joint_0(
// CHECK: nn.accumulate %{{.*}} to @w gradient {nn.backward} : tensor<4xf32, #dist.sharding<@mesh, [{}]>>
func.func @forward_0() attributes {pipe.function = #pipe.function<forward, 0>} {
  %w = nn.read @w value : tensor<4xf32, #v>
  %0 = nn.mul %w, %w : tensor<4xf32, #v>
  %1 = nn.reduce sum %0 dims [0] : tensor<4xf32, #v> -> tensor<f32, #dist.sharding<@mesh, []>>
  nn.accumulate %1 to @loss_sum value : tensor<f32, #dist.sharding<@mesh, []>>
  return
}

// -----

// A weight is bent before the batch meets it: what the bend passes on has been
// summed over dp, so the gradient is whole.
#x = #dist.sharding<@mesh, [{"dp"}, {}]>
#v = #dist.sharding<@mesh, [{}]>
dist.mesh @mesh ["dp"] = [2]
nn.parameter @w : tensor<4xf32> init<mean = 0.0, std = 0.02>
// CHECK-LABEL: func.func @joint_0(
// CHECK: %[[SUM:.*]] = nn.reduce sum {{.*}} -> tensor<4xf32, #dist.sharding<@mesh, [{}], partial = {"dp"}>>
// CHECK: dist.reshard %[[SUM]] {{.*}} -> tensor<4xf32, #dist.sharding<@mesh, [{}]>>
// CHECK: nn.accumulate %{{.*}} to @w gradient {nn.backward} : tensor<4xf32, #dist.sharding<@mesh, [{}]>>
func.func @forward_0(%x: tensor<2x4xf32, #x> {pipe.port = #pipe.port<input 0>}) -> (tensor<2x4xf32, #x> {pipe.port = #pipe.port<output 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  %w = nn.read @w value : tensor<4xf32, #v>
  %0 = nn.tanh %w : tensor<4xf32, #v>
  %1 = nn.broadcast %0 dims [1] : tensor<4xf32, #v> -> tensor<2x4xf32, #x>
  %2 = nn.mul %x, %1 : tensor<2x4xf32, #x>
  return %2 : tensor<2x4xf32, #x>
}

// -----

//===----------------------------------------------------------------------===//
// What is known with the loss
//===----------------------------------------------------------------------===//

// The gradient of the logits takes their place among what is kept: it is
// computed in the forward pass. That of the stage's input is sent away by the
// backward pass, which computes it.
#x = #dist.sharding<@mesh, [{}, {}]>
#r = #dist.sharding<@mesh, [{}]>
dist.mesh @mesh ["tp"] = [1]
nn.parameter @w : tensor<4x6xf32> init<mean = 0.0, std = 0.02>
nn.accumulator @loss_sum : tensor<f32>
// CHECK-LABEL: func.func @joint_1(
// CHECK: nn.accumulate {{.*}} to @loss_sum
// CHECK: %[[ONE:.*]] = nn.fill 1.0{{.*}} : tensor<f32,
// CHECK: %[[DY:.*]] = nn.add {{.*}} : tensor<8x6xf32, {{.*}}>
// CHECK-NOT: nn.backward
// CHECK: nn.matmul %[[DY]], {{.*}} {nn.backward}
// CHECK: nn.matmul {{.*}}, %[[DY]] {{.*}} {nn.backward}
func.func @forward_1(%x: tensor<8x4xf32, #x> {pipe.port = #pipe.port<input 0>}) attributes {pipe.function = #pipe.function<forward, 1>} {
  %w = nn.read @w value : tensor<4x6xf32, #x>
  %y = nn.matmul %x, %w "bi,ij->bj" : (tensor<8x4xf32, #x>, tensor<4x6xf32, #x>) -> tensor<8x6xf32, #x>
  %0 = nn.mul %y, %y : tensor<8x6xf32, #x>
  %1 = nn.reduce sum %0 dims [0, 1] : tensor<8x6xf32, #x> -> tensor<f32, #dist.sharding<@mesh, []>>
  nn.accumulate %1 to @loss_sum value : tensor<f32, #dist.sharding<@mesh, []>>
  return
}
