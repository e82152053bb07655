//===- RankPasses.td - Passes of phases partition to lower -*- tablegen -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TRANSFORMS_RANKPASSES_TD
#define PLAIT_TRANSFORMS_RANKPASSES_TD

include "mlir/Pass/PassBase.td"

//===----------------------------------------------------------------------===//
// partition: [nn+dist] -> one rank's local graph
//===----------------------------------------------------------------------===//

def PackParametersPass : Pass<"nn-pack-parameters", "::mlir::ModuleOp"> {
  let summary = "Reduce and update many parameters at once";
  let description = [{
    For each rank of `pp`: parameters whose gradients are to be reduced over the same
    axes, that the global norm counts alike, and to which the optimizer does the same
    get places side by side (`nn.pack`), so that one all-reduce, one sum of squares
    and one update do for all of them. What is done to an element stays the same; the
    squares are added up in another order, by rows of the pack. A gradient that other
    ranks of `pp` take part in reducing is alone in its pack, and a parameter whose
    value, gradient and state are not split alike is in none. One with padding, in
    which the optimizer would leave something else than zeros, is reduced and counted
    with others like it, and updated alone.

    With `zero = 1` in the configuration packs are divided over dp: their gradients
    are reduced and scattered, after which a rank counts and updates its own rows of
    the pack and gathers those of the others. Such packs have at least `bucket`
    elements but not many more, and the last layers' come first, so that they
    are reduced while the backward pass computes the others. A parameter that
    cannot be divided is packed as without.

    Phase `partition`; reads `zero` and `optimizer`. A pack says where its members
    lie; the functions still name them.

    Example:
    ```mlir
    #whole = #dist.sharding<@mesh, [{} ]>
    #partial = #dist.sharding<@mesh, [{} ], partial = {"dp"}>
    dist.mesh @mesh ["dp"] = [2]
    nn.parameter @a : tensor<40xf32> init<mean = 0.0, std = 0.02> sharding #whole
    nn.parameter @b : tensor<8xf32> init<mean = 0.0, std = 0.02> sharding #whole
    func.func @backward_0(%a: tensor<40xf32, #partial> {pipe.port = #pipe.port<residual 0>}, %b: tensor<8xf32, #partial> {pipe.port = #pipe.port<residual 1>})
        attributes {pipe.function = #pipe.function<backward, 0>} {
      nn.accumulate %a to @a gradient : tensor<40xf32, #partial>
      nn.accumulate %b to @b gradient : tensor<8xf32, #partial>
      return
    }
    ```
    becomes
    ```mlir
    nn.pack @pack0.0 rank 0 [@a, @b] at [0, 64] : tensor<1x128xf32>
    ```
  }];
  let options = [
    Option<"bucket", "bucket", "int64_t", "0",
           "least elements of a divided pack; 0: by cost">];
  let dependentDialects = ["::plait::dist::DistDialect",
                           "::plait::nn::NNDialect"];
}

