//===- ModelPasses.td - Passes up to phase checkpoint ---*- tablegen -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TRANSFORMS_MODELPASSES_TD
#define PLAIT_TRANSFORMS_MODELPASSES_TD

include "mlir/Pass/PassBase.td"

//===----------------------------------------------------------------------===//
// shard: [nn] -> [nn+dist]
//===----------------------------------------------------------------------===//

def CountModelFlopsPass : Pass<"nn-count-model-flops", "::mlir::ModuleOp"> {
  let summary = "Say what the model needs for a microbatch";
  let description = [{
    Sets `plait.model_flops` of the module to the FLOPs of the matmuls
    and attentions of `@loss`, forward and backward: what counts towards
    utilisation, whatever is computed again later.

    Phase `shard`, before anything is split or decomposed; reads nothing of the
    configuration. The plan tells it to those that report utilisation. Here 2 matmuls
    of 2 · 4 · 8 · 16, as `%x` needs no gradient.

    Example:
    ```mlir
    nn.parameter @w : tensor<8x16xf32> init<mean = 0.0, std = 0.02>
    func.func @loss(%x: tensor<4x8xf32>) -> tensor<4x16xf32> {
      %w = nn.read @w value : tensor<8x16xf32>
      %y = nn.matmul %x, %w "bi,ij->bj" : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
      return %y : tensor<4x16xf32>
    }
    ```
    becomes
    ```mlir
    module attributes {plait.model_flops = 2.048000e+03 : f64} {
    ```
  }];
  let dependentDialects = ["::plait::PlaitDialect"];
}

def AssignMatricesPass : Pass<"nn-assign-matrices", "::mlir::ModuleOp"> {
  let summary = "Say which parameters are matrices, for optimizers that ask";
  let description = [{
    Of the parameters whose optimizer updates matrices as a whole, sets `matrix` of
    each that is one: in `@loss` it is read by `nn.matmul` alone, which sum over
    the same dimensions of it each time, the first or the last ones, and do not make
    the logits. Fails where a parameter whose own `optimizer` does so is none, and where
    what ranks exchange is defined for another optimizer than that.

    Phase `shard`, before reads are of copies and the loss is
    decomposed; reads `optimizer`, `compress` and `outer`.

    Example:
    ```mlir
    // plait-opt --plait-configure=optimizer=muon --nn-assign-matrices
    nn.parameter @w : tensor<8x16xf32> init<mean = 0.0, std = 0.02>
    func.func @loss(%x: tensor<4x8xf32>) -> tensor<4x16xf32> {
      %w = nn.read @w value : tensor<8x16xf32>
      %y = nn.matmul %x, %w "bi,ij->bj" : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
      return %y : tensor<4x16xf32>
    }
    ```
    becomes
    ```mlir
    nn.parameter @w : … matrix [0]
    ```
  }];
}

def DecomposePass : Pass<"nn-decompose", "::mlir::ModuleOp"> {
  let summary = "Replace named ops by what they are made of";
  let description = [{
    With `early`, decomposes the ops that must be before sharding (softmax
    cross-entropy); without, all that can be: layer normalisation, attention,
    rotary embeddings, activations. Everything else is left alone.

    Whether attention stays whole, as one step of a library, is the `attention`
    of the configuration: with `flash` it does, and fails at an op that the
    module's target does not compute so; with `auto` it does where the target
    computes all of the module's so, on processors those of 256 keys or more.

    Phase `shard` with `early`, phase `lower` without; reads `attention`.

    Example:
    ```mlir
    func.func @forward_0(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
      %y = nn.silu %x : tensor<4x8xf32>
      return %y : tensor<4x8xf32>
    }
    ```
    becomes
    ```mlir
    %0 = nn.sigmoid %arg0 : tensor<4x8xf32>
    %1 = nn.mul %arg0, %0 : tensor<4x8xf32>
    return %1 : tensor<4x8xf32>
    ```
  }];
  let options = [Option<"early", "early", "bool", "false",
                        "only what must be decomposed before sharding">];
}

