//===- SearchSetting.h - What tests search in -------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_PLANNER_SEARCHSETTING_H
#define PLAIT_TEST_UNIT_PLANNER_SEARCHSETTING_H

#include "TransformerSource.h"
#include "plait/Planner/Search.h"

#include <gtest/gtest.h>

#include <memory>

namespace plait::planner {

/// Small, so that everything can be tried.
struct SmallModel {
  TransformerShape shape;
  Training training;
  Cluster cluster = *parseCluster("a100-80g:2x4");

  explicit SmallModel(int64_t globalBatch) {
    shape.layers = 10;
    shape.hidden = 4096;
    shape.heads = 32;
    shape.vocabulary = 32000;
    shape.sequence = training.sequence = 2048;
    training.globalBatch = globalBatch;
  }
};

/// Serves experts on ranks of their own, too.
class ExpertSource : public TransformerSource {
public:
  explicit ExpertSource(const TransformerShape &shape)
      : TransformerSource(shape), experts(shape.experts.experts) {}
  int64_t countExperts() override { return experts; }

private:
  int64_t experts;
};

/// What a search is about.
struct Setting : SmallModel {
  SearchSpace space;
  Pins pins;

  Setting() : SmallModel(24) {
    space.microBatch = {1, 2, 3, 4, 6, 8, 12, 24};
    space.schedule = {"gpipe", "1f1b"};
    space.recompute = {Recompute::None, Recompute::Full};
    space.sequenceParallel = {false, true};
  }

  Result<SearchResult> tryRun() {
    sources.push_back(std::make_shared<ExpertSource>(shape));
    return search(*sources.back(), cluster, training, space, pins);
  }
  SearchResult run() {
    Result<SearchResult> result = tryRun();
    EXPECT_TRUE(result.ok()) << result.status().message();
    return result.ok() ? *result : SearchResult();
  }
  std::string message() {
    Result<SearchResult> result = tryRun();
    return result.ok() ? "" : result.status().message();
  }

private:
  std::vector<std::shared_ptr<ExpertSource>> sources;
};

} // namespace plait::planner

#endif // PLAIT_TEST_UNIT_PLANNER_SEARCHSETTING_H
