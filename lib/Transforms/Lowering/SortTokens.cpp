//===- SortTokens.cpp - Tokens that are sorted for GPUs -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The gradient of a table of embeddings adds up rows by token. On a GPU every
// block of the table would look at all tokens, 8192 times 64 Ki of them for
// GPT-2. The host knows the tokens before the step begins: where a gradient
// takes those of a whole microbatch, it sorts their positions too, and they lie
// behind the tokens (plait/Support/SortedTokens.h). Here the arguments of
// functions get their attribute; kernels follow it, and so do the sizes of
// buffers.
//
//===----------------------------------------------------------------------===//

#include "Fusion.h"

#include "plait/Analysis/KernelShape.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/Plan/IR/RowPitch.h"
#include "plait/Transforms/StageFunctions.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace plait;

/// Bounds the rows of a table for each token of a microbatch. Of more, where
/// they begin takes more memory than it is worth: a step has it of all of its
/// microbatches.
static constexpr int64_t kMostRows = 8;

/// All functions that take tokens take the same buffer, so all of them have the
/// attribute if one has a use for it.
void plait::sortTokens(ModuleOp module) {
  if (!isForGPUs(module))
    return;
  SmallVector<BlockArgument> tokens;
  int64_t entries = 0;
  for (auto function : module.getOps<func::FuncOp>()) {
    if (!getStageFunction(function))
      continue;
    for (auto [argument, port] :
         llvm::zip_equal(function.getArguments(), getPorts(function))) {
      if (!port || port.getKind() != pipe::PortKind::Tokens)
        continue;
      tokens.push_back(argument);
      for (OpOperand &use : argument.getUses())
        if (getFacts(use.getOwner()).scatters)
          entries = std::max(entries, countTableRows(use.getOwner()));
    }
  }
  if (entries == 0 || entries >= INT32_MAX ||
      entries / kMostRows >
          cast<ShapedType>(tokens.front().getType()).getNumElements())
    return;
  auto number = Builder(module).getI64IntegerAttr(entries);
  for (BlockArgument argument : tokens)
    cast<func::FuncOp>(argument.getOwner()->getParentOp())
        .setArgAttr(argument.getArgNumber(), plan::kSortedAttr, number);
}
