//===- NamedLosses.cpp - Losses that are reported beside the loss ---------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/NN/IR/NamedLosses.h"

#include "plait/Plan/Metrics.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace plait;
using namespace plait::nn;

/// The results behind the loss and the number of targets.
static constexpr unsigned kFirst = 2;

SmallVector<StringRef> nn::getNamedLosses(FunctionOpInterface loss) {
  SmallVector<StringRef> names;
  for (unsigned i = kFirst; i < loss.getNumResults(); ++i)
    names.push_back(loss.getResultAttrOfType<StringAttr>(i, kNamedLossAttr));
  return names;
}

SmallVector<StringRef> nn::getNamedLosses(ModuleOp module) {
  SmallVector<StringRef> names;
  for (auto accumulator : module.getOps<AccumulatorOp>())
    if (StringRef name = accumulator.getSymName();
        name.consume_front(kNamedLossPrefix))
      names.push_back(name);
  return names;
}

LogicalResult nn::verifyNamedLosses(FunctionOpInterface loss) {
  if (loss.getNumResults() > kFirst + plan::kMostNamedLosses)
    return loss.emitOpError("returns ")
           << loss.getNumResults() - kFirst
           << " named losses, expected at most " << plan::kMostNamedLosses;
  llvm::StringSet<> names;
  Operation *module = loss->getParentOp();
  for (unsigned i = kFirst; i < loss.getNumResults(); ++i) {
    auto name = loss.getResultAttrOfType<StringAttr>(i, kNamedLossAttr);
    if (!name || !plan::isLossName(name.getValue()))
      return loss.emitOpError("returns result ")
             << i << " without a name, expected " << kNamedLossAttr
             << " = \"NAME\" of at most 32 letters, digits and underscores";
    if (!names.insert(name.getValue()).second)
      return loss.emitOpError("returns two losses named ") << name;
    std::string symbol = (kNamedLossPrefix + name.getValue()).str();
    if (SymbolTable::lookupSymbolIn(module, symbol))
      return loss.emitOpError("returns a loss named ")
             << name << ", but the module has a symbol @" << symbol
             << " already, which is to add it up";
  }
  return success();
}
