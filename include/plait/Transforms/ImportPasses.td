//===- ImportPasses.td - Changes of a model ------------*- tablegen -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TRANSFORMS_IMPORTPASSES_TD
#define PLAIT_TRANSFORMS_IMPORTPASSES_TD

include "mlir/Pass/PassBase.td"

//===----------------------------------------------------------------------===//
// import: [nn] -> [nn]. What is changed in a model before anything is decided;
// none of these passes is run unless somebody asks for it.
//===----------------------------------------------------------------------===//

def RemoveDropoutPass : Pass<"nn-remove-dropout", "::mlir::ModuleOp"> {
  let summary = "Leave out the dropout of a model";
  let description = [{
    Ops that drop elements pass all of them on; each says itself how. The keys that
    dropout draws from, an argument of `@loss`, go with their last use. Fails behind
    phase import.

    Phase `import`, where plaitc is given `dropout` off; reads nothing of the
    configuration.

    Example:
    ```mlir
    func.func @loss(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>, %keys: tensor<4xi32> {nn.keys}) -> tensor<4x8xf32> {
      %0 = nn.dropout %x, %keys probability 0.1 site 0 : tensor<4x8xf32>, tensor<4xi32>
      %1 = nn.add %0, %y : tensor<4x8xf32>
      return %1 : tensor<4x8xf32>
    }
    ```
    becomes
    ```mlir
    func.func @loss(%arg0: tensor<4x8xf32>, %arg1: tensor<4x8xf32>) -> tensor<4x8xf32> {
      %0 = nn.add %arg0, %arg1 : tensor<4x8xf32>
      return %0 : tensor<4x8xf32>
    }
    ```
  }];
}

def InsertDocumentMaskPass : Pass<"nn-insert-document-mask", "::mlir::ModuleOp"> {
  let summary = "Keep attention within documents";
  let description = [{
    Gives each attention of `@loss` the position at which the document of a token
    begins, before which it does not look. The function gets an argument for these
    positions, of the type of the tokens, if it has none. Fails where there is no
    attention, and behind phase import.

    Phase `import`, where plaitc is given `document-mask`; reads nothing of the
    configuration.

    Example:
    ```mlir
    func.func @loss(%tokens: tensor<2x8xi32>, %targets: tensor<2x8xi32>, %q: tensor<2x8x2x3x4xf32>, %k: tensor<2x8x2x4xf32>) -> tensor<2x8x2x3x4xf32> {
      %o, %l = nn.attention %q, %k, %k scale 0.5 : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>)
      return %o : tensor<2x8x2x3x4xf32>
    }
    ```
    becomes
    ```mlir
    %out, %lse = nn.attention %arg2, %arg3, %arg3 scale 5.000000e-01 starts %arg4 : …
    ```
  }];
}

def WeighTargetsPass : Pass<"nn-weigh-targets", "::mlir::ModuleOp"> {
  let summary = "Multiply the loss of each target by a weight";
  let description = [{
    Gives `@loss` a float input `target_weights`, a number of each position, by
    which each `nn.softmax_cross_entropy` multiplies the loss of its target, and the
    1 that it counts it as: the loss of a step is the mean of all its targets by
    weight. Fails where there is no cross-entropy, where the second result of `@loss`
    is not the count of one, where there is an input of that name, and behind phase
    import.

    Phase `import`, where plaitc is given `target-weights`; reads nothing of the
    configuration.

    Example:
    ```mlir
    func.func @loss(%tokens: tensor<2x8xi32>, %targets: tensor<2x8xi32>, %x: tensor<2x8x16xf32>) -> (tensor<f32>, tensor<f32>) {
      %loss, %count = nn.softmax_cross_entropy %x, %targets ignore -100 : (tensor<2x8x16xf32>, tensor<2x8xi32>) -> (tensor<f32>, tensor<f32>)
      return %loss, %count : tensor<f32>, tensor<f32>
    }
    ```
    becomes
    ```mlir
      %9 = nn.sub %8, %7 : tensor<2x8xf32>
      %10 = nn.valid %arg1 ignore -100 : tensor<2x8xi32> -> tensor<2x8xf32>
      %11 = nn.mul %10, %arg3 : tensor<2x8xf32>
      %12 = nn.mul %9, %11 : tensor<2x8xf32>
      %13 = nn.reduce sum %12 dims [0, 1] : tensor<2x8xf32> -> tensor<f32>
      %14 = nn.reduce sum %11 dims [0, 1] : tensor<2x8xf32> -> tensor<f32>
      return %13, %14 : tensor<f32>, tensor<f32>
    ```
  }];
}

