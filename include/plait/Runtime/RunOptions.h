//===- RunOptions.h - Options of a run as a program gives them --*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Those of plait-run, with the same names, bounds and defaults, for runs that a
// program steps.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_RUNTIME_RUNOPTIONS_H
#define PLAIT_RUNTIME_RUNOPTIONS_H

#include "plait/Plan/Container.h"
#include "plait/Runtime/Trainer.h"

#include <memory>

namespace plait {

class RunOptions {
public:
  /// Reads a JSON object whose keys are the long names of options. `plan` is
  /// the path of the plan, which messages name. Fails where an option is none
  /// of such a run, is out of its bounds, or does not go with another one.
  static Result<RunOptions> fromJson(const std::string &json,
                                     const std::string &plan);

  /// Returns how long processes are waited for.
  std::chrono::milliseconds getTimeLimit() const;

  /// Returns the options of the run of `file` by `processes`, null: this one
  /// alone. Without data of its own the run is given rows. Fails where an
  /// option means nothing to the plan.
  Result<runtime::TrainOptions> finish(const plan::PlanFile &file,
                                       runtime::Rendezvous *processes) const;

private:
  struct Parsed;
  explicit RunOptions(std::shared_ptr<Parsed> parsed)
      : parsed(std::move(parsed)) {}

  std::shared_ptr<Parsed> parsed;
};

} // namespace plait

#endif // PLAIT_RUNTIME_RUNOPTIONS_H
