//===- NNCompressionOps.td - Compressed sums of gradients -*- tablegen -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_NN_IR_NNCOMPRESSIONOPS_TD
#define PLAIT_DIALECT_NN_IR_NNCOMPRESSIONOPS_TD

include "plait/Dialect/NN/IR/NNBase.td"

class NN_ReplicasOp<string mnemonic> : NN_Op<mnemonic, [Pure,
    DeclareOpInterfaceMethods<FusableOpInterface>]> {
  let arguments = (ins NN_Statistics:$input, StrAttr:$axis);
  let results = (outs NN_Statistics:$result);
  let assemblyFormat = [{
    $input `over` $axis attr-dict `:` type($input) `->` type($result)
  }];
  let hasVerifier = 1;
}

def NN_PartsOp : NN_ReplicasOp<"parts"> {
  let summary = "What each replica has of a sum, one behind the other";
  let description = [{
    The input is a sum over the ranks along `axis`, of which each has a part. The
    first dimension of the result counts those ranks, and has the part of each. So
    what replicas do with their own parts, as compressing them, can be said of the
    whole. A rank has one of the parts, and the result has no further dimension
    there: nothing changes.

    What is `alone` is no sum any more, and is one part, wherever a rank has it: so
    the same can be said of what replicas have added up.

    Constraints:
    - (C1) the result is the input, or the input with a dimension in front.
    - (C2) a dimension in front of what is `alone` is 1.

    Example:
    ```mlir
    %p = nn.parts %g over "dp" : tensor<8x4xf32> -> tensor<2x8x4xf32>
    %q = nn.parts %g over "dp" alone : tensor<8x4xf32> -> tensor<1x8x4xf32>
    ```
  }];
  let arguments = (ins NN_Statistics:$input, StrAttr:$axis, UnitAttr:$alone);
  let assemblyFormat = [{
    $input `over` $axis (`alone` $alone^)? attr-dict `:`
    type($input) `->` type($result)
  }];
}

def NN_UniteOp : NN_ReplicasOp<"unite"> {
  let summary = "The sum of what replicas have one behind the other";
  let description = [{
    The inverse of `nn.parts`. On a rank, which has one of the parts, nothing
    changes: what comes out is again its part of a sum.

    Constraints:
    - (C1) the input is the result, or the result with a dimension in front.

    Example:
    ```mlir
    %g = nn.unite %p over "dp" : tensor<2x8x4xf32> -> tensor<8x4xf32>
    ```
  }];
}

def NN_ChunkReduceOp : NN_Op<"chunk_reduce", [Pure]> {
  let summary = "The sum or the maximum of each chunk of a tensor";
  let description = [{
    Chunks are `block` neighbours each in the row-major order of all dimensions but
    the first; the last one is filled up with zeros. This is what a step is defined
    by; on a rank chunks are rows of a pack, of which `nn.reduce` does the same.

    Constraints:
    - (C1) `block` is at least 1.
    - (C2) the result has the first dimension of the input, and the number of
      chunks.

    Example:
    ```mlir
    %m = nn.chunk_reduce max %x block 16 : tensor<2x8x4xf32> -> tensor<2x2xf32>
    ```
  }];
  let arguments = (ins NN_ReductionAttr:$kind, NN_Statistics:$input,
                       I64Attr:$block);
  let results = (outs NN_Statistics:$result);
  let assemblyFormat = [{
    $kind $input `block` $block attr-dict `:` type($input) `->` type($result)
  }];
  let hasVerifier = 1;
}

def NN_ChunkSpreadOp : NN_Op<"chunk_spread", [Pure]> {
  let summary = "Repeats a number of each chunk for all of its elements";
  let description = [{
    The inverse of the shape of `nn.chunk_reduce`.

    Constraints:
    - (C1) `block` is at least 1.
    - (C2) the input has the first dimension of the result, and the number of
      chunks.

    Example:
    ```mlir
    %y = nn.chunk_spread %m block 16 : tensor<2x2xf32> -> tensor<2x8x4xf32>
    ```
  }];
  let arguments = (ins NN_Statistics:$input, I64Attr:$block);
  let results = (outs NN_Statistics:$result);
  let assemblyFormat = [{
    $input `block` $block attr-dict `:` type($input) `->` type($result)
  }];
  let hasVerifier = 1;
}

