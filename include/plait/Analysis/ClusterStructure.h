//===- ClusterStructure.h - What equal clusters have in common --*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The layers of a model have clusters that are one but for what they read and
// what calls are given: what follows from the structure is found once.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_ANALYSIS_CLUSTERSTRUCTURE_H
#define PLAIT_ANALYSIS_CLUSTERSTRUCTURE_H

#include "plait/Dialect/Plan/IR/PlanIR.h"

#include <string>

namespace plait {

/// Returns a key that is equal for clusters which compute the same, whatever
/// their operands are called, and for no others. It is one of the process: it
/// has addresses.
std::string describeStructure(plan::ClusterOp cluster);

} // namespace plait

#endif // PLAIT_ANALYSIS_CLUSTERSTRUCTURE_H
