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
// import: [nn]
//===----------------------------------------------------------------------===//

def VerifyModelPass : Pass<"nn-verify-model", "::mlir::ModuleOp"> {
  let summary = "Refuse a loss function that is none";
  let description = [{
    Verifies of `@loss` what the passes after it rely on, and what would
    otherwise train something else than is meant: (L1) to (L3) of the `nn`
    dialect, for the vocabulary that the attribute `plait.model` of the module
    names.
  }];
}

//===----------------------------------------------------------------------===//
// shard: [nn] -> [nn+dist]
//===----------------------------------------------------------------------===//

def DecomposePass : Pass<"nn-decompose", "::mlir::ModuleOp"> {
  let summary = "Replace named ops by what they are made of";
  let description = [{
    With `early`, takes apart the ops that must be before sharding (softmax
    cross-entropy); without, all that can be: layer normalisation, attention,
    rotary embeddings, activations. Everything else is left alone, and so are
    the ops named by `keep`.
  }];
  let options = [Option<"early", "early", "bool", "false",
                        "only what must be taken apart before sharding">,
                 ListOption<"keep", "keep", "std::string",
                            "ops that are left alone, as \"nn.attention\"">];
}

def LowerPrecisionPass : Pass<"nn-lower-precision", "::mlir::ModuleOp"> {
  let summary = "Compute the loss function in bf16";
  let description = [{
    Reads of parameters become reads of their compute copies, and the first
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
    function's arguments, the batch, is split over `dp`, and so is everything
    that moves with it. On the axis `tp` an exact solver picks for each op the
    factor that is split, so that communication, memory and repeated work
    together are least; layers that are alike get the same answer. A parameter
    with a `sharding` keeps it. With `sequence-parallel`, `tp` may also split
    the other dimensions of the function's arguments: the sequence. Afterwards
    all types of the function carry shardings, and `dist.reshard` stands where
    two ops want different ones.

    A parameter may have a sharding over other axes than `tp`, too: it is gathered
    for each layer that reads it. With `zero` 3 the pass splits parameters over
    `dp` in this way, each along the first dimension that then has equal blocks;
    with 2 parameters are whole and their `state` is split so. One that has no
    such dimension stays as it is.
  }];
  let options = [Option<"sequenceParallel", "sequence-parallel", "bool",
                        "false", "let tp split the sequence as well">,
                 Option<"zero", "zero", "unsigned", "0",
                        "ZeRO stage: 3 splits parameters over dp as well, 2 "
                        "their gradients and optimizer state">];
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
    cuts, by FLOPs in place of seconds), unless `layers` says how many each stage
    has. Reads of parameters belong to no stage.
  }];
  let options = [
    ListOption<"layers", "layers", "int64_t",
               "layers of each virtual stage, from the first">,
    Option<"schedule", "schedule", "std::string", "\"1f1b\"",
           "a schedule's name">,
    Option<"chunks", "chunks", "unsigned", "0",
           "virtual stages of a rank; 0: as few as the schedule orders">];
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
    With `none`, the backward pass uses the forward pass's values. With `full`,
    those that a layer computes are computed again from the layer's inputs just
    before the layer's backward pass. Values that cost nothing (reads of
    parameters, constants) are always computed again, comparisons never: another
    rounding would decide them otherwise.
  }];
  let options = [Option<"recompute", "recompute", "std::string", "\"none\"",
                        "none or full">];
}

def SplitPhasesPass : Pass<"pipe-split-phases", "::mlir::ModuleOp"> {
  let summary = "Split joint functions into forward and backward";
  let description = [{
    `@joint_i` becomes `@forward_i` and `@backward_i`. What the backward pass
    needs of the forward pass is returned by the one and taken by the other as
    the same port (`#pipe.port<residual 0>`).

    With `weights`, `@backward_i` becomes `@backward_input_i`, what the previous
    stage waits for, and `@backward_weight_i`: the matrix products of weight
    gradients, and what leads to and from them alone and makes less to keep.
  }];
  let options = [Option<"splitWeights", "weights", "bool", "false",
                        "delay weight gradients">];
  let dependentDialects = ["::plait::pipe::PipeDialect"];
}

