// RUN: plait-opt %s --nn-build-optimizer -split-input-file | FileCheck %s
// RUN: plait-opt %s --nn-build-optimizer --canonicalize --cse -split-input-file | \
// RUN:   FileCheck %s --check-prefix=CSE
// RUN: plait-opt %s --plait-configure=reduce-precision=bf16 --nn-build-optimizer -split-input-file | \
// RUN:   FileCheck %s --check-prefix=ROUND

//===----------------------------------------------------------------------===//
// One stage: reduction and AdamW
//===----------------------------------------------------------------------===//

// Gradients lie as they were accumulated; each is brought to where its parameter
// lies, once a step: summed over dp for both, over tp for the one that tp did not
// split.
#w = #dist.sharding<@mesh, [{"tp"}]>
#dw = #dist.sharding<@mesh, [{"tp"}], partial = {"dp"}>
#b = #dist.sharding<@mesh, [{}]>
#db = #dist.sharding<@mesh, [{}], partial = {"dp", "tp"}>
#loss = #dist.sharding<@mesh, [], partial = {"dp"}>
dist.mesh @mesh ["dp", "tp"] = [2, 2]
nn.parameter @w : tensor<4xf32> init<mean = 0.0, std = 0.02> decay sharding #w
nn.parameter @b : tensor<4xf32> init<mean = 0.0, std = 0.02> sharding #b
nn.parameter @frozen : tensor<4xf32> init<mean = 0.0, std = 0.02> sharding #b
nn.accumulator @loss_sum : tensor<f32>
nn.accumulator @token_count : tensor<f32>
func.func @forward_0(%loss: tensor<f32, #loss> {pipe.port = #pipe.port<input 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  nn.accumulate %loss to @loss_sum value : tensor<f32, #loss>
  nn.accumulate %loss to @token_count value : tensor<f32, #loss>
  return
}
func.func @backward_0(%dw: tensor<4xf32, #dw> {pipe.port = #pipe.port<residual 0>}, %db: tensor<4xf32, #db> {pipe.port = #pipe.port<residual 1>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  nn.accumulate %dw to @w gradient : tensor<4xf32, #dw>
  nn.accumulate %db to @b gradient : tensor<4xf32, #db>
  return
}

// CHECK-LABEL: func.func @reduce_0() attributes {pipe.function = #pipe.function<reduce, 0>}
// CHECK-NEXT: %[[DW:.*]] = nn.read @w gradient : tensor<2xf32>
// CHECK-NEXT: %[[DW2:.*]] = dist.all_reduce %[[DW]] on @mesh["dp"] sum : tensor<2xf32>
// CHECK-NEXT: nn.write %[[DW2]] to @w gradient
// CHECK-NEXT: %[[DB:.*]] = nn.read @b gradient : tensor<4xf32>
// CHECK-NEXT: %[[DB1:.*]] = dist.all_reduce %[[DB]] on @mesh["dp"] sum : tensor<4xf32>
// CHECK-NEXT: %[[DB2:.*]] = dist.all_reduce %[[DB1]] on @mesh["tp"] sum : tensor<4xf32>
// CHECK-NEXT: nn.write %[[DB2]] to @b gradient
// CHECK-NEXT: return
// Rounded once, however many sums follow.
// ROUND-LABEL: func.func @reduce_0()
// ROUND-NEXT: %[[DW:.*]] = nn.read @w gradient : tensor<2xf32>
// ROUND-NEXT: %[[DW1:.*]] = nn.cast %[[DW]] : tensor<2xf32> -> tensor<2xbf16>
// ROUND-NEXT: %[[DW2:.*]] = dist.all_reduce %[[DW1]] on @mesh["dp"] sum : tensor<2xbf16>
// ROUND-NEXT: %[[DW3:.*]] = nn.cast %[[DW2]] : tensor<2xbf16> -> tensor<2xf32>
// ROUND-NEXT: nn.write %[[DW3]] to @w gradient
// ROUND-NEXT: %[[DB:.*]] = nn.read @b gradient : tensor<4xf32>
// ROUND-NEXT: %[[DB1:.*]] = nn.cast %[[DB]] : tensor<4xf32> -> tensor<4xbf16>
// ROUND-NEXT: %[[DB2:.*]] = dist.all_reduce %[[DB1]] on @mesh["dp"] sum : tensor<4xbf16>
// ROUND-NEXT: %[[DB3:.*]] = dist.all_reduce %[[DB2]] on @mesh["tp"] sum : tensor<4xbf16>
// ROUND-NEXT: %[[DB4:.*]] = nn.cast %[[DB3]] : tensor<4xbf16> -> tensor<4xf32>
// ROUND-NEXT: nn.write %[[DB4]] to @b gradient
// ROUND-NEXT: return
// Loss and count are not.
// ROUND-LABEL: func.func @optimizer_0()
// ROUND: dist.all_reduce {{.*}} on @mesh["dp"] sum : tensor<f32>
// ROUND: dist.all_reduce {{.*}} on @mesh["dp"] sum : tensor<f32>