def BuildOptimizerPass : Pass<"nn-build-optimizer", "::mlir::ModuleOp"> {
  let summary = "Write what happens once a step: reduction, update, gather";
  let description = [{
    Creates for each rank of `pp` `@reduce_i`, which combines the gradients of
    its replicas (and of the ranks that share a parameter), and `@optimizer_i`: mean
    loss, global norm, clipping and the update of the configuration's `optimizer`.
    Where ranks update a part each of what stages compute with in bf16, `@gather_i`
    begins a step: it rounds the rank's part and gathers all of them, unless the
    parts lie on the host. These are written for one rank's blocks, with their
    collectives, while the other functions still have the shardings that say what is
    left to be combined. What is done to the members of an `nn.pack` is written once, for all of them; fails where
    that would not be the same.

    Phase `partition`; reads `optimizer`, `offload`.

    Example:
    ```mlir
    // plait-opt --plait-configure=optimizer=sgd --nn-build-optimizer
    #whole = #dist.sharding<@mesh, [{} ]>
    #partial = #dist.sharding<@mesh, [{} ], partial = {"dp"}>
    #loss = #dist.sharding<@mesh, [], partial = {"dp"}>
    dist.mesh @mesh ["dp"] = [2]
    nn.parameter @a : tensor<40xf32> init<mean = 0.0, std = 0.02> sharding #whole
    nn.accumulator @loss_sum : tensor<f32>
    nn.accumulator @token_count : tensor<f32>
    func.func @forward_0(%loss: tensor<f32, #loss> {pipe.port = #pipe.port<input 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
      nn.accumulate %loss to @loss_sum value : tensor<f32, #loss>
      nn.accumulate %loss to @token_count value : tensor<f32, #loss>
      return
    }
    func.func @backward_0(%a: tensor<40xf32, #partial> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
      nn.accumulate %a to @a gradient : tensor<40xf32, #partial>
      return
    }
    ```
    gets
    ```mlir
    func.func @reduce_0() attributes {pipe.function = #pipe.function<reduce, 0>} {
      %0 = nn.read @a gradient : tensor<40xf32>
      %1 = dist.all_reduce %0 on @mesh["dp"] sum : tensor<40xf32> -> tensor<40xf32>
      nn.write %1 to @a gradient : tensor<40xf32>
      return
    }
    func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>} {
    …
      nn.metric … "Loss" : tensor<f32>
      nn.metric … "GradNorm" : tensor<f32>
      nn.metric … "TokenCount" : tensor<f32>
    …
      nn.write … to @a value : tensor<40xf32>
      nn.write … to @a momentum : tensor<40xf32>
    ```
  }];
  let dependentDialects = ["::plait::dist::DistDialect",
                           "::plait::pipe::PipeDialect"];
}

def PartitionPass : Pass<"dist-partition", "::mlir::ModuleOp"> {
  let summary = "Turn global tensors into one rank's blocks";
  let description = [{
    Reshards become the cheapest sequence of collectives, types those of one
    rank's block. Where a dimension is split unevenly, what ops leave in its
    padding is derived from what they compute (plait/Interfaces/Padding.h), and
    `nn.mask_padding` makes it zero, or minus infinity for a maximum, where that is
    not proven and it would count. A dimension may be split over one axis of more
    than one rank.

    Phase `partition`; reads shardings, and nothing of the configuration. Leaves
    none.

    Example:
    ```mlir
    #columns = #dist.sharding<@mesh, [{}, {"tp"} ]>
    #rows = #dist.sharding<@mesh, [{"tp"}, {} ]>
    #partial = #dist.sharding<@mesh, [{}, {} ], partial = {"tp"}>
    #whole = #dist.sharding<@mesh, [{}, {} ]>
    dist.mesh @mesh ["tp"] = [2]
    func.func @forward_0(%x: tensor<4x8xf32, #columns>, %w: tensor<8x4xf32, #rows>) -> tensor<4x4xf32, #whole> {
      %0 = nn.matmul %x, %w "bf,fh->bh" : (tensor<4x8xf32, #columns>, tensor<8x4xf32, #rows>) -> tensor<4x4xf32, #partial>
      %1 = dist.reshard %0 : tensor<4x4xf32, #partial> -> tensor<4x4xf32, #whole>
      return %1 : tensor<4x4xf32, #whole>
    }
    ```
    becomes
    ```mlir
    func.func @forward_0(%arg0: tensor<4x4xf32>, %arg1: tensor<4x4xf32>) -> tensor<4x4xf32> {
      %0 = nn.matmul %arg0, %arg1 "bf,fh->bh" : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
      %1 = dist.all_reduce %0 on @mesh["tp"] sum : tensor<4x4xf32> -> tensor<4x4xf32>
      return %1 : tensor<4x4xf32>
    }
    ```
  }];
}

