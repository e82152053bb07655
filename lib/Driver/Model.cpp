//===- Model.cpp - Models on their way into the compiler ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reading models, and what the driver says to people. A model is a config.json
// or a .mlir file, and either is a source of modules of any size; options that
// change a model (dropout, masks, weight decay, shardings) are applied to each
// module in the same way, right after it has been made.
//
//===----------------------------------------------------------------------===//

#include "Model.h"

#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Driver/Planning.h"
#include "plait/Import/HuggingFace.h"
#include "plait/InitAll.h"
#include "plait/Plan/Files.h"
#include "plait/Transforms/Names.h"
#include "plait/Transforms/Passes.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/GlobPattern.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace plait;

/// Whether the last line of the terminal says what is being done. Of the
/// process: there is one terminal.
static bool showsProgress = false;

/// Carriage return and "erase to the end of the line".
void plait::showProgress(const llvm::Twine &what) {
  llvm::errs() << "\r\033[K" << what;
  showsProgress = true;
}

/// Messages come after a clean line, and so does the output.
void plait::clearProgress() {
  if (showsProgress)
    llvm::errs() << "\r\033[K";
  showsProgress = false;
}

/// Starts a line of its own on standard error. All messages have one form,
/// whoever they are from.
static llvm::raw_ostream &startMessage(StringRef kind) {
  clearProgress();
  return llvm::errs() << "plaitc: " << kind << ": ";
}

void plait::printError(const llvm::Twine &message) {
  startMessage("error") << message << "\n";
}

Status plait::checkFusedAttention(nn::AttentionUse use) {
  if (use.drops)
    return fail("it has dropout; --dropout off allows flash");
  if (use.masks)
    return fail("it has a document mask");
  return Status::success();
}

/// A note, for the plan is right and only slower.
void plait::noteUnfusedAttention(const Status &reason,
                                 const std::string &cost) {
  printNote("attention is unfused, because " + reason.message() +
            (cost.empty() ? "" : ": " + cost));
}

void plait::printNote(const llvm::Twine &message) {
  startMessage("note") << message << "\n";
}

void plait::printWarning(const llvm::Twine &message) {
  startMessage("warning") << message << "\n";
}

/// Standard output unless something else is written there.
llvm::raw_ostream &plait::getText(const CompileOptions &options) {
  return options.text ? *options.text : llvm::outs();
}

bool plait::report(const Status &status) {
  if (!status.ok())
    printError(status.message());
  return status.ok();
}

std::string plait::describeWritten(const CompileOptions &options,
                                   const Twine &what) {
  if (options.output.empty() || isStandardOutput(options.output))
    return "";
  return ("wrote " + options.output + ": " + what + "\n").str();
}

bool PendingPlan::appear() {
  if (!report(file.commit()))
    return false;
  text << told;
  return true;
}

//===----------------------------------------------------------------------===//
// Context
//===----------------------------------------------------------------------===//

/// The place in the model, as it begins a message; empty if it is not known.
///
/// Where the text was read, then what part of the model it is of: of nested
/// locations the outermost of either kind counts.
static std::string describePlace(Location location) {
  std::string position, part;
  location->walk([&](Location loc) {
    auto file = dyn_cast<FileLineColLoc>(loc);
    if (file && position.empty())
      position = (file.getFilename().getValue() + ":" + Twine(file.getLine()) +
                  ":" + Twine(file.getColumn()) + ": ")
                     .str();
    auto name = dyn_cast<NameLoc>(loc);
    if (name && part.empty())
      part = (name.getName().getValue() + ": ").str();
    return WalkResult::advance();
  });
  return position + part;
}

/// One line for each error, and for each other place that it is about. Remarks
/// say what was decided and are for pass developers.
void ModelContext::print(Diagnostic &diagnostic) {
  DiagnosticSeverity severity = diagnostic.getSeverity();
  std::string text = describePlace(diagnostic.getLocation()) + diagnostic.str();
  bool isWarning = severity == DiagnosticSeverity::Warning;
  if (severity == DiagnosticSeverity::Remark ||
      (isWarning && !warnings.insert(text).second))
    return;
  startMessage(isWarning                               ? "warning"
               : severity == DiagnosticSeverity::Error ? "error"
                                                       : "note")
      << text << "\n";
  for (Diagnostic &note : diagnostic.getNotes())
    print(note);
}

