//===- Passes.td - All passes, in the order of the phases ---*- tablegen -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TRANSFORMS_PASSES_TD
#define PLAIT_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

//===----------------------------------------------------------------------===//
// What a module is compiled for. A pass that needs to know asks the module: no
// option repeats a field of its configuration.
//===----------------------------------------------------------------------===//

def ConfigurePass : Pass<"plait-configure", "::mlir::ModuleOp"> {
  let summary = "Set fields of the module's configuration";
  let description = [{
    Has one option for each field of `#plait.configuration`, under the name that
    plaitc's option has: `--plait-configure="schedule=gpipe layers=2,1"`. Fields
    that are not given stay as they are. Fails where a value is none of its
    field.
  }];
  let dependentDialects = ["::plait::PlaitDialect"];
}

def BeginPhasePass : Pass<"plait-begin-phase", "::mlir::ModuleOp"> {
  let summary = "Check what a phase relies on";
  let description = [{
    Fails unless the phase before `phase` is the last that is complete
    (`plait.phase`), and unless the module is what `plait-verify-phase` expects
    of that. Reads `plait.origin` into the locations of ops.
  }];
  let options = [Option<"phase", "phase", "std::string", "\"shard\"",
                        "the phase that begins">];
}

def VerifyPhasePass : Pass<"plait-verify-phase", "::mlir::ModuleOp"> {
  let summary = "Check that a module is what its phase leaves";
  let description = [{
    Changes nothing. Verifies of the phase that `plait.phase` names what the next
    one relies on and no operation's verifier sees, in particular of IR that was
    written by hand:

    - (P1) after `import`: (L1) to (L4) of the `nn` dialect hold, for the
      vocabulary that `plait.model` names: `@loss` trains what is meant; and
      every value of the configuration can be executed.
    - (P2) after `shard`: there is a mesh, and every tensor in `@loss` has a
      sharding.
    - (P3) after `stage` up to `lower`: each virtual stage of the placement has
      the functions that its phase makes: forward; joint; forward and backward
      (or backward_input and backward_weight). The placement is for the mesh.
    - (P4) after `partition`: no tensor has a sharding, and each rank has the
      functions reduce and optimizer.
    - (P5) after `schedule`: there is one `pipe.schedule`, for the module's
      placement and as many microbatches as the configuration says.
    - (P6) after `lower`: each rank of the pipeline has a `plan.program`.
    - (P7) after `steps`: programs call functions of steps, each its own, bind as many
      bytes as their slots have, and have the buffers that the steps name.
  }];
}

def EndPhasePass : Pass<"plait-end-phase", "::mlir::ModuleOp"> {
  let summary = "Say that a phase is complete";
  let description = [{
    Sets `plait.phase`. With `keep-origins`, also `plait.origin` of ops with a
    name in their location, for IR that is to be written.
  }];
  let options = [Option<"phase", "phase", "std::string", "\"shard\"",
                        "the phase that is complete">,
                 Option<"keepOrigins", "keep-origins", "bool", "true",
                        "write names of locations as attributes">];
  let dependentDialects = ["::plait::PlaitDialect"];
}

//===----------------------------------------------------------------------===//
// shard: [nn] -> [nn+dist]
//===----------------------------------------------------------------------===//

def CountModelFlopsPass : Pass<"nn-count-model-flops", "::mlir::ModuleOp"> {
  let summary = "Say what the model needs for a microbatch";
  let description = [{
    Sets `plait.model_flops` of the module to the FLOPs of the matmuls
    and attentions of `@loss`, forward and backward: what counts towards
    utilisation, whatever is computed again later.
  }];
  let dependentDialects = ["::plait::PlaitDialect"];
}