// CHECK-LABEL: func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>}
// The loss is divided by the number of targets of the global batch.
// CHECK-NEXT: nn.read @loss_sum value : tensor<f32>
// CHECK-NEXT: %[[LOSS:.*]] = dist.all_reduce {{.*}} on @mesh["dp"]
// CHECK-NEXT: nn.read @token_count value
// CHECK-NEXT: %[[COUNT:.*]] = dist.all_reduce {{.*}} on @mesh["dp"]
// CHECK-NEXT: %[[ONE:.*]] = nn.fill 1.0
// CHECK-NEXT: %[[INVERSE:.*]] = nn.div %[[ONE]], %[[COUNT]]
// CHECK-NEXT: %[[MEAN:.*]] = nn.mul %[[LOSS]], %[[INVERSE]]
// The norm is the one of the mean's gradient. Every element counts once: those
// of @w lie on two ranks each a half, those of @b on both.
// CHECK: nn.read @w gradient
// CHECK: %[[SUMW:.*]] = nn.reduce sum {{.*}} -> tensor<f32>
// CHECK: nn.read @b gradient
// CHECK: %[[SUMB:.*]] = nn.reduce sum {{.*}} -> tensor<f32>
// CHECK: %[[ALLW:.*]] = dist.all_reduce %[[SUMW]] on @mesh["tp"]
// CHECK: %[[SQUARE:.*]] = nn.add %[[ALLW]], %[[SUMB]]
// CHECK: %[[ROOT:.*]] = nn.sqrt %[[SQUARE]]
// CHECK: %[[NORM:.*]] = nn.mul %[[ROOT]], %[[INVERSE]]
// CHECK: nn.step_scalar "MaxGradNorm"
// CHECK: nn.metric %[[MEAN]] "Loss"
// CHECK: nn.metric %[[NORM]] "GradNorm"
// CHECK: nn.metric %[[COUNT]] "TokenCount"
// Parameters that have gradients are updated, in the blocks in which they lie.
// @w decays and @b does not: decay is one more product with the value.
// CHECK: %[[VALUE:.*]] = nn.read @w value : tensor<2xf32>
// CHECK: %[[KEPT:.*]] = nn.mul %[[VALUE]], %{{.*}}
// CHECK: %[[NEW:.*]] = nn.sub %[[KEPT]], %{{.*}}
// CHECK-NEXT: nn.write %[[NEW]] to @w value
// CHECK-NEXT: nn.write %{{.*}} to @w moment1
// CHECK-NEXT: nn.write %{{.*}} to @w moment2
// CHECK: %[[VALUE:.*]] = nn.read @b value
// CHECK: %[[NEW:.*]] = nn.sub %[[VALUE]], %{{.*}}
// CHECK-NEXT: nn.write %[[NEW]] to @b value
// CHECK-NOT: @frozen
// CHECK: return

// CSE-LABEL: func.func @optimizer_0

// -----

//===----------------------------------------------------------------------===//
// Several stages
//===----------------------------------------------------------------------===//

// An embedding that the first and the last of three stages share. Both add up
// their contributions, over the two of them; the stage between takes no part.
// Later the first counts it in the norm, and both make the same update.
#v = #dist.sharding<@mesh, [{}]>
#s = #dist.sharding<@mesh, []>
dist.mesh @mesh ["pp"] = [3]
nn.parameter @tied : tensor<4xf32> init<mean = 0.0, std = 0.02> sharding #v
nn.parameter @middle : tensor<4xf32> init<mean = 0.0, std = 0.02> sharding #v
nn.accumulator @loss_sum : tensor<f32>
nn.accumulator @token_count : tensor<f32>
func.func @forward_2(%loss: tensor<f32, #s> {pipe.port = #pipe.port<input 0>}) attributes {pipe.function = #pipe.function<forward, 2>} {
  nn.accumulate %loss to @loss_sum value : tensor<f32, #s>
  nn.accumulate %loss to @token_count value : tensor<f32, #s>
  return
}
func.func @backward_0(%g: tensor<4xf32, #v> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  nn.accumulate %g to @tied gradient : tensor<4xf32, #v>
  return
}
func.func @backward_1(%g: tensor<4xf32, #v> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward, 1>} {
  nn.accumulate %g to @middle gradient : tensor<4xf32, #v>
  return
}
func.func @backward_2(%g: tensor<4xf32, #v> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward, 2>} {
  nn.accumulate %g to @tied gradient : tensor<4xf32, #v>
  return
}

