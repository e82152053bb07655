//===- NNTrainOps.td - Parameters, gradients, optimizer state ---*- tablegen -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_NN_IR_NNTRAINOPS_TD
#define PLAIT_DIALECT_NN_IR_NNTRAINOPS_TD

include "plait/Dialect/NN/IR/NNBase.td"

def NN_ParameterOp : NN_Op<"parameter", [Symbol]> {
  let summary = "A trainable tensor";
  let description = [{
    A global tensor that the optimizer updates, in f32. A model that computes
    in bf16 reads the slot `compute` in place of `value`: a copy rounded to
    bf16, which the optimizer renews. Two layers that share weights read the
    same parameter. `decay` says that weight decay applies, and `rate` what the
    learning rate is multiplied by; `optimizer` names what updates it in place of the
    configuration's. `sharding` pins how it lies on the mesh. Where
    the ranks that hold the same divide the optimizer's state (Rajbhandari et al.
    2020, ZeRO 2), `state` says how gradient and moments lie, and with a copy in
    `compute` the value too. `matrix` lists the dimensions that are columns of a
    matrix, which the optimizer updates as a whole; all others are rows. With
    `balance` no optimizer updates it: each step takes `balance` times the sign of the
    gradient off, whose size then says nothing, and which no norm counts.

    Constraints:
    - (C1) the type is plain: shardings belong in `sharding`.
    - (C2) the box of `file` lies inside its tensor and has as many elements as
      the parameter. Its name has one `*` at most, and then the tensor a first
      dimension of up to 65,536.
    - (C3) `sharding` has an entry per dimension, names axes of the mesh, and is
      not partial; so is `state`, which splits each dimension over the axes of
      `sharding` and then over others.
    - (C4) it has 1 to 2^44 elements.
    - (C5) the numbers of `init` are in the range of fp32, and `std` is not
      negative.
    - (C6) `matrix` lists dimensions in ascending order, not all of them and at
      least one.
    - (C7) `rate` is 0 to 1,000,000.
    - (C8) `balance` is 0 to 1,000,000, and comes with neither `decay` nor `matrix`.
    - (C9) `optimizer` is one that `--optimizer` takes.

    Example:
    ```mlir
    nn.parameter @w : tensor<4x6xf32> init <mean = 0.0, std = 0.02> decay
      file <name = "w.weight", shape = [4, 6], begin = [0, 0], box = [4, 6]>
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name,
                       TypeAttrOf<NN_Statistics>:$type, NN_InitAttr:$init,
                       UnitAttr:$decay, OptionalAttr<F64Attr>:$rate,
                       OptionalAttr<StrAttr>:$optimizer,
                       OptionalAttr<F64Attr>:$balance,
                       OptionalAttr<NN_FileAttr>:$file,
                       OptionalAttr<AnyAttr>:$sharding,
                       OptionalAttr<AnyAttr>:$state,
                       OptionalAttr<DenseI64ArrayAttr>:$matrix);
  let assemblyFormat = [{
    $sym_name `:` $type `init` `` $init (`decay` $decay^)? (`rate` $rate^)?
    (`optimizer` $optimizer^)? (`balance` $balance^)? (`file` `` $file^)?
    (`sharding` $sharding^)? (`state` $state^)? (`matrix` $matrix^)? attr-dict
  }];
  let extraClassDeclaration = [{
    /// Returns what the learning rate is multiplied by.
    double getRateFactor() {
      return getRate() ? getRate()->convertToDouble() : 1.0;
    }
  }];
  let hasVerifier = 1;
}

def NN_AccumulatorOp : NN_Op<"accumulator", [Symbol]> {
  let summary = "A number that is summed up over the microbatches of a step";
  let description = [{
    Zero at the start of a step.

    Example: `nn.accumulator @loss_sum : tensor<f32>`.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name,
                       TypeAttrOf<0DTensorOf<[F32]>>:$type);
  let assemblyFormat = "$sym_name `:` $type attr-dict";
}

def NN_PackOp : NN_Op<"pack", [
    Symbol, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Parameters that lie side by side in a rank's arena";
  let description = [{
    Says where one rank's blocks of the members lie in a tensor of their own,
    row-major, from the element of `offsets` on; what lies between them is
    padding. All slots have this layout: `nn.read` and `nn.write` of the pack
    reach the values, gradients or moments of all members at once. Another
    rank of the pipeline, with an arena of its own, may have the same parameter in
    another pack.

    A pack may be divided over mesh axes along which all ranks hold the same
    (Rajbhandari et al. 2020, ZeRO 1), major to minor. The first rank then has the
    first rows of the moments, the second the next ones, and so on; the slot
    `reduced` holds these rows of the reduced gradient. Values and gradients are whole, but with
    `master` values are divided as well: only the update reads them, all else
    the copies in `compute`, which are whole.

    With `blocks` a rank has one member, whose values lie there as its rows of the pack do: the
    axes split the member itself (ZeRO 3, where replicas compress gradients).

    With `sums` ranks divide nothing but what each keeps of the rows of the gradient that it
    adds up for all, as `sum_error`.

    Constraints:
    - (C1) there are as many offsets as members, at least one.
    - (C2) offsets are multiples of 32, so that a member begins at a multiple of
      64 bytes in f32 and in bf16.
    - (C3) each member is a parameter, and a parameter is a member of one pack of
      a rank.
    - (C4) a member ends before the next begins, and the last one before the end
      of the type.
    - (C5) the axes are some of the mesh, each named once, no member is split over
      them but with `blocks`, and the rows are a multiple of their ranks.
    - (C6) only a divided pack has `master` or `sums`, and none has both.
    - (C7) only a divided pack of one member has `blocks`, and none has `sums` as well.

    Example:
    ```mlir
    nn.pack @pack0 rank 0 [@w, @b] at [0, 32] : tensor<1x64xf32>
    nn.pack @pack1 rank 1 [@w] at [0] divided on @mesh["tp", "dp"] : tensor<4x64xf32>
    nn.pack @pack2 rank 2 [@w] at [0] divided on @mesh["dp"] sums : tensor<2x64xf32>
    nn.pack @pack3 rank 3 [@w] at [0] divided on @mesh["dp"] blocks : tensor<2x64xf32>
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, I64Attr:$rank,
                       TypedArrayAttrBase<FlatSymbolRefAttr, "symbols">:$members,
                       DenseI64ArrayAttr:$offsets,
                       TypeAttrOf<2DTensorOf<[F32]>>:$type,
                       OptionalAttr<FlatSymbolRefAttr>:$mesh,
                       OptionalAttr<StrArrayAttr>:$axes, UnitAttr:$master,
                       UnitAttr:$sums, UnitAttr:$blocks);
  let assemblyFormat = [{
    $sym_name `rank` $rank $members `at` $offsets
    (`divided` `on` $mesh^ `` $axes)? (`master` $master^)? (`sums` $sums^)?
    (`blocks` $blocks^)? `:` $type attr-dict
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Offsets are multiples of this many elements.
    static constexpr int64_t kAlignment = 32;
    /// Whether ranks update other rows.
    bool isDivided() { return getAxes() && !getSums(); }
    /// The axes that it is divided over, major to minor; none: no slot is.
    ::llvm::SmallVector<::mlir::StringAttr, 2> getDividingAxes();
    /// Whether a rank holds only some rows of `slot`.
    bool isDivided(::plait::nn::Slot slot);
    /// What a rank holds of the members' values, gradients, …: the type of the
    /// pack, or some rows of it; `compute` is in bf16.
    ::mlir::RankedTensorType getSlotType(::plait::nn::Slot slot);
  }];
}

