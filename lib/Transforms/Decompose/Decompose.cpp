//===- Decompose.cpp - Replace named ops by what they are made of ---------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
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

/// Passes the discardable attributes of the op that is taken apart on to the
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
    // Decompositions may contain named ops themselves: repeat on what is new.
    SmallVector<DecomposableOpInterface> worklist;
    do {
      worklist.clear();
      getOperation().walk([&](DecomposableOpInterface op) {
        bool kept = llvm::is_contained(keep, op->getName().getStringRef());
        if (!kept && (!early || op.decomposesEarly()))
          worklist.push_back(op);
      });
      for (DecomposableOpInterface op : worklist)
        replace(op);
    } while (!worklist.empty());
  }

  void replace(DecomposableOpInterface op) {
    InheritAttributes listener(op);
    OpBuilder builder(op, &listener);
    op->replaceAllUsesWith(op.decompose(builder));
    op->erase();
  }
};

} // namespace
