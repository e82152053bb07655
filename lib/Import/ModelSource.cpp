//===- ModelSource.cpp - A model for any batch and sequence ---------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The two sources that there are, and what tells a model from what a
// compilation has left.
//
//===----------------------------------------------------------------------===//

#include "plait/Import/ModelSource.h"

#include "Retype.h"
#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/Pipe/IR/Pipe.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Import/HuggingFace.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace plait;

namespace {

/// Imports anew for each size.
class ConfigSource : public ModelSource {
public:
  ConfigSource(MLIRContext &context, std::string file, std::string text,
               std::vector<std::string> ignoredFields)
      : context(context), file(std::move(file)), text(std::move(text)),
        ignoredFields(std::move(ignoredFields)) {}

  std::optional<int64_t> getSequence() const override { return std::nullopt; }
  bool hasFixedBatch() const override { return false; }
  FailureOr<OwningOpRef<ModuleOp>> get(int64_t batch,
                                       int64_t sequence) override {
    return importConfig(context, text, file, {batch, sequence, ignoredFields});
  }

private:
  MLIRContext &context;
  std::string file, text;
  std::vector<std::string> ignoredFields;
};

/// Gives copies with other types.
class ModuleSource : public ModelSource {
public:
  explicit ModuleSource(OwningOpRef<ModuleOp> module)
      : module(std::move(module)),
        isFixed(plait::hasFixedBatch(*this->module)) {}

  std::optional<int64_t> getSequence() const override {
    ModuleOp model = module.get();
    auto loss = model.lookupSymbol<func::FuncOp>(nn::kLossFunction);
    return cast<RankedTensorType>(loss.getArgumentTypes()[0]).getDimSize(1);
  }
  bool hasFixedBatch() const override { return isFixed; }
  FailureOr<OwningOpRef<ModuleOp>> get(int64_t batch,
                                       int64_t sequence) override {
    OwningOpRef<ModuleOp> copy = module->clone();
    if (failed(retypeModel(*copy, batch, sequence)))
      return failure();
    return copy;
  }

private:
  OwningOpRef<ModuleOp> module;
  bool isFixed;
};

} // namespace

std::unique_ptr<ModelSource>
plait::makeConfigSource(MLIRContext &context, std::string file,
                        std::string text,
                        std::vector<std::string> ignoredFields) {
  return std::make_unique<ConfigSource>(
      context, std::move(file), std::move(text), std::move(ignoredFields));
}

/// Layers are alike up to where they come from, which a dump has as attributes.
std::unique_ptr<ModelSource>
plait::makeModuleSource(OwningOpRef<ModuleOp> module) {
  restoreOrigins(*module);
  return std::make_unique<ModuleSource>(std::move(module));
}

bool plait::isDecided(ModuleOp module) {
  return getPhase(module) != Phase::Import || getConfigurationAttr(module) ||
         getTarget(module) || getCluster(module) ||
         dist::MeshOp::find(module) || pipe::findSchedule(module);
}

void plait::removeDecisions(ModuleOp module) {
  for (auto mesh : llvm::make_early_inc_range(module.getOps<dist::MeshOp>()))
    mesh.erase();
  removeConfiguration(module);
  if (pipe::ScheduleOp given = pipe::findSchedule(module))
    given.erase();
}
