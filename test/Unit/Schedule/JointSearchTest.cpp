//===- JointSearchTest.cpp - Cut, placement and order together ------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Schedule/JointSearch.h"
#include "plait/Schedule/Generators.h"
#include "plait/Schedule/StageCut.h"
#include "plait/Schedule/Verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

using namespace plait;
using namespace plait::schedule;

namespace {

std::string messageOf(const Status &status) {
  return status.ok() ? "ok" : status.message();
}

/// Sound, in the limit, of all layers; returns the makespan.
double checkResult(const JointProblem &problem, const JointResult &result) {
  EXPECT_EQ(messageOf(verify(result.schedule)), "ok");
  EXPECT_EQ(messageOf(verify(insertTransfers(result.schedule))), "ok");
  size_t layers = 0;
  for (int count : result.cut) {
    EXPECT_GE(count, 1);
    layers += size_t(count);
  }
  EXPECT_EQ(layers, problem.layers.size());
  EXPECT_EQ(result.cut.size(), result.schedule.problem.virtualStages());
  EXPECT_TRUE(problem.memory.limit == 0 ||
              peakActivations(result.schedule) <=
                  problem.memory.limit * (1 + 1e-9));
  auto timeline = simulate(result.schedule, result.costs);
  EXPECT_TRUE(timeline.ok());
  EXPECT_GE(timeline->makespan, boundMakespan(problem));
  return timeline->makespan;
}

/// All lists of `actions` in which those of one chunk and microbatch are in the
/// order F, I, W and microbatches of a kind in theirs.
void listAll(std::vector<Action> left, std::vector<Action> &taken,
             const std::function<void(const std::vector<Action> &)> &visit) {
  if (left.empty())
    return visit(taken);
  for (size_t i = 0; i < left.size(); ++i) {
    bool isFirst = true;
    for (size_t j = 0; j < left.size(); ++j)
      isFirst &= !(left[j].chunk == left[i].chunk &&
                   ((left[j].kind < left[i].kind &&
                     left[j].microbatch == left[i].microbatch) ||
                    (left[j].kind == left[i].kind &&
                     left[j].microbatch < left[i].microbatch)));
    if (!isFirst)
      continue;
    std::vector<Action> rest = left;
    rest.erase(rest.begin() + long(i));
    taken.push_back(left[i]);
    listAll(rest, taken, visit);
    taken.pop_back();
  }
}

/// The least makespan of all orders of one cut and placement on two ranks.
double findLeastOrder(const Problem &shape, const StageSums &sums,
                      const MemoryModel &memory) {
  std::vector<std::vector<Action>> lists[2];
  for (uint32_t rank = 0; rank < 2; ++rank) {
    std::vector<Action> all, taken;
    for (uint32_t chunk = 0; chunk < shape.chunks; ++chunk)
      for (uint32_t m = 0; m < shape.microbatches; ++m)
        for (ActionKind kind : {ActionKind::Forward, ActionKind::BackwardInput,
                                ActionKind::BackwardWeight})
          all.push_back({kind, chunk, m});
    listAll(all, taken, [&](const std::vector<Action> &list) {
      Schedule one{shape, "", {{}, {}}, memory};
      one.memory.sizes = sums.activations;
      one.ranks[rank] = list;
      if (one.memory.allows(peakActivations(one, rank)))
        lists[rank].push_back(list);
    });
  }
  double least = 1e300;
  for (const std::vector<Action> &first : lists[0])
    for (const std::vector<Action> &second : lists[1]) {
      auto timeline = simulate({shape, "", {first, second}}, sums.costs);
      if (timeline.ok())
        least = std::min(least, timeline->makespan);
    }
  return least;
}

/// And of all cuts and placements with up to `mostChunks`.
double findLeast(const JointProblem &problem, uint32_t mostChunks) {
  double least = 1e300;
  for (uint32_t chunks = 1; chunks <= mostChunks; ++chunks)
    for (Placement placement : {Placement::RoundRobin, Placement::VShape}) {
      Problem shape{2, chunks, problem.microbatches, placement};
      std::vector<int> cut(shape.virtualStages(), 1);
      int layers = int(problem.layers.size());
      std::function<void(size_t, int)> fill = [&](size_t stage, int left) {
        if (stage + 1 == cut.size()) {
          cut[stage] = left;
          least = std::min(least, findLeastOrder(shape, sumStages(problem, cut),
                                                 problem.memory));
          return;
        }
        for (cut[stage] = 1; cut[stage] < left - int(cut.size() - stage) + 2;
             ++cut[stage])
          fill(stage + 1, left - cut[stage]);
      };
      fill(0, layers);
    }
  return least;
}

JointProblem drawProblem(std::mt19937 &random, uint32_t stages,
                         uint32_t microbatches, uint32_t layers) {
  JointProblem problem;
  problem.stages = stages;
  problem.microbatches = microbatches;
  auto draw = [&] { return 0.25 * double(1 + random() % 12); };
  problem.transfer = random() % 2 ? 0 : 0.25;
  for (uint32_t i = 0; i < layers; ++i)
    problem.layers.push_back({"layer", draw(), draw(), draw(), draw()});
  return problem;
}

// The bound holds, and the search finds the best there is, in memory too.
TEST(JointSearch, AgainstAllThereAre) {
  std::mt19937 random(7);
  double tightness = 0;
  int cases = 0;
  for (uint32_t draw = 0; draw < 24; ++draw) {
    bool isTwo = draw % 3 == 0; // chunks
    JointProblem problem =
        drawProblem(random, 2, isTwo ? 1 : 2, isTwo ? 4 + draw % 2 : 4);
    if (!isTwo)
      problem.chunks = 1;
    if (draw % 4 == 3) {
      double sum = 0;
      for (const Layer &layer : problem.layers)
        sum += layer.activation;
      problem.memory.limit = 0.75 * sum;
    }
    SCOPED_TRACE(draw);
    double least = findLeast(problem, isTwo ? 2 : 1);
    auto result = searchJointly(problem);
    if (least == 1e300) {
      EXPECT_FALSE(result.ok());
      continue;
    }
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_NEAR(checkResult(problem, *result), least, 1e-9 * least);
    EXPECT_LE(boundMakespan(problem), least);
    tightness += boundMakespan(problem) / least;
    ++cases;
  }
  EXPECT_GE(tightness, 0.8 * cases);
}

// As good as the named schedules where all layers are equal: anchors are those
// of PublishedTest.cpp.
TEST(JointSearch, EvenLayers) {
  JointProblem problem;
  problem.stages = 4;
  problem.microbatches = 8;
  problem.layers.assign(8, {"layer", 0.5, 0.5, 0.5, 0.5});
  auto result = searchJointly(problem);
  ASSERT_TRUE(result.ok());
  // ZB-V: m (F + I + W) and half a pipeline's fill.
  EXPECT_LE(checkResult(problem, *result), 25.5);
}

// A head of three layers' work: cutting by work alone is worse than by
// makespan.
TEST(JointSearch, NoWorseThanNamedSchedules) {
  JointProblem problem;
  problem.stages = 4;
  problem.microbatches = 8;
  problem.layers.assign(18, {"block", 2.7, 2.9, 2.1, 1});
  problem.layers.front() = {"embedding", 0.3, 0, 0.5, 0.2};
  problem.layers.back() = {"head", 6.5, 7.1, 5.8, 0.7};
  auto result = searchJointly(problem);
  ASSERT_TRUE(result.ok());
  double found = checkResult(problem, *result);
  for (const Generator &generator : getGenerators()) {
    if (generator.searches)
      continue;
    auto named = searchCut(problem, generator.name);
    ASSERT_TRUE(named.ok()) << generator.name;
    EXPECT_LE(found, checkResult(problem, *named) * (1 + 1e-9))
        << generator.name;
  }
  EXPECT_LE(found, 1.05 * boundMakespan(problem));
}

TEST(JointSearch, KeepsLimit) {
  JointProblem problem;
  problem.stages = 4;
  problem.microbatches = 12;
  problem.layers.assign(13, {"block", 1, 1.2, 0.8, 10});
  problem.layers.back() = {"head", 2, 2.1, 1.9, 3};
  double unlimited = checkResult(problem, *searchJointly(problem));
  problem.memory.limit = 100; // of 123 for one microbatch
  auto result = searchJointly(problem);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_GE(checkResult(problem, *result), unlimited * (1 - 1e-9));
}

/// The cut by work gives the first rank more than it can hold.
TEST(JointSearch, CutsAnOrderWithinTheLimit) {
  JointProblem problem;
  problem.stages = 3;
  problem.microbatches = 6;
  problem.transfer = 0.1;
  problem.layers.assign(7, {"block", 1, 1, 1, 1});
  problem.memory.limit = 5;
  auto found = searchJointly(problem);
  ASSERT_TRUE(found.ok()) << found.status().message();
  Schedule order = found->schedule;
  order.memory = {};
  auto cut = searchCut(problem, order);
  ASSERT_TRUE(cut.ok()) << cut.status().message();
  checkResult(problem, *cut);
  problem.memory.limit = 3;
  EXPECT_EQ(messageOf(searchCut(problem, order).status()),
            "no cut was found whose order holds at most 3 of "
            "activations on every rank");
}

TEST(JointSearch, Refuses) {
  JointProblem problem;
  problem.stages = 4;
  problem.microbatches = 2;
  problem.layers.assign(3, {"block", 1, 1, 1, 1});
  EXPECT_EQ(messageOf(searchJointly(problem).status()),
            "3 layers are fewer than the 4 virtual stages of 4 ranks");
  problem.layers.assign(4, {"block", 1, 1, 1, 1});
  problem.memory.limit = 0.5;
  EXPECT_EQ(messageOf(searchJointly(problem).status()),
            "no order was found that holds at most 0.5 of activations on every "
            "rank");
  problem.layers[2].backwardInput = -1;
  EXPECT_EQ(messageOf(searchJointly(problem).status()),
            "layer 'block': b is -1, expected 0 to 1e+12");
}

} // namespace
