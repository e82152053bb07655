//===- CompileOptions.h - Options of a compilation as JSON ------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// JSON objects whose keys are the long names of options of plaitc. A null text
// is an empty object. Failures name the option.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_CAPI_COMPILEOPTIONS_H
#define PLAIT_LIB_CAPI_COMPILEOPTIONS_H

#include "plait/Driver/Session.h"

namespace plait::capi {

/// Reads those that change the model at `path`.
Result<ModelOptions> readModelOptions(const char *path, const char *text);

/// Reads those of a compilation; of a job also "ignore-field", into `ignored`.
Result<CompileOptions>
readCompileOptions(const char *text,
                   std::vector<std::string> *ignored = nullptr);
/// The same for the planner: there has to be a cluster.
Result<CompileOptions>
readPlanOptions(const char *text, std::vector<std::string> *ignored = nullptr);

/// Returns what `options` decide, for readCompileOptions().
std::string printCompileOptions(const CompileOptions &options);

} // namespace plait::capi

#endif // PLAIT_LIB_CAPI_COMPILEOPTIONS_H