def NN_ReadOp : NN_Op<"read", [
    MemoryEffects<[MemRead]>, NN_MemoryOpInterface, NN_SlotOpInterface,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "The present value of a parameter, its gradient or a moment";
  let description = [{
    Constraints:
    - (C1) the symbol is a parameter, a pack, or an accumulator read as `value`;
      `reduced` is of a divided pack; all else is kept by some optimizer.
    - (C2) the type is the symbol's, or one rank's block; of `compute`, the same
      in bf16.
    - (C3) a sharding in the type splits as that of the symbol, where both have
      one.

    Example: `%w = nn.read @w value : tensor<4x6xf32>`.
  }];
  let arguments = (ins FlatSymbolRefAttr:$symbol, NN_SlotAttr:$slot);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$symbol $slot attr-dict `:` type($result)";
  let extraClassDeclaration = [{
    ::plait::nn::SlotAccess getAccess() {
      return ::plait::nn::SlotAccess::Read;
    }
    ::mlir::TypedValue<::mlir::RankedTensorType> getTensor() {
      return getResult();
    }
    ::plait::nn::StepMemory getMemory() {
      return {::plait::nn::StepMemory::InSlot, getSymbol(), getSlot()};
    }
  }];
}

class NN_StoreOp<string mnemonic, string access> : NN_Op<mnemonic, [
    MemoryEffects<[MemWrite]>, NN_MemoryOpInterface, NN_SlotOpInterface,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let arguments = (ins NN_FloatTensor:$input, FlatSymbolRefAttr:$symbol,
                       NN_SlotAttr:$slot);
  let assemblyFormat = "$input `to` $symbol $slot attr-dict `:` type($input)";
  let extraClassDeclaration = [{
    ::plait::nn::SlotAccess getAccess() {
      return ::plait::nn::SlotAccess::}] # access # [{;
    }
    ::mlir::TypedValue<::mlir::RankedTensorType> getTensor() {
      return getInput();
    }
    ::plait::nn::StepMemory getMemory() {
      return {::plait::nn::StepMemory::InSlot, getSymbol(), getSlot()};
    }
  }];
}