def DecomposePass : Pass<"nn-decompose", "::mlir::ModuleOp"> {
  let summary = "Replace named ops by what they are made of";
  let description = [{
    With `early`, takes apart the ops that must be before sharding (softmax
    cross-entropy); without, all that can be: layer normalisation, attention,
    rotary embeddings, activations. Everything else is left alone.

    Whether attention stays whole, as one step of a library, is the `attention`
    of the configuration: with `flash` it does, and fails at an op that the
    module's target does not compute so; with `auto` it does on GPUs that compute
    all of the module's so.
  }];
  let options = [Option<"early", "early", "bool", "false",
                        "only what must be taken apart before sharding">];
}

def LowerPrecisionPass : Pass<"nn-lower-precision", "::mlir::ModuleOp"> {
  let summary = "Compute the loss function in bf16";
  let description = [{
    Does nothing unless the module's configuration says bf16. Reads of parameters become reads of their compute copies, and the first
    result of every op that computes becomes bf16. Other results are statistics
    for the backward pass (means, logarithms of sums) and stay f32, as do loss
    and count: `nn.softmax_cross_entropy` takes bf16 logits. A function that
    reads compute copies already is left alone.
  }];
  let dependentDialects = ["::plait::nn::NNDialect"];
}

def AssignShardingsPass : Pass<"dist-assign-shardings", "::mlir::ModuleOp"> {
  let summary = "Give every value of the loss function a sharding";
  let description = [{
    Requires a `dist.mesh` and plain types. The first dimension of the
    function's arguments, the batch, is split over `dp`, the second one, the
    sequence, over `cp`, and so is everything that moves with them. An op whose
    work is uneven along the sequence, as attention's is, has of what it cannot
    split the whole: keys and values are gathered. With `context_parallel = heads`
    in the configuration `cp` splits the heads of such an op in its place, the
    first of its factors that have to be split evenly and that `cp` divides
    inside of `tp`; it is an error if there is none. On the axis `tp` an exact solver picks for each op the
    factor that is split, so that communication, memory and repeated work
    together are least, at the rates of the module's cluster (`#plait.rates`);
    layers that are alike get the same answer. A parameter
    with a `sharding` keeps it. With `sequence_parallel` in the configuration,
    `tp` may also split the other dimensions of the function's arguments: the
    sequence. Afterwards all types of the function carry shardings, and `dist.reshard` stands where
    two ops want different ones.

    A parameter may have a sharding over other axes than `tp`, too: it is gathered
    for each layer that reads it. With `zero = 3` in the configuration the pass splits parameters over
    `dp` in this way, each along the first dimension that then has equal blocks;
    with 2 parameters are whole and their `state` is split so. One that has no
    such dimension stays as it is.
  }];
  let dependentDialects = ["::plait::dist::DistDialect"];
}

//===----------------------------------------------------------------------===//
// stage, differentiate, checkpoint
//===----------------------------------------------------------------------===//

def AssignStagesPass : Pass<"pipe-assign-stages", "::mlir::ModuleOp"> {
  let summary = "Cut the loss function into stages of equal cost";
  let description = [{
    Places `chunks` virtual stages on each rank of `pp`, as the schedule wants
    them (`pipe.placement`), and gives every op of `@loss` the attribute
    `pipe.stage`. Cuts lie between layers (`nn.layer`), ops before
    the first layer belong to the first stage and those after the last to the
    last, and the most expensive rank is as cheap as it can be (as the planner
    cuts, by FLOPs in place of seconds), unless `layers` of the configuration
    says how many each stage has. Reads of parameters belong to no stage.
  }];
  let dependentDialects = ["::plait::pipe::PipeDialect"];
}

def OutlineStagesPass : Pass<"pipe-outline-stages", "::mlir::ModuleOp"> {
  let summary = "Make one forward function per stage";
  let description = [{
    Replaces `@loss` by `@forward_0`, `@forward_1`, …. A value that a later
    stage uses is passed on from stage to stage. The last stage adds the loss
    and the number of targets to the accumulators `@loss_sum` and
    `@token_count`. Arguments and results are ports: `#pipe.port<tokens>`,
    `<targets>`, `<input 0>`, `<output 0>`.
  }];
  let dependentDialects = ["::plait::nn::NNDialect",
                           "::plait::pipe::PipeDialect"];
}