def NN_RoundOp : NN_Op<"round", [Pure, SameOperandsAndResultType, Elementwise,
    DeclareOpInterfaceMethods<FusableOpInterface>]> {
  let summary = "The nearest integer, of two equally near the even one";
  let description = [{
    From 2^22 on numbers stay as they are.

    Example: `%y = nn.round %x : tensor<2x4xf32>`.
  }];
  let arguments = (ins NN_Statistics:$input);
  let results = (outs NN_Statistics:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}

def NN_SliceOp : NN_Op<"slice", [Pure,
    DeclareOpInterfaceMethods<FusableOpInterface,
                              ["getFusionRole", "getIndexMap"]>]> {
  let summary = "One of several equal parts of the last dimension";
  let description = [{
    Constraints:
    - (C1) `part` is at least 0 and below `parts`, which divides the last dimension.
    - (C2) the result has a `parts`-th of it, and the other dimensions.

    Example:
    ```mlir
    %y = nn.slice %x part 1 of 4 : tensor<2x8xf32> -> tensor<2x2xf32>
    ```
  }];
  let arguments = (ins NN_Statistics:$input, I64Attr:$part, I64Attr:$parts);
  let results = (outs NN_Statistics:$result);
  let assemblyFormat = [{
    $input `part` $part `of` $parts attr-dict `:` type($input) `->` type($result)
  }];
  let hasVerifier = 1;
}

def NN_PackBitsOp : NN_Op<"pack_bits", [Pure, SameOperandsAndResultShape,
    DeclareOpInterfaceMethods<FusableOpInterface>]> {
  let summary = "Several integers of a few bits in each word";
  let description = [{
    The lowest `bits` bits of word i are those of element i of the first input, the
    next ones those of the second, and so on: of the nearest integer, in two's
    complement. It should be one that fits (from -2^(bits - 1), or 0 and 1 where
    `bits` is 1): of others the higher bits are lost.

    Constraints:
    - (C1) `bits` is 1, 2, 4, 8 or 16.
    - (C2) there are 32 / `bits` inputs, of one type.

    Example:
    ```mlir
    %w = nn.pack_bits %a, %b bits 16 : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xi32>
    ```
  }];
  let arguments = (ins Variadic<NN_Statistics>:$inputs, I64Attr:$bits);
  let results = (outs NN_IntTensor:$result);
  let assemblyFormat = [{
    $inputs `bits` $bits attr-dict `:` functional-type($inputs, $result)
  }];
  let hasVerifier = 1;
}

def NN_UnpackBitsOp : NN_Op<"unpack_bits", [Pure,
    DeclareOpInterfaceMethods<FusableOpInterface,
                              ["getFusionRole", "getIndexMap"]>]> {
  let summary = "The integers that words are made of, one behind the other";
  let description = [{
    Of each row of the last dimension first the lowest `bits` bits of all words,
    then the next ones, and so on: what `nn.pack_bits` makes of the equal parts of
    a row (`nn.slice`) becomes that row again.

    Constraints:
    - (C1) `bits` is 1, 2, 4, 8 or 16.
    - (C2) the last dimension of the result is 32 / `bits` times that of the input;
      all others agree.

    Example:
    ```mlir
    %q = nn.unpack_bits %w bits 8 : tensor<2x4xi32> -> tensor<2x16xf32>
    ```
  }];
  let arguments = (ins NN_IntTensor:$input, I64Attr:$bits);
  let results = (outs NN_Statistics:$result);
  let assemblyFormat = [{
    $input `bits` $bits attr-dict `:` type($input) `->` type($result)
  }];
  let hasVerifier = 1;
}

def NN_OccupiedOp : NN_Op<"occupied", [Pure, SameOperandsAndResultType,
    DeclareOpInterfaceMethods<FusableOpInterface, ["computesIndices"]>]> {
  let summary = "1 where a table of chunks has an element, 0 behind the ends";
  let description = [{
    Rows are chunks. Some tensors lie in them one behind the other, of so many
    `elements` each; each begins with a row of its own, and what lies between its
    last element and the next row is none of it. The input says which tensors they
    are, and its numbers do not matter.

    Dimensions in front repeat the table. Of one tensor the input may also have any
    other shape, with a part of it for each index of the first dimension: then it has
    no gaps.

    Constraints:
    - (C1) `elements` has at least one number, all of at least 1.
    - (C2) the input has as many rows as they need, or so many elements for each
      index of its first dimension.

    Example:
    ```mlir
    %o = nn.occupied %x elements [70, 4] : tensor<4x32xf32>
    ```
  }];
  let arguments = (ins NN_Statistics:$input, DenseI64ArrayAttr:$elements);
  let results = (outs NN_Statistics:$result);
  let assemblyFormat = "$input `elements` $elements attr-dict `:` type($result)";
  let hasVerifier = 1;
}

class NN_RowsOp<string mnemonic, list<Trait> traits = []>
    : NN_Op<mnemonic, !listconcat([Pure,
        DeclareOpInterfaceMethods<FusableOpInterface,
                                  ["getFusionRole", "emitRow"]>], traits)> {
  let results = (outs NN_Statistics:$result);
  let hasVerifier = 1;
}

def NN_KeepTopOp : NN_RowsOp<"keep_top", [SameOperandsAndResultType]> {
  let summary = "1 where an element is among the largest of its chunk, else 0";
  let description = [{
    Chunks are those of `nn.chunk_reduce`. Of each the `keep` elements of largest
    magnitude are 1, of equal ones those that come first. What is no number is
    larger than all numbers.

    Constraints:
    - (C1) `block` is at least 1.
    - (C2) `keep` is at least 1 and at most `block`.

    Example:
    ```mlir
    %m = nn.keep_top %x keep 2 block 32 : tensor<4x32xf32>
    ```
  }];
  let arguments = (ins NN_Statistics:$input, I64Attr:$keep, I64Attr:$block);
  let assemblyFormat = [{
    $input `keep` $keep `block` $block attr-dict `:` type($result)
  }];
}

def NN_CompactOp : NN_RowsOp<"compact",
    [AllTypesMatch<["input", "mask"]>]> {
  let summary = "The elements of each row where a mask is not 0, side by side";
  let description = [{
    In their order; where there are fewer than the result has columns, zeros follow,
    and where there are more, the others are left out.

    Constraints:
    - (C1) the result has the input's dimensions but the last, of which it has no
      more.

    Example:
    ```mlir
    %v = nn.compact %x where %m : tensor<4x32xf32> -> tensor<4x2xf32>
    ```
  }];
  let arguments = (ins NN_Statistics:$input, NN_Statistics:$mask);
  let assemblyFormat = [{
    $input `where` $mask attr-dict `:` type($input) `->` type($result)
  }];
}

def NN_ExpandOp : NN_RowsOp<"expand",
    [AllTypesMatch<["mask", "result"]>]> {
  let summary = "The inverse of nn.compact: zeros where the mask is 0";
  let description = [{
    Constraints:
    - (C1) the input has the result's dimensions but the last, of which it has no
      more.

    Example:
    ```mlir
    %m = nn.mark %i : tensor<4x2xf32> -> tensor<4x32xf32>
    %x = nn.expand %v where %m : tensor<4x2xf32> -> tensor<4x32xf32>
    ```
  }];
  let arguments = (ins NN_Statistics:$input, NN_Statistics:$mask);
  let assemblyFormat = [{
    $input `where` $mask attr-dict `:` type($input) `->` type($result)
  }];
}

def NN_FindOp : NN_RowsOp<"find"> {
  let summary = "Where in each row a mask is not 0: the columns, in order";
  let description = [{
    Where there are fewer than the result has columns, -1 follows.

    Constraints:
    - (C1) the result has the mask's dimensions but the last.

    Example:
    ```mlir
    %i = nn.find %m : tensor<4x32xf32> -> tensor<4x2xf32>
    ```
  }];
  let arguments = (ins NN_Statistics:$mask);
  let assemblyFormat = "$mask attr-dict `:` type($mask) `->` type($result)";
}

def NN_MarkOp : NN_RowsOp<"mark"> {
  let summary = "The inverse of nn.find: 1 in the columns that are listed, else 0";
  let description = [{
    What is listed is rounded toward zero, and what is then no column of the result
    is left out.

    Constraints:
    - (C1) the result has the input's dimensions but the last.

    Example:
    ```mlir
    %m = nn.mark %i : tensor<4x2xf32> -> tensor<4x32xf32>
    ```
  }];
  let arguments = (ins NN_Statistics:$input);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
}

#endif // PLAIT_DIALECT_NN_IR_NNCOMPRESSIONOPS_TD
