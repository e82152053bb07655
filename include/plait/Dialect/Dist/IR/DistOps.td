//===- DistOps.td - Meshes, shardings and collectives ---*- tablegen -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_DIST_IR_DISTOPS_TD
#define PLAIT_DIALECT_DIST_IR_DISTOPS_TD

include "mlir/IR/OpBase.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/IR/TensorEncoding.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "plait/Dialect/Dist/IR/DistBase.td"
include "plait/Interfaces/OpInterfaces.td"

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

def Dist_ShardingAttr : AttrDef<DistDialect, "Sharding", [
    DeclareAttrInterfaceMethods<VerifiableTensorEncoding>]> {
  let mnemonic = "sharding";
  let summary = "How one tensor lies on a mesh";
  let description = [{
    For each dimension the mesh axes that split it, major to minor, and the axes
    over which the ranks hold partial values that are still to be combined. On
    an axis that is named nowhere the tensor is replicated. A dimension of n
    elements split into k blocks has blocks of ceil(n / k) elements; what lies
    beyond n is padding and holds zeros.

    An integer r in front of the last axis says that it deals the dimension out in r
    rounds: what the axes before it leave is cut in r parts, and each rank has its
    block of each part, one behind the other.

    Of a partial value that is `owned` each row is whole on one rank, which has
    the expert that the row is of. On the others it is what becomes of zeros. So
    elementwise ops may take it as it is; where it is combined it is a sum.

    Constraints:
    - (C1) there is one list of axes per dimension of the tensor type that the
      attribute is the encoding of.
    - (C2) no axis is named twice.
    - (C3) every axis is an axis of the module's mesh (checked by the ops that
      use the attribute or a type with it).
    - (C4) a number of rounds is at least 2 and stands in front of the last axis.

    Example: `#dist.sharding<@mesh, [{"dp"}, {}, {"tp"} ]>`, in four rounds
    `#dist.sharding<@mesh, [{4, "tp"}, {} ]>`, a partial sum,
    `#dist.sharding<@mesh, [{}, {} ], partial = {"tp"}>`, and rows of experts,
    `#dist.sharding<@mesh, [{}, {} ], partial = {"ep"} owned>`.
  }];
  let parameters = (ins
    "::mlir::FlatSymbolRefAttr":$mesh,
    ArrayRefParameter<"::mlir::ArrayAttr", "axes of each dimension">:$dims,
    ArrayRefParameter<"::mlir::StringAttr", "partial axes">:$partial,
    "::plait::dist::Reduction":$reduction);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// A sharding that splits nothing.
    static ShardingAttr getReplicated(::mlir::FlatSymbolRefAttr mesh,
                                      int64_t rank);
    /// The encoding of a ranked tensor type, or null.
    static ShardingAttr of(::mlir::Type type);
    static ShardingAttr of(::mlir::Value value) { return of(value.getType()); }

    bool isPartial() const { return !getPartial().empty(); }
    bool isPartialOver(::mlir::StringAttr axis) const;
    bool isOwned() const {
      return isPartial() && getReduction() == ::plait::dist::Reduction::Owned;
    }
    /// The dimension that `axis` splits, or -1.
    int64_t findDim(::mlir::StringAttr axis) const;
    /// Without the partial axes: what a gradient of the value has.
    ShardingAttr withoutPartial() const;
    ShardingAttr withPartial(::llvm::ArrayRef<::mlir::StringAttr> axes,
                             ::plait::dist::Reduction reduction =
                                 ::plait::dist::Reduction::Sum) const;
    ShardingAttr withDim(int64_t dim, ::mlir::ArrayAttr axes) const;
  }];
}

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

class Dist_Op<string mnemonic, list<Trait> traits = []>
    : Op<DistDialect, mnemonic, traits>;

