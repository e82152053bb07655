//===- TargetSettings.h - Target and cluster of a plan ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_DRIVER_TARGETSETTINGS_H
#define PLAIT_LIB_DRIVER_TARGETSETTINGS_H

#include "plait/Codegen/Kernel.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Driver/Session.h"
#include "plait/Planner/Cluster.h"

namespace plait {

/// What executes the plan, as the options say.
struct TargetSettings {
  codegen::Target target;
  std::optional<planner::Cluster> cluster; // none: not known
};

/// Back end and target follow from the cluster. Fails where options contradict
/// each other or the cluster, and where no code can be made for its devices.
Result<TargetSettings> makeTargetSettings(const CompileOptions &options);

/// Moves the sites of the mesh to `outer`; see plait::takeSites.
Status takeSites(CompileOptions &options);

/// Fails where --backend contradicts the cluster, whatever can be compiled.
Status checkBackend(const CompileOptions &options,
                    const planner::Cluster &cluster);

/// Fails where options contradict what a module is compiled for already.
Status checkGivenTarget(const CompileOptions &options, TargetAttr target,
                        ClusterAttr cluster);

/// Lists the pins that have nothing to divide in such a mesh, as in "--zero
/// 1 has no effect: dp is 1".
std::vector<std::string> findIdlePins(const ConfigurationPins &pins,
                                      const Mesh &mesh);

/// What matmuls do to their results where nothing is said.
EpilogueKind getUsualEpilogues(bool isGPU, llvm::StringRef architecture);

/// The target, with the bytes that a GPU needs beside the arena.
TargetAttr describeTarget(mlir::MLIRContext *context,
                          const TargetSettings &settings);

} // namespace plait

#endif // PLAIT_LIB_DRIVER_TARGETSETTINGS_H