def ChunkLossPass : Pass<"nn-chunk-loss", "::mlir::ModuleOp"> {
  let summary = "Compute logits, loss and their gradients in chunks of rows";
  let description = [{
    Logits are what a matmul makes, from which the loss follows without another one,
    and their gradient what ends in matmuls again. All that lies between, and has a
    dimension that the first of these matmuls adds, is computed for some rows at a
    time, `loss_chunks` times one after the other: so neither all logits nor their
    whole gradient are in memory at once. What has rows (the loss of each, the gradient of what the
    first matmul reads) is put together by `nn.concat`; what has none (the gradient
    of weights) is added up, the one chunk behind the other.

    Rows are cut along their first dimension of more than one element, into as many
    chunks as are asked for, or the next smaller number that divides it. Nothing is
    found by its name: a remark says what is cut, or why nothing is.

    Before that the experts of each layer are computed in as many chunks of tokens as
    the module's `plait.expert_chunks` says: grouped matmuls, what lies between
    them, what ranks gather for them and scatter of them. What cannot be is an error.

    Phase `partition`; reads `loss_chunks`, which `nn-differentiate` has read before
    to have the gradients of the weights computed in the forward pass, and
    `plait.expert_chunks`, which `nn-checkpoint` has read before to have rows of
    experts computed again in the backward pass.

    Example:
    ```mlir
    // plait-opt --plait-configure=loss-chunks=2 --nn-chunk-loss
    nn.accumulator @loss_sum : tensor<f32>
    func.func @forward_0(%x: tensor<4x2xf32>, %w: tensor<2x8xf32>) {
      %0 = nn.matmul %x, %w "bh,hv->bv" : (tensor<4x2xf32>, tensor<2x8xf32>) -> tensor<4x8xf32>
      %1 = nn.exp %0 : tensor<4x8xf32>
      %2 = nn.reduce sum %1 dims [1] : tensor<4x8xf32> -> tensor<4xf32>
      %3 = nn.reduce sum %2 dims [0] : tensor<4xf32> -> tensor<f32>
      nn.accumulate %3 to @loss_sum value : tensor<f32>
      return
    }
    ```
    becomes
    ```mlir
    %0 = nn.chunk %arg0 dim 0 part 0 of 2 : tensor<4x2xf32> -> tensor<2x2xf32>
    %1 = nn.matmul %0, %arg1 "bh,hv->bv" : (tensor<2x2xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
    %2 = nn.exp %1 : tensor<2x8xf32>
    %3 = nn.reduce sum %2 dims [1] : tensor<2x8xf32> -> tensor<2xf32>
    %4 = nn.chunk %arg0 dim 0 part 1 of 2 : tensor<4x2xf32> -> tensor<2x2xf32>
    %5 = nn.matmul %4, %arg1 "bh,hv->bv" : (tensor<2x2xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
    %6 = nn.exp %5 : tensor<2x8xf32>
    %7 = nn.reduce sum %6 dims [1] : tensor<2x8xf32> -> tensor<2xf32>
    %8 = nn.concat %3, %7 dim 0 : (tensor<2xf32>, tensor<2xf32>) -> tensor<4xf32>
    ```
  }];
}

//===----------------------------------------------------------------------===//
// schedule, lower
//===----------------------------------------------------------------------===//

def SchedulePass : Pass<"pipe-schedule", "::mlir::ModuleOp"> {
  let summary = "Order the work of every rank";
  let description = [{
    Adds a verified `pipe.schedule` for the module's placement of stages: the
    `schedule` of the configuration, for the microbatches that fill its global
    batch.

    A `pipe.schedule` that is there already was given, and is completed: transfers
    are added where it has none, and where some backward passes are split, all are.

    Phase `schedule`; reads `schedule`, `global_batch` and `micro_batch`.

    Example:
    ```mlir
    // plait-opt --plait-configure="schedule=gpipe global-batch=2" --pipe-schedule
    dist.mesh @mesh ["pp"] = [2]
    ```
    gets
    ```mlir
    pipe.schedule @schedule "gpipe" on <looped, ranks = 2, chunks = 1> microbatches 2 ["F0 SEND_F0 F1 …", "RECV_F0 F0 RECV_F1 F1 B0 SEND_B0 B1 …"]
    ```
  }];
  let dependentDialects = ["::plait::pipe::PipeDialect"];
}

