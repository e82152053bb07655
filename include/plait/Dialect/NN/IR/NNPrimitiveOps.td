//===- NNPrimitiveOps.td - Elementwise ops, broadcasts, reductions ---*- tablegen -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_NN_IR_NNPRIMITIVEOPS_TD
#define PLAIT_DIALECT_NN_IR_NNPRIMITIVEOPS_TD

include "plait/Dialect/NN/IR/NNBase.td"

/// All operands and the result have one type.
class NN_ElementwiseOp<string mnemonic, bit linear = 0,
                       list<Trait> traits = []>
    : NN_Op<mnemonic, traits # [
    Pure, SameOperandsAndResultType, Elementwise,
    DeclareOpInterfaceMethods<ShardableOpInterface, ["isLinear"]>,
    DeclareOpInterfaceMethods<CostedOpInterface>,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>,
    DeclareOpInterfaceMethods<FusableOpInterface>]> {
  let results = (outs NN_FloatTensor:$result);
  let extraClassDefinition = [{
    ::plait::FactorRule $cppClass::getFactorRule() {
      return ::plait::nn::elementwiseRule(getOperation());
    }
    bool $cppClass::isLinear() { return }]
    # !if(linear, "true", "false") # [{; }
  }];
}

class NN_UnaryOp<string mnemonic, string what, list<Trait> traits = []>
    : NN_ElementwiseOp<mnemonic, 0, traits> {
  let summary = what;
  let description = "Example: `%y = nn." # mnemonic # " %x : tensor<2x4xf32>`.";
  let arguments = (ins NN_FloatTensor:$input);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}

class NN_BinaryOp<string mnemonic, string what, bit linear = 0,
                  list<Trait> traits = []>
    : NN_ElementwiseOp<mnemonic, linear, traits> {
  let summary = what;
  let description =
      "Example: `%y = nn." # mnemonic # " %a, %b : tensor<2x4xf32>`.";
  let arguments = (ins NN_FloatTensor:$lhs, NN_FloatTensor:$rhs);
  let assemblyFormat = "$lhs `,` $rhs attr-dict `:` type($result)";
}

def NN_NegOp : NN_UnaryOp<"neg", "-x">;
def NN_ExpOp : NN_UnaryOp<"exp", "The exponential">;
def NN_LogOp : NN_UnaryOp<"log", "The natural logarithm">;
def NN_TanhOp : NN_UnaryOp<"tanh", "The hyperbolic tangent">;
def NN_SinOp : NN_UnaryOp<"sin", "The sine">;
def NN_CosOp : NN_UnaryOp<"cos", "The cosine">;
def NN_ErfOp : NN_UnaryOp<"erf", "The error function">;
def NN_SqrtOp : NN_UnaryOp<"sqrt", "The square root">;
def NN_RsqrtOp : NN_UnaryOp<"rsqrt", "One over the square root">;
def NN_SigmoidOp : NN_UnaryOp<"sigmoid", "1 / (1 + exp(-x))">;
def NN_IsZeroOp : NN_UnaryOp<"is_zero", "1 where x is 0, else 0; no gradient",
                             [ComparesFloats]>;

def NN_AddOp : NN_BinaryOp<"add", "The sum a + b", 1, [AddsOperands]> {
  let hasFolder = 1;
}
def NN_SubOp : NN_BinaryOp<"sub", "The difference a - b">;
def NN_MulOp : NN_BinaryOp<"mul", "The product a · b">;
def NN_DivOp : NN_BinaryOp<"div", "The quotient a / b">;
def NN_MinOp : NN_BinaryOp<"min", "The smaller of a and b">;