def LowerPrecisionPass : Pass<"nn-lower-precision", "::mlir::ModuleOp"> {
  let summary = "Compute the loss function in bf16";
  let description = [{
    Reads of parameters become reads of their compute copies, and the first
    result of every op that computes becomes bf16. Other results are statistics
    for the backward pass (means, logarithms of sums) and stay f32, as do loss
    and count: `nn.softmax_cross_entropy` takes bf16 logits. So does what makes
    loss and count of that, or of the last matmuls: ops whose results reach
    nothing else, past no more matmul. What they read of the others is cast. A
    function that reads compute copies already is left alone.

    Phase `shard`; reads `precision`, and does nothing in `fp32`.

    Example:
    ```mlir
    // plait-opt --plait-configure=precision=bf16 --nn-lower-precision
    nn.parameter @embed : tensor<16x4xf32> init<mean = 0.0, std = 0.02>
    func.func @loss(%tokens: tensor<2x8xi32>, %targets: tensor<2x8xi32>) -> (tensor<f32>, tensor<f32>) {
      %e = nn.read @embed value : tensor<16x4xf32>
      %x = nn.embedding %e, %tokens : (tensor<16x4xf32>, tensor<2x8xi32>) -> tensor<2x8x4xf32>
      %y = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x8x4xf32>, tensor<16x4xf32>) -> tensor<2x8x16xf32>
      %loss, %count = nn.softmax_cross_entropy %y, %targets ignore -100 : (tensor<2x8x16xf32>, tensor<2x8xi32>) -> (tensor<f32>, tensor<f32>)
      return %loss, %count : tensor<f32>, tensor<f32>
    }
    ```
    becomes
    ```mlir
    %0 = nn.read @embed compute : tensor<16x4xbf16>
    %1 = nn.embedding %0, %arg0 : (tensor<16x4xbf16>, tensor<2x8xi32>) -> tensor<2x8x4xbf16>
    %2 = nn.matmul %1, %0 "bsh,vh->bsv" : (tensor<2x8x4xbf16>, tensor<16x4xbf16>) -> tensor<2x8x16xbf16>
    %loss, %count = nn.softmax_cross_entropy %2, %arg1 ignore -100 : (tensor<2x8x16xbf16>, tensor<2x8xi32>) -> (tensor<f32>, tensor<f32>)
    ```
  }];
  let dependentDialects = ["::plait::nn::NNDialect"];
}