def FuseEpiloguesPass : Pass<"nn-fuse-epilogues", "::mlir::ModuleOp"> {
  let summary = "Let matmuls add biases and take GELU";
  let description = [{
    An `nn.matmul` that is one matmul of two matrices, and the `nn.add` of a
    bias to its result, become an `nn.fused_matmul`; so do an `nn.gelu` of
    either, and a matmul and the `nn.gelu_grad` of its result. That is with
    `epilogues = all` in the configuration; with `bias`, biases alone; with
    `none`, nothing. A sum that others read as well is left
    alone, unless it is what GELU is taken of; so are GELU in its exact form, and
    GELU of rows that are no multiple of 8 elements long, since cuBLASLt computes
    neither.

    Phase `lower`; reads `epilogues`.

    Example:
    ```mlir
    // plait-opt --plait-configure=epilogues=all --nn-fuse-epilogues
    func.func @forward_0(%x: tensor<8x4xf32>, %w: tensor<4x16xf32>, %b: tensor<16xf32>) -> tensor<8x16xf32> {
      %0 = nn.matmul %x, %w "bh,hf->bf" : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
      %1 = nn.broadcast %b dims [1] : tensor<16xf32> -> tensor<8x16xf32>
      %2 = nn.add %0, %1 : tensor<8x16xf32>
      %3 = nn.gelu %2 tanh : tensor<8x16xf32>
      return %3 : tensor<8x16xf32>
    }
    ```
    becomes
    ```mlir
    %result = nn.fused_matmul %arg0, %arg1 "bh,hf->bf" bias %arg2 gelu : (tensor<8x4xf32>, tensor<4x16xf32>, tensor<16xf32>) -> tensor<8x16xf32>
    ```
  }];
  let dependentDialects = ["::plait::nn::NNDialect"];
}

def FuseSumsPass : Pass<"nn-fuse-sums", "::mlir::ModuleOp"> {
  let summary = "Let matmuls add to matmuls";
  let description = [{
    Where an `nn.add` adds up the results of two contractions that nobody else
    reads, and the later one is an `nn.matmul` of two matrices, that becomes an
    `nn.fused_matmul` which adds to the other. Contractions and scatters that a
    gradient gets the sum of, and that nobody else reads, are added to it one by
    one: each adds where the gradient lies. A sum that is stored as something else
    that outlives the function is left alone; so are sums of what is wider than the
    operands.

    Phase `lower`; reads nothing of the configuration.

    Example:
    ```mlir
    func.func @backward_0(%x: tensor<8x4xf32>, %y: tensor<8x4xf32>, %w: tensor<4x16xf32>) -> tensor<8x16xf32> {
      %0 = nn.matmul %x, %w "ah,hf->af" : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
      %1 = nn.matmul %y, %w "ah,hf->af" : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
      %2 = nn.add %0, %1 : tensor<8x16xf32>
      return %2 : tensor<8x16xf32>
    }
    ```
    becomes
    ```mlir
    %0 = nn.matmul %arg0, %arg2 "ah,hf->af" : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
    %result = nn.fused_matmul %arg1, %arg2 "ah,hf->af" add %0 : (tensor<8x4xf32>, tensor<4x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
    ```
  }];
  let dependentDialects = ["::plait::nn::NNDialect"];
}

def FormClustersPass : Pass<"plan-form-clusters", "::mlir::ModuleOp"> {
  let summary = "Group fusable ops into kernels";
  let description = [{
    Puts every fusable op of every function into a `plan.cluster`. Column
    reductions take along the elementwise work they read, unless it is needed
    elsewhere; ops over the same rows share a cluster where that makes no
    cycle. A gradient that a cluster computes is added to its accumulator by the
    same kernel. A scatter whose rows are added to what a matmul has made, for
    that alone, adds them there: a table and its gradients are not written again
    for the few rows that tokens name. On GPUs column reductions of few columns are in two steps, the
    rows of each sequence and then the sequences, to have enough threads.

    Phase `lower`; reads nothing of the configuration.

    Example:
    ```mlir
    func.func @forward_0(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
      %0 = nn.sigmoid %x : tensor<4x8xf32>
      %1 = nn.mul %x, %0 : tensor<4x8xf32>
      return %1 : tensor<4x8xf32>
    }
    ```
    becomes
    ```mlir
    %0 = plan.cluster(%arg0) : (tensor<4x8xf32>) -> tensor<4x8xf32> {
    ^bb0(%arg1: tensor<4x8xf32>):
      %1 = nn.sigmoid %arg1 : tensor<4x8xf32>
      %2 = nn.mul %arg1, %1 : tensor<4x8xf32>
      plan.yield %2 : tensor<4x8xf32>
    }
    ```
  }];
  let dependentDialects = ["::plait::plan::PlanDialect"];
}

