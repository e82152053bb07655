//===- RunSettings.h - Description of a run's settings ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_TRAINING_RUNSETTINGS_H
#define PLAIT_LIB_RUNTIME_TRAINING_RUNSETTINGS_H

#include "plait/Runtime/Observer.h"

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace plait::runtime {

/// The options that have a meaning for the plan and a value, given or by
/// default, by their names; flags that are not set are left out.
nlohmann::ordered_json effectiveSettings(const RunInfo &run);

/// That every process was given the same training: all options but paths, and
/// but those that say how a process executes and what it reports. `settings` is
/// TrainOptions::settings. Collective; the failure names two processes with
/// what they have.
Status compareSettings(Rendezvous &processes, const std::string &settings);

/// Returns what all sites of a training have alike, as texts by the names of
/// the options. `settings` is TrainOptions::settings.
std::map<std::string, std::string> getSiteSettings(const std::string &settings);

/// Lets a run that is resumed learn as the one did whose settings `found` are:
/// of the learning rate, its schedule and the optimizer's numbers, what nobody
/// has given becomes that of `found`, in `options` and in its settings. A
/// schedule that is given takes nothing but the peak from there. Where no
/// weights are given, the folder that `found` names is their `origin`. Returns
/// what has changed, "lr 0.002, lr-schedule cosine". Fails where `found` has
/// another type than the option.
Result<std::string> keepSettings(TrainOptions &options,
                                 const std::string &found);

/// Tells, where a schedule is as long as the run, that the run whose settings
/// are `found` was of another length; else empty. To be called after
/// keepSettings().
std::string describeOtherLength(const TrainOptions &options,
                                const std::string &found);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_TRAINING_RUNSETTINGS_H