/// Compares two tensors.
class NN_CompareOp<string mnemonic, string what> : NN_Op<mnemonic, [
    Pure, SameOperandsAndResultShape, AllTypesMatch<["lhs", "rhs"]>,
    Elementwise, ComparesFloats,
    DeclareOpInterfaceMethods<ShardableOpInterface>,
    DeclareOpInterfaceMethods<CostedOpInterface>,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>,
    DeclareOpInterfaceMethods<FusableOpInterface>]> {
  let summary = what;
  let description = [{
    The result may be of a narrower type than the operands: 0 and 1 are exact in
    all.

    Constraints:
    - (C1) the types have one shape, and the operands one element type.

    Example: `%y = nn.}] # mnemonic # [{ %a, %b : tensor<2x4xf32> -> tensor<2x4xbf16>`.
  }];
  let arguments = (ins NN_FloatTensor:$lhs, NN_FloatTensor:$rhs);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $lhs `,` $rhs attr-dict `:` type($lhs) `->` type($result)
  }];
}

def NN_EqualOp : NN_CompareOp<"equal", "1 where a is b, else 0; no gradient">;
def NN_GreaterOp : NN_CompareOp<"greater",
                                "1 where a is above b, else 0; no gradient">;

class NN_ByConstantOp<string mnemonic, string what>
    : NN_ElementwiseOp<mnemonic> {
  let summary = what;
  let description =
      "Example: `%y = nn." # mnemonic # " %x by 2.0 : tensor<2x4xf32>`.";
  let arguments = (ins NN_FloatTensor:$input, F32Attr:$amount);
  let assemblyFormat = "$input `by` $amount attr-dict `:` type($result)";
  let hasFolder = 1;
}
def NN_ScaleOp : NN_ByConstantOp<"scale", "The product x · amount">;
def NN_ShiftOp : NN_ByConstantOp<"shift", "The sum x + amount">;

def NN_StopGradientOp
    : NN_ElementwiseOp<"stop_gradient", 0, [StopsGradient]> {
  let summary = "A value that is a constant when differentiating";
  let description = "Example: `%y = nn.stop_gradient %x : tensor<2x4xf32>`.";
  let arguments = (ins NN_FloatTensor:$input);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}

def NN_CastOp : NN_Op<"cast", [
    Pure, SameOperandsAndResultShape, Elementwise,
    DeclareOpInterfaceMethods<ShardableOpInterface, ["isLinear"]>,
    DeclareOpInterfaceMethods<CostedOpInterface, ["getFlops"]>,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>,
    DeclareOpInterfaceMethods<FusableOpInterface>]> {
  let summary = "The same numbers in another float type";
  let description = [{
    To bf16 numbers are rounded to the nearest, of two equally near to the even
    one. Kernels compute in f32: a number is rounded where it is stored, not
    between two ops of one kernel.

    Constraints:
    - (C1) the types have one shape.

    Example: `%y = nn.cast %x : tensor<2x4xbf16> -> tensor<2x4xf32>`.
  }];
  let arguments = (ins NN_FloatTensor:$input);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
  let hasFolder = 1;
  let extraClassDeclaration = [{
    /// Whether every number of the input is one of the result's type.
    bool isExact() {
      return ::mlir::getElementTypeOrSelf(getType()).isF32() ||
             getInput().getType() == getType();
    }
    bool isFree() { return isExact(); }
  }];
}

def NN_ConvertOp : NN_Op<"convert", [
    Pure, SameOperandsAndResultShape, Elementwise, ComparesFloats,
    DeclareOpInterfaceMethods<ShardableOpInterface>,
    DeclareOpInterfaceMethods<CostedOpInterface>,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>,
    DeclareOpInterfaceMethods<FusableOpInterface>]> {
  let summary = "Whole numbers as floats, or floats as whole numbers";
  let description = [{
    From f32 the fraction is dropped; beyond i32 it is the nearest number of that,
    and of what is no number any. There is no gradient.

    Constraints:
    - (C1) the types have one shape; one of them is of i32 and the other of f32.

    Example: `%y = nn.convert %i : tensor<2x4xi32> -> tensor<2x4xf32>`.
  }];
  let arguments = (ins NN_Tensor:$input);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
}

