//===- OtherPrograms.h - Layouts for and of others --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TOOLS_PLAITC_OTHERPROGRAMS_H
#define PLAIT_TOOLS_PLAITC_OTHERPROGRAMS_H

#include "../CommandLine.h"
#include "plait/Driver/Planning.h"
#include "plait/Planner/Export.h"

#include <filesystem>

namespace plait {

/// The options --emit and --from, and the model that flags describe, which
/// lies in a folder of its own as long as this lives.
class OtherPrograms {
public:
  OtherPrograms() = default;
  OtherPrograms(const OtherPrograms &) = delete;
  ~OtherPrograms();

  /// Keeps what stands behind `--` for --from, and returns how many of the
  /// arguments are in front of it.
  int takeFlags(int argc, char **argv);
  void addOptions(CLI::App &app, PlanningOptions &planning);
  /// After parsing: lets options and planning be what the two ask for. What
  /// options say themselves counts more than what flags say.
  Status apply(const CLI::App &app, CompileOptions &options,
               PlanningOptions &planning);

private:
  Status checkEmit(const CLI::App &app, CompileOptions &options,
                   PlanningOptions &planning) const;
  Result<planner::GivenJob> read(const planner::Program &program,
                                 CompileOptions &options) const;
  Status audit(const CLI::App &app, CompileOptions &options,
               PlanningOptions &planning);
  Status writeModel(const std::string &config, CompileOptions &options);

  std::string from; // PROGRAM or PROGRAM:FILE
  std::vector<std::string> flags;
  bool hasFlags = false;
  std::filesystem::path folder; // of the model; empty: none
};

} // namespace plait

#endif // PLAIT_TOOLS_PLAITC_OTHERPROGRAMS_H
