//===- estimate.cpp - How long one estimate takes -------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A search asks for tens of thousands of estimates. Schedules are generated on
// the first call for a shape of pipeline, so that what is measured is every
// other call.
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/Estimate.h"
#include "TransformerWork.h"
#include "plait/Planner/Timeline.h"

#include <benchmark/benchmark.h>

using namespace plait;
using namespace plait::planner;

namespace {

struct Case {
  TransformerShape shape;
  Training training;
  Configuration configuration;
  const char *cluster = "";
};

} // namespace

static Case makeCase(int64_t layers, int64_t hidden, int64_t heads,
                     int64_t sequence, const char *cluster) {
  Case result;
  result.shape.layers = layers;
  result.shape.hidden = hidden;
  result.shape.heads = heads;
  result.shape.vocabulary = 51200;
  result.shape.sequence = result.training.sequence = sequence;
  result.cluster = cluster;
  return result;
}

static Case makeGpt2() {
  Case result = makeCase(12, 768, 12, 1024, "a100-80g:1x8");
  result.training.globalBatch = 512;
  result.configuration.mesh[Axis::DP] = 8;
  result.configuration.microBatch = 8;
  return result;
}

static Case makeGpt3() {
  Case result = makeCase(96, 12288, 96, 2048, "a100-80g:64x8");
  result.training.globalBatch = 1536;
  result.configuration.mesh[Axis::PP] = result.configuration.mesh[Axis::TP] = 8;
  result.configuration.mesh[Axis::DP] = 8;
  result.configuration.recompute = Recompute::Full;
  return result;
}

static Case makeLlama405() {
  Case result = makeCase(126, 16384, 128, 8192, "h100:2048x8");
  result.training.globalBatch = 2048;
  result.configuration.mesh[Axis::PP] = 16;
  result.configuration.mesh[Axis::TP] = 8;
  result.configuration.mesh[Axis::DP] = 128;
  result.configuration.sequenceParallel = true;
  result.configuration.zero = 2;
  return result;
}

static Case withSchedule(Case result, const char *schedule, int chunks) {
  result.configuration.schedule = schedule;
  result.configuration.chunks = chunks;
  return result;
}

static void runEstimate(benchmark::State &state, const Case &given) {
  Work work =
      buildTransformerWork(given.shape, given.configuration.mesh[Axis::TP],
                           given.configuration.sequenceParallel);
  Cluster cluster = *parseCluster(given.cluster);
  for (auto _ : state) {
    auto result = estimate(work, cluster, given.training, given.configuration);
    if (!result.ok())
      state.SkipWithError(result.status().message().c_str());
    benchmark::DoNotOptimize(result);
  }
}

static void runTimeline(benchmark::State &state, const Case &given) {
  Work work =
      buildTransformerWork(given.shape, given.configuration.mesh[Axis::TP],
                           given.configuration.sequenceParallel);
  Cluster cluster = *parseCluster(given.cluster);
  for (auto _ : state) {
    auto result =
        simulateTimeline(work, cluster, given.training, given.configuration);
    if (!result.ok())
      state.SkipWithError(result.status().message().c_str());
    benchmark::DoNotOptimize(result);
  }
}

BENCHMARK_CAPTURE(runEstimate, gpt2_dp8, makeGpt2());
BENCHMARK_CAPTURE(runEstimate, gpt3_tp8_pp8_dp8, makeGpt3());
BENCHMARK_CAPTURE(runEstimate, gpt3_interleaved,
                  withSchedule(makeGpt3(), "interleaved-1f1b", 4));
BENCHMARK_CAPTURE(runEstimate, gpt3_zb_h1,
                  withSchedule(makeGpt3(), "zb-h1", 1));
BENCHMARK_CAPTURE(runEstimate, llama405_tp8_pp16_dp128, makeLlama405());
BENCHMARK_CAPTURE(runTimeline, gpt3_tp8_pp8_dp8, makeGpt3());

BENCHMARK_MAIN();
