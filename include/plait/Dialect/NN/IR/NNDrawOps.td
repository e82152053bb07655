//===- NNDrawOps.td - Random numbers of compressors -------*- tablegen -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_NN_IR_NNDRAWOPS_TD
#define PLAIT_DIALECT_NN_IR_NNDRAWOPS_TD

include "plait/Dialect/NN/IR/NNBase.td"

def NN_DrawOp : NN_Op<"draw", [Pure, AllTypesMatch<["input", "step", "result"]>,
    DeclareOpInterfaceMethods<FusableOpInterface, ["computesIndices"]>]> {
  let summary = "A random number for each element of a table of chunks";
  let description = [{
    Numbers are uniform in [0, 1), multiples of 2^-24: the upper 24 bits of a hash
    of `seed`, the step, the tensor's key, the replica, the number of the chunk in
    the whole tensor, and the column, in this order (plait/Support/DropoutMask.h).
    They do not depend on how the tensor is split. `step` holds the step in each
    element; `shared` numbers are those of replica 0 on all replicas.

    Rows are chunks of `block` elements as in `nn.occupied`, and the input says as
    there which tensors they are: its numbers do not matter. A tensor has a key, and so many chunks in a
    row (`runs`) before those of other ranks follow. Where it is split, `begins`
    says where a rank's run begins in the whole one, in chunks, and how many that
    has. `replica` says which replica a rank is.

    Of one tensor the input may also have any other shape, with the part of a
    replica for each index of the first dimension, as `nn.occupied` has it. This is
    what a step is defined by.

    Constraints:
    - (C1) `elements` has at least one number, all of at least 1; `keys`, `runs` and
      `begins` have as many, runs of at least 1 and keys of 0 to 2^32 - 1.
    - (C2) the input has as many rows as they need, or so many elements for each
      index of its first dimension.
    - (C3) a begin is unit, or has the extent of the whole run; no run is longer.
    - (C4) `block` is at least 1.

    Example:
    ```mlir
    %u = nn.draw %x at %s block 32 seed 0 elements [70, 128] keys [17, 4] runs [3, 2] begins [unit, #nn.begin<"tp" * 2 of 4>] : tensor<8x32xf32>
    ```
  }];
  let arguments = (ins NN_Statistics:$input, NN_Statistics:$step, I64Attr:$block,
                       I64Attr:$seed, DenseI64ArrayAttr:$elements, DenseI64ArrayAttr:$keys,
                       DenseI64ArrayAttr:$runs, ArrayAttr:$begins,
                       OptionalAttr<NN_BeginAttr>:$replica, UnitAttr:$shared);
  let results = (outs NN_Statistics:$result);
  let assemblyFormat = [{
    $input `at` $step `block` $block `seed` $seed `elements` $elements `keys` $keys `runs` $runs
    `begins` $begins (`replica` $replica^)? (`shared` $shared^)? attr-dict `:`
    type($result)
  }];
  let hasVerifier = 1;
}

#endif // PLAIT_DIALECT_NN_IR_NNDRAWOPS_TD