def NN_WriteOp : NN_StoreOp<"write", "Replace"> {
  let summary = "Replaces a parameter, its gradient or a moment";
  let description = [{
    Constraints: as for `nn.read`.

    Example: `nn.write %v to @w value : tensor<4x6xf32>`.
  }];
}

def NN_AccumulateOp : NN_StoreOp<"accumulate", "Add"> {
  let summary = "Adds to a gradient or an accumulator";
  let description = [{
    What is added up over the microbatches of a step may be a partial sum.

    Constraints: as for `nn.read`.

    Example: `nn.accumulate %g to @w gradient : tensor<4x6xf32>`.
  }];
}

def NN_StepScalarOp : NN_Op<"step_scalar", [Pure, NN_MemoryOpInterface]> {
  let summary = "A number that the trainer sets for every step";
  let description = [{
    The names are those of plait/Configuration/Optimizers.h.

    Constraints:
    - (C1) `name` is one of them.

    Example: `%lr = nn.step_scalar "LearningRate" : tensor<f32>`.
  }];
  let arguments = (ins StrAttr:$name);
  let results = (outs 0DTensorOf<[F32]>:$result);
  let assemblyFormat = "$name attr-dict `:` type($result)";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::plait::nn::StepMemory getMemory() {
      return {::plait::nn::StepMemory::Scalar, getName()};
    }
  }];
}

def NN_MetricOp : NN_Op<"metric", [
    MemoryEffects<[MemWrite]>, NN_MemoryOpInterface]> {
  let summary = "A number that a step reports";
  let description = [{
    The names are those of enum Metric in lib/Plan/Plan.fbs, and of named losses:
    `z_loss` where there is an accumulator `@loss.z_loss`.

    Constraints:
    - (C1) `name` is one of them.

    Example: `nn.metric %loss "Loss" : tensor<f32>`.
  }];
  let arguments = (ins 0DTensorOf<[F32]>:$input, StrAttr:$name);
  let assemblyFormat = "$input $name attr-dict `:` type($input)";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::plait::nn::StepMemory getMemory() {
      return {::plait::nn::StepMemory::Metric, getName()};
    }
  }];
}

#endif // PLAIT_DIALECT_NN_IR_NNTRAINOPS_TD