def Dist_MeshOp : Dist_Op<"mesh", [Symbol]> {
  let summary = "The grid of ranks";
  let description = [{
    Names the axes of the grid and their sizes. Ranks are numbered row-major:
    the first axis is the outermost.

    Constraints:
    - (C1) there is at least one axis and as many names as sizes.
    - (C2) no name is empty or used twice.
    - (C3) every size is at least 1.
    - (C4) there are at most 2^24 ranks.
    - (C5) it is the only mesh of its module.

    Example:
    ```mlir
    dist.mesh @mesh ["pp", "dp", "tp"] = [2, 2, 2]
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, StrArrayAttr:$axes,
                       DenseI64ArrayAttr:$sizes);
  let assemblyFormat = "$sym_name $axes `=` $sizes attr-dict";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The ranks along an axis: 1 if the mesh has none of that name.
    int64_t getAxisSize(::llvm::StringRef axis);
    int64_t getAxisSize(::plait::Axis axis);
    bool hasAxis(::llvm::StringRef axis) { return getAxisIndex(axis) >= 0; }
    /// The sizes of the axes that have a meaning; others are left out.
    ::plait::Mesh getKnownAxes();
    /// As --mesh writes it: "pp=2,dp=2,tp=2".
    std::string getText();
    /// The position of an axis, or -1.
    int64_t getAxisIndex(::llvm::StringRef axis);
    /// The number of blocks that `axes` cut a dimension into.
    int64_t getBlocks(::mlir::ArrayAttr axes);
    /// The axes of more than one rank over which ZeRO divides state, in the
    /// order in which it does: from the innermost on, whose ranks are nearest,
    /// so that what goes further is less.
    ::llvm::SmallVector<::mlir::StringAttr> getStateAxes();
    /// The first element of a rank's block of `chunk` elements, along a
    /// dimension that `axes` split, major to minor.
    ::llvm::SmallVector<::plait::RankTerm> getBegin(::mlir::ArrayAttr axes,
                                                    int64_t chunk);
    /// The one mesh of the module around `op`, or null.
    static MeshOp find(::mlir::Operation *op);
    /// The mesh as a value. Fails on an axis without a meaning.
    ::plait::Result<::plait::Mesh> getMesh();
    /// Adds `mesh` as @mesh in front of everything in `module`. `hasAxis` says
    /// which axes of one rank it names; by default as `mesh` does.
    static MeshOp add(
        ::mlir::ModuleOp module, const ::plait::Mesh &mesh,
        ::llvm::function_ref<bool(const ::plait::AxisFacts &)> hasAxis = {});
    /// The type of one rank's block of `type`; plain types stay as they are.
    ::mlir::RankedTensorType getLocalType(::mlir::RankedTensorType type);
  }];
}

def Dist_ReshardOp : Dist_Op<"reshard", [Pure, SameOperandsAndResultShape,
                                         SameOperandsAndResultElementType]> {
  let summary = "Changes how a tensor lies on the mesh";
  let description = [{
    The same global tensor under another sharding; partial values are combined
    on the axes that the result is not partial over.

    Constraints:
    - (C1) both types carry a sharding, on the same mesh.
    - (C2) the result is partial only over axes that the input is partial over;
      over those of an owned result the input is owned or whole.

    Example:
    ```mlir
    %1 = dist.reshard %0 : tensor<4x8xf32, #partial> -> tensor<4x8xf32, #replicated>
    ```
  }];
  let arguments = (ins AnyStaticShapeTensor:$input);
  let results = (outs AnyStaticShapeTensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def CollectiveOpInterface : OpInterface<"CollectiveOpInterface"> {
  let cppNamespace = "::plait::dist";
  let description = [{
    An op that the ranks along one mesh axis perform together. All that passes,
    cost models and the conversion to a plan ask of it is here.
  }];
  let methods = [
    InterfaceMethod<"What moves where.", "::plait::CollectiveKind", "getKind">,
    InterfaceMethod<"The mesh axis that its ranks differ along.",
                    "::llvm::StringRef", "getAxis">,
    InterfaceMethod<"What a rank brings.", "::mlir::Value", "getInput">,
    InterfaceMethod<"How the tensors are cut into blocks.",
                    "::plait::dist::CollectiveBlocks", "getBlocks">,
    InterfaceMethod<"How values are combined; nothing where they only move.",
                    "::std::optional<::plait::dist::Reduction>",
                    "getCombination", (ins), "", "return ::std::nullopt;">,
    InterfaceMethod<"The indices along the axis that take part; nothing: all.",
                    "::std::optional<::llvm::ArrayRef<int64_t>>", "getMembers",
                    (ins), "", "return ::std::nullopt;">,
    InterfaceMethod<"The rows that move; nothing: all.",
                    "::std::optional<::plait::dist::RowSelection>",
                    "getSelection", (ins), "", "return ::std::nullopt;">,
  ];
  let extraSharedClassDeclaration = [{
    /// The elements of the whole tensor: what an all-reduce combines, an
    /// all-gather ends with, a reduce-scatter begins with.
    int64_t countElements() {
      return std::max(
          ::plait::detail::countElements($_op.getInput()),
          ::plait::detail::countElements($_op.getOperation()->getResult(0)));
    }
  }];
}

class Dist_CollectiveOp<string mnemonic, list<Trait> effects = [Pure]>
    : Dist_Op<mnemonic, !listconcat(effects, [
          DeclareOpInterfaceMethods<CollectiveOpInterface>])> {
  let results = (outs AnyStaticShapeTensor:$result);
  let hasVerifier = 1;
}

/// One that combines values as its attribute `reduction` says.
class Dist_ReducingOp<string mnemonic, list<Trait> effects = [Pure]>
    : Dist_CollectiveOp<mnemonic, effects> {
  let extraClassDeclaration = [{
    ::std::optional<::plait::dist::Reduction> getCombination() {
      return getReduction();
    }
  }];
}

def Dist_AllReduceOp : Dist_ReducingOp<"all_reduce",
    [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "Combines the values of all ranks along an axis, for all";
  let description = [{
    `members`, if given, are the indices along the axis that take part; the op
    then stands only in the programs of those ranks. An `ordered` one is never
    dropped or merged with an equal one: ranks with another program take part.

    Constraints:
    - (C1) the axis is one of the mesh.
    - (C2) the types are equal.
    - (C3) `members` are ascending indices of the axis.
    - (C4) the reduction is a sum or a maximum.

    Example:
    ```mlir
    %1 = dist.all_reduce %0 on @mesh["tp"] sum : tensor<4x8xf32> -> tensor<4x8xf32>
    ```
  }];
  let arguments = (ins AnyStaticShapeTensor:$input, FlatSymbolRefAttr:$mesh,
                       StrAttr:$axis, Dist_ReductionAttr:$reduction,
                       OptionalAttr<DenseI64ArrayAttr>:$members,
                       UnitAttr:$ordered);
  let assemblyFormat = [{
    $input `on` $mesh `[` $axis `]` $reduction (`members` $members^)?
    (`ordered` $ordered^)? attr-dict
    `:` type($input) `->` type($result)
  }];
}

def Dist_AllGatherOp : Dist_CollectiveOp<"all_gather"> {
  let summary = "Concatenates the blocks of all ranks along a dimension";
  let description = [{
    Constraints:
    - (C1) the axis is one of the mesh.
    - (C2) `dim` is a dimension of the input; all others agree.
    - (C3) the result's extent along `dim` is the input's times the blocks.
    - (C4) `rounds`, in which the dimension is dealt out (`#dist.sharding`), is at
      least 1 and divides the extent of a block.

    Example:
    ```mlir
    %1 = dist.all_gather %0 on @mesh["tp"] dim 1 : tensor<4x4xf32> -> tensor<4x8xf32>
    ```
  }];
  let arguments = (ins AnyStaticShapeTensor:$input, FlatSymbolRefAttr:$mesh,
                       StrAttr:$axis, I64Attr:$dim,
                       DefaultValuedAttr<I64Attr, "1">:$rounds);
  let assemblyFormat = [{
    $input `on` $mesh `[` $axis `]` `dim` $dim (`rounds` $rounds^)? attr-dict
    `:` type($input) `->` type($result)
  }];
}

