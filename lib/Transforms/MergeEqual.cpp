//===- MergeEqual.cpp - Ops that are there twice --------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MergeEqual.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace plait;

namespace {

/// An op that later ones may be equal to. The hash stands with it, so that it
/// is computed once.
struct Entry {
  Operation *op;
  unsigned hash;
  /// How many ops in front of it write, or may.
  int64_t writes = 0;
};

struct ByContent {
  using Address = llvm::DenseMapInfo<Operation *>;
  static Entry getEmptyKey() { return {Address::getEmptyKey(), 0}; }
  static Entry getTombstoneKey() { return {Address::getTombstoneKey(), 0}; }
  static unsigned getHashValue(const Entry &entry) { return entry.hash; }
  static bool isEqual(const Entry &one, const Entry &other) {
    auto isOp = [](Operation *op) {
      return op != Address::getEmptyKey() && op != Address::getTombstoneKey();
    };
    return one.op == other.op ||
           (one.hash == other.hash && isOp(one.op) && isOp(other.op) &&
            OperationEquivalence::isEquivalentTo(
                one.op, other.op, OperationEquivalence::IgnoreLocations));
  }
};

/// Merges the ops of one block.
class Merger {
public:
  void run(Block &block);

private:
  void visit(Operation *op);

  llvm::DenseSet<Entry, ByContent> known;
  SmallVector<Operation *> erased;
  int64_t writes = 0; // of the ops so far
};

} // namespace

/// Whether `op` writes, or says nothing of its effects.
static bool mayWrite(Operation *op) {
  std::optional<SmallVector<MemoryEffects::EffectInstance>> effects =
      getEffectsRecursively(op);
  return !effects || llvm::any_of(*effects, [](const auto &effect) {
    return isa<MemoryEffects::Write>(effect.getEffect());
  });
}

/// Users of an op that goes are behind it, and not hashed yet.
void Merger::visit(Operation *op) {
  if (op->hasTrait<OpTrait::IsTerminator>())
    return;
  if (isOpTriviallyDead(op)) {
    erased.push_back(op);
    return;
  }
  bool reads = !isMemoryEffectFree(op);
  if (reads && !hasSingleEffect<MemoryEffects::Read>(op)) {
    writes += mayWrite(op);
    return;
  }
  llvm::hash_code hash = OperationEquivalence::computeHash(
      op, OperationEquivalence::directHashValue,
      OperationEquivalence::ignoreHashValue,
      OperationEquivalence::IgnoreLocations);
  Entry own{op, unsigned(size_t(hash)), writes};
  auto [found, isNew] = known.insert(own);
  if (isNew)
    return;
  if (reads && found->writes != writes) {
    known.erase(found);
    known.insert(own);
    return;
  }
  Operation *first = found->op;
  op->replaceAllUsesWith(first);
  erased.push_back(op);
  if (isa<UnknownLoc>(first->getLoc()))
    first->setLoc(op->getLoc());
}

void Merger::run(Block &block) {
  for (Operation &op : block) {
    for (Region &region : op.getRegions())
      for (Block &inner : region)
        mergeEqualOps(inner);
    visit(&op);
  }
  for (Operation *op : erased)
    op->erase();
}

void plait::mergeEqualOps(Block &block) { Merger().run(block); }

namespace {
struct MergeEqualPass : PassWrapper<MergeEqualPass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(MergeEqualPass)

  StringRef getArgument() const override { return "plait-merge-equal"; }

  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (llvm::hasSingleElement(function.getBody()))
        mergeEqualOps(function.getBody().front());
  }
};
} // namespace

std::unique_ptr<Pass> plait::createMergeEqualPass() {
  return std::make_unique<MergeEqualPass>();
}
