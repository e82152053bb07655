//===- Settings.h - What a compilation is for -------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_DRIVER_SETTINGS_H
#define PLAIT_LIB_DRIVER_SETTINGS_H

#include "plait/Codegen/Kernel.h"
#include "plait/Driver/Driver.h"
#include "plait/Plan/Plan_generated.h"
#include "plait/Planner/Cluster.h"

namespace plait {

/// What options mean that a plan and its reference have in common.
struct Settings {
  codegen::Target target;
  std::string precision, epilogues;
  std::optional<planner::Cluster> cluster; // none: not known
};

/// Back end and target follow from the cluster. Fails where options contradict
/// each other or the cluster, and where no code can be made for its devices.
Result<Settings> makeSettings(const CompileOptions &options);

/// Fails where --backend contradicts the cluster, whatever can be compiled.
Status checkBackend(const CompileOptions &options,
                    const planner::Cluster &cluster);

/// Bytes that a GPU needs beside the arena; 0 for processors.
uint64_t getDeviceReserve(const Settings &settings);

/// As the plan tells of settings.cluster; `name` is what was given.
std::unique_ptr<plan::fb::ClusterT> describeCluster(const Settings &settings,
                                                    const std::string &name);

} // namespace plait

#endif // PLAIT_LIB_DRIVER_SETTINGS_H