// CHECK-LABEL: func.func @reduce_0()
// CHECK-NEXT: %[[G:.*]] = nn.read @tied gradient
// CHECK-NEXT: %[[SUM:.*]] = dist.all_reduce %[[G]] on @mesh["pp"] sum members [0, 2] ordered :
// CHECK-NEXT: nn.write %[[SUM]] to @tied gradient
// CHECK-NEXT: return
// CHECK-LABEL: func.func @optimizer_0()
// CHECK: nn.read @tied gradient
// CHECK: nn.read @tied gradient
// CHECK: nn.write {{.*}} to @tied value
// CHECK-NOT: @middle
// CHECK-LABEL: func.func @reduce_1()
// CHECK-NOT: dist.all_reduce
// CHECK-LABEL: func.func @optimizer_1()
// CHECK-NOT: @tied
// CHECK: nn.write {{.*}} to @middle value
// CHECK-LABEL: func.func @reduce_2()
// CHECK: dist.all_reduce {{.*}} on @mesh["pp"] sum members [0, 2] ordered :
// CHECK-LABEL: func.func @optimizer_2()
// Once, for the update; the norm is the first stage's.
// CHECK-COUNT-1: nn.read @tied gradient
// CHECK-NOT: nn.read @tied gradient
// CHECK: nn.write {{.*}} to @tied value

// Every stage takes part in the sums of the loss, of the number of targets and
// of the norm. On the stages that have neither loss nor targets the first two
// add up the same zero: they look like one op computed twice, but the last stage
// waits for both. CSE must leave them alone.
// CSE-LABEL: func.func @optimizer_0()
// CSE-COUNT-3: dist.all_reduce {{.*}} on @mesh["pp"] sum ordered : tensor<f32>
// CSE-NOT: dist.all_reduce
// CSE-LABEL: func.func @reduce_1()
// CSE-LABEL: func.func @optimizer_1()
// CSE: %[[ZERO:.*]] = nn.fill 0.0
// CSE-NEXT: dist.all_reduce %[[ZERO]] on @mesh["pp"] sum ordered
// CSE-NEXT: dist.all_reduce %[[ZERO]] on @mesh["pp"] sum ordered
// CSE: dist.all_reduce {{.*}} on @mesh["pp"] sum ordered
// CSE-NOT: dist.all_reduce
// CSE-LABEL: func.func @reduce_2()
// CSE-LABEL: func.func @optimizer_2()
// CSE-COUNT-3: dist.all_reduce {{.*}} on @mesh["pp"] sum ordered
// CSE-NOT: dist.all_reduce {{.*}}"pp"

// -----

// A parameter with a compute copy has it renewed from what is written; the
// optimizer reads the master copy.
#w = #dist.sharding<@mesh, [{"tp"}]>
#loss = #dist.sharding<@mesh, []>
dist.mesh @mesh ["tp"] = [2]
nn.parameter @w : tensor<4xf32> init<mean = 0.0, std = 0.02> sharding #w
nn.accumulator @loss_sum : tensor<f32>
nn.accumulator @token_count : tensor<f32>
func.func @forward_0(%loss: tensor<f32, #loss> {pipe.port = #pipe.port<input 0>}) -> (tensor<4xbf16, #w> {pipe.port = #pipe.port<output 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  nn.accumulate %loss to @loss_sum value : tensor<f32, #loss>
  nn.accumulate %loss to @token_count value : tensor<f32, #loss>
  %w = nn.read @w compute : tensor<4xbf16, #w>
  return %w : tensor<4xbf16, #w>
}
func.func @backward_0(%dw: tensor<4xf32, #w> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  nn.accumulate %dw to @w gradient : tensor<4xf32, #w>
  return
}
// CHECK-LABEL: func.func @optimizer_0()
// CHECK-NOT: nn.read @w compute
// CHECK: nn.read @w value : tensor<2xf32>
// CHECK: %[[NEW:.*]] = nn.sub
// CHECK-NEXT: %[[COPY:.*]] = nn.cast %[[NEW]] : tensor<2xf32> -> tensor<2xbf16>
// CHECK-NEXT: nn.write %[[NEW]] to @w value
// CHECK-NEXT: nn.write %[[COPY]] to @w compute
