//===- Parameters.cpp - Parameters that blocks read -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a block's functions read and add to, with what a step's end and ZeRO ask
// of it: sizes on this rank, sides of matrices, who else reads it.
//
//===----------------------------------------------------------------------===//

#include "Parameters.h"

#include "Measure.h"
#include "plait/Configuration/CompressionFacts.h"
#include "plait/Dialect/NN/IR/Adapters.h"
#include "plait/Dialect/NN/IR/Names.h"
#include "plait/Dialect/NN/IR/Parameters.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Transforms/StageFunctions.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace plait;
using planner::ParameterGroup;

/// Finds them while types have shardings.
Sums plait::findSums(ModuleOp module) {
  auto axis = StringAttr::get(module.getContext(), kTensorAxis);
  Sums sums;
  for (auto add : nn::findAccesses(module, nn::SlotAccess::Add)) {
    auto sharding = dist::ShardingAttr::of(add.getTensor());
    bool isPartial = sharding && sharding.isPartialOver(axis);
    (isPartial ? sums.partial : sums.whole).insert(add.getSymbolAttr());
  }
  for (Attribute symbol : sums.whole)
    sums.partial.erase(symbol);
  llvm::DenseMap<Attribute, func::FuncOp> readers;
  for (auto function : module.getOps<func::FuncOp>())
    for (auto read : nn::findAccesses(function, nn::SlotAccess::Read)) {
      Attribute symbol = read.getSymbolAttr();
      if (readers.try_emplace(symbol, function).first->second != function)
        sums.shared.insert(symbol);
    }
  return sums;
}

/// Returns what a rank has of each dimension. One that is split unevenly has
/// padding, and so no equal blocks: it counts as one that nothing divides.
static std::vector<int64_t> getLocalSizes(nn::ParameterOp parameter,
                                          dist::ShardingAttr sharding) {
  std::vector<int64_t> sizes(parameter.getType().getShape());
  if (!sharding)
    return sizes;
  dist::MeshOp mesh = dist::MeshOp::find(parameter);
  for (auto [size, axes] : llvm::zip_equal(sizes, sharding.getDims())) {
    int64_t blocks = mesh.getBlocks(axes);
    size = size % blocks ? 1 : size / blocks;
  }
  return sizes;
}

/// The ops that make what the forward function leaves to its backward one, and
/// all that those read: what a block computes again if it keeps its inputs
/// alone.
static llvm::SetVector<Operation *> findMakers(func::FuncOp forward) {
  llvm::SetVector<Operation *> makers; // grows while it is walked
  auto add = [&](Value value) {
    if (Operation *maker = value.getDefiningOp())
      makers.insert(maker);
  };
  Operation *terminator = forward.getBody().front().getTerminator();
  for (auto [value, port] :
       llvm::zip_equal(terminator->getOperands(), getResultPorts(forward)))
    if (port.getKind() == pipe::PortKind::Residual)
      add(value);
  for (size_t index = 0; index < makers.size(); ++index)
    llvm::for_each(makers[index]->getOperands(), add);
  return makers;
}

/// Sets rows and columns of what an optimizer may update as a matrix, and what
/// is sent as factors.
static void setMatrix(ParameterGroup &group, nn::ParameterOp parameter) {
  if (ArrayRef<int64_t> shape =
          cast<RankedTensorType>(parameter.getType()).getShape();
      nn::countDims(parameter) > 1) {
    MatrixSides sides = getMatrixSides({shape.data(), shape.size()});
    group.factorRows = sides.rows;
    group.factorColumns = sides.columns;
  }
  std::optional<ArrayRef<int64_t>> columns = parameter.getMatrix();
  if (!columns)
    return;
  auto type = cast<RankedTensorType>(parameter.getType());
  group.columns = 1;
  for (int64_t dim : *columns)
    group.columns *= type.getDimSize(dim);
  group.rows = type.getNumElements() / group.columns;
}

/// Returns what `function` reads of parameters, in the order of the module,
/// which optimizers update them in.
static SmallVector<SlotOpInterface> findReads(ModuleOp module,
                                              func::FuncOp function) {
  auto reads = nn::findAccesses(function, nn::SlotAccess::Read);
  llvm::DenseMap<Attribute, size_t> places;
  for (auto parameter : module.getOps<nn::ParameterOp>())
    places[FlatSymbolRefAttr::get(parameter.getSymNameAttr())] = places.size();
  llvm::stable_sort(reads, [&](auto left, auto right) {
    return places.lookup(left.getSymbolAttr()) <
           places.lookup(right.getSymbolAttr());
  });
  return reads;
}

/// The parameters that a stage reads, by whether tp splits them.
std::vector<ParameterGroup> plait::findParameters(ModuleOp module,
                                                  func::FuncOp forward,
                                                  func::FuncOp backward,
                                                  const Sums &sums) {
  std::vector<ParameterGroup> groups;
  auto axis = StringAttr::get(module.getContext(), kTensorAxis);
  auto expertAxis =
      StringAttr::get(module.getContext(), getFacts(Axis::EP).name);
  llvm::DenseSet<Attribute> seen, seenBackward, seenAgain;
  for (auto read : nn::findAccesses(backward, nn::SlotAccess::Read))
    seenBackward.insert(read.getSymbolAttr());
  llvm::SetVector<Operation *> makers = findMakers(forward);
  for (auto read : nn::findAccesses(forward, nn::SlotAccess::Read))
    if (makers.contains(read))
      seenAgain.insert(read.getSymbolAttr());
  for (auto read : findReads(module, forward)) {
    auto parameter = module.lookupSymbol<nn::ParameterOp>(read.getSymbol());
    if (!parameter || !seen.insert(read.getSymbolAttr()).second)
      continue;
    ParameterGroup group;
    group.elements = countElements(read.getTensor().getType());
    dist::ShardingAttr sharding = nn::getSharding(parameter);
    group.replicated = !sharding || sharding.findDim(axis) < 0;
    group.partial = sums.partial.contains(read.getSymbolAttr());
    group.frozen = !sums.contains(read.getSymbolAttr());
    group.lacksMaster = group.frozen && nn::lacksMaster(parameter);
    group.experts = sharding && sharding.findDim(expertAxis) >= 0;
    group.sizes = getLocalSizes(parameter, sharding);
    setMatrix(group, parameter);
    group.readBackward = seenBackward.contains(read.getSymbolAttr());
    group.readAgain =
        group.readBackward || seenAgain.contains(read.getSymbolAttr());
    group.decays = parameter.getDecay();
    if (std::optional<StringRef> own = parameter.getOptimizer())
      group.optimizer = *findOptimizer(*own);
    group.tied = sums.shared.contains(read.getSymbolAttr());
    groups.push_back(group);
  }
  return groups;
}