def InsertMovesPass : Pass<"plan-insert-moves", "::mlir::ModuleOp"> {
  let summary = "Fetch what lies on the host, and put it there";
  let description = [{
    With `offload` of `activations`, every residual lies in the host's memory: the
    function that makes one moves it there at once, and one that takes it moves it
    from there. With `optimizer`, so does what only the optimizer's function reads
    and writes of what outlives a step: moments, and values where something else is
    computed with.

    Moves from the host stand one user ahead: where the user of what was fetched
    before begins, so that the two go on side by side.

    Phase `lower`; reads `offload`.

    Example:
    ```mlir
    // plait-opt --plait-configure=offload=optimizer --plan-insert-moves
    nn.parameter @w : tensor<4x8xf32> init <mean = 0.0, std = 0.02>
    func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>} {
      %m = nn.read @w moment1 : tensor<4x8xf32>
      %0 = plan.cluster(%m) : (tensor<4x8xf32>) -> tensor<4x8xf32> {
      ^bb0(%x: tensor<4x8xf32>):
        %1 = nn.add %x, %x : tensor<4x8xf32>
        plan.yield %1 : tensor<4x8xf32>
      }
      nn.write %0 to @w moment1 : tensor<4x8xf32>
      return
    }
    ```
    becomes
    ```mlir
    %0 = nn.read @w moment1 : tensor<4x8xf32>
    %1 = plan.move from_host %0 : tensor<4x8xf32>
    %2 = plan.cluster(%1) : (tensor<4x8xf32>) -> tensor<4x8xf32> {
    ^bb0(%arg0: tensor<4x8xf32>):
      %4 = nn.add %arg0, %arg0 : tensor<4x8xf32>
      plan.yield %4 : tensor<4x8xf32>
    }
    %3 = plan.move to_host %2 : tensor<4x8xf32>
    nn.write %3 to @w moment1 : tensor<4x8xf32>
    ```
  }];
  let dependentDialects = ["::plait::plan::PlanDialect"];
}

def PlaceBuffersPass : Pass<"plan-place-buffers", "::mlir::ModuleOp"> {
  let summary = "Give every value an address and write the programs";
  let description = [{
    Places the values of each function in its workspace, and what lives across
    actions (parameters, gradients, moments, residuals, transfers) in the arena,
    by lifetime over the schedule, largest first. Adds one `plan.program` per
    rank of `pp`.

    Before that, ops of backward passes are moved where the workspace holds no more
    at once for it. What is gathered for gradients of weights alone begins behind the
    collective before it. Matmuls that are such gradients go behind collectives that
    last longer than what is computed beside them, at the cluster's rates: the newest
    ones first, and one of which two collectives need a part behind the second.

    Phase `lower`; reads the `pipe.schedule` and the cluster, and nothing of the
    configuration.

    Example:
    ```mlir
    nn.parameter @w : tensor<16x16xf32> init<mean = 0.0, std = 0.02>
    func.func @forward_0() attributes {pipe.function = #pipe.function<forward, 0>} {
      %w = nn.read @w value : tensor<16x16xf32>
      %0 = nn.matmul %w, %w "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
      return
    }
    func.func @backward_0() attributes {pipe.function = #pipe.function<backward, 0>} { return }
    func.func @reduce_0() attributes {pipe.function = #pipe.function<reduce, 0>} { return }
    func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>} { return }
    pipe.schedule @schedule "1f1b" on <looped, ranks = 1, chunks = 1> microbatches 1 ["F0 B0 REDUCE OPTIMIZER"]
    ```
    becomes
    ```mlir
    func.func @forward_0() attributes {… plan.slot_bytes = array<i64: 1024>, plan.slot_names = ["workspace"]} {
      %0 = nn.read @w value {plan.places = [#plan.place<@"w value", 0>]} : tensor<16x16xf32>
      %1 = nn.matmul %0, %0 "ab,bc->ac" {plan.places = [#plan.place<slot 0, 0>]} : …
    …
    plan.program @rank0 rank 0 bytes … {
      plan.buffer @"workspace of action 0" workspace at 0 bytes 1024 live [0, 0]
    …
      plan.buffer @"w value" parameters at 1024 bytes 1024 live [0, 3]
    …
      plan.action forward stage 0 microbatch 0 call @forward_0 [@"workspace of action 0"]
    ```
  }];
  let dependentDialects = ["::plait::plan::PlanDialect"];
}

#endif // PLAIT_TRANSFORMS_RANKPASSES_TD