def DifferentiatePass : Pass<"nn-differentiate", "::mlir::ModuleOp"> {
  let summary = "Append the backward pass to every forward function";
  let description = [{
    Each `@forward_i` becomes `@joint_i`: it also takes the gradients of its
    outputs (`#pipe.port<output_gradient 0>`), accumulates the gradients of the
    parameters it reads and returns those of its inputs
    (`#pipe.port<input_gradient 0>`). Values that no parameter's
    gradient depends on have none. Ops of the backward pass carry `nn.backward`;
    comparisons of forward values that a gradient selects by do not, they belong
    to the forward pass. A gradient takes its primal's sharding.
  }];
  let dependentDialects = ["::plait::pipe::PipeDialect"];
}

def CheckpointPass : Pass<"nn-checkpoint", "::mlir::ModuleOp"> {
  let summary = "Choose which values the backward pass computes again";
  let description = [{
    By `recompute` of the configuration. With `none`, the backward pass uses the
    forward pass's values. With `full`, those that a layer computes are computed
    again from the layer's inputs just before the layer's backward pass. With
    `selective`, of what a layer computes the cheap part is computed again where
    it is needed: ops of at most 256 operations a byte of their results, and of
    these the ones with which the fewest bytes are kept, a minimum cut. Values
    that cost nothing (reads of parameters, constants) are always computed again,
    comparisons never: another rounding would decide them otherwise.
  }];
}

def SplitPhasesPass : Pass<"pipe-split-phases", "::mlir::ModuleOp"> {
  let summary = "Split joint functions into forward and backward";
  let description = [{
    `@joint_i` becomes `@forward_i` and `@backward_i`. What the backward pass
    needs of the forward pass is returned by the one and taken by the other as
    the same port (`#pipe.port<residual 0>`).

    With a schedule that orders them separately, `@backward_i` becomes `@backward_input_i`, what the previous
    stage waits for, and `@backward_weight_i`: the matmuls of weight
    gradients, and what leads to and from them alone and makes less to keep.
  }];
  let dependentDialects = ["::plait::pipe::PipeDialect"];
}

def MergeResidualsPass : Pass<"pipe-merge-residuals", "::mlir::ModuleOp"> {
  let summary = "Keep a value once for later functions of its stage";
  let description = [{
    Where a function returns one value as several residuals, or as a residual and
    an output, the functions that take them take one.
  }];
}

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
  }];
  let options = [
    Option<"bucket", "bucket", "int64_t", "0",
           "least elements of a divided pack; 0: by cost">];
  let dependentDialects = ["::plait::dist::DistDialect",
                           "::plait::nn::NNDialect"];
}

def BuildOptimizerPass : Pass<"nn-build-optimizer", "::mlir::ModuleOp"> {
  let summary = "Write the end of a step: reduction, clipping, update";
  let description = [{
    Creates for each rank of `pp` `@reduce_i`, which combines the gradients of
    its replicas (and of the ranks that share a parameter), and `@optimizer_i`: mean
    loss, global norm, clipping and the update of the configuration's `optimizer`.
    Both are written for one rank's blocks, with their collectives, while the other
    functions still have the shardings that say what is left to be combined. What is
    done to the members of an `nn.pack` is written once, for all of them; fails where
    that would not be the same.
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
  }];
  let dependentDialects = ["::plait::nn::NNDialect"];
}

def FuseSumsPass : Pass<"nn-fuse-sums", "::mlir::ModuleOp"> {
  let summary = "Let matmuls add to matmuls";
  let description = [{
    Where an `nn.add` adds up the results of two contractions that nobody else
    reads, and the later one is an `nn.matmul` of two matrices, that becomes an
    `nn.fused_matmul` which adds to the other. A sum that is added to a gradient,
    or stored as something else that outlives the function, is left alone: so are
    sums of what is wider than the operands.
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
    same kernel.
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
  }];
  let dependentDialects = ["::plait::plan::PlanDialect"];
}

