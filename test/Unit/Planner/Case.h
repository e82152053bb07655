//===- Case.h - A training and a way to spread it ---------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_PLANNER_CASE_H
#define PLAIT_TEST_UNIT_PLANNER_CASE_H

#include "TransformerWork.h"
#include "plait/Planner/Estimate.h"

#include <gtest/gtest.h>

namespace plait::planner {

/// A step on a cluster that is large enough.
struct Case {
  TransformerShape shape;
  Training training;
  Configuration configuration;

  Estimate run(const char *device) const {
    int64_t nodes = (configuration.ranks() + 7) / 8;
    std::string text = std::string(device) + ":" + std::to_string(nodes) + "x8";
    Result<Cluster> cluster = parseCluster(text);
    EXPECT_TRUE(cluster.ok());
    Work work = buildTransformerWork(shape, configuration.mesh[Axis::TP],
                                     configuration.sequenceParallel);
    auto estimate = planner::estimate(work, *cluster, training, configuration);
    EXPECT_TRUE(estimate.ok()) << estimate.status().message();
    return estimate.ok() ? *estimate : Estimate();
  }
};

} // namespace plait::planner

#endif // PLAIT_TEST_UNIT_PLANNER_CASE_H
