//===- NNBase.td - The nn dialect, its attributes and op classes ---*- tablegen -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_NN_IR_NNBASE_TD
#define PLAIT_DIALECT_NN_IR_NNBASE_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "plait/Dialect/NN/IR/NNInterfaces.td"
include "plait/Interfaces/OpInterfaces.td"

def NNDialect : Dialect {
  let name = "nn";
  let summary = "The training graph of a transformer";
  let description = [{
    Value semantics on ranked tensors of static shape. A model is a module with
    `nn.parameter` symbols and one function `@loss` from tokens and targets (both
    `tensor<batch x sequence x i32>`) to the summed loss and the number of targets
    that count. Further arguments say what they are: with dropout keys, a random
    number of each sequence (`tensor<batch x i32> {nn.keys}`); with a document mask
    starts, the position at which the document of each token begins
    (`tensor<batch x sequence x i32> {nn.starts}`); and float inputs with a name,
    numbers of each position,
    `tensor<batch x sequence x … x f32> {nn.features = "patches"}`, or of
    each sequence, `tensor<batch x … x f32> {nn.context = "time"}`.
    Further results, `tensor<f32> {nn.loss = "z_loss"}`, are sums that a step
    reports beside the loss. An op may carry the discardable attribute
    `nn.layer = i`: the index of the repeated block it belongs to, the unit of
    pipeline stages and of recomputation. The planner, which makes one of alike
    layers, also numbers what is left of them: `nn.block = i`.

    What a module that is compiled says of the loss is verified (`verifyLoss`):
    - (L1) `@loss` is one block of ops on whole tensors that say how they split over
      ranks. They only read: parameters' values, or their copies to compute with.
    - (L2) a parameter reaches the loss, the first result; one that does not is
      not trained, and warned of. None reaches the number of targets, the second,
      which is not a constant of 0 or less.
    - (L3) what ids select from is large enough: a row of a table, or a class,
      for each id of the vocabulary; a row for each number of an `nn.iota`.
    - (L4) each argument says what it is and has the type of it; keys are used by
      dropout alone, and starts by attention.
    - (L5) further results have names, which differ, and are at most 13.
    - (L6) float inputs have names, which differ, are at most 16, and have
      the batch, and features the sequence, as their first dimensions.
  }];
  let cppNamespace = "::plait::nn";
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
  let useDefaultAttributePrinterParser = 1;
  // What elements are computed with.
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::math::MathDialect",
                           "::mlir::scf::SCFDialect",
                           "::mlir::vector::VectorDialect"];
}

def NN_Float : AnyTypeOf<[F32, BF16]>;
def NN_FloatTensor : StaticShapeTensorOf<[F32, BF16]>;
/// Sums and logarithms of sums, never rounded to a narrower type.
def NN_Statistics : StaticShapeTensorOf<[F32]>;
def NN_IntTensor : StaticShapeTensorOf<[I32]>;
def NN_Tensor : StaticShapeTensorOf<[F32, BF16, I32]>;

class NN_Op<string mnemonic, list<Trait> traits = []>
    : Op<NNDialect, mnemonic, traits>;

/// The interfaces of an op with a value of its own.
defvar NN_Compute = [
  Pure, DeclareOpInterfaceMethods<ShardableOpInterface>,
  DeclareOpInterfaceMethods<CostedOpInterface>];

/// The same, for an op that computes with indices along a split factor.
defvar NN_IndexCompute = [
  Pure, DeclareOpInterfaceMethods<ShardableOpInterface, ["localizeFactor"]>,
  DeclareOpInterfaceMethods<CostedOpInterface>];

/// The costs of an op that a library computes in one step.
defvar NN_LibraryCosts = DeclareOpInterfaceMethods<
  CostedOpInterface, ["getFlops", "getWorkShape", "getLibraryWorkspace"]>;

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

def NN_InitAttr : AttrDef<NNDialect, "Init"> {
  let mnemonic = "init";
  let summary = "How a parameter starts when no weights are given";
  let description = [{
    A normal distribution, or, with `std` 0, the constant `mean`.

    Example: `#nn.init<mean = 0.0, std = 0.02>`.
  }];
  let parameters = (ins "::mlir::FloatAttr":$mean, "::mlir::FloatAttr":$std);
  let assemblyFormat = "`<` struct(params) `>`";
}

