//===- FoldLayers.cpp - One layer of each kind ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Of each run of identical layers the first two are kept, and the second stands
// for all but the first. A profile's time then does not grow with a model's
// depth. The first of a run is kept apart because what it reads comes from
// elsewhere, and may be sharded otherwise than what layers hand to each other.
//
//===----------------------------------------------------------------------===//

#include "FoldLayers.h"

#include "plait/Analysis/AlikeLayers.h"
#include "plait/Dialect/NN/IR/NN.h"

using namespace mlir;
using namespace plait;

/// Replaces a layer by the one before it, which is like it. What the later one
/// hands on is then what the earlier one does.
static void mergeLayer(ArrayRef<Operation *> layer,
                       ArrayRef<Operation *> previous) {
  for (auto [op, other] : llvm::zip_equal(layer, previous))
    op->replaceUsesWithIf(other, [&](OpOperand &use) {
      return !llvm::is_contained(layer, use.getOwner());
    });
  for (Operation *op : llvm::reverse(layer))
    op->erase();
}

/// How many layers each layer that is left stands for. A layer that is merged
/// adds its count to the layer in front of it (`run`), until one of the run is
/// kept.
static std::map<int64_t, int64_t> mergeRuns(func::FuncOp function) {
  AlikeLayers alike(function);
  std::map<int64_t, int64_t> counts;
  SmallVector<int64_t> ids;
  for (const auto &[id, ops] : alike.getLayers())
    ids.push_back(id);
  int64_t run = 1;
  // From the last to the first, so that results hand over along the run.
  for (size_t index = ids.size(); index-- > 0;) {
    auto isLike = [&](size_t other) {
      return alike.getFirst(ids[index]) == alike.getFirst(ids[other]);
    };
    // The first of a run stays: what comes in there may be sharded unlike what
    // layers hand to each other.
    bool merges = index > 1 && isLike(index - 1) && isLike(index - 2);
    if (!merges) {
      counts[ids[index]] = run;
      run = 1;
      continue;
    }
    mergeLayer(alike.getLayers().at(ids[index]),
               alike.getLayers().at(ids[index - 1]));
    ++run;
  }
  return counts;
}

/// Erases the parameters of merged layers, which would otherwise be counted and
/// sharded.
static void eraseUnreadParameters(func::FuncOp function) {
  llvm::DenseSet<Attribute> read;
  for (auto op : nn::findAccesses(function, nn::SlotAccess::Read))
    read.insert(op.getSymbolAttr());
  auto module = function->getParentOfType<ModuleOp>();
  for (auto parameter :
       llvm::make_early_inc_range(module.getOps<nn::ParameterOp>()))
    if (!read.contains(FlatSymbolRefAttr::get(parameter.getSymNameAttr())))
      parameter.erase();
}

/// 1. Runs of layers are merged; each layer left gets a block with its count.
/// 2. Ops in front of the first layer become a block of their own, the
///    embedding. Reads of parameters do not count for that: they may stand
///    anywhere.
/// 3. All ops are labelled with their block, in order. What stands behind the
///    last op of a layer is a block of its own, the head. A read is of the
///    block that it is for: one more would make a layer unlike the others.
FoldedBlocks plait::foldLayers(func::FuncOp function) {
  // 1. Merge.
  std::map<int64_t, int64_t> counts = mergeRuns(function);
  eraseUnreadParameters(function);
  FoldedBlocks folded;
  std::map<int64_t, int64_t> blockOf;
  auto isRead = [](Operation &op) {
    return nn::getSlotAccess(&op) == nn::SlotAccess::Read;
  };
  auto layerOf = [](Operation &op) {
    return op.getAttrOfType<IntegerAttr>(nn::kLayerAttr);
  };
  // 2. Blocks. What stands between two layers belongs to the one before.
  auto ops = function.getBody().front().without_terminator();
  auto first = llvm::find_if(ops, [&](Operation &op) { return layerOf(op); });
  bool before =
      counts.empty() ? false : std::any_of(ops.begin(), first, [&](auto &op) {
        return !isRead(op);
      });
  if (before)
    folded.blocks.push_back({"embedding", 1, false});
  for (auto [layer, count] : counts) {
    blockOf[layer] = folded.blocks.size();
    std::string suffix = counts.size() > 1 ? " " + std::to_string(layer) : "";
    folded.blocks.push_back({"layer" + suffix, count, true});
  }
  if (counts.empty())
    folded.blocks.push_back({"model", 1, true});
  // 3. Labels.
  Operation *last = nullptr; // that a layer has
  for (Operation &op : ops)
    if (layerOf(op))
      last = &op;
  Builder builder(function.getContext());
  int64_t current = 0;
  bool isBehind = false;
  for (Operation &op : ops) {
    if (auto layer = layerOf(op)) {
      current = blockOf[layer.getInt()];
    } else if (isRead(op)) {
      continue;
    } else if (isBehind) {
      current = folded.blocks.size();
      folded.blocks.push_back({"head", 1, false});
      isBehind = false; // only once
    }
    isBehind |= &op == last;
    op.setAttr(nn::kLayerAttr, builder.getI64IntegerAttr(current));
  }
  for (Operation &op : ops)
    if (!op.hasAttr(nn::kLayerAttr) && !op.use_empty())
      op.setAttr(nn::kLayerAttr,
                 (*std::min_element(op.user_begin(), op.user_end(),
                                    [](Operation *a, Operation *b) {
                                      return a->isBeforeInBlock(b);
                                    }))
                     ->getAttr(nn::kLayerAttr));
  return folded;
}
