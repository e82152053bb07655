//===- OptionFile.h - Options out of a file ---------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNOPTIONS_OPTIONFILE_H
#define PLAIT_LIB_RUNOPTIONS_OPTIONFILE_H

#include <CLI/CLI.hpp>

#include <memory>
#include <string>
#include <utility>

namespace plait {

/// Options of which one may be given. One of a file gives way to the other of
/// the command line, as its own value would.
inline constexpr std::pair<const char *, const char *> alternativeOptions[] = {
    {"--steps", "--epochs"},
    {"--tokens", "--text"},
    {"--eval-tokens", "--eval-text"}};

/// Returns what reads the TOML file that --config names. `app` outlives it.
std::shared_ptr<CLI::Config> makeTomlReader(const CLI::App &app);

/// Returns what reads a JSON object: options of a run of `plan` that a program
/// steps, which are fewer (docs/CApi.md). `app` outlives it.
std::shared_ptr<CLI::Config> makeJsonReader(const CLI::App &app,
                                            const std::string &plan);

} // namespace plait

#endif // PLAIT_LIB_RUNOPTIONS_OPTIONFILE_H
