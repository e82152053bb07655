//===- SiteRun.h - A run that is one site of several ------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_TRAINING_SITERUN_H
#define PLAIT_LIB_RUNTIME_TRAINING_SITERUN_H

#include "plait/Runtime/Trainer.h"

#include <memory>

namespace plait::runtime {

class SiteMember;

/// The part of a run that is a site by itself: a plan with one site, and the
/// connection to the others.
class SiteRun {
public:
  /// Null where `options` speak of no coordinator. Does not connect yet.
  static Result<std::unique_ptr<SiteRun>> create(const fb::Plan &plan,
                                                 const TrainOptions &options);
  ~SiteRun();

  /// Returns the plan that the site's ranks run.
  const fb::Plan &plan() const { return *plan::fb::GetPlan(own.data()); }
  SiteMember *member() { return connection.get(); }

  /// Fails unless `steps` end with a round: sites would else end apart.
  Status checkSteps(uint64_t steps) const;
  /// Tells the others, where all steps are done.
  void leave();

private:
  explicit SiteRun(std::vector<uint8_t> own);

  std::vector<uint8_t> own; // the plan
  std::unique_ptr<SiteMember> connection;
};

/// Warns where a run of sites ends without that they agree.
void warnOfSites(const Executor &executor, const TrainOptions &options,
                 const RunState &begin);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_TRAINING_SITERUN_H
