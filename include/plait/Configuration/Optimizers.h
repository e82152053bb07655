//===- Optimizers.h - Table of optimizers -----------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The facts of each optimizer that planner, compiler, plan and help ask for.
// What it does to a parameter is written in a file of its own in
// lib/Transforms/Gradients/Optimizers: a new one is a row of Optimizers.def and
// a file there. What a run may set, and within which bounds, is copied into the
// plan: the runtime reads it there and knows no optimizer by name.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_CONFIGURATION_OPTIMIZERS_H
#define PLAIT_CONFIGURATION_OPTIMIZERS_H

#include "plait/Support/Status.h"

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace plait {

/// A number that a run may set. The strings are literals and live for ever.
struct OptimizerOption {
  std::string_view name;   // as plait-run has it, without the dashes
  std::string_view scalar; // as `nn.step_scalar` has it
  double value;            // where the run does not set it
  double least, most;
  std::string_view help;
  /// The scalar that is 1 - value^t in the t-th update; empty: none.
  std::string_view correction = {};
};

/// How much of a parameter an update needs: an element at a time, so that ranks
/// may divide a parameter anywhere, or whole matrices where a parameter is one.
enum class Granularity { Element, Matrix };

/// One optimizer. The strings are literals and live for ever.
struct Optimizer {
  std::string_view name; // as --optimizer has it
  /// The tensors that it keeps of a parameter which it updates by elements, by
  /// the names of their slots in IR, plan and checkpoint: fp32, of the
  /// parameter's shape, zero at the start of a run, divided among ranks as the
  /// reduced gradient is.
  std::span<const std::string_view> states;
  std::span<const OptimizerOption> options;
  Granularity granularity = Granularity::Element;
  /// Likewise, of a parameter which it updates as a matrix.
  std::span<const std::string_view> matrixStates = {};

  bool updatesMatrices() const { return granularity == Granularity::Matrix; }
  /// Returns what it keeps of a parameter.
  std::span<const std::string_view> getStates(bool isMatrix) const {
    return isMatrix && updatesMatrices() ? matrixStates : states;
  }
  /// Returns the bytes of the states for each element of a parameter.
  uint64_t getStateBytes(bool isMatrix = false) const {
    return getStates(isMatrix).size() * sizeof(float);
  }
};

/// All of them, in the order in which help texts list them.
std::span<const Optimizer> getOptimizers();

/// The row called `name`, or a failure that lists the names there are.
Result<const Optimizer *> findOptimizer(std::string_view name);

/// An option of one name, and what it is to each optimizer that reads it.
struct SharedOption {
  struct Reader {
    const Optimizer *optimizer;
    const OptimizerOption *option;
  };
  std::string_view name;
  std::vector<Reader> readers; // at least one
};

/// The options of all optimizers, in the order in which help texts list them.
const std::vector<SharedOption> &getOptimizerOptions();

/// Whether some optimizer keeps a tensor called `name`.
bool isState(std::string_view name);

/// The names of all numbers that a step is given, in the order in which they
/// lie in memory. The first ones are those of enum Scalar in Plan.fbs.
const std::vector<std::string_view> &getStepScalars();

/// The index of a name among them, or -1.
int findStepScalar(std::string_view name);

} // namespace plait

#endif // PLAIT_CONFIGURATION_OPTIMIZERS_H
