//===- FindLayers.cpp - Repeated blocks, by their shape -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A front end writes layer after layer, and need not say where one ends. The
// ops that compute are read as a text whose letters are what an op is: its
// name, attributes and types, but not its parameters. Layers are where this
// text repeats itself:
//
// 1. The period that covers most of the text is the length of a layer.
// 2. Where a layer begins is where least crosses from one to the next: the
//    residual stream, and nothing that one half of a layer hands to the other.
// 3. Each layer has to be wired like the others, and to use what the one before
//    has made.
//
// What is left in front and behind is looked through in the same way: an
// encoder and a decoder are two such runs. It takes time in proportion to the
// number of ops and to the longest layer.
//
//===----------------------------------------------------------------------===//

#include "FindLayers.h"

#include "plait/Dialect/NN/IR/NN.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVectorExtras.h"

#include <map>
#include <vector>

using namespace mlir;
using namespace plait;

/// More ops than a layer has.
static constexpr size_t kLongestLayer = 2048;

namespace {

/// Layers of one length, one after the other: positions in the text.
struct Run {
  size_t begin = 0, length = 0, layers = 0;

  size_t end() const { return begin + length * layers; }
};

/// The ops of a function that compute something of other ops, in order.
class Text {
public:
  explicit Text(func::FuncOp loss);

  /// All runs, in order.
  std::vector<Run> findRuns() const {
    std::vector<Run> runs;
    find(0, steps.size(), runs);
    return runs;
  }
  /// Labels the ops of the layers of `runs`, from 0 on.
  void label(ArrayRef<Run> runs) const;

private:
  using Signature = std::vector<const void *>;

  void read(Operation &op);
  int getKind(Operation *op);
  void countCrossing(Block &body);
  std::vector<Run> findPeriods(size_t begin, size_t end) const;
  Run align(const Run &found, size_t end) const;
  Signature getWiring(size_t begin, size_t length) const;
  bool isChained(size_t begin, size_t length) const;
  Run keepAlike(const Run &aligned) const;
  void find(size_t begin, size_t end, std::vector<Run> &runs) const;

  SmallVector<Operation *> steps;
  /// Reads and constants, and how many steps stand in front of each.
  SmallVector<std::pair<Operation *, size_t>> inputs;
  llvm::DenseMap<Operation *, size_t> position; // of a step
  /// Each step: what it is, whether it contracts something with a parameter,
  /// and the elements that are made in front of it and used from it on.
  std::vector<int> kinds;
  std::vector<bool> contracts;
  std::vector<double> crossing;
  std::map<Signature, int> known;
};

} // namespace

//===----------------------------------------------------------------------===//
// The text
//===----------------------------------------------------------------------===//

/// A number for what an op is. Operands count by their types, and constants by
/// what they are.
int Text::getKind(Operation *op) {
  Signature signature = {op->getName().getAsOpaquePointer()};
  for (NamedAttribute attribute : op->getAttrs()) {
    StringRef name = attribute.getName();
    // Discardable ones, with a dialect's name in front, say where an op is
    // from; layers differ in the number of a dropout, and in symbols.
    if (name.contains('.') || name == nn::kSiteAttr ||
        isa<FlatSymbolRefAttr>(attribute.getValue()))
      continue;
    signature.push_back(attribute.getName().getAsOpaquePointer());
    signature.push_back(attribute.getValue().getAsOpaquePointer());
  }
  for (Type type : op->getResultTypes())
    signature.push_back(type.getAsOpaquePointer());
  for (Value operand : op->getOperands()) {
    Operation *source = operand.getDefiningOp();
    signature.push_back(operand.getType().getAsOpaquePointer());
    signature.push_back(source && !position.contains(source)
                            ? source->getName().getAsOpaquePointer()
                            : nullptr);
    if (auto fill = dyn_cast_or_null<nn::FillOp>(source))
      signature.push_back(fill.getAmountAttr().getAsOpaquePointer());
  }
  return known.try_emplace(std::move(signature), int(known.size()))
      .first->second;
}

void Text::read(Operation &op) {
  if (op.hasTrait<OpTrait::IsTerminator>())
    return;
  if (op.getNumOperands() == 0) {
    inputs.push_back({&op, steps.size()});
    return;
  }
  kinds.push_back(getKind(&op));
  contracts.push_back(isa<ContractionOpInterface>(op) &&
                      llvm::any_of(op.getOperands(), [](Value operand) {
                        return nn::getSlotAccess(operand.getDefiningOp()) ==
                               nn::SlotAccess::Read;
                      }));
  position[&op] = steps.size();
  steps.push_back(&op);
}

/// Each value crosses from the step behind the one that makes it up to the last
/// one that uses it.
void Text::countCrossing(Block &body) {
  std::vector<double> change(steps.size() + 2);
  for (auto [index, op] : llvm::enumerate(steps))
    for (Value result : op->getResults()) {
      size_t last = index;
      for (Operation *user : result.getUsers()) {
        auto it = position.find(body.findAncestorOpInBlock(*user));
        last = std::max(last, it == position.end() ? steps.size() : it->second);
      }
      auto type = dyn_cast<RankedTensorType>(result.getType());
      double elements = type ? double(type.getNumElements()) : 0;
      change[index + 1] += elements;
      change[last + 1] -= elements;
    }
  double now = 0;
  for (size_t index = 0; index <= steps.size(); ++index)
    crossing.push_back(now += change[index]);
}

Text::Text(func::FuncOp loss) {
  Block &body = loss.getBody().front();
  for (Operation &op : body)
    read(op);
  countCrossing(body);
}

