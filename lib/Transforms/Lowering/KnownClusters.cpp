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

KnownClusters::Kind KnownClusters::kindOf(Operation *op) {
  auto [known, isNew] = kindOfOp.try_emplace(op);
  if (!isNew)
    return known->second;
  Words own{wordOf(op->getName().getAsOpaquePointer()), op->getNumOperands()};
  for (Type type : op->getResultTypes())
    own.push_back(wordOf(type.getAsOpaquePointer()));
  // They come one by one: a dictionary of them the context would keep.
  NamedAttrList attributes(op->getRawDictionaryAttrs());
  op->getName().populateInherentAttrs(op, attributes);
  for (NamedAttribute attribute : attributes) {
    StringRef name = attribute.getName();
    if (name == nn::kLayerAttr || name == nn::kSiteAttr)
      continue;
    own.push_back(wordOf(attribute.getName().getAsOpaquePointer()));
    own.push_back(wordOf(attribute.getValue().getAsOpaquePointer()));
  }
  uintptr_t number =
      kinds.try_emplace(std::move(own), kinds.size()).first->second;
  return known->second = {number, isFree(op)};
}

bool KnownClusters::meet(Value value) {
  auto [known, isNew] = numbers.try_emplace(value, numbers.size());
  words.push_back(known->second);
  return isNew;
}

/// A free op is described where it is first read.
void KnownClusters::describe(OpOperand &use) {
  Value value = use.get();
  if (!meet(value))
    return;
  Operation *source = value.getDefiningOp();
  words.push_back(wordOf(value.getType().getAsOpaquePointer()));
  Kind kind = source ? kindOf(source) : Kind();
  bool isCopied = kind.isFree && !needsMemory(use);
  words.push_back(isCopied ? kind.number + 1 : 0);
  if (!isCopied)
    return;
  for (OpOperand &operand : source->getOpOperands())
    describe(operand);
}

Copies KnownClusters::find(ArrayRef<Operation *> members,
                           ArrayRef<Value> outputs) {
  words.assign({members.size()});
  numbers.clear();
  for (Operation *op : members) {
    words.push_back(kindOf(op).number);
    for (OpOperand &operand : op->getOpOperands())
      describe(operand);
    numbers.try_emplace(op->getResult(0), numbers.size());
  }
  for (Value output : outputs)
    words.push_back(numbers.lookup(output));
  auto [known, isNew] = clusters.try_emplace(words, Copies::None);
  if (isNew)
    known->second = findCopies(members, outputs);
  return known->second;
}