def NN_FillOp : NN_Op<"fill", [
    Pure, DeclareOpInterfaceMethods<ShardableOpInterface, ["isLinear"]>,
    DeclareOpInterfaceMethods<CostedOpInterface>,
    DeclareOpInterfaceMethods<FusableOpInterface>]> {
  let summary = "A tensor of one number";
  let description = "Example: `%y = nn.fill 1.0 : tensor<2x4xf32>`.";
  let arguments = (ins F32Attr:$amount);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$amount attr-dict `:` type($result)";
}

def NN_IotaOp : NN_Op<"iota", [Pure,
    DeclareOpInterfaceMethods<ShardableOpInterface,
                              ["localizeFactor", "orderFactor"]>,
    DeclareOpInterfaceMethods<CostedOpInterface>,
    DeclareOpInterfaceMethods<FusableOpInterface>]> {
  let summary = "0, 1, 2, … along one dimension";
  let description = [{
    result[…, i, …] = i, for the index i along `along`. On a rank that holds one block, the first number is `begin`.

    Constraints:
    - (C1) `along` is a dimension of the result.

    Example: `%i = nn.iota along 1 : tensor<2x8xi32>`.
  }];
  let arguments = (ins I64Attr:$along, OptionalAttr<NN_BeginAttr>:$begin);
  let results = (outs NN_IntTensor:$result);
  let assemblyFormat = "`along` $along attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def NN_RopeTableOp : NN_Op<"rope_table", [Pure,
    DeclareOpInterfaceMethods<ConstantDataOpInterface, ["getRankBegin"]>]> {
  let summary = "Cosines or sines of rotary angles";
  let description = [{
    [positions, size]: cos or sin of position · frequency, the frequencies
    repeated for both halves of the last dimension. `begin`, `yarn` and `rotated` as
    in `nn.rope`.

    Constraints:
    - (C1) the result has two dimensions, the second of even extent.
    - (C2) to (C5) of `nn.rope`.

    Example: `%c = nn.rope_table theta 1.0e+04 : tensor<8x4xf32>`.
  }];
  let arguments = (ins F64Attr:$theta,
                       OptionalAttr<NN_RopeScalingAttr>:$scaling,
                       OptionalAttr<NN_YarnAttr>:$yarn,
                       OptionalAttr<I64Attr>:$rotated,
                       UnitAttr:$sine, OptionalAttr<NN_BeginAttr>:$begin);
  let results = (outs StaticShapeTensorOf<[F32]>:$result);
  let assemblyFormat = [{
    (`sine` $sine^)? `theta` $theta (`scaling` $scaling^)? (`yarn` $yarn^)?
    (`rotated` $rotated^)? attr-dict `:` type($result)
  }];
  let hasVerifier = 1;
}