def LowerToStepsPass : Pass<"plan-lower-to-steps", "::mlir::ModuleOp"> {
  let summary = "Turn functions into lists of steps";
  let description = [{
    Each function that a program calls becomes a `plan.function`: clusters become
    `plan.kernel`, contractions one or more `plan.gemm`, attentions that are whole
    `plan.attention`, collectives `plan.collective`, tables `plan.constant`. What
    only said where a value lies is gone. Values must have been placed. For GPUs,
    each program's arena gets a buffer for libraries.

    Example:
    ```mlir
    func.func @forward_0() attributes {plan.slot_bytes = array<i64: 128>, plan.slot_names = ["workspace"]} {
      %0 = nn.read @w value {plan.places = [#plan.place<"w value", 0>]} : tensor<4x6xf32>
      %1 = nn.matmul %0, %0 "ab,cb->ac" {plan.places = [#plan.place<"slot 0", 0>]} : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x4xf32>
      return
    }
    plan.program @rank0 rank 0 bytes 256 in_flight 1 {
      plan.buffer @"w value" parameters at 0 bytes 96 live [0, 0]
      plan.buffer @workspace workspace at 128 bytes 128 live [0, 0]
      plan.action forward stage 0 microbatch 0 call @forward_0 [@workspace]
    }
    ```
  }];
  let dependentDialects = ["::plait::plan::PlanDialect"];
}

def OverlapCollectivesPass
    : Pass<"plan-overlap-collectives", "::mlir::ModuleOp"> {
  let summary = "Put GEMMs beside collectives that nothing would hide";
  let description = [{
    Moves GEMMs up to where a collective would leave a GPU idle: between it and
    the first step that needs its result, as many as a device computes while it
    lasts, at the rates of the module's cluster (`#plait.rates`). A GEMM is moved over other steps only
    where neither uses bytes that the other writes, so that all results are the
    same bits, and no other step is moved, so that collectives stay in their order.
    In the backward pass of tensor parallelism this puts GEMMs for weight gradients
    beside the sums of input gradients. A processor has no streams, and nothing
    happens.

    Example:
    ```mlir
    plan.function @backward_0 slots ["workspace"] bytes [128] {
      plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 4 <slot 0, 0, 16> -> <slot 0, 0, 16>
      plan.gemm m 1 n 4 k 1 of f32 a <slot 0, 0, 4> strides [1, 1] b <slot 0, 0, 16> strides [4, 1] c <slot 0, 16, 16> strides [4] of f32
      plan.gemm m 1 n 4 k 1 of f32 a <slot 0, 32, 4> strides [1, 1] b <slot 0, 48, 16> strides [4, 1] c <slot 0, 64, 16> strides [4] of f32
    }
    ```
  }];
}

def BucketReductionsPass
    : Pass<"plan-bucket-reductions", "::mlir::ModuleOp"> {
  let summary = "Reduce gradients in the order in which they are computed";
  let description = [{
    Cuts every all-reduce of gradients, in place and in a function that only one
    `reduce` action calls, into buckets of `bucket` elements or up to twice as many,
    and puts those first whose last element is written first. A GPU executes
    collectives on streams of their own, a processor those over dp on a thread of
    their own, each as soon as what it reads is there: so the buckets of the last
    layers are reduced while the backward pass computes the gradients of the layers
    before them.

    All-reduces change places only within a run of neighbours over the same ranks,
    the same on all ranks of a program; over `pp`, which programs have in common,
    they stay. Each element is still the sum of the same numbers. On a processor
    nothing happens to other sums than those over dp.

    Example:
    ```mlir
    plan.function @reduce_0 slots ["workspace"] bytes [0] {
      plan.collective all_reduce reduction sum on "dp" of f32 outer 1 middle 1 chunk 128 <@gradients, 0, 512> -> <@gradients, 0, 512>
    }
    ```
  }];
  let options = [
    Option<"bucket", "bucket", "int64_t", "0",
           "least elements of a bucket; 0: by cost">];
}

#endif // PLAIT_TRANSFORMS_PASSES_TD
