//===- Optimizers.cpp - Table of optimizers -------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The table of optimizers: a name and the state slots of each. See Optimizers.h
// for what a row means, and where the arithmetic is.
//
//===----------------------------------------------------------------------===//

#include "plait/Configuration/Optimizers.h"

#include "plait/Configuration/Configuration.h"

using namespace plait;

static constexpr std::string_view kMoments[] = {"moment1", "moment2"};
static constexpr std::string_view kMomentum[] = {"momentum"};

static constexpr Optimizer kOptimizers[] = {
    {"adamw", kMoments}, {"sgd", kMomentum}, {"lion", kMomentum}};

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
