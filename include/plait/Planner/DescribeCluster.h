//===- DescribeCluster.h - A cluster as an attribute ------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Passes weigh work against communication by what the planner knows of the
// machines: `#plait.cluster` is a planner::Cluster with its rates and the links
// of a mesh's axes, by the functions that predictions are made with.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLANNER_DESCRIBECLUSTER_H
#define PLAIT_PLANNER_DESCRIBECLUSTER_H

#include "plait/Configuration/Mesh.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Planner/Cluster.h"

namespace plait {

/// `cluster` for a training in `precision` on `mesh`. `name` is what was given.
ClusterAttr describeCluster(mlir::MLIRContext *context,
                            const planner::Cluster &cluster,
                            llvm::StringRef name, Precision precision,
                            const Mesh &mesh);

} // namespace plait

#endif // PLAIT_PLANNER_DESCRIBECLUSTER_H
