//===- PinShardings.cpp - Shardings of parameters that are given ----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A sharding that a parameter has already is what the solver starts from, so
// to pin one is to write it down before anything is chosen.
//
//===----------------------------------------------------------------------===//

#include "FindInModel.h"

#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Transforms/Passes.h"

#include "mlir/AsmParser/AsmParser.h"

namespace plait {
#define GEN_PASS_DEF_PINSHARDINGSPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;

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
  return module.emitError("`shard` ")
         << pattern << "=" << axes << ": " << reason
         << "; expected axes like [{}, {\"tp\"}]";
}

/// Splits at the first equals sign: names of parameters have none.
static LogicalResult pin(ModuleOp module, StringRef text) {
  auto [pattern, axes] = text.split('=');
  if (pattern.size() == text.size())
    return module.emitError("`shard` ")
           << text << " is not NAME=AXES, such as *.c_fc.weight=[{},{\"tp\"}]";
  FailureOr<Attribute> sharding = parseSharding(module, pattern, axes);
  if (failed(sharding))
    return failure();
  auto parameters = findParameters(module, pattern, "sharding of");
  if (failed(parameters))
    return failure();
  for (nn::ParameterOp parameter : *parameters)
    parameter.setShardingAttr(*sharding);
  return success();
}

namespace {
struct PinShardingsPass : plait::impl::PinShardingsPassBase<PinShardingsPass> {
  using PinShardingsPassBase::PinShardingsPassBase;

  void runOnOperation() override {
    if (failed(findModel(getOperation(),
                         "in which shardings are not pinned any more")))
      return signalPassFailure();
    for (const std::string &text : shardings)
      if (failed(pin(getOperation(), text)))
        return signalPassFailure();
  }
};
} // namespace