def ReorderSequencePass : Pass<"nn-reorder-sequence", "::mlir::ModuleOp"> {
  let summary = "Store the sequence in zig-zag order";
  let description = [{
    All dimensions that move with the second one of the loss function's arguments,
    the sequence, are stored as 2 · `cp` chunks in zig-zag order (`nn.reorder`), so
    that equal blocks are equal work under a causal mask. Ops that count along the
    sequence are told so in their `begin`; before an op that cannot be told, and
    needs its elements in order, `nn.reorder` brings its operands back, and after
    it its results into the order of the others: arguments, keys and values of
    attention, parameters and numbers along the sequence.

    It is an error if 2 · `cp` does not divide the sequence.

    Phase `shard`; reads `context_parallel`. For others than zigzag, and where `cp`
    has one rank, it does nothing.

    Example:
    ```mlir
    // plait-opt --plait-configure=context-parallel=zigzag --nn-reorder-sequence
    dist.mesh @mesh ["cp"] = [2]
    func.func @loss(%tokens: tensor<2x8xi32>, %targets: tensor<2x8xi32>) -> tensor<2x8xf32> {
      %x = nn.valid %tokens ignore -100 : tensor<2x8xi32> -> tensor<2x8xf32>
      return %x : tensor<2x8xf32>
    }
    ```
    becomes
    ```mlir
    %0 = nn.reorder %arg0 dim 1 zigzag 4 : tensor<2x8xi32>
    %1 = nn.valid %0 ignore -100 : tensor<2x8xi32> -> tensor<2x8xf32>
    %2 = nn.reorder %1 dim 1 zigzag 4 inverse : tensor<2x8xf32>
    return %2 : tensor<2x8xf32>
    ```
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
    split the whole: keys and values are gathered. An argument that `nn.reorder` reads is split
    after that. With `context_parallel = heads`
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

    With `problem` the cost network, its solution and what that takes are written
    to a file: what was chosen can be held against any other solver.

    Phase `shard`; reads `sequence_parallel`, `context_parallel` and `zero`.

    Example:
    ```mlir
    dist.mesh @mesh ["dp", "tp"] = [2, 2]
    nn.parameter @up : tensor<256x512xf32> init<mean = 0.0, std = 0.02>
    nn.parameter @down : tensor<512x256xf32> init<mean = 0.0, std = 0.02>
    func.func @loss(%x: tensor<64x256xf32>) -> tensor<64x256xf32> {
      %up = nn.read @up value : tensor<256x512xf32>
      %0 = nn.matmul %x, %up "bh,hf->bf" : (tensor<64x256xf32>, tensor<256x512xf32>) -> tensor<64x512xf32>
      %down = nn.read @down value : tensor<512x256xf32>
      %1 = nn.matmul %0, %down "bf,fh->bh" : (tensor<64x512xf32>, tensor<512x256xf32>) -> tensor<64x256xf32>
      %2 = nn.silu %1 : tensor<64x256xf32>
      return %2 : tensor<64x256xf32>
    }
    ```
    becomes, with the one exchange that such a pair needs,
    ```mlir
    nn.parameter @up : … sharding #dist.sharding<@mesh, [{}, {"tp"} ]>
    nn.parameter @down : … sharding #dist.sharding<@mesh, [{"tp"}, {} ]>
    …
    %1 = nn.matmul %arg0, %0 "bh,hf->bf" : … -> tensor<64x512xf32, #dist.sharding<@mesh, [{"dp"}, {"tp"} ]>>
    …
    %3 = nn.matmul %1, %2 "bf,fh->bh" : … -> tensor<64x256xf32, #dist.sharding<@mesh, [{"dp"}, {} ], partial = {"tp"}>>
    %4 = dist.reshard %3 : … -> tensor<64x256xf32, #dist.sharding<@mesh, [{"dp"}, {} ]>>
    ```
  }];
  let options = [Option<"problemFile", "problem", "std::string", "",
                        "where to write what is solved, as JSON; -: standard "
                        "output">];
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

    With `problem` what there is to cut, the cut and what its slowest rank does are
    written to a file.

    Phase `stage`; reads `schedule`, `chunks` and `layers`.

    Example:
    ```mlir
    dist.mesh @mesh ["pp"] = [2]
    func.func @loss(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = nn.exp %x {nn.layer = 0} : tensor<4xf32>
      %1 = nn.exp %0 {nn.layer = 1} : tensor<4xf32>
      %2 = nn.neg %1 : tensor<4xf32>
      return %2 : tensor<4xf32>
    }
    ```
    becomes
    ```mlir
    module attributes {pipe.placement = #pipe.placement<looped, ranks = 2, chunks = 1>} {
    …
    %0 = nn.exp %arg0 {nn.layer = 0 : i64, pipe.stage = 0 : i64} : tensor<4xf32>
    %1 = nn.exp %0 {nn.layer = 1 : i64, pipe.stage = 1 : i64} : tensor<4xf32>
    %2 = nn.neg %1 {pipe.stage = 1 : i64} : tensor<4xf32>
    ```
  }];
  let options = [Option<"problemFile", "problem", "std::string", "",
                        "where to write what is solved, as JSON; -: standard "
                        "output">];
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

    Phase `stage`; reads `pipe.stage`, and nothing of the configuration.

    Example:
    ```mlir
    dist.mesh @mesh ["pp"] = [2]
    nn.parameter @embed : tensor<16x4xf32> init<mean = 0.0, std = 0.02>
    func.func @loss(%tokens: tensor<2x8xi32>, %targets: tensor<2x8xi32>) -> (tensor<f32>, tensor<f32>) {
      %embed = nn.read @embed value : tensor<16x4xf32>
      %0 = nn.embedding %embed, %tokens {pipe.stage = 0} : (tensor<16x4xf32>, tensor<2x8xi32>) -> tensor<2x8x4xf32>
      %1 = nn.reduce sum %0 dims [0, 1, 2] {pipe.stage = 1} : tensor<2x8x4xf32> -> tensor<f32>
      %2 = nn.valid %targets ignore -100 {pipe.stage = 1} : tensor<2x8xi32> -> tensor<2x8xf32>
      %3 = nn.reduce sum %2 dims [0, 1] {pipe.stage = 1} : tensor<2x8xf32> -> tensor<f32>
      return %1, %3 : tensor<f32>, tensor<f32>
    }
    ```
    becomes
    ```mlir
    func.func @forward_0(%arg0: tensor<2x8xi32> {pipe.port = #pipe.port<tokens>}) -> (tensor<2x8x4xf32> {pipe.port = #pipe.port<output 0>}) …
    …
    func.func @forward_1(%arg0: tensor<2x8xi32> {pipe.port = #pipe.port<targets>}, %arg1: tensor<2x8x4xf32> {pipe.port = #pipe.port<input 0>}) …
    …
    nn.accumulate %0 to @loss_sum value : tensor<f32>
    nn.accumulate %2 to @token_count value : tensor<f32>
    ```
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

    The gradient of the loss with respect to logits is computed in the forward pass;
    with `loss_chunks` above 1 so are the matmuls that take it, and what becomes of
    their results up to where gradients are accumulated (`nn-chunk-loss`).

    Phase `differentiate`; reads `loss_chunks`.

    Example:
    ```mlir
    #all = #dist.sharding<@mesh, [{}, {} ]>
    #rows = #dist.sharding<@mesh, [{"dp"}, {} ]>
    dist.mesh @mesh ["dp"] = [2]
    nn.parameter @w : tensor<8x8xf32> init<mean = 0.0, std = 0.02> sharding #all
    func.func @forward_1(%x: tensor<4x8xf32, #rows> {pipe.port = #pipe.port<input 0>})
        -> (tensor<4x8xf32, #rows> {pipe.port = #pipe.port<output 0>})
        attributes {pipe.function = #pipe.function<forward, 1>} {
      %w = nn.read @w value : tensor<8x8xf32, #all>
      %y = nn.matmul %x, %w "bi,ij->bj" : (tensor<4x8xf32, #rows>, tensor<8x8xf32, #all>) -> tensor<4x8xf32, #rows>
      return %y : tensor<4x8xf32, #rows>
    }
    ```
    becomes, `%arg1` being the gradient of the output,
    ```mlir
    %1 = nn.matmul %arg0, %0 "bi,ij->bj" : …
    %2 = nn.matmul %arg1, %0 "bj,ij->bi" {nn.backward} : …
    %3 = nn.matmul %arg0, %arg1 "bi,bj->ij" {nn.backward} : … -> tensor<8x8xf32, #dist.sharding<@mesh, [{}, {} ], partial = {"dp"}>>
    nn.accumulate %3 to @w gradient {nn.backward} : …
    return %1, %2 : …
    ```
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
    that cost nothing (reads of parameters, constants), or nothing but arithmetic
    (of one operand, which a backward kernel reads anyway), are always computed
    again, comparisons never: another rounding would decide them otherwise.

    Phase `checkpoint`; reads `recompute` and `sequence_parallel`.

    Example:
    ```mlir
    // plait-opt --plait-configure=recompute=full --nn-checkpoint
    func.func @joint_1(%x: tensor<4xf32> {pipe.port = #pipe.port<input 0>}, %dy: tensor<4xf32> {pipe.port = #pipe.port<output_gradient 0>})
        -> (tensor<4xf32> {pipe.port = #pipe.port<output 0>}, tensor<4xf32> {pipe.port = #pipe.port<input_gradient 0>})
        attributes {pipe.function = #pipe.function<joint, 1>} {
      %a = nn.exp %x {nn.layer = 0} : tensor<4xf32>
      %y = nn.tanh %a {nn.layer = 0} : tensor<4xf32>
      %dx = nn.mul %dy, %a {nn.backward, nn.layer = 0} : tensor<4xf32>
      return %y, %dx : tensor<4xf32>, tensor<4xf32>
    }
    ```
    becomes
    ```mlir
    %0 = nn.exp %arg0 {nn.layer = 0 : i64} : tensor<4xf32>
    %1 = nn.tanh %0 {nn.layer = 0 : i64} : tensor<4xf32>
    %2 = nn.exp %arg0 {nn.backward, nn.layer = 0 : i64} : tensor<4xf32>
    %3 = nn.mul %arg1, %2 {nn.backward, nn.layer = 0 : i64} : tensor<4xf32>
    ```
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

    Phase `checkpoint`; reads `schedule`.

    Example:
    ```mlir
    func.func @joint_1(%x: tensor<4xf32> {pipe.port = #pipe.port<input 0>}, %dy: tensor<4xf32> {pipe.port = #pipe.port<output_gradient 0>})
        -> (tensor<4xf32> {pipe.port = #pipe.port<output 0>}, tensor<4xf32> {pipe.port = #pipe.port<input_gradient 0>})
        attributes {pipe.function = #pipe.function<joint, 1>} {
      %a = nn.exp %x {nn.layer = 0} : tensor<4xf32>
      %y = nn.tanh %a {nn.layer = 0} : tensor<4xf32>
      %dx = nn.mul %dy, %a {nn.backward, nn.layer = 0} : tensor<4xf32>
      return %y, %dx : tensor<4xf32>, tensor<4xf32>
    }
    ```
    becomes
    ```mlir
    func.func @forward_1(… {pipe.port = #pipe.port<input 0>}) -> (… {pipe.port = #pipe.port<output 0>}, … {pipe.port = #pipe.port<residual 0>}) …
      %0 = nn.exp %arg0 {nn.layer = 0 : i64} : tensor<4xf32>
      %1 = nn.tanh %0 {nn.layer = 0 : i64} : tensor<4xf32>
      return %1, %0 : tensor<4xf32>, tensor<4xf32>
    …
    func.func @backward_1(… {pipe.port = #pipe.port<output_gradient 0>}, … {pipe.port = #pipe.port<residual 0>}) -> (… {pipe.port = #pipe.port<input_gradient 0>}) …
      %0 = nn.mul %arg0, %arg1 {nn.layer = 0 : i64} : tensor<4xf32>
    ```
  }];
  let dependentDialects = ["::plait::pipe::PipeDialect"];
}

