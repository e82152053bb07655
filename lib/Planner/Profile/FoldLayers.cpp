//===- FoldLayers.cpp - One layer of each kind ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Of identical layers behind identical layers the first is kept, and stands for
// the others, whether they follow each other or alternate with other kinds. A
// profile's time then does not grow with a model's depth. What a layer is
// behind counts because what it reads may be sharded otherwise there: so the
// first layer, which is behind the embedding, is kept apart.
//
//===----------------------------------------------------------------------===//

#include "FoldLayers.h"

#include "plait/Analysis/AlikeLayers.h"
#include "plait/Analysis/TrainedValues.h"
#include "plait/Dialect/NN/IR/Layers.h"
#include "plait/Dialect/NN/IR/Names.h"
#include "plait/Planner/TakeOutLayers.h"

#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace plait;

/// The values that come into a layer from other layers, and those that others
/// take from it, each once and in the order of its ops.
static std::pair<llvm::SetVector<Value>, llvm::SetVector<Value>>
findSeams(ArrayRef<Operation *> layer) {
  llvm::SmallPtrSet<Operation *, 32> own(layer.begin(), layer.end());
  llvm::SetVector<Value> in, out;
  for (Operation *op : layer) {
    for (Value operand : op->getOperands())
      if (Operation *maker = operand.getDefiningOp();
          maker && maker->hasAttr(nn::kLayerAttr) && !own.contains(maker))
        in.insert(operand);
    for (Value result : op->getResults())
      if (llvm::any_of(result.getUsers(),
                       [&](Operation *user) { return !own.contains(user); }))
        out.insert(result);
  }
  return {in, out};
}

/// Takes a layer out, so that what comes into it is what it hands on. False
/// where that is of other types: then it stays.
static bool takeOut(ArrayRef<Operation *> layer) {
  auto [in, out] = findSeams(layer);
  auto isLike = [](auto pair) {
    return std::get<0>(pair).getType() == std::get<1>(pair).getType();
  };
  if (in.size() != out.size() || !llvm::all_of(llvm::zip(in, out), isLike))
    return false;
  for (auto [before, after] : llvm::zip_equal(in, out))
    Value(after).replaceAllUsesWith(before);
  for (Operation *op : llvm::reverse(layer))
    op->erase();
  return true;
}

/// The layer that stands for each, in order: the first one of its kind that is
/// behind one of the same kind as it is, and that has a gradient to hand on if
/// it has: in front of all that is trained there is no backward pass.
static SmallVector<int64_t> mergeKinds(func::FuncOp function) {
  AlikeLayers alike(function);
  SmallVector<int64_t> ids(llvm::make_first_range(alike.getLayers()));
  llvm::DenseSet<Value> trained = findTrainedValues(function);
  auto isTrained = [&](Value value) { return trained.contains(value); };
  // The keys are both kinds, and whether a gradient is handed on.
  std::map<std::tuple<int64_t, int64_t, bool>, int64_t> known;
  SmallVector<int64_t> order;
  for (auto [index, id] : llvm::enumerate(ids)) {
    int64_t before = index ? alike.getFirst(ids[index - 1]) : -1;
    bool handsOn =
        llvm::any_of(findSeams(alike.getLayers().at(id)).first, isTrained);
    order.push_back(known.try_emplace({alike.getFirst(id), before, handsOn}, id)
                        .first->second);
  }
  // From the last to the first: a layer that is taken out has nobody behind it
  // that will be.
  for (size_t index = ids.size(); index-- > 0;)
    if (order[index] != ids[index] &&
        !takeOut(alike.getLayers().at(ids[index])))
      order[index] = ids[index];
  return order;
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

/// 1. Layers are merged; each one left gets a block with its count.
/// 2. Ops in front of the first layer become a block of their own, the
///    embedding. Reads of parameters do not count for that: they may stand
///    anywhere.
/// 3. All ops are labelled with their block, in order, and with its layer, if
///    it is one. What stands behind the last op of a layer is a block of its
///    own, the head. A read is of the block that it is for: one more would make
///    a layer unlike the others.
FoldedBlocks plait::foldLayers(func::FuncOp function) {
  // 1. Merge.
  SmallVector<int64_t> order = mergeKinds(function);
  std::map<int64_t, int64_t> counts;
  for (int64_t layer : order)
    ++counts[layer];
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
    folded.add({"embedding", 1, false});
  for (auto [layer, count] : counts) {
    blockOf[layer] = folded.blocks.size();
    std::string suffix = counts.size() > 1 ? " " + std::to_string(layer) : "";
    folded.blocks.push_back({"layer" + suffix, count, true});
  }
  for (int64_t layer : order)
    folded.order.push_back(blockOf[layer]);
  if (counts.empty())
    folded.add({"model", 1, true});
  // 3. Labels.
  Operation *last = nullptr; // that a layer has
  for (Operation &op : ops)
    if (layerOf(op))
      last = &op;
  Builder builder(function.getContext());
  int64_t current = 0;
  IntegerAttr own = counts.empty() ? builder.getI64IntegerAttr(0) : nullptr;
  bool isBehind = false;
  for (Operation &op : ops) {
    if (auto layer = layerOf(op)) {
      own = layer;
      current = blockOf[layer.getInt()];
    } else if (isRead(op)) {
      continue;
    } else if (isBehind) {
      current = folded.blocks.size();
      folded.add({"head", 1, false});
      isBehind = false; // only once
      own = nullptr;
    }
    isBehind |= &op == last;
    op.setAttr(nn::kBlockAttr, builder.getI64IntegerAttr(current));
    if (own)
      op.setAttr(nn::kLayerAttr, own);
  }
  for (Operation &op : ops)
    if (!op.hasAttr(nn::kBlockAttr) && !op.use_empty())
      nn::inheritLayer(&op, *std::min_element(op.user_begin(), op.user_end(),
                                              [](Operation *a, Operation *b) {
                                                return a->isBeforeInBlock(b);
                                              }));
  return folded;
}

/// The symbols that are used somewhere in a module.
static llvm::DenseSet<Attribute> findUsed(ModuleOp module) {
  llvm::DenseSet<Attribute> used;
  if (auto uses = SymbolTable::getSymbolUses(&module.getBodyRegion()))
    for (const SymbolTable::SymbolUse &use : *uses)
      used.insert(use.getSymbolRef().getRootReference());
  return used;
}

bool plait::takeOutLayers(ModuleOp module, ArrayRef<int64_t> indices) {
  auto loss = module.lookupSymbol<func::FuncOp>(nn::kLossFunction);
  llvm::DenseSet<Attribute> before = findUsed(module);
  std::map<int64_t, SmallVector<Operation *>> layers;
  for (Operation &op : loss.getBody().front())
    if (auto layer = op.getAttrOfType<IntegerAttr>(nn::kLayerAttr))
      layers[layer.getInt()].push_back(&op);
  SmallVector<int64_t> ids(llvm::make_first_range(layers));
  for (int64_t index : llvm::reverse(indices))
    if (!takeOut(layers.at(ids[index])))
      return false;
  llvm::DenseSet<Attribute> after = findUsed(module);
  for (auto parameter :
       llvm::make_early_inc_range(module.getOps<nn::ParameterOp>()))
    if (Attribute name = parameter.getSymNameAttr();
        before.contains(name) && !after.contains(name))
      parameter.erase();
  return true;
}