def Dist_ReduceScatterOp : Dist_ReducingOp<"reduce_scatter"> {
  let summary = "Combines the values of all ranks; each keeps one block";
  let description = [{
    Constraints:
    - (C1) the axis is one of the mesh.
    - (C2) `dim` is a dimension of the input; all others agree.
    - (C3) the input's extent along `dim` is the result's times the blocks.
    - (C4) `rounds` is as for `dist.all_gather`.
    - (C5) the reduction is a sum or a maximum.

    Example:
    ```mlir
    %1 = dist.reduce_scatter %0 on @mesh["tp"] sum dim 1 : tensor<4x8xf32> -> tensor<4x4xf32>
    ```
  }];
  let arguments = (ins AnyStaticShapeTensor:$input, FlatSymbolRefAttr:$mesh,
                       StrAttr:$axis, Dist_ReductionAttr:$reduction,
                       I64Attr:$dim, DefaultValuedAttr<I64Attr, "1">:$rounds);
  let assemblyFormat = [{
    $input `on` $mesh `[` $axis `]` $reduction `dim` $dim (`rounds` $rounds^)?
    attr-dict `:` type($input) `->` type($result)
  }];
}

def Dist_AllToAllOp : Dist_CollectiveOp<"all_to_all"> {
  let summary = "Moves the split from one dimension to another";
  let description = [{
    Rank i sends block j along `split` to rank j, which concatenates what it
    gets along `concat`.

    Constraints:
    - (C1) the axis is one of the mesh.
    - (C2) `split` and `concat` are different dimensions.
    - (C3) the extents are input / blocks along `split`, input × blocks along
      `concat`, and equal elsewhere.

    Example:
    ```mlir
    %1 = dist.all_to_all %0 on @mesh["tp"] split 1 concat 0 : tensor<4x8xf32> -> tensor<8x4xf32>
    ```
  }];
  let arguments = (ins AnyStaticShapeTensor:$input, FlatSymbolRefAttr:$mesh,
                       StrAttr:$axis, I64Attr:$split, I64Attr:$concat);
  let assemblyFormat = [{
    $input `on` $mesh `[` $axis `]` `split` $split `concat` $concat attr-dict
    `:` type($input) `->` type($result)
  }];
}

