//===- IdenticalFunctions.cpp - Detection of identical functions ----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A body is described as a list of words in which names are numbered as they
// come; what attributes and types are is told by their addresses, since both
// are unique in a context. Bodies with one description are identical.
//
// Passes that take their time, as forming clusters does, transform the first of
// each kind and copy the result to the others: names are put back by their
// numbers. A description takes time linear in the body, and comparing two of
// them is a comparison of arrays.
//
//===----------------------------------------------------------------------===//

#include "IdenticalFunctions.h"

#include "plait/Dialect/NN/IR/NN.h"

#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"

#include <map>
#include <optional>
#include <vector>

using namespace mlir;
using namespace plait;

static constexpr llvm::StringLiteral kSymbol = "symbol";

namespace {

/// A body as it was before it was transformed.
struct Description {
  std::vector<uintptr_t> words;
  /// The numbers that stand for them in `words`, in the order of these.
  using Names = llvm::MapVector<Attribute, uintptr_t>;
  Names symbols, layers;
  /// The locations of the ops in order.
  SmallVector<Location> locations;

  explicit Description(func::FuncOp function);

private:
  void add(const void *unique) {
    words.push_back(reinterpret_cast<uintptr_t>(unique));
  }
  /// The number of the first occurrence: two bodies that use other names in the
  /// same pattern have the same words.
  void add(Names &names, Attribute name) {
    words.push_back(names.try_emplace(name, names.size()).first->second);
  }
  void add(Operation *op, llvm::DenseMap<Value, uintptr_t> &numbers);
};

} // namespace

void Description::add(Operation *op,
                      llvm::DenseMap<Value, uintptr_t> &numbers) {
  locations.push_back(op->getLoc());
  // Operands and results come behind their number. Attributes need none: no
  // name of an attribute has the address of an op's name.
  add(op->getName().getAsOpaquePointer());
  words.push_back(op->getNumOperands());
  for (Value operand : op->getOperands())
    words.push_back(numbers.lookup(operand));
  words.push_back(op->getNumResults());
  for (Value result : op->getResults()) {
    numbers[result] = numbers.size();
    add(result.getType().getAsOpaquePointer());
  }
  // They come one by one: a dictionary of them the context would keep.
  NamedAttrList attributes(op->getRawDictionaryAttrs());
  op->getName().populateInherentAttrs(op, attributes);
  for (NamedAttribute attribute : attributes) {
    add(attribute.getName().getAsOpaquePointer());
    if (attribute.getName() == kSymbol)
      add(symbols, attribute.getValue());
    else if (attribute.getName() == nn::kLayerAttr)
      add(layers, attribute.getValue());
    else
      add(attribute.getValue().getAsOpaquePointer());
  }
  // An op with a body is identical to none.
  if (op->getNumRegions())
    add(op);
}

Description::Description(func::FuncOp function) {
  llvm::DenseMap<Value, uintptr_t> numbers;
  Block &body = function.getBody().front();
  for (BlockArgument argument : body.getArguments()) {
    numbers[argument] = numbers.size();
    add(argument.getType().getAsOpaquePointer());
  }
  for (Operation &op : body)
    add(&op, numbers);
}

/// Gives `target` the body of `source`, which was `before` and is transformed,
/// with the names of `own`, what it was itself.
static void copyBody(func::FuncOp source, const Description &before,
                     func::FuncOp target, const Description &own) {
  target.eraseBody();
  IRMapping mapping;
  source.getBody().cloneInto(&target.getBody(), mapping);
  llvm::DenseMap<Attribute, Attribute> symbols, layers, locations;
  for (auto [from, to] : llvm::zip_equal(before.symbols, own.symbols))
    symbols[from.first] = to.first;
  for (auto [from, to] : llvm::zip_equal(before.layers, own.layers))
    layers[from.first] = to.first;
  for (auto [from, to] : llvm::zip_equal(before.locations, own.locations))
    // Where ops have had one location in common, which of them a new op comes
    // from cannot be told: it gets the first one's.
    locations.try_emplace(from, to);
  AttrTypeReplacer replacer;
  // Locations are nested: what the transformation has made of them, say a
  // fusion of several, is kept around those that are exchanged.
  replacer.addReplacement([&](LocationAttr location) {
    Attribute found = locations.lookup(location);
    return found ? std::optional(std::pair(found, WalkResult::skip()))
                 : std::nullopt;
  });
  target.getBody().walk([&](Operation *op) {
    if (Attribute symbol = op->getAttr(kSymbol))
      op->setAttr(kSymbol, symbols.lookup(symbol));
    if (Attribute layer = op->getAttr(nn::kLayerAttr))
      op->setAttr(nn::kLayerAttr, layers.lookup(layer));
    op->setLoc(cast<LocationAttr>(replacer.replace(Attribute(op->getLoc()))));
  });
}

int64_t plait::transformOnce(ModuleOp module,
                             llvm::function_ref<void(func::FuncOp)> transform) {
  // All are described before the first one changes, in the module's order; but
  // for one that no other has as many ops as, which is identical to none.
  auto countOps = [](func::FuncOp function) {
    return function.getBody().front().getOperations().size();
  };
  llvm::DenseMap<size_t, int> sizes; // how many functions have so many ops
  for (auto function : module.getOps<func::FuncOp>())
    ++sizes[countOps(function)];
  SmallVector<std::pair<func::FuncOp, std::optional<Description>>> functions;
  for (auto function : module.getOps<func::FuncOp>()) {
    auto &own = functions.emplace_back(function, std::nullopt).second;
    if (sizes[countOps(function)] > 1)
      own.emplace(function);
  }
  // Keys are views of the descriptions, which no longer move. Addresses differ
  // between runs, and so does the order of the map; nothing depends on it.
  std::map<ArrayRef<uintptr_t>, size_t,
           bool (*)(ArrayRef<uintptr_t>, ArrayRef<uintptr_t>)>
      first([](ArrayRef<uintptr_t> left, ArrayRef<uintptr_t> right) {
        return std::lexicographical_compare(left.begin(), left.end(),
                                            right.begin(), right.end());
      });
  int64_t transformed = 0;
  for (size_t i = 0; i < functions.size(); ++i) {
    auto &[function, own] = functions[i];
    auto [it, isNew] =
        own ? first.try_emplace(own->words, i) : std::pair(first.end(), true);
    if (isNew) {
      transform(function);
      ++transformed;
    } else {
      copyBody(functions[it->second].first, *functions[it->second].second,
               function, *own);
    }
  }
  return transformed;
}