/// A program that embeds the compiler may add its own (examples: a custom op).
static DialectRegistry makeRegistry(const CompileOptions &options) {
  DialectRegistry registry;
  registerAllDialects(registry);
  if (options.addDialects)
    options.addDialects(registry);
  return registry;
}

/// Handlers are called for whatever happens in this context, and end with it.
ModelContext::ModelContext(const CompileOptions &options)
    : context(makeRegistry(options)),
      handler(&context, [this](Diagnostic &diagnostic) { print(diagnostic); }) {
  context.loadAllAvailableDialects();
  // Else each error has a note with its whole operation.
  context.printOpOnDiagnostic(false);
  // Passes are short: threads cost more than they save.
  context.disableMultithreading();
}

//===----------------------------------------------------------------------===//
// Import
//===----------------------------------------------------------------------===//

/// By the name: a file that does not exist is told by whoever opens it.
bool plait::isText(const CompileOptions &options) {
  return StringRef(options.model).ends_with(".mlir");
}

/// The text of the model's config.json. The plan keeps it, so that saved
/// weights have it beside them; but for the mark that UTF-8 may begin with,
/// which other readers refuse.
static Result<std::string> readConfig(const CompileOptions &options) {
  std::string path = getConfigPath(options.model);
  Result<MappedFile> file = openConfig(path);
  if (!file.ok())
    return file.status();
  std::string text(file->bytes().begin(), file->bytes().end());
  constexpr StringLiteral mark = "\xef\xbb\xbf";
  return StringRef(text).starts_with(mark) ? text.substr(mark.size()) : text;
}

/// The parameters whose name `pattern` matches, at least one. `what` asks for
/// them. Nothing that matches is an error: a name with a typing mistake would
/// otherwise have no effect and say nothing.
static FailureOr<SmallVector<nn::ParameterOp>>
findParameters(ModuleOp module, StringRef pattern, StringRef what) {
  // The same patterns for --shard and --no-decay.
  llvm::Expected<llvm::GlobPattern> glob = llvm::GlobPattern::create(pattern);
  if (!glob)
    return module.emitError(what)
           << " \"" << pattern << "\": " << llvm::toString(glob.takeError());
  SmallVector<nn::ParameterOp> found;
  for (auto parameter : module.getOps<nn::ParameterOp>())
    if (glob->match(parameter.getSymName()))
      found.push_back(parameter);
  if (found.empty())
    return module.emitError("no parameter is called \"") << pattern << "\"";
  return found;
}

/// The parser speaks of a text that nobody wrote: its reason goes into the
/// message about the option.
static FailureOr<Attribute> parseSharding(ModuleOp module, StringRef pattern,
                                          StringRef axes) {
  std::string reason;
  Attribute sharding;
  {
    ScopedDiagnosticHandler handler(module.getContext(),
                                    [&](Diagnostic &diagnostic) {
                                      reason = diagnostic.str();
                                      return success();
                                    });
    sharding = parseAttribute(("#dist.sharding<@mesh, " + axes + ">").str(),
                              module.getContext());
  }
  if (sharding)
    return sharding;
  return module.emitError("--shard ")
         << pattern << "=" << axes << ": " << reason
         << "; expected axes like [{}, {\"tp\"}]";
}

/// Behind phase import shardings have been assigned, and pins would come too
/// late.
LogicalResult plait::pinShardings(ModuleOp module,
                                  const CompileOptions &options) {
  if (!options.shardings.empty() && getPhase(module) != Phase::Import)
    return module.emitError("the input is IR after phase ")
           << stringifyPhase(getPhase(module))
           << ", in which shardings are not pinned any more";
  for (const auto &[pattern, axes] : options.shardings) {
    FailureOr<Attribute> sharding = parseSharding(module, pattern, axes);
    if (failed(sharding))
      return failure();
    auto parameters = findParameters(module, pattern, "sharding of");
    if (failed(parameters))
      return failure();
    for (nn::ParameterOp parameter : *parameters)
      parameter.setShardingAttr(*sharding);
  }
  return success();
}

/// Each pattern adds to those before.
static LogicalResult removeDecay(ModuleOp module,
                                 const std::vector<std::string> &patterns) {
  for (const std::string &pattern : patterns) {
    auto parameters = findParameters(module, pattern, "--no-decay");
    if (failed(parameters))
      return failure();
    // The decay that the model asks for is in the operation; the update reads
    // it there.
    for (nn::ParameterOp parameter : *parameters)
      parameter.setDecay(false);
  }
  return success();
}

