//===- Optimizers.cpp - Table of optimizers -------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The table of optimizers, made of the rows of Optimizers.def.
//
//===----------------------------------------------------------------------===//

#include "plait/Configuration/Optimizers.h"

#include "plait/Configuration/CompressionFacts.h"
#include "plait/Configuration/Compressors.h"
#include "plait/Configuration/Configuration.h"
#include "plait/Plan/Scalars.h"

#include <algorithm>

using namespace plait;

// A mean of the past leaves something of the present: below 1, which would
// leave nothing to correct the bias with.
static constexpr double kMostDecay = 0.999999;
static constexpr double kMost = 1e9;

static constexpr OptimizerOption kWeightDecay = {
    "weight-decay", "WeightDecay", 0.01, 0, kMost, "weight decay"};
static constexpr OptimizerOption kEpsilon = {
    "eps", "Epsilon", 1e-8, plan::kLeastEpsilon, kMost, "added to the divisor"};

static constexpr std::span<const std::string_view> kNothing;
static constexpr std::string_view kMoments[] = {"moment1", "moment2"};
static constexpr std::string_view kMomentum[] = {"momentum"};

#define PLAIT_OPTIMIZER(rule, name, granularity, states, matrixStates, ...)    \
  static constexpr OptimizerOption k##rule##Options[] = {__VA_ARGS__};
#include "plait/Configuration/Optimizers.def"

static constexpr Optimizer kOptimizers[] = {
#define PLAIT_OPTIMIZER(rule, name, granularity, states, matrixStates, ...)    \
  {name, states, k##rule##Options, Granularity::granularity, matrixStates},
#include "plait/Configuration/Optimizers.def"
};

std::span<const Optimizer> plait::getOptimizers() { return kOptimizers; }

/// A plan names its optimizer by text, and so does the command line; the
/// message lists what there is.
Result<const Optimizer *> plait::findOptimizer(std::string_view name) {
  std::vector<std::string> names;
  for (const Optimizer &optimizer : kOptimizers) {
    if (optimizer.name == name)
      return &optimizer;
    names.emplace_back(optimizer.name);
  }
  return fail("optimizer is \"", name, "\", expected ", joinChoices(names));
}

bool plait::isState(std::string_view name) {
  if (isCompressionState(name))
    return true;
  for (const Optimizer &optimizer : kOptimizers)
    for (auto states : {optimizer.states, optimizer.matrixStates})
      if (std::find(states.begin(), states.end(), name) != states.end())
        return true;
  return false;
}

static std::vector<SharedOption> findOptions() {
  std::vector<SharedOption> found;
  for (const Optimizer &optimizer : kOptimizers)
    for (const OptimizerOption &option : optimizer.options) {
      auto known = std::ranges::find(found, option.name, &SharedOption::name);
      if (known == found.end())
        known = found.insert(known, {option.name, {}});
      known->readers.push_back({&optimizer, &option});
    }
  return found;
}

const std::vector<SharedOption> &plait::getOptimizerOptions() {
  static const std::vector<SharedOption> options = findOptions();
  return options;
}

/// Scalars that optimizers share have one place, so that what a function reads
/// does not depend on whose it is.
static std::vector<std::string_view> makeStepScalars() {
  // Plans have them in this order (enum Scalar in Plan.fbs).
  std::vector<std::string_view> names = {
      "LearningRate", "Beta1",       "Beta2",           "Epsilon",
      "WeightDecay",  "MaxGradNorm", "BiasCorrection1", "BiasCorrection2"};
  auto add = [&](std::string_view name) {
    if (!name.empty() &&
        std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(name);
  };
  for (const Optimizer &optimizer : kOptimizers)
    for (const OptimizerOption &option : optimizer.options) {
      add(option.scalar);
      add(option.correction);
    }
  add(kStepNumber);
  return names;
}

const std::vector<std::string_view> &plait::getStepScalars() {
  static const std::vector<std::string_view> names = makeStepScalars();
  return names;
}

int plait::findStepScalar(std::string_view name) {
  const std::vector<std::string_view> &names = getStepScalars();
  auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? -1 : int(found - names.begin());
}
