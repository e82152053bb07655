//===- Sites.h - Sites that are runs of their own ---------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A plan with sites is run by one process, or by the processes of one launcher,
// which all end together. Or each site is a run of its own, of one process or
// of several, which reaches the others through a coordinator (docs/Faults.md):
// then a site may end, be late, come back or come later, and the others go on.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_RUNTIME_SITES_H
#define PLAIT_RUNTIME_SITES_H

#include "plait/Plan/Container.h"
#include "plait/Support/Reporter.h"
#include "plait/Support/Status.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace plait::runtime {

/// The options of a run that is one site of several.
struct SiteOptions {
  std::string meet;             // "HOST:PORT" of the coordinator; empty: none
  std::optional<uint32_t> site; // of those of the plan, from 0 on

  bool isApart() const { return !meet.empty(); }
};

/// The options of a coordinator.
struct CoordinatorOptions {
  std::string place; // "PORT" or "HOST:PORT"; port 0: one that is free
  /// How long a round waits for the others when half of the sites have
  /// delivered; four times as long, when one has.
  std::chrono::milliseconds roundLimit = std::chrono::seconds(30);
  /// How long the first round waits for all sites, and how long a coordinator
  /// without any site waits for one.
  std::chrono::milliseconds timeLimit = std::chrono::minutes(10);
  Reporter *reporter = nullptr; // or null
};

/// Fails unless sites of `plan` can be runs of their own: the scheme has to be
/// an average or DiLoCo, without compression, on processors.
Status checkSitesApart(const plan::fb::Plan &plan);

/// Brings the sites of `file` together until those that are there have done all
/// of their steps.
Status coordinate(const plan::PlanFile &file,
                  const CoordinatorOptions &options);

} // namespace plait::runtime

#endif // PLAIT_RUNTIME_SITES_H
