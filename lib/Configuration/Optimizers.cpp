//===- Optimizers.cpp - Table of optimizers -------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The table of optimizers: names, states and options of each. See Optimizers.h
// for what a row means, and where the arithmetic is.
//
//===----------------------------------------------------------------------===//

#include "plait/Configuration/Optimizers.h"

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

static constexpr OptimizerOption kAdamWOptions[] = {
    {"beta1", "Beta1", 0.9, 0, kMostDecay, "first decay", "BiasCorrection1"},
    {"beta2", "Beta2", 0.999, 0, kMostDecay, "second decay", "BiasCorrection2"},
    kEpsilon,
    kWeightDecay};

static constexpr OptimizerOption kSGDOptions[] = {
    {"beta1", "Beta1", 0.9, 0, kMostDecay, "momentum"},
    {"weight-decay", "WeightDecay", 0.01, 0, kMost,
     "weight decay, part of the gradient"}};

static constexpr OptimizerOption kLionOptions[] = {
    {"beta1", "Beta1", 0.9, 0, kMostDecay, "decay of what is followed"},
    {"beta2", "Beta2", 0.999, 0, kMostDecay, "decay of what is kept"},
    kWeightDecay};

// Matrices have momentum, all else is AdamW's.
static constexpr OptimizerOption kMuonOptions[] = {
    {"momentum", "Momentum", 0.95, 0, kMostDecay, "momentum of matrices"},
    {"adamw-lr-factor", "AdamWRateFactor", 1, 0, kMost,
     "learning rate of what is no matrix, times --lr"},
    {"beta1", "Beta1", 0.9, 0, kMostDecay, "first decay of what is no matrix",
     "BiasCorrection1"},
    {"beta2", "Beta2", 0.999, 0, kMostDecay,
     "second decay of what is no matrix", "BiasCorrection2"},
    kEpsilon,
    kWeightDecay};

static constexpr std::string_view kMoments[] = {"moment1", "moment2"};
static constexpr std::string_view kMomentum[] = {"momentum"};

static constexpr Optimizer kOptimizers[] = {
    {"adamw", kMoments, kAdamWOptions},
    {"sgd", kMomentum, kSGDOptions},
    {"lion", kMomentum, kLionOptions},
    {"muon", kMoments, kMuonOptions, Granularity::Matrix, kMomentum},
    {"muon-match-rms", kMoments, kMuonOptions, Granularity::Matrix, kMomentum}};

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
  for (const Optimizer &optimizer : kOptimizers)
    for (auto states : {optimizer.states, optimizer.matrixStates})
      if (std::find(states.begin(), states.end(), name) != states.end())
        return true;
  return false;
}

/// What optimizers share has one place, so that what a function reads does not
/// depend on whose it is.
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
