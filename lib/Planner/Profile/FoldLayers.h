//===- FoldLayers.h - One layer of each kind ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_PROFILE_FOLDLAYERS_H
#define PLAIT_LIB_PLANNER_PROFILE_FOLDLAYERS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace plait {

/// The blocks that folding left, in the order of the forward pass. Operations
/// before the first layer and after the last are blocks, too.
struct FoldedBlocks {
  struct Block {
    std::string name;
    int64_t count; // layers that it stands for
    bool isLayer;
  };
  llvm::SmallVector<Block> blocks;
  /// The block of each layer of the whole model, and of what is no layer.
  llvm::SmallVector<int64_t> order;

  /// Adds a block that stands for itself.
  void add(Block block) {
    order.push_back(int64_t(blocks.size()));
    blocks.push_back(std::move(block));
  }
};

/// Keeps of each kind of layers the first one behind each other kind, which
/// stands for all like it: the others are taken out, so that what comes into
/// them is handed on. Every op that is left gets the index of its block as
/// `nn.block`; parameters that nothing reads any more are erased. A function
/// without layers is one block.
FoldedBlocks foldLayers(mlir::func::FuncOp function);

} // namespace plait

#endif // PLAIT_LIB_PLANNER_PROFILE_FOLDLAYERS_H
