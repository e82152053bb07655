//===- BlockKey.cpp - What a block's measure depends on -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Passes behind differentiation change functions one by one, and look at
// nothing of the others but the parameters that both read. So a block's measure
// follows from its function, from what parameters are, and from whether another
// block reads or sums them as well. Names of parameters and numbers of layers
// are only compared with each other.
//
//===----------------------------------------------------------------------===//

#include "BlockKey.h"

#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/NN/IR/Parameters.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Transforms/StageFunctions.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace plait;

namespace {

/// Makes the key of one function.
class Describer {
public:
  struct Parameter {
    nn::ParameterOp op;
    int64_t place; // among those that decay, or those that do not
  };
  using Parameters = llvm::DenseMap<Attribute, Parameter>;

  Describer(const Parameters &parameters, const Sums &sums)
      : parameters(parameters), sums(sums) {}

  BlockKey describe(func::FuncOp function);

private:
  void add(const void *unique) {
    key.push_back(reinterpret_cast<uintptr_t>(unique));
  }
  void add(Attribute unique) { add(unique.getAsOpaquePointer()); }
  void add(Type unique) { add(unique.getAsOpaquePointer()); }
  void add(Region &region);
  void add(Operation &op);
  void addSymbol(Attribute symbol);

  const Parameters &parameters;
  const Sums &sums;
  llvm::DenseMap<Value, uintptr_t> values;
  llvm::DenseMap<Attribute, uintptr_t> symbols, layers;
  std::optional<int64_t> first[2]; // places, by whether they decay
  BlockKey key;
};

} // namespace

/// Adds the number of a parameter and, where it is met first, what it is. Where
/// it begins and comes from is nothing to what is done with it.
void Describer::addSymbol(Attribute symbol) {
  auto [known, isNew] = symbols.try_emplace(symbol, symbols.size());
  key.push_back(known->second);
  if (!isNew)
    return;
  key.push_back(sums.whole.contains(symbol));
  key.push_back(sums.partial.contains(symbol));
  key.push_back(sums.shared.contains(symbol));
  auto found = parameters.find(symbol);
  if (found == parameters.end())
    return add(symbol); // it is what it is called
  nn::ParameterOp parameter = found->second.op;
  std::optional<int64_t> &begin = first[parameter.getDecay()];
  begin = begin.value_or(found->second.place);
  key.push_back(uintptr_t(found->second.place - *begin));
  key.push_back(uintptr_t(nn::countDims(parameter)));
  for (NamedAttribute attribute : parameter->getAttrs())
    if (attribute.getName() != parameter.getSymNameAttrName() &&
        attribute.getName() != parameter.getInitAttrName() &&
        attribute.getName() != parameter.getFileAttrName()) {
      add(attribute.getName());
      add(attribute.getValue());
    }
}

/// Operands and results come behind their number, and so do attributes.
void Describer::add(Operation &op) {
  add(op.getName().getAsOpaquePointer());
  add(Attribute(findOrigin(op.getLoc())));
  key.push_back(op.getNumOperands());
  for (Value operand : op.getOperands())
    key.push_back(values.lookup(operand));
  key.push_back(op.getNumResults());
  for (Value result : op.getResults()) {
    values.try_emplace(result, values.size());
    add(result.getType());
  }
  ArrayRef<NamedAttribute> attributes = op.getAttrs();
  key.push_back(attributes.size());
  for (NamedAttribute attribute : attributes) {
    add(attribute.getName());
    if (isa<FlatSymbolRefAttr>(attribute.getValue()))
      addSymbol(attribute.getValue());
    else if (attribute.getName() == nn::kLayerAttr)
      key.push_back(layers.try_emplace(attribute.getValue(), layers.size())
                        .first->second);
    else
      add(attribute.getValue());
  }
  key.push_back(op.getNumRegions());
  for (Region &region : op.getRegions())
    add(region);
}

void Describer::add(Region &region) {
  key.push_back(region.getBlocks().size());
  for (Block &block : region) {
    key.push_back(block.getNumArguments());
    for (BlockArgument argument : block.getArguments()) {
      values.try_emplace(argument, values.size());
      add(argument.getType());
    }
    key.push_back(block.getOperations().size());
    for (Operation &op : block)
      add(op);
  }
}

/// Which block it is does not count, but what its arguments and results are.
BlockKey Describer::describe(func::FuncOp function) {
  for (NamedAttribute attribute : function->getAttrs())
    if (attribute.getName() != function.getSymNameAttrName() &&
        attribute.getName() != pipe::kFunctionAttr) {
      add(attribute.getName());
      add(attribute.getValue());
    }
  add(function.getBody());
  return std::move(key);
}

std::vector<BlockKey> plait::describeBlocks(ModuleOp module, const Sums &sums,
                                            int64_t blocks) {
  Describer::Parameters parameters;
  int64_t next[2] = {};
  for (auto parameter : module.getOps<nn::ParameterOp>())
    parameters[FlatSymbolRefAttr::get(parameter.getSymNameAttr())] = {
        parameter, next[parameter.getDecay()]++};
  std::vector<BlockKey> keys(blocks);
  for (auto function : module.getOps<func::FuncOp>())
    if (doesAction(function, pipe::ActionKind::Joint))
      keys[getStageFunction(function).getIndex()] =
          Describer(parameters, sums).describe(function);
  return keys;
}

void plait::keepBlocks(ModuleOp module, ArrayRef<int64_t> blocks) {
  for (auto function :
       llvm::make_early_inc_range(module.getOps<func::FuncOp>()))
    if (pipe::FunctionAttr own = getStageFunction(function);
        own && !llvm::is_contained(blocks, own.getIndex()))
      function.erase();
}
