//===- AlikeLayers.cpp - Layers that compute the same ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A layer's signature lists its ops in order, each with its attributes, types,
// and which ops of the layer make its operands. Layers with equal signatures
// are alike. It takes time linear in the ops, and for each layer as many
// comparisons as the logarithm of their number. What comes from outside of a
// layer counts by its type alone: which layer it comes from is what layers
// differ in.
//
//===----------------------------------------------------------------------===//

#include "plait/Analysis/AlikeLayers.h"

#include "plait/Dialect/NN/IR/Layers.h"
#include "plait/Dialect/NN/IR/Parameters.h"

#include <vector>

using namespace mlir;
using namespace plait;

/// Attributes and types are unique in a context: who has the same has the same
/// pointers.
using Signature = std::vector<const void *>;

/// Appends what distinguishes an op within its layer: everything but the names
/// of parameters and the layer's own index.
static void describe(Operation *op, SymbolTableCollection &tables,
                     const llvm::DenseMap<Operation *, int> &position,
                     Signature &signature) {
  auto append = [&](auto value) {
    signature.push_back(value.getAsOpaquePointer());
  };
  auto appendNumber = [&](int64_t value) {
    signature.push_back(reinterpret_cast<const void *>(value));
  };
  append(op->getName());
  for (NamedAttribute attribute : op->getAttrs())
    // Which of the model's dropouts an op is changes no cost.
    if (attribute.getName() != nn::kLayerAttr &&
        attribute.getName() != nn::kBlockAttr &&
        attribute.getName() != nn::kSiteAttr &&
        !isa<FlatSymbolRefAttr>(attribute.getValue())) {
      append(attribute.getName());
      append(attribute.getValue());
    }
  // Parameters of two layers differ in name; a sharding or an optimizer that
  // one of them was given makes the layers differ.
  if (auto access = dyn_cast<SlotOpInterface>(op))
    if (nn::ParameterOp parameter = nn::findParameter(access, tables)) {
      append(parameter.getShardingAttr());
      append(parameter.getOptimizerAttr());
    }
  appendNumber(op->getNumOperands());
  for (Value operand : op->getOperands()) {
    append(operand.getType());
    auto it = position.find(operand.getDefiningOp());
    appendNumber(it == position.end() ? -1 : it->second);
    if (it != position.end())
      appendNumber(cast<OpResult>(operand).getResultNumber());
  }
  for (Type type : op->getResultTypes())
    append(type);
}

AlikeLayers::AlikeLayers(func::FuncOp function) {
  function.walk([&](Operation *op) {
    if (auto layer = nn::getLayer(op))
      layers[*layer].push_back(op);
  });
  std::map<Signature, int64_t> known;
  SymbolTableCollection tables;
  for (auto &[layer, ops] : layers) {
    llvm::DenseMap<Operation *, int> position;
    Signature signature;
    // An op is described before it has a position, so that it is known to those
    // behind it only.
    for (auto [index, op] : llvm::enumerate(ops)) {
      describe(op, tables, position, signature);
      position[op] = index;
    }
    auto [it, isNew] = known.try_emplace(signature, layer);
    first[layer] = it->second;
    // Equal signatures have as many ops, in the same order.
    if (!isNew)
      for (auto [op, other] : llvm::zip_equal(ops, layers[it->second]))
        alike[op] = other;
  }
}

Operation *AlikeLayers::representative(Operation *op) const {
  auto it = alike.find(op);
  return it == alike.end() ? op : it->second;
}
