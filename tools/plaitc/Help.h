//===- Help.h - Help of plaitc ----------------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TOOLS_PLAITC_HELP_H
#define PLAIT_TOOLS_PLAITC_HELP_H

#include <CLI/CLI.hpp>

#include <string>

namespace plait {

/// Gives `app`, whose options are all there, --help-all, groups for what has
/// none of its own, and examples.
void arrangeHelp(CLI::App &app);

/// "plaitc 0.1.0, 27 November 2026: plaitc llama-3-8b --cluster h100:8", for
/// pages. The date is SOURCE_DATE_EPOCH's where that is set, so that the same
/// page can be made again.
std::string describeInvocation(int argc, char **argv);

} // namespace plait

#endif // PLAIT_TOOLS_PLAITC_HELP_H