def MergeResidualsPass : Pass<"pipe-merge-residuals", "::mlir::ModuleOp"> {
  let summary = "Keep a value once for later functions of its stage";
  let description = [{
    Where a function returns one value as several residuals, or as a residual and
    an output, the functions that take them take one.

    Phase `partition`, after the cleanup that makes values one; reads nothing of the
    configuration.

    Example:
    ```mlir
    func.func @forward_0(%x: tensor<4xf32> {pipe.port = #pipe.port<input 0>})
        -> (tensor<4xf32> {pipe.port = #pipe.port<output 0>}, tensor<4xf32> {pipe.port = #pipe.port<residual 0>})
        attributes {pipe.function = #pipe.function<forward, 0>} {
      %y = nn.exp %x : tensor<4xf32>
      return %y, %y : tensor<4xf32>, tensor<4xf32>
    }
    func.func @backward_0(%dy: tensor<4xf32> {pipe.port = #pipe.port<output_gradient 0>}, %r: tensor<4xf32> {pipe.port = #pipe.port<residual 0>})
        -> (tensor<4xf32> {pipe.port = #pipe.port<input_gradient 0>})
        attributes {pipe.function = #pipe.function<backward, 0>} {
      %dx = nn.mul %dy, %r : tensor<4xf32>
      return %dx : tensor<4xf32>
    }
    ```
    becomes
    ```mlir
    return %0 : tensor<4xf32>
    …
    func.func @backward_0(… {pipe.port = #pipe.port<output_gradient 0>}, … {pipe.port = #pipe.port<output 0>}) …
    ```
  }];
}

#endif // PLAIT_TRANSFORMS_MODELPASSES_TD
