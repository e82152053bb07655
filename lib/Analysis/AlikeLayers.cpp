//===- AlikeLayers.cpp - Layers that compute the same ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Analysis/AlikeLayers.h"

#include "plait/Dialect/NN/IR/NN.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace plait;

/// What distinguishes an op within its layer: everything but the names of
/// parameters and the layer's own index.
static std::string describe(Operation *op,
                            const llvm::DenseMap<Operation *, int> &position) {
  std::string text;
  llvm::raw_string_ostream out(text);
  out << op->getName();
  for (NamedAttribute attribute : op->getAttrs())
    if (attribute.getName() != nn::kLayerAttr &&
        !isa<FlatSymbolRefAttr>(attribute.getValue()))
      out << ' ' << attribute.getName() << '=' << attribute.getValue();
  if (auto read = dyn_cast<nn::ReadOp>(op))
    if (auto parameter = SymbolTable::lookupNearestSymbolFrom<nn::ParameterOp>(
            op, read.getSymbolAttr()))
      out << parameter.getShardingAttr();
  for (Value operand : op->getOperands()) {
    out << ' ' << operand.getType();
    if (auto it = position.find(operand.getDefiningOp()); it != position.end())
      out << '#' << it->second << '.'
          << cast<OpResult>(operand).getResultNumber();
  }
  out << " -> ";
  llvm::interleaveComma(op->getResultTypes(), out);
  return text;
}

AlikeLayers::AlikeLayers(func::FuncOp function) {
  function.walk([&](Operation *op) {
    if (auto layer = op->getAttrOfType<IntegerAttr>(nn::kLayerAttr))
      layers[layer.getInt()].push_back(op);
  });
  llvm::StringMap<int64_t> known;
  for (auto &[layer, ops] : layers) {
    llvm::DenseMap<Operation *, int> position;
    std::string signature;
    for (auto [index, op] : llvm::enumerate(ops)) {
      signature += describe(op, position) + "\n";
      position[op] = index;
    }
    auto [it, isNew] = known.try_emplace(signature, layer);
    first[layer] = it->second;
    if (!isNew)
      for (auto [op, other] : llvm::zip_equal(ops, layers[it->second]))
        alike[op] = other;
  }
}

Operation *AlikeLayers::representative(Operation *op) const {
  auto it = alike.find(op);
  return it == alike.end() ? op : it->second;
}