//===----------------------------------------------------------------------===//
// Runs
//===----------------------------------------------------------------------===//

/// Pieces of the text that repeat themselves and contract something with a
/// parameter: those that cover most come first, and of them the shortest
/// layers. A layer may begin anywhere within the first one.
std::vector<Run> Text::findPeriods(size_t begin, size_t end) const {
  std::vector<Run> found;
  for (size_t length = 1; 2 * length <= end - begin && length <= kLongestLayer;
       ++length)
    for (size_t i = begin, first = begin; i + length <= end; ++i) {
      bool repeats = i + length < end && kinds[i] == kinds[i + length];
      if (repeats)
        continue;
      // What repeats is [first, i), and the last of it once more.
      bool has = i >= first + length &&
                 std::find(contracts.begin() + first,
                           contracts.begin() + first + length,
                           true) != contracts.begin() + first + length;
      if (has)
        found.push_back({first, length, (i - first) / length + 1});
      first = i + 1;
    }
  llvm::stable_sort(found, [](const Run &x, const Run &y) {
    return x.length * x.layers > y.length * y.layers;
  });
  return found;
}

/// The beginning with the most layers, of those the one across whose first
/// border least is carried, of those the first.
Run Text::align(const Run &found, size_t end) const {
  size_t last = found.begin;
  while (last + found.length < end && kinds[last] == kinds[last + found.length])
    ++last;
  last += found.length; // where the text stops to repeat itself
  Run best = found;
  for (size_t begin = found.begin + 1; begin < found.begin + found.length;
       ++begin)
    if (begin + found.length * found.layers <= last &&
        crossing[begin + found.length] < crossing[best.begin + found.length])
      best.begin = begin;
  return best;
}

/// Which steps of the layer that begins there make the operands of the others.
Text::Signature Text::getWiring(size_t begin, size_t length) const {
  Signature wiring;
  for (size_t index = begin; index < begin + length; ++index)
    for (Value operand : steps[index]->getOperands()) {
      auto it = position.find(operand.getDefiningOp());
      bool isInner = it != position.end() && it->second >= begin;
      size_t which =
          isInner ? (it->second - begin + 1) * 64 +
                        std::min(cast<OpResult>(operand).getResultNumber(), 63u)
                  : 0;
      wiring.push_back(reinterpret_cast<const void *>(which));
    }
  return wiring;
}

/// Whether the layer that begins there uses a value of the one before it.
bool Text::isChained(size_t begin, size_t length) const {
  for (size_t index = begin; index < begin + length; ++index)
    for (Value operand : steps[index]->getOperands())
      if (auto it = position.find(operand.getDefiningOp());
          it != position.end() && it->second < begin &&
          it->second + length >= begin)
        return true;
  return false;
}

/// The most layers of `aligned` that are alike and a chain; fewer than two are
/// none.
Run Text::keepAlike(const Run &aligned) const {
  Run best, now;
  Signature wiring;
  for (size_t layer = 0; layer < aligned.layers; ++layer) {
    size_t begin = aligned.begin + layer * aligned.length;
    Signature own = getWiring(begin, aligned.length);
    if (layer && own == wiring && isChained(begin, aligned.length))
      ++now.layers;
    else
      now = {begin, aligned.length, 1};
    wiring = std::move(own);
    if (now.layers > best.layers)
      best = now;
  }
  return best.layers > 1 ? best : Run();
}

void Text::find(size_t begin, size_t end, std::vector<Run> &runs) const {
  for (const Run &found : findPeriods(begin, end)) {
    Run run = keepAlike(align(found, end));
    if (!run.layers)
      continue;
    find(begin, run.begin, runs);
    runs.push_back(run);
    find(run.end(), end, runs);
    return;
  }
}

//===----------------------------------------------------------------------===//
// Labels
//===----------------------------------------------------------------------===//

/// Layers have to come in order, which a read that stands elsewhere would
/// break.
void Text::label(ArrayRef<Run> runs) const {
  std::vector<int64_t> layers(steps.size(), -1);
  Builder builder(steps.front()->getContext());
  int64_t next = 0;
  for (const Run &run : runs)
    for (size_t layer = 0; layer < run.layers; ++layer, ++next)
      for (size_t index = 0; index < run.length; ++index)
        layers[run.begin + layer * run.length + index] = next;
  auto label = [&](Operation *op, int64_t layer) {
    op->setAttr(nn::kLayerAttr, builder.getI64IntegerAttr(layer));
  };
  for (auto [op, layer] : llvm::zip_equal(steps, layers))
    if (layer >= 0)
      label(op, layer);
  for (auto [op, before] : inputs) {
    // Of whoever uses it in a region, the op of the function.
    SmallVector<Operation *> users = llvm::map_to_vector(
        op->getUsers(), [block = op->getBlock()](Operation *user) {
          return block->findAncestorOpInBlock(*user);
        });
    auto layerOf = [&](Operation *user) {
      auto it = position.find(user);
      return it == position.end() ? -1 : layers[it->second];
    };
    if (users.empty() || layerOf(users.front()) < 0 ||
        !llvm::all_equal(llvm::map_range(users, layerOf)))
      continue;
    label(op, layerOf(users.front()));
    if (before >= steps.size() || layers[before] != layerOf(users.front()))
      op->moveBefore(*llvm::min_element(users, [](Operation *x, Operation *y) {
        return x->isBeforeInBlock(y);
      }));
  }
}

void plait::findLayers(func::FuncOp loss) {
  Text text(loss);
  if (std::vector<Run> runs = text.findRuns(); !runs.empty())
    text.label(runs);
}
