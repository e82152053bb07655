//===- KnownClusters.cpp - Clusters that have been asked about ------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A cluster is described as a list of words: the kinds of its ops, and where
// each operand comes from, by numbers in the order in which values are met. A
// kind is an op's name, attributes and types. What comes from outside counts by
// its type. From these alone follows what createCluster() builds, and so
// whether a kernel computes it.
//
//===----------------------------------------------------------------------===//

#include "Fusion.h"

using namespace mlir;
using namespace plait;

/// Attributes and types are unique in a context: equal ones have one address.
static uintptr_t wordOf(const void *unique) {
  return reinterpret_cast<uintptr_t>(unique);
}

bool plait::addNumbers(ArrayRef<Operation *> ops) {
  return llvm::all_of(ops, [](Operation *op) {
    return op->hasTrait<AddsOperands>() &&
           cast<RankedTensorType>(op->getResult(0).getType()).getRank() == 0 &&
           llvm::none_of(op->getOperands(), [](Value operand) {
             Operation *source = operand.getDefiningOp();
             return source && isFree(source);
           });
  });
}

uintptr_t KnownClusters::kindOf(Operation *op) {
  auto [known, isNew] = kindOfOp.try_emplace(op, 0);
  if (!isNew)
    return known->second;
  Words words{wordOf(op->getName().getAsOpaquePointer()), op->getNumOperands()};
  for (Type type : op->getResultTypes())
    words.push_back(wordOf(type.getAsOpaquePointer()));
  for (NamedAttribute attribute : op->getAttrs()) {
    StringRef name = attribute.getName();
    if (name == nn::kLayerAttr || name == nn::kSiteAttr)
      continue;
    words.push_back(wordOf(attribute.getName().getAsOpaquePointer()));
    words.push_back(wordOf(attribute.getValue().getAsOpaquePointer()));
  }
  return known->second =
             kinds.try_emplace(std::move(words), kinds.size()).first->second;
}

/// A free op is described where it is first read.
void KnownClusters::describe(OpOperand &use,
                             llvm::DenseMap<Value, uintptr_t> &numbers,
                             Words &words) {
  Value value = use.get();
  auto [known, isNew] = numbers.try_emplace(value, numbers.size());
  words.push_back(known->second);
  if (!isNew)
    return;
  Operation *source = value.getDefiningOp();
  words.push_back(wordOf(value.getType().getAsOpaquePointer()));
  bool isCopied = source && isFree(source) && !needsMemory(use);
  words.push_back(isCopied ? kindOf(source) + 1 : 0);
  if (!isCopied)
    return;
  for (OpOperand &operand : source->getOpOperands())
    describe(operand, numbers, words);
}

Copies KnownClusters::find(ArrayRef<Operation *> members,
                           ArrayRef<Value> outputs) {
  Words words{members.size()};
  llvm::DenseMap<Value, uintptr_t> numbers;
  for (Operation *op : members) {
    words.push_back(kindOf(op));
    for (OpOperand &operand : op->getOpOperands())
      describe(operand, numbers, words);
    numbers.try_emplace(op->getResult(0), numbers.size());
  }
  for (Value output : outputs)
    words.push_back(numbers.lookup(output));
  auto [known, isNew] = clusters.try_emplace(std::move(words), Copies::None);
  if (isNew)
    known->second = findCopies(members, outputs);
  return known->second;
}
