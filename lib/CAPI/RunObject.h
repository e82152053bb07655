//===- RunObject.h - A run that a caller of C steps -------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_CAPI_RUNOBJECT_H
#define PLAIT_LIB_CAPI_RUNOBJECT_H

#include "Objects.h"
#include "plait/Runtime/Rendezvous.h"
#include "plait/Runtime/TrainingRun.h"

namespace plait::capi {

/// Members are destroyed in reverse order: the run before its processes and its
/// plan.
struct RunObject : OwnedObject {
  explicit RunObject(std::shared_ptr<PlanObject> source)
      : OwnedObject(source->owner), plan(std::move(source)) {}
  const char *kind() const override { return "run"; }
  Result<std::string> describe() override;
  void close() override { run->close(); }

  std::shared_ptr<PlanObject> plan;
  std::shared_ptr<runtime::Rendezvous> processes; // null: this one is alone
  std::unique_ptr<runtime::TrainingRun> run;
};
template <> inline constexpr const char *kindOf<RunObject> = "run";

} // namespace plait::capi

#endif // PLAIT_LIB_CAPI_RUNOBJECT_H
