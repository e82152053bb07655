//===- LearningRate.cpp - The learning rate of a step ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The schedules of the learning rate; LearningRate.h has their formulas and
// where they come from. A schedule is a function of how far the decay has got,
// and whether the decay ends with the run or begins after the warm-up.
//
//===----------------------------------------------------------------------===//

#include "LearningRate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <sstream>

using namespace plait;
using namespace plait::runtime;

namespace {

// What is left of the distance between peak and least rate.
double stay(double) { return 1; }
double fall(double progress) { return 1 - progress; }
double halfCosine(double progress) {
  return (1 + std::cos(std::numbers::pi * progress)) / 2;
}

struct Schedule {
  const char *name;
  double (*decay)(double progress);
  bool lastSteps; // decays in the last steps only
};
constexpr Schedule schedules[] = {{"constant", stay, false},
                                  {"linear", fall, false},
                                  {"cosine", halfCosine, false},
                                  {"wsd", halfCosine, true}};

/// Returns the length of WSD's decay where none is given: of the run's steps,
/// one in ten (Hägele et al. 2024, "Scaling Laws and Compute-Optimal Training
/// Beyond Fixed Training Durations": 10 to 20 % are as good as a cosine).
uint64_t decayOf(uint64_t steps) { return std::max<uint64_t>(1, steps / 10); }

/// Null for a name that is none.
const Schedule *findSchedule(const std::string &name) {
  const auto *found = std::ranges::find(schedules, name, &Schedule::name);
  return found == std::end(schedules) ? nullptr : found;
}

/// "--steps 12", or what the steps were counted from.
std::string describeSteps(const TrainOptions &options) {
  std::ostringstream text;
  if (options.epochs)
    text << "the " << options.steps << " steps of `epochs` " << *options.epochs;
  else
    text << "`steps` " << options.steps;
  return text.str();
}

/// Refuses what would silently have no effect, or another one than it says.
Status checkOptions(const TrainOptions &options, const Schedule &schedule) {
  bool isConstant = schedule.decay == stay;
  uint64_t warmup = options.warmupSteps;
  if (isConstant && (options.leastLearningRate > 0 || options.decaySteps))
    return fail(options.decaySteps ? "`decay-steps`" : "`min-lr`",
                " is of schedules that decay, `lr-schedule` is constant");
  if (options.leastLearningRate > options.learningRate)
    return fail("`min-lr` ", options.leastLearningRate, " is above `lr` ",
                options.learningRate);
  if (warmup > options.steps)
    return fail("`warmup-steps` ", warmup, " is more than ",
                describeSteps(options));
  uint64_t decay = LearningRate::decaySteps(options).value_or(options.steps);
  if (!schedule.lastSteps && decay < warmup)
    return fail("`decay-steps` ", decay, " is less than `warmup-steps` ",
                warmup, ", which are a part of it");
  if (schedule.lastSteps && decay > options.steps - warmup)
    return fail("`warmup-steps` ", warmup, " and `decay-steps` ", decay,
                " are together more than ", describeSteps(options));
  return Status::success();
}

} // namespace

std::vector<std::string> runtime::getScheduleNames() {
  std::vector<std::string> names;
  for (const Schedule &schedule : schedules)
    names.push_back(schedule.name);
  return names;
}

std::optional<uint64_t> LearningRate::decaySteps(const TrainOptions &options) {
  const Schedule *schedule = findSchedule(options.schedule);
  if (!schedule || schedule->decay == stay)
    return std::nullopt;
  return options.decaySteps.value_or(
      schedule->lastSteps ? decayOf(options.steps) : options.steps);
}

Result<LearningRate> LearningRate::create(const TrainOptions &options) {
  const Schedule *schedule = findSchedule(options.schedule);
  if (!schedule)
    return fail("the learning rate has no schedule '", options.schedule, "'");
  PLAIT_RETURN_IF_ERROR(checkOptions(options, *schedule));
  LearningRate rate;
  rate.follow(options);
  return rate;
}

/// All decisions are taken here, so that at() is arithmetic only.
void LearningRate::follow(const TrainOptions &options) {
  const Schedule &schedule = *findSchedule(options.schedule);
  uint64_t steps = decaySteps(options).value_or(options.steps);
  peak = options.learningRate;
  least = options.leastLearningRate;
  warmup = options.warmupSteps;
  decay = schedule.decay;
  end = schedule.lastSteps ? options.steps : steps;
  begin = schedule.lastSteps ? std::max(warmup, end - std::min(steps, end))
                             : warmup;
}

/// `begin` is also where WSD's plateau ends. `end` may be `begin`, or before
/// it: then the rate falls at once, and nothing is divided by zero.
double LearningRate::at(uint64_t step) const {
  uint64_t done = step - 1;
  if (done < warmup)
    return peak * (double(done) / double(warmup));
  if (done <= begin)
    return peak;
  double progress =
      done < end ? double(done - begin) / double(end - begin) : 1.0;
  return least + (peak - least) * decay(progress);
}