def NN_FileAttr : AttrDef<NNDialect, "File"> {
  let mnemonic = "file";
  let summary = "Where a parameter lies in a safetensors file";
  let description = [{
    The parameter is a row-major view of the box that starts at `begin` and has
    the extents `box`, in the tensor `name` of shape `shape`. A `*` in the name
    stands for the index along the first dimension: each part is a tensor of the
    file, as experts are.

    Example: `#nn.file<name = "h.0.attn.c_attn.bias", shape = [2304], begin = [768], box = [768]>`.
  }];
  let parameters = (ins "::mlir::StringAttr":$name,
    ArrayRefParameter<"int64_t">:$shape,
    ArrayRefParameter<"int64_t">:$begin, ArrayRefParameter<"int64_t">:$box);
  let assemblyFormat = [{
    `<` `name` `=` $name `,` `shape` `=` `[` $shape `]` `,`
    `begin` `=` `[` $begin `]` `,` `box` `=` `[` $box `]` `>`
  }];
}

def NN_RopeScalingAttr : AttrDef<NNDialect, "RopeScaling"> {
  let mnemonic = "rope_scaling";
  let summary = "Llama 3's stretching of rotary frequencies";
  let description = [{
    Wavelengths above `original / low` are divided by `factor`, those below
    `original / high` are kept, and those between are interpolated (Meta,
    "The Llama 3 Herd of Models"; Hugging Face `rope_type` "llama3").
  }];
  let parameters = (ins "::mlir::FloatAttr":$factor, "::mlir::FloatAttr":$low,
                        "::mlir::FloatAttr":$high, "int64_t":$original);
  let assemblyFormat = "`<` struct(params) `>`";
}

