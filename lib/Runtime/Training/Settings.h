//===- Settings.h - Description of a run's settings -------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_TRAINING_SETTINGS_H
#define PLAIT_LIB_RUNTIME_TRAINING_SETTINGS_H

#include "Observer.h"

namespace plait::runtime {

/// A line for each kind of setting, each with a newline: what the plan says,
/// then every option that has a value, given or by default, and a meaning on
/// the plan's target.
std::string describeRun(const RunInfo &run);

/// That every process was given the same training: all options but paths, and
/// but those that say how a process executes and what it reports. `settings` is
/// TrainOptions::settings. Collective; the failure names two processes with what
/// they have.
Status compareSettings(Rendezvous &processes, const std::string &settings);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_TRAINING_SETTINGS_H