def AddAdaptersPass : Pass<"nn-add-adapters", "::mlir::ModuleOp"> {
  let summary = "Train low-rank adapters of linear layers, and nothing else";
  let description = [{
    Gives linear layers y = x · Wᵀ two parameters of which the product is added to
    W (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models"): A of
    shape [rank, inputs] and B of shape [outputs, rank], with which
    y = x · Wᵀ + alpha / rank · (x · Aᵀ) · Bᵀ. A starts as a normal distribution with
    the variance of PyTorch's linear layers, 1 / (3 · inputs), and B as zeros. Weight
    decay applies to both. All other parameters are frozen.

    Without `targets`, or where one is `all-linear`, all linear layers of blocks
    (`nn.layer`) have adapters, neither embeddings nor the head. Each other one of
    `targets` is the name of a module, or how it ends: "q_proj" is that of all blocks. A
    module is a tensor of the files without ".weight"; parameters that are parts of one
    tensor share A. Matrices of experts, and what they are chosen by, have no adapters.

    Fails where a target names no linear layer, or one whose matrix is also used for
    something else, as a tied table is; where there are no blocks and no targets;
    where the model has adapters; and behind phase import.

    Phase `import`, where plaitc is given `lora`; reads nothing of the configuration.

    Example:
    ```mlir
    // plait-opt '--nn-add-adapters=rank=2 alpha=4 targets=up'
    nn.parameter @up : tensor<16x8xf32> init<mean = 0.0, std = 0.02> decay
    func.func @loss(%x: tensor<4x8xf32>) -> tensor<4x16xf32> {
      %0 = nn.read @up value : tensor<16x8xf32>
      %1 = nn.matmul %x, %0 "sh,fh->sf" : (tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<4x16xf32>
      return %1 : tensor<4x16xf32>
    }
    ```
    becomes
    ```mlir
    nn.parameter @up.lora_A.weight : tensor<2x8xf32> init<mean = 0.000000e+00 : f64, std = 0.20412414523193154 : f64> decay file<name = "base_model.model.up.lora_A.weight", shape = [2, 8], begin = [0, 0], box = [2, 8]>
    nn.parameter @up.lora_B.weight : tensor<16x2xf32> init<mean = 0.000000e+00 : f64, std = 0.000000e+00 : f64> decay file<name = "base_model.model.up.lora_B.weight", shape = [16, 2], begin = [0, 0], box = [16, 2]>
    ```
  }];
  let options = [
    Option<"rank", "rank", "int64_t", "0", "columns of A's transpose, 1 to 65,536">,
    Option<"alpha", "alpha", "double", "8.0", "what adapters count, times rank">,
    ListOption<"targets", "targets", "std::string",
               "names of modules, or how they end">];
}

def InsertBalancePass : Pass<"nn-insert-balance", "::mlir::ModuleOp"> {
  let summary = "Balance the experts of routers";
  let description = [{
    Each of `terms` is KIND=NUMBER, or `load` alone, and is for all `nn.route` of
    `@loss`. Only positions with a target count. `bias` gives the parameter that a
    router chooses by a `balance`, and a gradient: of each expert the difference
    between how many tokens have chosen it and the mean. `sequence` adds to the loss
    of each sequence how unevenly its tokens are routed, and `z` the squared logarithm
    of the sum of the logits' exponentials; both are reported, as losses called
    `balance` and `router_z`. `load` reports how many tokens of a sequence the expert
    with the most has, over the mean. None of them depends on how a batch is cut.

    Fails where there is no router, where one has no bias that is a parameter of its
    own, and behind phase import.

    Phase `import`, where plaitc is given `balance`; reads nothing of the
    configuration.

    Example:
    ```mlir
    // plait-opt --nn-insert-balance=terms=bias=0.001
    nn.parameter @bias : tensor<4xf32> init<mean = 0.0, std = 0.0> rate 0.0
    func.func @loss(%tokens: tensor<2x8xi32>, %targets: tensor<2x8xi32>, %logits: tensor<2x8x4xf32>, %sum: tensor<f32>, %count: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
      %bias = nn.read @bias value : tensor<4xf32>
      %w, %ids = nn.route %logits bias %bias choices 2 scores sigmoid : (tensor<2x8x4xf32>, tensor<4xf32>) -> (tensor<2x8x2xf32>, tensor<2x8x2xi32>)
      return %sum, %count : tensor<f32>, tensor<f32>
    }
    ```
    becomes
    ```mlir
    nn.parameter @bias : tensor<4xf32> init<mean = 0.000000e+00 : f64, std = 0.000000e+00 : f64> balance 1.000000e-03
    ```
  }];
  let options = [ListOption<"terms", "terms", "std::string",
                            "bias=RATE, sequence=FACTOR, z=FACTOR, load">];
}

def RemoveDecayPass : Pass<"nn-remove-decay", "::mlir::ModuleOp"> {
  let summary = "Take weight decay off parameters";
  let description = [{
    Weight decay does not apply to the parameters whose name one of `parameters`
    matches, whatever the model says; `*` matches anything. Fails where one of them
    matches none, as a name with a typing mistake does, and behind phase import.

    Phase `import`, where plaitc is given `no-decay`; reads nothing of the
    configuration.

    Example:
    ```mlir
    // plait-opt --nn-remove-decay=parameters=emb*
    nn.parameter @embed : tensor<16x4xf32> init<mean = 0.0, std = 0.02> decay
    nn.parameter @w : tensor<8x16xf32> init<mean = 0.0, std = 0.02> decay
    func.func @loss(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
      return %x : tensor<4x8xf32>
    }
    ```
    becomes
    ```mlir
    nn.parameter @embed : tensor<16x4xf32> init<mean = 0.000000e+00 : f64, std = 2.000000e-02 : f64>
    nn.parameter @w : tensor<8x16xf32> init<mean = 0.000000e+00 : f64, std = 2.000000e-02 : f64> decay
    ```
  }];
  let options = [ListOption<"parameters", "parameters", "std::string",
                            "names, * matches anything">];
}

def ScaleLearningRatePass : Pass<"nn-scale-learning-rate", "::mlir::ModuleOp"> {
  let summary = "Multiply the learning rate of parameters";
  let description = [{
    Each of `factors` is NAME=FACTOR: the learning rate of the parameters whose name
    matches is multiplied by the factor, 0 to 1,000,000, whatever the model says; `*`
    matches anything. Of several that match a parameter the last one counts. Fails
    where one of them matches none, as a name with a typing mistake does, and behind
    phase import.

    Phase `import`, where plaitc is given `lr-factor`; reads nothing of the
    configuration.

    Example:
    ```mlir
    // plait-opt --nn-scale-learning-rate=factors=emb*=0.5
    nn.parameter @embed : tensor<16x4xf32> init<mean = 0.0, std = 0.02> decay
    nn.parameter @w : tensor<8x16xf32> init<mean = 0.0, std = 0.02> decay
    func.func @loss(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
      return %x : tensor<4x8xf32>
    }
    ```
    becomes
    ```mlir
    nn.parameter @embed : tensor<16x4xf32> init<mean = 0.000000e+00 : f64, std = 2.000000e-02 : f64> decay rate 5.000000e-01
    nn.parameter @w : tensor<8x16xf32> init<mean = 0.000000e+00 : f64, std = 2.000000e-02 : f64> decay
    ```
  }];
  let options = [ListOption<"factors", "factors", "std::string",
                            "NAME=FACTOR, * matches anything">];
}

def AssignOptimizersPass : Pass<"nn-assign-optimizers", "::mlir::ModuleOp"> {
  let summary = "Give parameters an optimizer of their own";
  let description = [{
    Each of `optimizers` is NAME=OPTIMIZER: the parameters whose name matches are
    updated by that optimizer, in place of the configuration's; `*` matches anything.
    Of several that match a parameter the last one counts. Fails where one of them
    matches none, as a name with a typing mistake does, where there is no such
    optimizer, and behind phase import.

    Phase `import`, where plaitc is given `optimizer-of`; reads nothing of the
    configuration.

    Example:
    ```mlir
    // plait-opt --nn-assign-optimizers=optimizers=b*=lion
    nn.parameter @bias : tensor<16xf32> init<mean = 0.0, std = 0.0>
    nn.parameter @w : tensor<8x16xf32> init<mean = 0.0, std = 0.02> decay
    func.func @loss(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
      return %x : tensor<4x8xf32>
    }
    ```
    becomes
    ```mlir
    nn.parameter @bias : tensor<16xf32> init<mean = 0.000000e+00 : f64, std = 0.000000e+00 : f64> optimizer "lion"
    nn.parameter @w : tensor<8x16xf32> init<mean = 0.000000e+00 : f64, std = 2.000000e-02 : f64> decay
    ```
  }];
  let options = [ListOption<"optimizers", "optimizers", "std::string",
                            "NAME=OPTIMIZER, * matches anything">];
}

def FreezeParametersPass : Pass<"nn-freeze-parameters", "::mlir::ModuleOp"> {
  let summary = "Keep parameters as they are loaded";
  let description = [{
    The parameters whose name one of `parameters` matches are not trained, whatever
    the model says; `*` matches anything. An `nn.stop_gradient` behind each read of
    them says so. Fails where one of the names matches none, as one with a typing
    mistake does, and behind phase import.

    Phase `import`, where plaitc is given `freeze`; reads nothing of the
    configuration.

    Example:
    ```mlir
    // plait-opt --nn-freeze-parameters=parameters=emb*
    nn.parameter @embed : tensor<4x8xf32> init<mean = 0.0, std = 0.02> decay
    nn.parameter @w : tensor<4x8xf32> init<mean = 0.0, std = 0.02> decay
    func.func @loss(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
      %0 = nn.read @embed value : tensor<4x8xf32>
      %1 = nn.read @w value : tensor<4x8xf32>
      %2 = nn.add %0, %1 : tensor<4x8xf32>
      return %2 : tensor<4x8xf32>
    }
    ```
    becomes
    ```mlir
    %0 = nn.read @embed value : tensor<4x8xf32>
    %1 = nn.stop_gradient %0 : tensor<4x8xf32>
    %2 = nn.read @w value : tensor<4x8xf32>
    %3 = nn.add %1, %2 : tensor<4x8xf32>
    ```
  }];
  let options = [ListOption<"parameters", "parameters", "std::string",
                            "names, * matches anything">];
}

def PinShardingsPass : Pass<"dist-pin-shardings", "::mlir::ModuleOp"> {
  let summary = "Give parameters shardings that were chosen by a person";
  let description = [{
    Each of `shardings` is NAME=AXES: the parameters whose name matches NAME, in
    which `*` matches anything, get the sharding `#dist.sharding<@mesh, AXES>`,
    which phase `shard` keeps. Of two that match one parameter the later counts.
    Fails where AXES do not parse, where NAME matches nothing, and behind phase
    import.

    Phase `import`, where plaitc is given `shard`; reads nothing of the
    configuration.

    Example:
    ```mlir
    // plait-opt '--dist-pin-shardings=shardings=up*=[{},{"tp"} ]'
    dist.mesh @mesh ["tp"] = [2]
    nn.parameter @up : tensor<8x16xf32> init<mean = 0.0, std = 0.02>
    func.func @loss(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
      return %x : tensor<4x8xf32>
    }
    ```
    becomes
    ```mlir
    nn.parameter @up : tensor<8x16xf32> init<mean = 0.000000e+00 : f64, std = 2.000000e-02 : f64> sharding #dist.sharding<@mesh, [{}, {"tp"} ]>
    ```
  }];
  let options = [ListOption<"shardings", "shardings", "std::string",
                            "NAME=AXES, * matches anything">];
  let dependentDialects = ["::plait::dist::DistDialect"];
}

#endif // PLAIT_TRANSFORMS_IMPORTPASSES_TD