def NN_YarnAttr : AttrDef<NNDialect, "Yarn"> {
  let mnemonic = "yarn";
  let summary = "YaRN's stretching of rotary frequencies";
  let description = [{
    Frequencies of pairs up to `first` are kept, those from `last` on are divided
    by `factor`, and those between are interpolated by their number; cosines and
    sines are multiplied by `amplitude` (Peng et al. 2023, "YaRN: Efficient Context
    Window Extension of Large Language Models"; Hugging Face `rope_type` "yarn").
  }];
  let parameters = (ins "::mlir::FloatAttr":$factor, "::mlir::FloatAttr":$first,
                        "::mlir::FloatAttr":$last, "::mlir::FloatAttr":$amplitude);
  let assemblyFormat = "`<` struct(params) `>`";
}

def NN_BeginAttr : AttrDef<NNDialect, "Begin"> {
  let mnemonic = "begin";
  let summary = "Where a rank's block of a dimension begins, and in which order";
  let description = [{
    The sum, over mesh axes, of the rank's index along the axis times a stride.
    A dimension of blocks of 4 elements that is split over `dp` and then over
    `tp` of 2 ranks begins at 8 · dp + 4 · tp. No axis: it is whole.

    `of` says how many elements the whole dimension has, where the last blocks
    end in padding. An op that counts does so past its end, too; the proof needs
    it to know what is counted.

    `zigzag` says that the dimension is stored as so many chunks in zig-zag order:
    the first, the last, the second, the last but one, … Equal blocks of it then
    see equally many keys under a causal mask (plait/Support/ChunkOrder.h). An op
    counts positions in the dimension, not in memory.

    Constraints:
    - (C1) there is at least one axis or `zigzag`, no axis is named twice, and
      strides are positive.
    - (C2) the extent of the dimension is not negative. 0: the blocks fill it.
    - (C3) the number of chunks is even, and divides the extent, which is given.

    Examples: `#nn.begin<"dp" * 8, "tp" * 4>`, `#nn.begin<"tp" * 4 of 7>`,
    `#nn.begin<"cp" * 8 of 32 zigzag 8>`.
  }];
  let parameters = (ins ArrayRefParameter<"::plait::RankTerm">:$terms,
                        "int64_t":$extent, "int64_t":$chunks);
  let builders = [AttrBuilder<(ins "::llvm::ArrayRef<::plait::RankTerm>":$terms,
                                   CArg<"int64_t", "0">:$extent,
                                   CArg<"int64_t", "0">:$chunks),
                              [{ return $_get($_ctxt, terms, extent, chunks); }]>];
  let extraClassDeclaration = [{
    /// The order of the dimension.
    ::plait::ChunkOrder getOrder() const { return {getExtent(), getChunks()}; }
    bool isReordered() const { return getChunks() != 0; }
    /// All of a dimension in this order.
    static BeginAttr get(::mlir::MLIRContext *context, ::plait::ChunkOrder order);
  }];
  let skipDefaultBuilders = 1;
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def NN_ScoreAttr : AttrDef<NNDialect, "Score"> {
  let mnemonic = "score";
  let summary = "What becomes of the product of a query and a key";
  let description = [{
    `scale` multiplies it; with `soft_cap` c it then goes through c tanh(x / c). With
    `window` w a query sees the last w keys only, itself among them, and with
    `bidirectional` the keys after it as well, those at a distance below w on either
    side. Attention prints it as words of its own: `scale 5.0e-01 window 4`. What a
    library cannot do of it is said in one place (plait/Plan/Attention.h).

    Constraints:
    - (C1) `scale` and `soft_cap` are f32, and the cap is positive and finite.
    - (C2) `window` is at least 1.

    Example: `#nn.score<scale = 5.0e-01 : f32, window = 4 : i64, bidirectional = true>`.
  }];
  let parameters = (ins "::mlir::FloatAttr":$scale,
    OptionalParameter<"::mlir::IntegerAttr">:$window,
    DefaultValuedParameter<"bool", "false">:$bidirectional,
    OptionalParameter<"::mlir::FloatAttr">:$soft_cap);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def NN_ReductionEnum : I32EnumAttr<"ReduceKind", "kind of a reduction", [
    I32EnumAttrCase<"Sum", 0, "sum">, I32EnumAttrCase<"Max", 1, "max">]> {
  let cppNamespace = "::plait::nn";
  let genSpecializedAttr = 0;
}
def NN_ReductionAttr : EnumAttr<NNDialect, NN_ReductionEnum, "reduce_kind"> {
  let assemblyFormat = "$value";
}

def NN_ScoresEnum : I32EnumAttr<"Scores", "what experts are chosen by", [
    I32EnumAttrCase<"Softmax", 0, "softmax">,
    I32EnumAttrCase<"Sigmoid", 1, "sigmoid">,
    I32EnumAttrCase<"ChosenSoftmax", 2, "chosen_softmax">]> {
  let cppNamespace = "::plait::nn";
  let genSpecializedAttr = 0;
}
def NN_ScoresAttr : EnumAttr<NNDialect, NN_ScoresEnum, "scores"> {
  let assemblyFormat = "$value";
}

def NN_SlotAttr : AttrDef<NNDialect, "Slot"> {
  let mnemonic = "slot";
  let summary = "A tensor that belongs to a parameter";
  let description = [{
    `value`, `gradient`, `compute`, `reduced`, or the name of what an optimizer keeps
    of a parameter (plait/Configuration/Optimizers.h), such as `moment1`.

    Example: `%w = nn.read @w moment1 : tensor<4x6xf32>`.
  }];
  let parameters = (ins StringRefParameter<>:$name);
  let builders = [AttrBuilder<(ins "::plait::nn::Slot":$slot),
                              [{ return $_get($_ctxt, slot.getName()); }]>];
  let hasCustomAssemblyFormat = 1;
  // Ops have the slot itself.
  let returnType = "::plait::nn::Slot";
  let convertFromStorage = "::plait::nn::Slot::get($_self.getName())";
  let constBuilderCall =
    "::plait::nn::SlotAttr::get($_builder.getContext(), ::plait::nn::Slot($0))";
}

#endif // PLAIT_DIALECT_NN_IR_NNBASE_TD