def NN_RotateHalfOp : NN_Op<"rotate_half", [Pure, SameOperandsAndResultType,
    DeclareOpInterfaceMethods<FusableOpInterface,
                              ["getFusionRole", "getIndexMap"]>]> {
  let summary = "(-x₂, x₁) for x = (x₁, x₂) along the last dimension";
  let description = [{
    Constraints:
    - (C1) the last dimension has an even extent.

    Example: `%y = nn.rotate_half %x : tensor<2x4xf32>`.
  }];
  let arguments = (ins NN_FloatTensor:$input);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def NN_ReorderOp : NN_Op<"reorder", [Pure, SameOperandsAndResultType,
    DeclareOpInterfaceMethods<ShardableOpInterface, ["isLinear"]>,
    DeclareOpInterfaceMethods<CostedOpInterface, ["getFlops"]>,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>,
    DeclareOpInterfaceMethods<FusableOpInterface,
                              ["getFusionRole", "getIndexMap"]>]> {
  let summary = "Stores a dimension in zig-zag order, or in its own again";
  let description = [{
    The dimension `dim` is cut in `zigzag` chunks of one size, which lie in the
    order 0, c - 1, 1, c - 2, … in the result: result[i] is input[position of i]
    (`#nn.begin`). `inverse` brings such a dimension back, and is the gradient.
    All of the dimension is needed on a rank.

    Constraints:
    - (C1) `dim` is a dimension of the input.
    - (C2) the number of chunks is even, at least 2, and divides its extent.

    Example:
    ```mlir
    %y = nn.reorder %x dim 1 zigzag 4 : tensor<2x8x4xf32>
    ```
  }];
  let arguments = (ins NN_Tensor:$input, I64Attr:$dim, I64Attr:$chunks,
                       UnitAttr:$inverse);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = [{
    $input `dim` $dim `zigzag` $chunks (`inverse` $inverse^)? attr-dict
    `:` type($result)
  }];
  let hasVerifier = 1;
  let hasFolder = 1;
  let extraClassDeclaration = [{
    ::plait::ChunkOrder getOrder() {
      return {getType().getDimSize(getDim()), int64_t(getChunks())};
    }
  }];
}

def NN_ChunkOp : NN_Op<"chunk", [Pure,
    DeclareOpInterfaceMethods<FusableOpInterface,
                              ["getFusionRole", "getIndexMap"]>]> {
  let summary = "One of several equal parts of a dimension";
  let description = [{
    Part i has the elements from i · extent / `parts` on, in their order. Passes
    create it where one rank computes parts of a tensor one after the other
    (`nn-chunk-loss`); it has no gradient.

    Constraints:
    - (C1) `dim` is a dimension of the input.
    - (C2) `part` is at least 0 and below `parts`, which divides the dimension.
    - (C3) the result has a `parts`-th of it, and the other dimensions.

    Example:
    ```mlir
    %y = nn.chunk %x dim 0 part 1 of 4 : tensor<8x2xf32> -> tensor<2x2xf32>
    ```
  }];
  let arguments = (ins NN_Tensor:$input, I64Attr:$dim, I64Attr:$part,
                       I64Attr:$parts);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = [{
    $input `dim` $dim `part` $part `of` $parts attr-dict
    `:` type($input) `->` type($result)
  }];
  let hasVerifier = 1;
}

def NN_ConcatOp : NN_Op<"concat", [Pure, JoinsOperands]> {
  let summary = "Tensors one behind the other along the first long dimension";
  let description = [{
    The inverse of `nn.chunk`. Operands are made where the result lies, so that it
    costs nothing: what has no copy of its own in memory, as an argument, is copied
    by passes before. It has no gradient.

    Constraints:
    - (C1) there is at least one operand.
    - (C2) the dimensions of the result before `dim`, which is one of them, have an
      extent of 1: what is side by side lies so.
    - (C3) all operands have the type of the result, but for `dim`, of which each
      has an equal part.

    Example:
    ```mlir
    %y = nn.concat %a, %b dim 0 : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<4x3xf32>
    ```
  }];
  let arguments = (ins Variadic<NN_Tensor>:$inputs, I64Attr:$dim);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = [{
    $inputs `dim` $dim attr-dict `:` functional-type($inputs, $result)
  }];
  let hasVerifier = 1;
}

def NN_BroadcastOp : NN_Op<"broadcast", [
    Pure, AllElementTypesMatch<["input", "result"]>,
    DeclareOpInterfaceMethods<ShardableOpInterface>,
    DeclareOpInterfaceMethods<CostedOpInterface>,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>,
    DeclareOpInterfaceMethods<FusableOpInterface, ["getFusionRole"]>]> {
  let summary = "Repeats a tensor along new dimensions";
  let description = [{
    Dimension i of the input is dimension dims[i] of the result.

    Constraints:
    - (C1) `dims` has an entry per input dimension, each another dimension of the
      result; they ascend, unless the result's last one is not among them.
    - (C2) extents agree.
    - (C3) input and result have one element type.

    Example:
    ```mlir
    %y = nn.broadcast %b dims [2] : tensor<4xf32> -> tensor<2x8x4xf32>
    ```
  }];
  let arguments = (ins NN_Tensor:$input, DenseI64ArrayAttr:$dims);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = [{
    $input `dims` $dims attr-dict `:` type($input) `->` type($result)
  }];
  let hasVerifier = 1;
}

def NN_ReduceOp : NN_Op<"reduce", [
    Pure, AllElementTypesMatch<["input", "result"]>,
    DeclareOpInterfaceMethods<ShardableOpInterface>,
    DeclareOpInterfaceMethods<CostedOpInterface, ["getFlops"]>,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>,
    DeclareOpInterfaceMethods<FusableOpInterface, ["getFusionRole"]>]> {
  let summary = "The sum or the maximum over dimensions";
  let description = [{
    Constraints:
    - (C1) `dims` are ascending dimensions of the input, at least one.
    - (C2) the result has the other dimensions.
    - (C3) input and result have one element type.

    Example:
    ```mlir
    %y = nn.reduce sum %x dims [0, 1] : tensor<2x8x4xf32> -> tensor<4xf32>
    ```
  }];
  let arguments = (ins NN_ReductionAttr:$kind, NN_FloatTensor:$input,
                       DenseI64ArrayAttr:$dims);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $kind $input `dims` $dims attr-dict `:` type($input) `->` type($result)
  }];
  let hasVerifier = 1;
}

