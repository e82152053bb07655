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

    Constraints:
    - (C1) the result is the input, or the input with a dimension in front.

    Example:
    ```mlir
    %p = nn.parts %g over "dp" : tensor<8x4xf32> -> tensor<2x8x4xf32>
    ```
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

#endif // PLAIT_DIALECT_NN_IR_NNCOMPRESSIONOPS_TD
