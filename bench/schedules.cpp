//===- schedules.cpp - Time to build and to simulate schedules ------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every schedule on the six settings measured by Qi et al., "Zero Bubble
// Pipeline Parallelism" (ICLR 2024). A planner does this for thousands
// of candidates; one must stay under 5 ms.
//
//===----------------------------------------------------------------------===//

#include "plait/Schedule/Generators.h"

#include <benchmark/benchmark.h>

using namespace plait::schedule;

namespace {

struct Setting {
  uint32_t stages, microbatches;
  Costs costs; // of a rank, in milliseconds
};

const Setting settings[] = {
    {8, 24, {18.522, 18.086, 9.337, 0.601}},
    {8, 32, {18.513, 18.086, 9.331, 0.626}},
    {8, 64, {18.546, 18.097, 9.321, 0.762}},
    {16, 48, {11.347, 11.248, 8.132, 0.377}},
    {16, 64, {11.307, 11.254, 8.101, 0.379}},
    {16, 128, {11.325, 11.308, 8.109, 0.378}},
};

/// The schedule for a setting; `factor` times the memory of 1F1B, 0: no limit.
void buildAndSimulate(benchmark::State &state, const Generator &generator,
                      const Setting &setting, uint32_t factor) {
  uint32_t chunks = generator.minChunks;
  Problem problem{setting.stages, chunks, setting.microbatches};
  GeneratorOptions options;
  options.costs = perChunk(setting.costs, chunks);
  options.memory.limit = factor * setting.stages;
  double bubbleRate = 0;
  for (auto _ : state) {
    auto schedule = generate(generator.name, problem, options);
    auto timeline = simulate(*schedule, options.costs);
    benchmark::DoNotOptimize(bubbleRate = timeline->bubbleRate);
  }
  state.counters["bubble_rate"] = bubbleRate;
}

} // namespace

int main(int argc, char **argv) {
  for (const Generator &generator : getGenerators())
    for (const Setting &setting : settings) {
      bool searches = generator.searches;
      for (uint32_t factor = searches ? 1 : 0; factor <= 2 * searches;
           ++factor) {
        std::string name = std::string(generator.name) +
                           (searches ? "-" + std::to_string(factor) + "p" : "");
        name += "/" + std::to_string(setting.stages) + "/" +
                std::to_string(setting.microbatches);
        benchmark::RegisterBenchmark(name.c_str(), buildAndSimulate, generator,
                                     setting, factor)
            ->Unit(benchmark::kMillisecond);
      }
    }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
