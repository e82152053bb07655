//===- Console.cpp - A run for those who watch ----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Console.h"

#include "Controls.h"
#include "plait/Plan/Container.h"

#include <cstdio>
#include <unistd.h>

using namespace plait;
using namespace plait::runtime;

Status Console::beginRun(const RunInfo &info) {
  run = &info;
  std::fprintf(stderr, "proof of the plan: %s\n",
               plan::describeProof(info.plan).c_str());
  start = std::chrono::steady_clock::now();
  return Status::success();
}

double Console::elapsed() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

/// ", 1234.5 tokens/s, 12.3 GFLOP/s, MFU 5.3 %".
std::string Console::printSpeed() const {
  double seconds = elapsed();
  char text[64];
  std::snprintf(text, sizeof(text), ", %.1f tokens/s", tokens / seconds);
  return text + run->utilization.print(seconds / double(steps));
}

Status Console::endStep(const StepReport &step) {
  ++steps;
  tokens += at(step.metrics, fb::Metric::TokenCount);
  loss = at(step.metrics, fb::Metric::Loss);
  if (!isatty(STDERR_FILENO))
    return Status::success();
  uint64_t last = run->options.steps;
  double left = elapsed() / double(steps) * double(last - step.step);
  std::fprintf(stderr, "\rstep %llu/%llu, loss %.4f%s, %.0f s left   ",
               static_cast<unsigned long long>(step.step),
               static_cast<unsigned long long>(last), loss,
               printSpeed().c_str(), left);
  if (step.step == last)
    std::fputc('\n', stderr);
  return Status::success();
}

Status Console::endRun(const RunState &state) {
  std::FILE *out = run->options.summary;
  std::fprintf(out, "%llu ", static_cast<unsigned long long>(state.step));
  if (state.step < run->options.steps)
    std::fprintf(out, "of %llu ",
                 static_cast<unsigned long long>(run->options.steps));
  std::fprintf(out, "steps, loss %.6f%s, arena bytes", loss,
               printSpeed().c_str());
  for (const fb::Program *program : *run->plan.programs())
    std::fprintf(out, " %llu",
                 static_cast<unsigned long long>(program->arena_bytes()));
  std::fprintf(out, "\n");
  return Status::success();
}
