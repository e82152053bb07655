//===- ExpertPasses.td - Passes on experts of one rank ---*- tablegen -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TRANSFORMS_EXPERTPASSES_TD
#define PLAIT_TRANSFORMS_EXPERTPASSES_TD

include "mlir/Pass/PassBase.td"

def ExchangeRowsPass : Pass<"dist-exchange-rows", "::mlir::ModuleOp"> {
  let summary = "Move the rows of experts alone, in place of all tokens";
  let description = [{
    Where `expert_exchange` is rows. What ranks gather for grouped matmuls alone
    they dispatch: a rank gets the tokens that its experts take (`dist.dispatch`). What they
    add up over the choices of tokens, and then over ranks, comes home row by row
    (`dist.combine`), and is added up over the choices there: in the order that it has
    on one rank, so that results have the same bits. So that gradients have, too, sums
    over choices that are added up become one sum over choices of what is added up, on any
    mesh.

    Also small numbers, such as the weights of choices, stay gathered, and what other ops read.
    A function in which nothing is found is left as it is. For GPUs it is an error: how many
    rows move is known to who reads the ids.

    Phase `partition`; reads `expert_exchange`. It runs behind
    `nn-chunk-loss`, which cuts gathers.

    Example:
    ```mlir
    module attributes {plait.configuration = #plait.configuration<expert_exchange = rows>} {
      dist.mesh @mesh ["ep"] = [2]
      func.func @f(%x: tensor<1x8x4xf32>, %w: tensor<2x4x6xf32>, %i: tensor<2x8x3xi32>) -> tensor<2x8x3x6xf32> {
        %0 = dist.all_gather %x on @mesh["ep"] dim 0 : tensor<1x8x4xf32> -> tensor<2x8x4xf32>
        %1 = nn.grouped_matmul %0, %w, %i "bsh,ehf->bscf" {begin = #nn.begin<"ep" * 2>} : (tensor<2x8x4xf32>, tensor<2x4x6xf32>, tensor<2x8x3xi32>) -> tensor<2x8x3x6xf32>
        return %1 : tensor<2x8x3x6xf32>
      }
    }
    ```
    becomes
    ```mlir
    %0 = dist.dispatch %arg0 by %arg2 on @mesh["ep"] experts 2 : (tensor<1x8x4xf32>, tensor<2x8x3xi32>) -> tensor<2x8x4xf32>
    ```
  }];
}

#endif // PLAIT_TRANSFORMS_EXPERTPASSES_TD
