//===- Run.h - One run of plaitc --------------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TOOLS_PLAITC_RUN_H
#define PLAIT_TOOLS_PLAITC_RUN_H

#include "Cases.h"
#include "Request.h"
#include "Terminal.h"

namespace plait {

/// Options of this group need a cluster; see Run::plan().
inline constexpr char planningGroup[] = "Let the planner decide the rest";

/// One run of plaitc: a session with the model, and what is to appear at its
/// end.
class Run {
public:
  Run(const CLI::App &app, Terminal &terminal)
      : app(app), terminal(terminal), session(terminal) {}

  /// Opens the model. All return false after a message.
  bool import(const ModelOptions &options);
  bool plan(Request &request, const std::string &pinned, const Cases &cases,
            std::optional<Choice> &choice, std::string &notFound);
  bool compile(const Request &request, const std::optional<Choice> &choice);
  /// Lets all plans appear.
  bool finish();

private:
  bool choose(const Request &request, std::optional<Choice> &choice,
              std::string &notFound);
  bool planForThisMachine(const Request &request, std::optional<Choice> &choice,
                          std::string &notFound);
  bool writeIR(const Request &request, const std::optional<Choice> &choice);

  const CLI::App &app;
  Terminal &terminal;
  Session session;
  std::optional<Model> model;
  /// Plans that are written, and not yet under their names, and what is told
  /// then, in one line; empty: nothing.
  std::vector<std::pair<OutputFile, std::string>> pending;
};

} // namespace plait

#endif // PLAIT_TOOLS_PLAITC_RUN_H
