//===- ModelState.cpp - Models on their way into the compiler -------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reading models. A model is a config.json or a .mlir file, and either is a
// source of modules of any size; what is asked to be changed in it is done to
// each module in the same way, by passes, right after it has been made.
//
//===----------------------------------------------------------------------===//

#include "ModelState.h"

#include "plait/Dialect/Plait/IR/ExpertChunks.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Import/HuggingFace.h"
#include "plait/InitAll.h"
#include "plait/Plan/Files.h"
#include "plait/Transforms/ModelEdits.h"
#include "plait/Transforms/Passes.h"

#include "mlir/Pass/PassManager.h"

using namespace mlir;
using namespace plait;

/// A program that embeds the compiler may add dialects of its own (examples: a
/// custom op).
static DialectRegistry makeRegistry(const AddDialects &addDialects) {
  DialectRegistry registry;
  registerAllDialects(registry);
  if (addDialects)
    addDialects(registry);
  return registry;
}

/// Handlers are called for whatever happens in this context, and end with it.
ModelState::ModelState(const ModelOptions &options, Reporter &reporter,
                       const AddDialects &addDialects)
    : options(options), messages(reporter),
      context(makeRegistry(addDialects), MLIRContext::Threading::DISABLED),
      handler(&context,
              [this](Diagnostic &diagnostic) { messages.report(diagnostic); }) {
  context.loadAllAvailableDialects();
  // Else each error has a note with its whole operation.
  context.printOpOnDiagnostic(false);
}

//===----------------------------------------------------------------------===//
// Import
//===----------------------------------------------------------------------===//

/// The plan keeps the text, so that saved weights have it beside them; but for
/// the mark that UTF-8 may begin with, which other readers refuse.
static Result<std::string> readConfig(const std::string &path) {
  Result<MappedFile> file = openConfig(path);
  if (!file.ok())
    return file.status();
  std::string text(file->bytes().begin(), file->bytes().end());
  constexpr StringLiteral mark = "\xef\xbb\xbf";
  return StringRef(text).starts_with(mark) ? text.substr(mark.size()) : text;
}

/// By the name: a file that does not exist is told by whoever opens it. A text
/// that is given needs none.
/// IR is a model if nothing has been decided for it, and then verified before
/// anybody asks for it: the planner runs passes on it.
LogicalResult ModelState::open() {
  messages.setCode(Code::InvalidModel);
  bool hasText = !options.config.empty();
  if (hasText || !StringRef(options.model).ends_with(".mlir")) {
    std::string file = hasText ? options.model : getConfigPath(options.model);
    Result<std::string> text = hasText ? options.config : readConfig(file);
    if (!messages.report(text.status()))
      return failure();
    config = std::move(*text);
    source = makeConfigSource(context, file, config, options.ignoredFields);
    return success();
  }
  if (!options.ignoredFields.empty())
    return emitError(UnknownLoc::get(&context))
           << "`ignore-field` is for a config.json, and " << options.model
           << " is none";
  auto read = importMLIR(context, options.model);
  if (failed(read))
    return failure();
  if (isDecided(**read)) {
    decided = std::move(*read);
    return edit(*decided);
  }
  PassManager manager(&context);
  manager.addPass(createVerifyPhasePass());
  if (failed(manager.run(**read)))
    return failure();
  source = makeModuleSource(std::move(*read));
  return success();
}

/// Only what phase import has decided can be undone.
std::unique_ptr<ModelSource> ModelState::getUndecided() {
  if (getPhase(*decided) != Phase::Import)
    return nullptr;
  OwningOpRef<ModuleOp> copy = decided->clone();
  removeDecisions(*copy);
  return makeModuleSource(std::move(copy));
}

/// With the defaults IR of any phase passes through.
LogicalResult ModelState::edit(ModuleOp module) {
  PassManager manager(&context);
  // The next phase verifies.
  manager.enableVerifier(false);
  buildModelEdits(manager, options.edits);
  return manager.run(module);
}

/// The reference of a plan has one rank, and so none of this. No verifier: it
/// is the next phase that refuses what does not fit the mesh.
LogicalResult ModelState::pinShardings(ModuleOp module) {
  if (options.expertChunks > 1) {
    if (getPhase(module) >= Phase::Checkpoint)
      return module.emitError(
                 "`expert-chunks` is read in phase checkpoint, and "
                 "the input is IR after phase ")
             << stringifyPhase(getPhase(module));
    setExpertChunks(module, options.expertChunks);
  }
  if (options.shardings.empty())
    return success();
  PassManager manager(&context);
  manager.enableVerifier(false);
  manager.addPass(createPinShardingsPass({SmallVector<std::string>(
      options.shardings.begin(), options.shardings.end())}));
  return manager.run(module);
}

/// The text of a config goes into the module and so to the plan.
FailureOr<OwningOpRef<ModuleOp>>
ModelState::get(ModelSource &from, int64_t batch, int64_t sequence) {
  messages.setCode(Code::InvalidModel);
  auto module = from.get(batch, sequence);
  if (failed(module) || failed(edit(**module)))
    return failure();
  if (!config.empty())
    setConfigJson(**module, config);
  messages.setCode(Code::NotCompiled);
  return module;
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

/// A note, for the plan is right and only slower.
void plait::noteUnfusedAttention(Messages &messages, const Status &reason,
                                 const std::string &cost) {
  messages.note("attention is unfused, because " + reason.message() +
                (cost.empty() ? "" : ": " + cost));
}
