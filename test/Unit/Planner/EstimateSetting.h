//===- EstimateSetting.h - What estimates are asked for ---------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_PLANNER_ESTIMATESETTING_H
#define PLAIT_TEST_UNIT_PLANNER_ESTIMATESETTING_H

#include "TransformerWork.h"
#include "plait/Planner/Cost.h"
#include "plait/Planner/Search.h"

#include <gtest/gtest.h>

namespace plait::planner {

/// A model on a cluster, which tests change one thing of.
struct EstimateSetting {
  TransformerShape shape;
  Training training;
  Configuration configuration;
  Cluster cluster = *parseCluster("a100-80g:8x8");

  EstimateSetting() {
    shape.layers = 16;
    shape.hidden = 4096;
    shape.heads = 32;
    shape.vocabulary = 32000;
    shape.sequence = training.sequence = 2048;
    training.globalBatch = 64;
  }
  Result<Estimate> tryRun() const {
    Work work = buildTransformerWork(shape, configuration.mesh[Axis::TP],
                                     configuration.sequenceParallel);
    return estimate(work, cluster, training, configuration);
  }
  Estimate run() const {
    auto estimate = tryRun();
    EXPECT_TRUE(estimate.ok()) << estimate.status().message();
    return estimate.ok() ? *estimate : Estimate();
  }
  std::string message() const {
    auto estimate = tryRun();
    return estimate.ok() ? "" : estimate.status().message();
  }
};

} // namespace plait::planner

#endif // PLAIT_TEST_UNIT_PLANNER_ESTIMATESETTING_H