def NN_PickOp : NN_Op<"pick", [
    Pure, AllElementTypesMatch<["input", "result"]>,
    DeclareOpInterfaceMethods<NN_SelectionOpInterface>,
    DeclareOpInterfaceMethods<ShardableOpInterface,
                              ["localizeFactor"]>,
    DeclareOpInterfaceMethods<CostedOpInterface>,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>,
    DeclareOpInterfaceMethods<FusableOpInterface>]> {
  let summary = "Keeps one element of each row, zeros the others";
  let description = [{
    result[…, j] = input[…, j] where j is ids[…], else 0. On a rank that holds
    one block of the last dimension, `begin` is its first index.

    Constraints:
    - (C1) the input has the dimensions of the ids and one more.
    - (C2) input and result have one element type.
    - (C3) `begin` has no `zigzag`.

    Example:
    ```mlir
    %y = nn.pick %x, %ids : tensor<2x4xf32>, tensor<2xi32> -> tensor<2x4xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, NN_IntTensor:$ids,
                       OptionalAttr<NN_BeginAttr>:$begin);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $input `,` $ids attr-dict `:` type($input) `,` type($ids) `->` type($result)
  }];
  let hasVerifier = 1;
}

def NN_ValidOp : NN_Op<"valid", NN_Compute # [
    DeclareOpInterfaceMethods<FusableOpInterface>]> {
  let summary = "1 where an id is not the ignored one, else 0";
  let description = [{
    Constraints:
    - (C1) the types have one shape.

    Example: `%v = nn.valid %ids ignore -100 : tensor<2x8xi32> -> tensor<2x8xf32>`.
  }];
  let arguments = (ins NN_IntTensor:$ids, I32Attr:$ignore);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $ids `ignore` $ignore attr-dict `:` type($ids) `->` type($result)
  }];
  let hasVerifier = 1;
}

def NN_CausalMaskOp : NN_Op<"causal_mask", [
    Pure, AllTypesMatch<["input", "result"]>,
    DeclareOpInterfaceMethods<FusableOpInterface>]> {
  let summary = "Minus infinity where a key is out of a query's sight";
  let description = [{
    The last two dimensions are query and key. Keys after the query are masked,
    and with `window` w those more than w - 1 before it. With `bidirectional` keys
    after the query are treated as those before it. With `starts`, a position for
    each query, keys before that are masked too, but never the one at the query
    itself. On a rank that holds one block of the queries, the position of the
    first is `begin`.

    Constraints:
    - (C1) the input has at least two dimensions.
    - (C2) `window`, if given, is at least 1.
    - (C3) `starts` have all dimensions of the input but the last.
    - (C4) with `bidirectional` there is a `window`, and there are no `starts`.

    Example: `%y = nn.causal_mask %x : tensor<2x8x8xf32>`.
  }];
  let arguments = (ins NN_FloatTensor:$input, Optional<NN_IntTensor>:$starts,
                       OptionalAttr<I64Attr>:$window, UnitAttr:$bidirectional,
                       OptionalAttr<NN_BeginAttr>:$begin);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $input (`window` $window^)? (`bidirectional` $bidirectional^)?
    (`starts` $starts^ `:` type($starts))? attr-dict `:` type($result)
  }];
  let hasVerifier = 1;
}

def NN_DropoutOp : NN_Op<"dropout", [
    Pure, AllTypesMatch<["input", "result"]>,
    DeclareOpInterfaceMethods<ShardableOpInterface,
                              ["localizeFactor", "orderFactor"]>,
    DeclareOpInterfaceMethods<CostedOpInterface>,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>,
    DeclareOpInterfaceMethods<FusableOpInterface,
                              ["getCallAttrName", "computesIndices"]>,
    DeclareOpInterfaceMethods<NN_DropoutOpInterface>]> {
  let summary = "Zeros elements at random, and scales up the others";
  let description = [{
    result[i] is input[i] / (1 - probability) where element i is kept, else 0.
    Whether it is kept follows from the key of its sequence (dimension 0), from
    `site`, the number of the dropout in its model, and from its indices in the
    whole tensor, so that every mesh and every recomputation draws the same mask.
    In 32 bits, with C = 0x9e3779b9:

        h = mix(keys[i_0] + site · C)
        h = mix(h + i_d · C)    for each further dimension d, outermost first

    and the element is kept if h, unsigned, is below (1 - probability) · 2^32,
    rounded. `mix` is the finaliser lowbias32 (Wellons 2018, "Prospecting for
    hash functions"; plait/Support/DropoutMask.h).

    On a rank that holds a block of the tensor, `begins` says for each dimension
    where it begins: an `#nn.begin`, or `unit` where the dimension is whole.
    Dimension 0 is that of the keys and needs none.

    Constraints:
    - (C1) the input has at least one dimension, and the keys have its first.
    - (C2) `probability` is at least 0 and below 1.
    - (C3) `site` is at least 0 and below 2^31.
    - (C4) `begins`, if given, has an entry per dimension, the first of them
      `unit`.

    Example:
    ```mlir
    %y = nn.dropout %x, %keys probability 0.1 site 3 : tensor<2x8x4xf32>, tensor<2xi32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, NN_IntTensor:$keys,
                       F64Attr:$probability, I64Attr:$site,
                       OptionalAttr<ArrayAttr>:$begins);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $input `,` $keys `probability` $probability `site` $site attr-dict `:`
    type($result) `,` type($keys)
  }];
  let hasVerifier = 1;
  let hasFolder = 1;
  let extraClassDeclaration = [{
    /// Where the rank's part of dimension `dim` begins; null: it is whole.
    ::plait::nn::BeginAttr getBegin(int64_t dim);
    void setBegin(int64_t dim, ::plait::nn::BeginAttr begin);
  }];
}

def NN_MaskPaddingOp : NN_Op<"mask_padding", [Pure, SameOperandsAndResultType,
    DeclareOpInterfaceMethods<FusableOpInterface>]> {
  let summary = "Overwrites the padding of an unevenly split dimension";
  let description = [{
    Element j of a rank along `dim` is element j + `begin` of the whole tensor;
    those at `limit` and beyond become `amount`.

    Constraints:
    - (C1) `dim` is a dimension of the input.
    - (C2) `begin` has no `zigzag`: padding is where a rank stores nothing.
    - (C3) `limit` is at least 1 and fits 32 bits.

    Example:
    ```mlir
    %y = nn.mask_padding %x dim 1 begin <"tp" * 4> limit 7 by 0.0 : tensor<2x4xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, I64Attr:$dim,
                       NN_BeginAttr:$begin, I64Attr:$limit, F32Attr:$amount);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $input `dim` $dim `begin` `` $begin `limit` $limit `by` $amount
    attr-dict `:` type($result)
  }];
  let hasVerifier = 1;
}

#endif // PLAIT_DIALECT_NN_IR_NNPRIMITIVEOPS_TD
