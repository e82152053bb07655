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

static constexpr OptimizerOption kRateFactor = {
    "lr-factor", "RateFactor", 1,
    0,           kMost,        "learning rate, times the training's"};

static constexpr std::string_view kMoments[] = {"moment1", "moment2"};
static constexpr std::string_view kMomentum[] = {"momentum"};

#define PLAIT_OPTIMIZER(rule, name, granularity, states, rest, ...)            \
  static constexpr OptimizerOption k##rule##Options[] = {__VA_ARGS__};
#include "plait/Configuration/Optimizers.def"

static constexpr Optimizer kOptimizers[] = {
#define PLAIT_OPTIMIZER(rule, name, granularity, states, rest, ...)            \
  {name, #rule, states, k##rule##Options, Granularity::granularity, rest},
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
  return std::ranges::any_of(kOptimizers, [&](const Optimizer &optimizer) {
    return std::ranges::count(optimizer.states, name) > 0;
  });
}

const Optimizer *Optimizer::getRest() const {
  return rest.empty() ? nullptr : *findOptimizer(rest);
}

//===----------------------------------------------------------------------===//
// Options
//===----------------------------------------------------------------------===//

/// Whether `own` reads the numbers of a training by `main`.
static bool isTrainings(const Optimizer &own, const Optimizer &main) {
  return &own == &main || &own == main.getRest();
}

std::string plait::getScalarName(const Optimizer &own, const Optimizer &main,
                                 std::string_view scalar) {
  std::string name(isTrainings(own, main) ? "" : own.rule);
  return name.append(scalar);
}

std::string plait::getRateScalar(const Optimizer &own) {
  return std::string(own.rule).append(kRateFactor.scalar);
}

/// Returns "lion-beta1".
static std::string getOwnName(const Optimizer &own,
                              const OptimizerOption &option) {
  return std::string(own.name).append("-").append(option.name);
}

/// Adds what `own` reads in a training by `main`. What they call alike is one
/// option where `own` is the rest of `main`.
static void addOptions(std::vector<TrainingOption> &options,
                       const Optimizer &own, const Optimizer &main) {
  if (&own != &main)
    options.push_back({getOwnName(own, kRateFactor),
                       {},
                       &kRateFactor,
                       getRateScalar(own),
                       {}});
  bool isApart = !isTrainings(own, main);
  for (const OptimizerOption &option : own.options) {
    std::string name =
        isApart ? getOwnName(own, option) : std::string(option.name);
    if (std::ranges::count(options, name, &TrainingOption::name))
      continue;
    options.push_back({std::move(name),
                       isApart ? option.name : std::string_view(), &option,
                       getScalarName(own, main, option.scalar),
                       option.correction.empty()
                           ? std::string()
                           : getScalarName(own, main, option.correction)});
  }
}

std::vector<TrainingOption>
plait::getTrainingOptions(const Optimizer &main,
                          std::span<const Optimizer *const> others) {
  std::vector<TrainingOption> options;
  addOptions(options, main, main);
  if (const Optimizer *rest = main.getRest())
    addOptions(options, *rest, main);
  for (const Optimizer &own : kOptimizers) // in the order of help texts
    if (!isTrainings(own, main) && std::ranges::count(others, &own))
      addOptions(options, own, main);
  return options;
}

static std::vector<SharedOption> findOptions() {
  std::vector<SharedOption> found;
  auto add = [&](std::string name, std::string_view shared,
                 SharedOption::Reader reader) {
    auto known = std::ranges::find(found, name, &SharedOption::name);
    if (known == found.end())
      known = found.insert(known, {std::move(name), {}, shared});
    known->readers.push_back(reader);
  };
  for (const Optimizer &optimizer : kOptimizers)
    for (TrainingOption &option : getTrainingOptions(optimizer, {}))
      add(std::move(option.name), {}, {&optimizer, option.option});
  for (const Optimizer &optimizer : kOptimizers) {
    add(getOwnName(optimizer, kRateFactor), {},
        {&optimizer, &kRateFactor, /*isOfGroup=*/true});
    for (const OptimizerOption &option : optimizer.options)
      add(getOwnName(optimizer, option), option.name,
          {&optimizer, &option, /*isOfGroup=*/true});
  }
  return found;
}

const std::vector<SharedOption> &plait::getOptimizerOptions() {
  static const std::vector<SharedOption> options = findOptions();
  return options;
}

/// Scalars that optimizers share as a training's have one place, so that what a
/// function reads does not depend on whose it is. Behind them are those of
/// groups.
static std::vector<std::string> makeStepScalars() {
  // Plans have them in this order (enum Scalar in Plan.fbs).
  std::vector<std::string> names = {
      "LearningRate", "Beta1",       "Beta2",           "Epsilon",
      "WeightDecay",  "MaxGradNorm", "BiasCorrection1", "BiasCorrection2"};
  auto add = [&](std::string name) {
    if (!name.empty() && !std::ranges::count(names, name))
      names.push_back(std::move(name));
  };
  auto addAll = [&](const Optimizer &main,
                    std::span<const Optimizer *const> others) {
    for (TrainingOption &option : getTrainingOptions(main, others)) {
      add(std::move(option.scalar));
      add(std::move(option.correction));
    }
  };
  for (const Optimizer &optimizer : kOptimizers)
    addAll(optimizer, {});
  add(std::string(kStepNumber));
  std::vector<const Optimizer *> all;
  for (const Optimizer &optimizer : kOptimizers)
    all.push_back(&optimizer);
  for (const Optimizer &optimizer : kOptimizers)
    addAll(optimizer, all);
  return names;
}

const std::vector<std::string> &plait::getStepScalars() {
  static const std::vector<std::string> names = makeStepScalars();
  return names;
}

int plait::findStepScalar(std::string_view name) {
  const std::vector<std::string> &names = getStepScalars();
  auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? -1 : int(found - names.begin());
}
