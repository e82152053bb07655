//===- Decompose.cpp - Replace named ops by what they are made of ---------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Replaces ops by what their `decompose` builds, until none is left but those
// that a library computes in one step and, early, those that are not to be
// replaced yet. What an op is made of is said by the op itself.
//
// It runs twice. Early, before sharding, only ops go whose parts have to
// communicate when a dimension is split; late, on a rank's local graph, all
// that no library computes as a whole. In between, named ops are sharded,
// differentiated and recomputed as one, and recognised for epilogues.
//
//===----------------------------------------------------------------------===//

#include "plait/Transforms/Passes.h"

#include "mlir/IR/Builders.h"

namespace plait {
#define GEN_PASS_DEF_DECOMPOSEPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;

namespace {

/// Passes the discardable attributes of the op that is decomposed on to the
/// ops it is made of: its layer, its stage, its phase.
class InheritAttributes : public OpBuilder::Listener {
public:
  explicit InheritAttributes(Operation *source)
      : attributes(source->getDiscardableAttrDictionary()) {}
  void notifyOperationInserted(Operation *op, OpBuilder::InsertPoint) override {
    for (NamedAttribute attribute : attributes)
      op->setAttr(attribute.getName(), attribute.getValue());
  }

private:
  DictionaryAttr attributes;
};

struct DecomposePass : plait::impl::DecomposePassBase<DecomposePass> {
  using DecomposePassBase::DecomposePassBase;

  void runOnOperation() override {
    // Asked of what the model says; what is split off is no step.
    FailureOr<bool> keeps = early ? false : keepsLibrarySteps();
    if (failed(keeps))
      return signalPassFailure();
    // Decompositions may contain named ops themselves: repeat on what is new.
    SmallVector<DecomposableOpInterface> worklist;
    do {
      worklist.clear();
      getOperation().walk([&](DecomposableOpInterface op) {
        bool isKept = *keeps && !op.addsToLibraryStep() &&
                      op.checkLibraryStep(getArchitecture());
        if (!isKept && (!early || op.decomposesEarly()))
          worklist.push_back(op);
      });
      for (DecomposableOpInterface op : worklist)
        replace(op);
    } while (!worklist.empty());
  }

  /// 0: a processor, or no target.
  int getArchitecture() {
    TargetAttr target = getTarget(getOperation());
    return target ? target.getArchitecture() : 0;
  }

  FailureOr<bool> keepsLibrarySteps();

  /// The new ops stand where the op was and belong to what it belonged to.
  void replace(DecomposableOpInterface op) {
    InheritAttributes listener(op);
    OpBuilder builder(op, &listener);
    op->replaceAllUsesWith(op.decompose(builder));
    op->erase();
  }
};

} // namespace

/// All that libraries compute in one step stays whole, or nothing does.
FailureOr<bool> DecomposePass::keepsLibrarySteps() {
  AttentionKind kind = getConfiguration(getOperation()).attention;
  if (kind == AttentionKind::Unfused)
    return false;
  // With `auto` one op that does not qualify, or that is computed otherwise by
  // default, decides for all of them: a plan has one kind of attention. With
  // `flash` the user has asked for it, so that it is an error at that op.
  WalkResult result = getOperation().walk([&](DecomposableOpInterface op) {
    std::optional<Status> status = op.checkLibraryStep(getArchitecture());
    bool isWanted = kind == AttentionKind::Flash ||
                    op.isLibraryStepByDefault(getArchitecture());
    if (!status || (status->ok() && isWanted))
      return WalkResult::advance();
    if (kind == AttentionKind::Flash)
      op.emitOpError("is not computed by flash attention: ")
          << status->message() << "; `attention` unfused computes it";
    return WalkResult::interrupt();
  });
  if (!result.wasInterrupted())
    return true;
  if (kind == AttentionKind::Flash)
    return failure();
  return false;
}