def MergeResidualsPass : Pass<"pipe-merge-residuals", "::mlir::ModuleOp"> {
  let summary = "Keep a value once for later functions of its stage";
  let description = [{
    Where a function returns one value as several residuals, or as a residual and
    an output, the functions that take them take one.
  }];
}

def BuildOptimizerPass : Pass<"nn-build-optimizer", "::mlir::ModuleOp"> {
  let summary = "Write the end of a step: reduction, clipping, AdamW";
  let description = [{
    Creates for each rank of `pp` `@reduce_i`, which combines the gradients of
    its replicas (and of the ranks that share a parameter), and `@optimizer_i`: mean
    loss, global norm, clipping and AdamW with decoupled decay (Loshchilov and
    Hutter 2019), on the rank's part of each parameter.
  }];
  let dependentDialects = ["::plait::pipe::PipeDialect"];
}

//===----------------------------------------------------------------------===//
// partition: [nn+dist] -> one rank's local graph
//===----------------------------------------------------------------------===//

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
    Adds a verified `pipe.schedule` for the module's placement of stages.
  }];
  let options = [
    Option<"kind", "kind", "std::string", "\"1f1b\"", "a schedule's name">,
    Option<"microbatches", "microbatches", "unsigned", "1",
           "microbatches of a step">,
  ];
  let dependentDialects = ["::plait::pipe::PipeDialect"];
}

def FuseEpiloguesPass : Pass<"nn-fuse-epilogues", "::mlir::ModuleOp"> {
  let summary = "Let products add biases and take GELU";
  let description = [{
    An `nn.matmul` that is one product of two matrices, and the `nn.add` of a
    bias to its result, become an `nn.fused_matmul`; so do an `nn.gelu` of
    either, and a product and the `nn.gelu_grad` of its result. With `bias`,
    biases alone; with `none`, nothing. A sum that others read as well is left
    alone, unless it is what GELU is taken of; so are GELU in its exact form, and
    GELU of rows that are no multiple of 8 elements long, since cuBLASLt computes
    neither.
  }];
  let options = [Option<"kinds", "kinds", "std::string", "\"all\"",
                        "none, bias or all">];
  let dependentDialects = ["::plait::nn::NNDialect"];
}

def PackParametersPass : Pass<"nn-pack-parameters", "::mlir::ModuleOp"> {
  let summary = "Reduce and update many parameters at once";
  let description = [{
    For each rank of `pp`: parameters whose gradients `@reduce_i` reduces alike, which
    the global norm counts alike, and to which `@optimizer_i` does the same
    element by element, get places side by side (`nn.pack`), and one all-reduce,
    one sum of squares and one update take the place of theirs. What is done to
    an element stays the same; the squares are added up in another order, by
    rows of the pack. A gradient that other ranks of `pp` take part in reducing is
    alone in its pack, and a parameter whose gradient is reduced by anything but
    all-reduces is left alone. An update that depends on where an element is in
    its parameter (it masks padding) stays as it is.

    With `zero` packs are divided over dp: the all-reduce over dp becomes a
    reduce-scatter, after which a rank counts and updates its own rows of the
    pack and gathers those of the others. Such packs have at least `bucket`
    elements but not many more, and the last layers' come first, so that they
    are reduced while the backward pass computes the others. A parameter that
    cannot be divided is packed as without.
  }];
  let options = [
    Option<"zero", "zero", "unsigned", "0",
           "1: divide the optimizer's state over dp">,
    Option<"bucket", "bucket", "int64_t", "0",
           "least elements of a divided pack; 0: what rings over dp want">];
  let dependentDialects = ["::plait::dist::DistDialect",
                           "::plait::nn::NNDialect"];
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

#endif // PLAIT_TRANSFORMS_PASSES_TD