/// Ops say themselves how to do without dropout. The keys that it draws from go
/// with their last user, and the plan has no such input.
static LogicalResult removeDropout(func::FuncOp loss) {
  loss.walk([](DropoutOpInterface op) { op.removeDropout(); });
  // Other uses than dropout's keep it.
  if (BlockArgument keys = nn::findKeys(loss); keys && keys.use_empty())
    return loss.eraseArgument(keys.getArgNumber());
  return success();
}

/// Gives all attentions the starts of documents, for which the function gets an
/// argument, if it has none. The argument is of the tokens' type: a start for
/// each position.
static LogicalResult addDocumentMask(func::FuncOp loss) {
  auto attentions = llvm::to_vector(loss.getOps<nn::AttentionOp>());
  if (attentions.empty())
    return loss.emitError("@loss has no attention for a document mask");
  // A model in IR may have the argument already.
  if (!nn::findStarts(loss) &&
      failed(loss.insertArgument(loss.getNumArguments(),
                                 loss.getArgument(0).getType(), {},
                                 loss.getLoc())))
    return failure();
  for (nn::AttentionOp attention : attentions)
    attention.getStartsMutable().assign(nn::findStarts(loss));
  return success();
}

/// The message names the first of the options that cannot be applied.
LogicalResult plait::adaptModel(ModuleOp module,
                                const CompileOptions &options) {
  // With the defaults IR of any phase passes through.
  if (options.dropout && !options.documentMask && options.noDecay.empty())
    return success();
  auto loss = module.lookupSymbol<func::FuncOp>(nn::kLossFunction);
  if (!loss || getPhase(module) != Phase::Import)
    return module.emitError("the input is IR after phase ")
           << stringifyPhase(getPhase(module))
           << (!options.dropout ? ", from which dropout is not removed any more"
               : options.documentMask
                   ? ", in which documents are not masked any more"
                   : ", in which weight decay is not taken off any more");
  if ((!options.dropout && failed(removeDropout(loss))) ||
      failed(removeDecay(module, options.noDecay)))
    return failure();
  return options.documentMask ? addDocumentMask(loss) : success();
}

/// IR is a model if nothing has been decided for it, and then verified before
/// anybody asks for it: the planner runs passes on it. Only a cluster, which
/// the planner is asked for, undoes decisions, and those of phase import alone
/// can be undone.
FailureOr<OpenedModel> plait::openModel(ModelContext &context,
                                        const CompileOptions &options) {
  OpenedModel opened;
  if (!isText(options)) {
    opened.source =
        makeConfigSource(*context.get(), options.model, options.ignoredFields);
    return opened;
  }
  if (!options.ignoredFields.empty())
    return emitError(UnknownLoc::get(context.get()))
           << "--ignore-field is for a config.json, and " << options.model
           << " is none";
  auto read = importMLIR(*context.get(), options.model);
  if (failed(read))
    return failure();
  OwningOpRef<ModuleOp> module = std::move(*read);
  if (isDecided(*module) && !options.cluster.empty() &&
      getPhase(*module) == Phase::Import) {
    removeDecisions(*module);
    opened.isReplanned = true;
  }
  if (isDecided(*module)) {
    opened.module = std::move(module);
    if (failed(adaptModel(*opened.module, options)))
      return failure();
    return opened;
  }
  PassManager manager(context.get());
  manager.addPass(createVerifyPhasePass());
  if (failed(manager.run(*module)))
    return failure();
  opened.source = makeModuleSource(std::move(module));
  return opened;
}

bool plait::isPlannable(const CompileOptions &options) {
  if (!isText(options))
    return true;
  ModelContext context(options);
  ScopedDiagnosticHandler quiet(context.get(),
                                [](Diagnostic &) { return success(); });
  auto module = importMLIR(*context.get(), options.model);
  return succeeded(module) && !isDecided(**module) &&
         !makeModuleSource(std::move(*module))->hasFixedBatch();
}

/// The text of a config goes into the module and so to the plan.
FailureOr<OwningOpRef<ModuleOp>>
plait::importModel(ModelSource &source, const CompileOptions &options,
                   int64_t batch, int64_t sequence) {
  auto module = source.get(batch, sequence);
  if (failed(module) || failed(adaptModel(**module, options)))
    return failure();
  if (isText(options))
    return module;
  // As it is in the folder, unlike what was parsed.
  Result<std::string> config = readConfig(options);
  if (!report(config.status()))
    return failure();
  setConfigJson(**module, *config);
  return module;
}
