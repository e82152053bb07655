//===- OtherPrograms.h - Layouts for and of others --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TOOLS_PLAITC_OTHERPROGRAMS_H
#define PLAIT_TOOLS_PLAITC_OTHERPROGRAMS_H

#include "Request.h"
#include "Terminal.h"
#include "plait/Planner/Export.h"

namespace plait {

/// The options --emit and --from.
class OtherPrograms {
public:
  /// Keeps what stands behind `--` for --from, and returns how many of the
  /// arguments are in front of it.
  int takeFlags(int argc, char **argv);
  void addOptions(CLI::App &app, ReportOptions &options);
  /// After parsing: lets `request` be what the two ask for. What options say
  /// themselves, `pinned` being the text of --pin, counts more than what flags
  /// say.
  Status apply(const CLI::App &app, const std::string &pinned, Request &request,
               Terminal &terminal) const;

private:
  Result<planner::GivenJob> read(const planner::Program &program,
                                 Request &request) const;
  Status audit(const CLI::App &app, const std::string &pinned, Request &request,
               Terminal &terminal) const;

  std::string from; // PROGRAM or PROGRAM:FILE
  std::vector<std::string> flags;
  bool hasFlags = false;
};

} // namespace plait

#endif // PLAIT_TOOLS_PLAITC_OTHERPROGRAMS_H