/// One that moves rows by the experts that ids name.
class Dist_RowsOp<string mnemonic> : Dist_CollectiveOp<mnemonic> {
  let arguments = (ins AnyStaticShapeTensor:$input, AnyStaticShapeTensor:$ids,
                       FlatSymbolRefAttr:$mesh, StrAttr:$axis,
                       I64Attr:$experts);
  let assemblyFormat = [{
    $input `by` $ids `on` $mesh `[` $axis `]` `experts` $experts attr-dict
    `:` `(` type($input) `,` type($ids) `)` `->` type($result)
  }];
  let extraClassDeclaration = [{
    ::std::optional<::plait::dist::RowSelection> getSelection();
    /// How the plan's step of the same kind combines.
    ::std::optional<::plait::dist::Reduction> getCombination();
  }];
}

def Dist_DispatchOp : Dist_RowsOp<"dispatch"> {
  let summary = "Brings tokens to the ranks that have experts of theirs";
  let description = [{
    The rank with index i along the axis has `experts` experts, from i · experts on.
    Of the tokens of all ranks, one block behind the other along dimension 0, it gets
    those of whose ids, the last dimension of `ids`, some are among its own. What it
    has for others are zeros. How many tokens that are is known when the step runs;
    that all ranks count alike, since all have the ids of all, is for the proof to show.

    Constraints:
    - (C1) the axis is one of the mesh.
    - (C2) the extent of dimension 0 of the result is the input's times the ranks; all
      others, of which there are some behind those of tokens, agree.
    - (C3) the ids are integers, with the dimensions of tokens of the result and one more.
    - (C4) a rank has at least one expert.

    Example:
    ```mlir
    %1 = dist.dispatch %0 by %ids on @mesh["dp"] experts 2 : (tensor<1x8x4xf32>, tensor<2x8x3xi32>) -> tensor<2x8x4xf32>
    ```
  }];
}

def Dist_CombineOp : Dist_RowsOp<"combine"> {
  let summary = "Brings what experts make of tokens back to their ranks";
  let description = [{
    Each row is of one expert, which its id names (see `dist.dispatch`), and comes from the
    rank that has it. Other ranks' numbers for it are not read. Nothing is added up:
    rows have the same bits on whichever rank they were made.

    Constraints:
    - (C1) the axis is one of the mesh.
    - (C2) the extent of dimension 0 of the input is the result's times the ranks; all
      others, of which there are some behind those of the ids, agree.
    - (C3) the ids are integers, and their dimensions the first ones of the input.
    - (C4) a rank has at least one expert.

    Example:
    ```mlir
    %1 = dist.combine %0 by %ids on @mesh["dp"] experts 2 : (tensor<2x8x3x4xf32>, tensor<2x8x3xi32>) -> tensor<1x8x3x4xf32>
    ```
  }];
}

def Dist_SliceOp : Dist_Op<"slice", [Pure,
    DeclareOpInterfaceMethods<FusableOpInterface,
        ["getFusionRole", "getIndexMap", "getRankBegin"]>]> {
  let summary = "The rank's own block of a tensor that all ranks hold";
  let description = [{
    Needs no communication. The dimension is cut over the axes in order, major to
    minor: over `["dp", "tp"]` a rank has block dp · |tp| + tp. Elements beyond the
    input are zeros.

    Constraints:
    - (C1) the axes are axes of the mesh, each named once.
    - (C2) `dim` is a dimension of the input; all others agree.
    - (C3) the result's extent along `dim` is ceil(input / blocks).
    - (C4) `rounds` is as for `dist.all_gather`; then there is one axis, and nothing
      is beyond the input.

    Example:
    ```mlir
    %1 = dist.slice %0 on @mesh["tp"] dim 1 : tensor<4x8xf32> -> tensor<4x4xf32>
    ```
  }];
  let arguments = (ins AnyStaticShapeTensor:$input, FlatSymbolRefAttr:$mesh,
                       StrArrayAttr:$axes, I64Attr:$dim,
                       DefaultValuedAttr<I64Attr, "1">:$rounds);
  let results = (outs AnyStaticShapeTensor:$result);
  let assemblyFormat = [{
    $input `on` $mesh `` $axes `dim` $dim (`rounds` $rounds^)? attr-dict
    `:` type($input) `->` type($result)
  }];
  let hasVerifier = 1;
}

#endif // PLAIT_DIALECT_DIST_IR_DISTOPS_TD
